//! How does a [`Batch`] travel to another process?
//!
//! As flat arrays of little-endian numbers: thirteen lengths, then the arrays in the order of the fields. The bytes come from a socket, so
//! they are input like any other. Invariant: a batch that [`BatchDecoder::decode`] accepts fits into [`BatchBounds`] in every number,
//! so that it can be computed without a further check, and nothing is allocated for bytes that claim more than these bounds.

use compute::batch::{
    Batch, BatchLimits, BlockCopy, FROM_PREVIOUS, LogitBias, MAX_LOGPROBS, NO_MASK, NO_STATE, NO_TOKEN, PoolKind,
    PooledRange, Sampling, StateCopy, StateSlot, WindowTable,
};

/// What the numbers of a batch may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchBounds {
    /// The largest batch.
    pub limits: BatchLimits,
    /// Blocks of the KV cache.
    pub num_blocks: usize,
    /// Slots of recurrent states; 0 where the model keeps none.
    pub num_states: usize,
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// Passes that may be in flight at once; only with more than one may a token be [`FROM_PREVIOUS`].
    pub depth: usize,
}

/// Lengths at the front of a batch, each of four bytes.
const LENGTHS: usize = 13;
/// Bytes of a [`Sampling`], of an [`LogitBias`] and of a [`BlockCopy`].
const SAMPLING_BYTES: usize = 80;
const ADJUSTMENT_BYTES: usize = 12;
const COPY_BYTES: usize = 8;

impl BatchBounds {
    /// Words of a mask over the vocabulary.
    fn mask_words(&self) -> usize {
        self.vocab_size.div_ceil(32)
    }

    /// Tokens that a sequence can have: limited by its length, and by the blocks that there are.
    fn positions(&self) -> usize {
        self.limits.model_len.min(self.num_blocks.saturating_mul(self.limits.block_size))
    }

    /// The lengths of the largest batch, in the order in which they are written.
    fn lengths(&self) -> [(&'static str, usize); LENGTHS] {
        let BatchLimits { tokens, rows, .. } = self.limits;
        [
            ("tokens", tokens),
            ("rows", rows),
            ("entries of a block table", self.limits.table_width()),
            ("samples", self.limits.samples()),
            ("adjustments", rows.saturating_mul(self.vocab_size)),
            ("words of masks", rows.saturating_mul(self.mask_words())),
            ("pooled rows", self.limits.pooled_rows()),
            // Each goes to a block of a sequence that runs.
            ("copies of blocks", self.num_blocks.min(rows.saturating_mul(self.limits.table_width()))),
            ("rows with a state", if self.num_states > 0 { rows } else { 0 }),
            ("copies of states", if self.num_states > 0 { rows } else { 0 }),
            ("block tables besides the first", self.limits.window_tables),
            ("types of tokens", if self.limits.whole_rows { tokens } else { 0 }),
            ("pooled ranges", self.limits.pooled_ranges()),
        ]
    }

    /// Bytes of the largest batch.
    pub fn max_bytes(&self) -> usize {
        bytes_of(&self.lengths().map(|(_, len)| len))
    }
}

/// Bytes of a batch with these lengths.
fn bytes_of(lengths: &[usize; LENGTHS]) -> usize {
    let &[
        tokens,
        rows,
        table_width,
        samples,
        adjustments,
        masks,
        pooled,
        copies,
        states,
        state_copies,
        tables,
        types,
        ranges,
    ] = lengths;
    // Of each row where its state is read and left, of each token where it is kept besides.
    let saves = if states > 0 { tokens } else { 0 };
    let entries = rows.saturating_mul(table_width);
    let windowed = tables.saturating_mul(tokens.saturating_add(entries));
    let arrays = [tokens.saturating_mul(3), rows + 1, rows, entries, samples, masks, pooled];
    let others = [LENGTHS, states.saturating_mul(2), saves, windowed, types, ranges.saturating_mul(3)];
    let words = arrays.into_iter().chain(others);
    let words = words.fold(0, usize::saturating_add);
    let copies = copies.saturating_add(state_copies);
    [(words, 4), (samples, SAMPLING_BYTES), (adjustments, ADJUSTMENT_BYTES), (copies, COPY_BYTES)]
        .into_iter()
        .fold(0, |sum: usize, (count, bytes)| sum.saturating_add(count.saturating_mul(bytes)))
}

/// Bytes of the largest batch that changes no logits.
pub fn bytes_of_plain(limits: &BatchLimits) -> usize {
    let BatchLimits { tokens, rows, window_tables, .. } = *limits;
    let copies = rows * (1 + window_tables);
    let (samples, pooled) = (limits.samples(), limits.pooled_rows());
    let (types, ranges) = (if limits.whole_rows { tokens } else { 0 }, limits.pooled_ranges());
    let width = limits.table_width();
    bytes_of(&[tokens, rows, width, samples, 0, 0, pooled, copies, rows, rows, window_tables, types, ranges])
}

/// Appends `batch` to `to`, which allocates nothing once it has held a batch as large.
pub fn encode(batch: &Batch, to: &mut Vec<u8>) {
    let Batch {
        token_ids,
        positions,
        token_types,
        slots,
        row_starts,
        context_lens,
        block_tables,
        table_width,
        window_tables,
        sampled_tokens,
        sampling,
        adjustments,
        masks,
        pooled_tokens,
        pooled_ranges,
        copies,
        state_sources,
        state_slots,
        state_saves,
        state_copies,
    } = batch;
    let lengths = [
        token_ids.len(),
        context_lens.len(),
        *table_width,
        sampled_tokens.len(),
        adjustments.len(),
        masks.len(),
        pooled_tokens.len(),
        copies.len(),
        state_slots.len(),
        state_copies.len(),
        window_tables.len(),
        token_types.len(),
        pooled_ranges.len(),
    ];
    to.reserve(bytes_of(&lengths));
    put(to, &lengths.map(|len| len as u32));
    let arrays = [token_ids, positions, slots, row_starts, context_lens, block_tables, sampled_tokens];
    arrays.into_iter().for_each(|array| put(to, array));
    sampling.iter().for_each(|sampling| put_sampling(to, sampling));
    for LogitBias { token, uses, bias } in adjustments {
        put(to, &[*token, *uses, bias.to_bits()]);
    }
    put(to, masks);
    put(to, pooled_tokens);
    for BlockCopy { from, to: target } in copies {
        put(to, &[*from, *target]);
    }
    [state_sources, state_slots, state_saves].into_iter().for_each(|array| put(to, array));
    for StateCopy { from, to: target } in state_copies {
        put(to, &[*from, *target]);
    }
    for WindowTable { slots, block_tables } in window_tables {
        put(to, slots);
        put(to, block_tables);
    }
    put(to, token_types);
    for PooledRange { first, end, kind } in pooled_ranges {
        put(to, &[*first, *end, *kind as u32]);
    }
}

fn put(to: &mut Vec<u8>, values: &[u32]) {
    to.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

fn put_sampling(to: &mut Vec<u8>, sampling: &Sampling) {
    let Sampling {
        temperature,
        top_p,
        min_p,
        top_k,
        seed,
        stream,
        position,
        adjusted_start,
        adjusted_end,
        repetition_penalty,
        presence_penalty,
        frequency_penalty,
        awaited,
        mask,
        forced,
        logprobs,
        top_n_sigma,
        xtc_threshold,
    } = *sampling;
    put(to, &[temperature, top_p, min_p].map(f32::to_bits));
    put(to, &[top_k]);
    to.extend([seed, stream].into_iter().flat_map(u64::to_le_bytes));
    put(to, &[position, adjusted_start, adjusted_end]);
    put(to, &[repetition_penalty, presence_penalty, frequency_penalty].map(f32::to_bits));
    put(to, &[awaited, mask, forced, logprobs]);
    put(to, &[top_n_sigma, xtc_threshold].map(f32::to_bits));
}

/// Decodes batches of one engine.
pub struct BatchDecoder {
    bounds: BatchBounds,
    /// The slots of a batch in ascending order.
    sorted_slots: Vec<u32>,
    /// The states that its rows write, in ascending order.
    sorted_states: Vec<StateSlot>,
}

/// Why bytes are no batch, as the end of a sentence.
pub type Refused = String;

impl BatchDecoder {
    /// A decoder of batches within `bounds`.
    pub fn new(bounds: BatchBounds) -> BatchDecoder {
        BatchDecoder { bounds, sorted_slots: Vec::new(), sorted_states: Vec::new() }
    }

    /// Reads what [`encode`] wrote into `batch`, whose memory is used again. After an error its content is not defined.
    ///
    /// # Errors
    ///
    /// What is wrong with the bytes.
    pub fn decode(&mut self, bytes: &[u8], batch: &mut Batch) -> Result<(), Refused> {
        let mut from = Numbers(bytes);
        let lengths = self.lengths(bytes, &mut from)?;
        let [
            tokens,
            rows,
            table_width,
            samples,
            adjustments,
            masks,
            pooled,
            copies,
            states,
            state_copies,
            tables,
            types,
            ranges,
        ] = lengths;
        batch.clear();
        from.take(tokens, &mut batch.token_ids);
        from.take(tokens, &mut batch.positions);
        from.take(tokens, &mut batch.slots);
        batch.row_starts.clear();
        from.take(rows + 1, &mut batch.row_starts);
        from.take(rows, &mut batch.context_lens);
        from.take(rows * table_width, &mut batch.block_tables);
        batch.table_width = table_width;
        from.take(samples, &mut batch.sampled_tokens);
        batch.sampling.extend((0..samples).map(|_| from.sampling()));
        batch.adjustments.extend((0..adjustments).map(|_| {
            let [token, uses, bias] = from.words();
            LogitBias { token, uses, bias: f32::from_bits(bias) }
        }));
        from.take(masks, &mut batch.masks);
        from.take(pooled, &mut batch.pooled_tokens);
        batch.copies.extend((0..copies).map(|_| {
            let [from, to] = from.words();
            BlockCopy { from, to }
        }));
        from.take(states, &mut batch.state_sources);
        from.take(states, &mut batch.state_slots);
        from.take(if states > 0 { tokens } else { 0 }, &mut batch.state_saves);
        batch.state_copies.extend((0..state_copies).map(|_| {
            let [from, to] = from.words();
            StateCopy { from, to }
        }));
        batch.window_tables.resize_with(tables, WindowTable::default);
        for table in &mut batch.window_tables {
            from.take(tokens, &mut table.slots);
            from.take(rows * table_width, &mut table.block_tables);
        }
        from.take(types, &mut batch.token_types);
        for _ in 0..ranges {
            let [first, end, kind] = from.words();
            let kind = PoolKind::ALL.get(kind as usize);
            let kind = *kind.ok_or("the kind of a pooled range is out of range")?;
            batch.pooled_ranges.push(PooledRange { first, end, kind });
        }
        self.check_whole_rows(batch)?;
        self.check_states(batch)?;
        self.check_rows(batch)?;
        self.check_slots(batch)?;
        self.check_samples(batch)
    }

    fn lengths(&self, bytes: &[u8], from: &mut Numbers) -> Result<[usize; LENGTHS], Refused> {
        if bytes.len() < 4 * LENGTHS {
            return Err(format!("it has {} bytes, which are fewer than those of its lengths", bytes.len()));
        }
        let lengths = from.words::<LENGTHS>().map(|len| len as usize);
        for (len, (what, max)) in lengths.iter().zip(self.bounds.lengths()) {
            at_most(what, *len, max)?;
        }
        match bytes_of(&lengths) {
            wanted if wanted == bytes.len() => Ok(lengths),
            wanted => Err(format!("it has {} bytes, but its lengths add up to {wanted}", bytes.len())),
        }
    }

    /// Checks the rows, their positions and the blocks that they read.
    fn check_rows(&self, batch: &Batch) -> Result<(), Refused> {
        let BatchBounds { num_blocks, vocab_size, depth, limits, .. } = self.bounds;
        let samples = if depth > 1 { limits.samples() } else { 0 };
        let is_token = |token: u32| match token & FROM_PREVIOUS {
            0 => (token as usize) < vocab_size,
            _ => ((token & !FROM_PREVIOUS) as usize) < samples,
        };
        all("token", &batch.token_ids, is_token)?;
        if batch.window_tables.len() != limits.window_tables {
            return Err(format!("it has {} block tables besides the first", batch.window_tables.len()));
        }
        let windowed = batch.window_tables.iter().map(|table| &table.block_tables);
        for table in [&batch.block_tables].into_iter().chain(windowed) {
            all("block", table, |block| (block as usize) < num_blocks)?;
        }
        let starts = &batch.row_starts;
        let ascends = starts.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascends || starts.first() != Some(&0) || starts.last().map(|end| *end as usize) != Some(batch.tokens()) {
            return Err("its rows do not divide its tokens".to_owned());
        }
        let positions = self.bounds.positions().min(batch.table_width * limits.block_size);
        for row in 0..batch.rows() {
            let (tokens, context) = (batch.row(row), batch.context_lens[row] as usize);
            at_most("tokens of a sequence", context, positions)?;
            let Some(first) = context.checked_sub(tokens.len()) else {
                return Err(format!("a row has {} new tokens in a context of {context}", tokens.len()));
            };
            let are_consecutive = (first..).zip(&batch.positions[tokens]).all(|(at, found)| at == *found as usize);
            if !are_consecutive {
                return Err("the positions of a row are not those of the end of its context".to_owned());
            }
        }
        for BlockCopy { from, to } in &batch.copies {
            all("block of a copy", &[*from, *to], |block| (block as usize) < num_blocks)?;
        }
        Ok(())
    }

    /// Checks what only batches have whose rows bring all of their tokens.
    fn check_whole_rows(&self, batch: &Batch) -> Result<(), Refused> {
        if batch.token_types.len() != if self.bounds.limits.whole_rows { batch.tokens() } else { 0 } {
            return Err(format!("{} of its {} tokens have a type", batch.token_types.len(), batch.tokens()));
        }
        all("type of a token", &batch.token_types, |kind| kind <= 1)?;
        let is_range = |range: &PooledRange| range.first < range.end && range.end as usize <= batch.tokens();
        match batch.pooled_ranges.iter().all(is_range) {
            true => Ok(()),
            false => Err("a pooled range is out of range".to_owned()),
        }
    }

    /// Checks where keys and values are stored: no two tokens write the same memory.
    fn check_slots(&mut self, batch: &Batch) -> Result<(), Refused> {
        let slots = self.bounds.num_blocks * self.bounds.limits.block_size;
        self.sorted_slots.clone_from(&batch.slots);
        batch.window_tables.iter().for_each(|table| self.sorted_slots.extend_from_slice(&table.slots));
        all("slot", &self.sorted_slots, |slot| (slot as usize) < slots)?;
        self.sorted_slots.sort_unstable();
        match self.sorted_slots.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(()),
            Some(pair) => Err(format!("two of its tokens have slot {}", pair[0])),
        }
    }

    /// Checks which recurrent states are read and written: no two rows write the same one, and none reads what another one writes.
    fn check_states(&mut self, batch: &Batch) -> Result<(), Refused> {
        let num_states = self.bounds.num_states;
        if batch.state_slots.len() != if num_states > 0 { batch.rows() } else { 0 } {
            return Err(format!("{} of its {} rows have a state", batch.state_slots.len(), batch.rows()));
        }
        let is_state = |slot: StateSlot| (slot as usize) < num_states;
        all("state", &batch.state_slots, is_state)?;
        for slots in [&batch.state_sources, &batch.state_saves] {
            all("state", slots, |slot| slot == NO_STATE || is_state(slot))?;
        }
        for StateCopy { from, to } in &batch.state_copies {
            all("state of a copy", &[*from, *to], is_state)?;
        }
        self.sorted_states.clone_from(&batch.state_slots);
        self.sorted_states.extend(batch.state_saves.iter().filter(|&&slot| slot != NO_STATE));
        self.sorted_states.sort_unstable();
        if let Some(pair) = self.sorted_states.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("state {} is written twice", pair[0]));
        }
        let is_written = |slot: StateSlot| self.sorted_states.binary_search(&slot).is_ok();
        let mut rows = batch.state_sources.iter().zip(&batch.state_slots);
        match rows.find(|&(&source, &slot)| source != slot && is_written(source)) {
            None => Ok(()),
            Some((source, _)) => Err(format!("state {source} is read by one row and written by another")),
        }
    }

    /// Checks what is sampled, and how.
    fn check_samples(&self, batch: &Batch) -> Result<(), Refused> {
        let BatchBounds { vocab_size, .. } = self.bounds;
        for (what, tokens) in [("sampled token", &batch.sampled_tokens), ("pooled token", &batch.pooled_tokens)] {
            all(what, tokens, |token| (token as usize) < batch.tokens())?;
            if !tokens.is_sorted() {
                return Err(format!("a {what} is not in ascending order"));
            }
        }
        for LogitBias { token, bias, .. } in &batch.adjustments {
            all("adjusted token", &[*token], |token| (token as usize) < vocab_size)?;
            is_true("bias", !bias.is_nan())?;
        }
        for sampling in &batch.sampling {
            self.check_sampling(sampling, batch)?;
        }
        Ok(())
    }

    fn check_sampling(&self, sampling: &Sampling, batch: &Batch) -> Result<(), Refused> {
        let BatchBounds { vocab_size, limits, depth, .. } = self.bounds;
        let in_mask = |mask: u32| (mask as usize).checked_add(self.bounds.mask_words());
        let is_mask = sampling.mask == NO_MASK || in_mask(sampling.mask).is_some_and(|end| end <= batch.masks.len());
        let is_awaited = |token: u32| {
            depth > 1 && token & FROM_PREVIOUS != 0 && ((token & !FROM_PREVIOUS) as usize) < limits.samples()
        };
        let penalties = [sampling.presence_penalty, sampling.frequency_penalty];
        let adjusted = sampling.adjusted();
        for (what, holds) in [
            ("temperature", sampling.temperature.is_finite() && sampling.temperature >= 0.0),
            ("top_p", sampling.top_p > 0.0 && sampling.top_p <= 1.0),
            ("min_p", sampling.min_p >= 0.0 && sampling.min_p <= 1.0),
            ("top_n_sigma", sampling.top_n_sigma.is_finite()),
            ("xtc_threshold", sampling.xtc_threshold >= 0.0 && sampling.xtc_threshold <= 0.5),
            ("repetition_penalty", sampling.repetition_penalty.is_finite() && sampling.repetition_penalty > 0.0),
            ("presence_penalty or frequency_penalty", penalties.iter().all(|penalty| penalty.is_finite())),
            ("range of adjustments", adjusted.start <= adjusted.end && adjusted.end <= batch.adjustments.len()),
            ("mask", is_mask),
            ("forced token", sampling.forced == NO_TOKEN || (sampling.forced as usize) < vocab_size),
            ("awaited token", sampling.awaited == NO_TOKEN || is_awaited(sampling.awaited)),
            ("number of logprobs", sampling.logprobs as usize <= MAX_LOGPROBS + 1),
        ] {
            is_true(what, holds)?;
        }
        Ok(())
    }
}

fn at_most(what: &str, found: usize, max: usize) -> Result<(), Refused> {
    if found <= max { Ok(()) } else { Err(format!("it has {found} {what}, but there may be {max}")) }
}

fn all(what: &str, values: &[u32], is_valid: impl Fn(u32) -> bool) -> Result<(), Refused> {
    match values.iter().find(|value| !is_valid(**value)) {
        None => Ok(()),
        Some(value) => Err(format!("its {what} {value} is out of range")),
    }
}

fn is_true(what: &str, holds: bool) -> Result<(), Refused> {
    if holds { Ok(()) } else { Err(format!("the {what} of a sample is out of range")) }
}

/// The rest of the bytes, of which there are as many as the lengths say.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (first, rest) = self.0.split_first_chunk().expect("the lengths were compared with the bytes");
        self.0 = rest;
        *first
    }

    fn words<const N: usize>(&mut self) -> [u32; N] {
        std::array::from_fn(|_| u32::from_le_bytes(self.bytes()))
    }

    fn take(&mut self, len: usize, to: &mut Vec<u32>) {
        let (array, rest) = self.0.split_at(4 * len);
        self.0 = rest;
        let words = array.as_chunks().0;
        to.extend(words.iter().map(|word| u32::from_le_bytes(*word)));
    }

    fn sampling(&mut self) -> Sampling {
        let [temperature, top_p, min_p] = self.words().map(f32::from_bits);
        let [top_k] = self.words();
        let [seed, stream] = std::array::from_fn(|_| u64::from_le_bytes(self.bytes()));
        let [position, adjusted_start, adjusted_end] = self.words();
        let [repetition_penalty, presence_penalty, frequency_penalty] = self.words().map(f32::from_bits);
        let [awaited, mask, forced, logprobs] = self.words();
        let [top_n_sigma, xtc_threshold] = self.words().map(f32::from_bits);
        Sampling {
            temperature,
            top_p,
            min_p,
            top_k,
            seed,
            stream,
            position,
            adjusted_start,
            adjusted_end,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            awaited,
            mask,
            forced,
            logprobs,
            top_n_sigma,
            xtc_threshold,
        }
    }
}

#[cfg(test)]
mod tests;
