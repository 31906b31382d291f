//! A runner without a model, for tests of the engine: its next token depends on everything a row attends to.
//!
//! Keys and values are simulated by one number a slot, which digests the token there and, through the row's block table,
//! the number of the position before it. So a block that is shared wrongly, reused too early, left out or written at a
//! wrong position changes tokens. Its logits are drawn from that number, and all else follows from them by the rules of
//! `Sampling`, filters excepted. What a batch must be by its documentation is asserted.
#![allow(dead_code)]

pub mod beams;
pub mod oracle;

use base::TokenId;
use base::error::{Error, Result};
use compute::batch::{
    Batch, BatchLimits, BlockId, FROM_PREVIOUS, LogitBias, MAX_LOGPROBS, NO_MASK, NO_STATE, NO_TOKEN, Sampled,
    Sampling, StateSlot,
};
use compute::{KvFormat, KvShape, KvValues, Windowed};
use engine::sampling_params::SamplingParams;
use formats::DType;
use runner::{Device, Loaded, ModelInfo, Runner, StateInfo};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The size of a fake model.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub limits: BatchLimits,
    pub blocks: usize,
    pub vocab: usize,
    /// Stages of a pass; with a deadline each call makes one, so that a pass is cut as often as it can be.
    pub stages: usize,
    /// Passes that may be in flight at once.
    pub depth: usize,
    /// Tokens that a token attends to at most, 2 or more: what a slot holds depends on the slot before it.
    pub window: Option<usize>,
    /// Block tables of layers with a window, in which each slot holds what that of the first table does.
    pub windowed: Option<Windowed>,
    /// Slots of recurrent state, and tokens between its checkpoints. A state is eight bytes: a digest of all tokens so far.
    pub states: Option<(usize, usize)>,
}

impl Shape {
    /// Tokens of a sequence that has all blocks.
    pub fn pool_tokens(&self) -> usize {
        let fits = |&blocks: &usize| {
            runner::blocks_of(blocks * self.limits.block_size, self.limits.block_size, self.windowed) <= self.blocks
        };
        (0..=self.blocks).filter(fits).max().unwrap_or(0) * self.limits.block_size
    }
}

/// The token that ends an answer of a fake model.
pub const EOS: TokenId = 0;

pub struct FakeRunner {
    shape: Shape,
    /// The oldest batch in flight, or the one computed last.
    batch: Batch,
    /// Batches in flight, the oldest first.
    in_flight: VecDeque<Batch>,
    /// Batches that are not: copying into them allocates nothing.
    idle: Vec<Batch>,
    /// Stages made of the oldest pass in flight.
    made: usize,
    /// What each slot holds. `[blocks * block_size]`
    slots: Vec<u64>,
    /// What each recurrent state is. `[slots of state]`
    states: Vec<u64>,
    /// Which row writes to each block in this pass. `[blocks]`
    writers: Vec<Option<usize>>,
    /// Which table and row do. `[blocks]`
    table_writers: Vec<Option<(usize, usize)>>,
    sampled: Vec<TokenId>,
    hidden: Vec<f32>,
    /// Blocks that are written after this many further passes.
    writes: Vec<(usize, Vec<BlockId>, Vec<u8>)>,
    /// States that are written after this many further passes.
    state_writes: Vec<(usize, StateSlot, u64)>,
    logprobs: Vec<f32>,
    top_tokens: Vec<TokenId>,
    top_logprobs: Vec<f32>,
    /// Of one sample. `[vocab]`
    logits: Vec<f32>,
    /// Which blocks have memory. `[blocks]`
    has_memory: Vec<bool>,
    /// Blocks that can have memory besides those that have it.
    memory_left: Arc<AtomicUsize>,
}

/// A fake model that is ready.
pub fn load(shape: Shape) -> Loaded {
    load_beside(shape, Arc::new(AtomicUsize::new(0)))
}

/// The same, where others take and leave memory: `memory_left` is for so many blocks, besides those of the cache.
pub fn load_beside(shape: Shape, memory_left: Arc<AtomicUsize>) -> Loaded {
    let Shape { limits, blocks, vocab, .. } = shape;
    let runner = Box::new(FakeRunner {
        shape,
        batch: Batch::with_limits(&limits),
        in_flight: VecDeque::with_capacity(shape.depth),
        idle: (0..shape.depth).map(|_| Batch::with_limits(&limits)).collect(),
        made: 0,
        slots: vec![u64::MAX; blocks * limits.block_size],
        states: vec![u64::MAX; shape.states.map_or(0, |(slots, _)| slots)],
        state_writes: Vec::new(),
        writers: vec![None; blocks],
        table_writers: vec![None; blocks],
        sampled: Vec::with_capacity(limits.samples()),
        hidden: Vec::with_capacity(limits.pooled_rows()),
        writes: Vec::new(),
        logprobs: vec![f32::NAN; limits.samples()],
        top_tokens: vec![NO_TOKEN; limits.samples() * MAX_LOGPROBS],
        top_logprobs: vec![f32::NAN; limits.samples() * MAX_LOGPROBS],
        logits: Vec::with_capacity(vocab),
        has_memory: vec![true; blocks],
        memory_left,
    });
    let info = ModelInfo {
        host_experts: Default::default(),
        num_ranks: 1,
        process: 0,
        device: Device::Cpu,
        vocab_size: vocab,
        num_layers: shape.stages,
        hidden_size: 1,
        has_head: true,
        bos_token: None,
        eos_tokens: vec![EOS],
        num_parameters: 0,
        weight_bytes: 0,
        kv_cache_bytes: 0,
        num_kv_blocks: blocks,
        gpu_bytes: 0,
        limits,
        // One number of eight bytes a slot.
        kv_layout: KvShape {
            kv_heads: 1,
            head_dim: 1,
            values: KvValues::Stored,
            block_size: limits.block_size,
            format: KvFormat::Plain(DType::F32),
        }
        .layers(1),
        states: shape.states.map_or(StateInfo::default(), |(slots, interval)| StateInfo { slots, bytes: 8, interval }),
        window: shape.window,
        windowed: shape.windowed,
        fingerprint: vocab as u64,
        pooled: Default::default(),
        pooled_width: 1,
        parts: [(None, 0); 4],
    };
    Loaded { runner, info }
}

/// What a slot holds: the token there, after everything before it.
pub fn digest(before: u64, token: TokenId) -> u64 {
    (before ^ u64::from(token)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd129_0b2a_5cd1_9d47).rotate_left(29)
}

/// What the model says of the tokens that may follow a text whose slots sum up to `attended`.
pub fn write_logits(attended: u64, vocab: usize, logits: &mut Vec<f32>) {
    logits.clear();
    // Thousands of steps from -8 to 8, of which each f32 is exact.
    logits.extend((0..vocab as TokenId).map(|token| (digest(attended, token) >> 50) as f32 / 1024.0 - 8.0));
}

/// The token that is chosen from adjusted logits: the greatest, after noise where it is sampled.
pub fn choose(logits: &[f32], sampling: &Sampling) -> TokenId {
    let noise = |token: TokenId| match sampling.temperature {
        0.0 => 0.0,
        _ => {
            (digest(sampling.seed ^ sampling.stream << 17 ^ u64::from(sampling.position) << 40, token) >> 52) as f32
                / 256.0
        }
    };
    let mut best = None;
    for (token, logit) in (0..).zip(logits) {
        let score = logit + noise(token);
        if score > f32::NEG_INFINITY && best.is_none_or(|(_, greatest)| score > greatest) {
            best = Some((token, score));
        }
    }
    best.expect("some token may be chosen").0
}

/// The sum that the softmax of `logits` is divided by, as a logarithm.
pub fn log_sum(logits: &[f32]) -> f64 {
    logits.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln()
}

/// The final hidden state of a token, one number, by what its slot holds.
pub fn hidden(slot: u64) -> f32 {
    (slot >> 40) as f32
}

impl FakeRunner {
    fn slot(&self, row: usize, position: usize) -> usize {
        self.slot_in(0, row, position)
    }

    fn slot_in(&self, table: usize, row: usize, position: usize) -> usize {
        let block_size = self.shape.limits.block_size;
        self.batch.block_table_of(table, row)[position / block_size] as usize * block_size + position % block_size
    }

    /// Stores in the window tables what the first table stores, and checks that they hold the window of every token.
    fn write_windows(&mut self) {
        let Some(Windowed { tables, window }) = self.shape.windowed else { return };
        for row in 0..self.batch.rows() {
            for index in self.batch.row(row) {
                let position = self.batch.positions[index] as usize;
                for table in 1..=tables {
                    self.slots[self.batch.slots_of(table)[index] as usize] = self.slots[self.slot(row, position)];
                    for seen in (position + 1).saturating_sub(window)..=position {
                        let found = self.slots[self.slot_in(table, row, seen)];
                        assert_eq!(
                            found,
                            self.slots[self.slot(row, seen)],
                            "row {row}, table {table}: {seen} before {position}"
                        );
                    }
                }
            }
        }
    }

    fn check(&mut self) {
        let (batch, limits) = (&self.batch, &self.shape.limits);
        assert!((1..=limits.tokens).contains(&batch.tokens()), "{} tokens of {limits:?}", batch.tokens());
        assert!((1..=limits.rows).contains(&batch.rows()), "{} rows of {limits:?}", batch.rows());
        assert!(batch.table_width <= limits.table_width());
        assert_eq!(batch.block_tables.len(), batch.rows() * batch.table_width);
        assert_eq!((batch.positions.len(), batch.slots.len()), (batch.tokens(), batch.tokens()));
        assert_eq!(batch.sampling.len(), batch.samples());
        assert!(batch.pooled_rows() <= limits.pooled_rows() && batch.samples() <= limits.samples());
        assert!(batch.pooled_tokens.is_sorted_by(|a, b| a < b), "{:?}", batch.pooled_tokens);
        assert!(batch.sampled_tokens.is_sorted_by(|a, b| a < b), "{:?}", batch.sampled_tokens);
        self.writers.fill(None);
        for row in 0..batch.rows() {
            let (tokens, context) = (batch.row(row), batch.context_lens[row] as usize);
            assert!(!tokens.is_empty() && context <= limits.model_len);
            let first = context - tokens.len();
            for (position, index) in (first..context).zip(tokens) {
                assert_eq!(batch.positions[index] as usize, position);
                assert_eq!(batch.slots[index] as usize, self.slot(row, position));
                let block = batch.slots[index] as usize / limits.block_size;
                let writer = self.writers[block].replace(row);
                assert!(writer.is_none_or(|writer| writer == row), "two rows write to block {block}");
            }
        }
        assert_eq!(batch.window_tables.len(), limits.window_tables);
        // A block that one table writes is none of another table.
        self.table_writers.fill(None);
        for table in 0..=limits.window_tables {
            assert_eq!(batch.slots_of(table).len(), batch.tokens());
            for row in 0..batch.rows() {
                for index in batch.row(row) {
                    let slot = batch.slots_of(table)[index] as usize;
                    assert_eq!(slot, self.slot_in(table, row, batch.positions[index] as usize));
                    let writer = (table, row);
                    let other = self.table_writers[slot / limits.block_size].replace(writer);
                    assert!(other.is_none_or(|other| other == writer), "{other:?} and {writer:?} write to one block");
                }
            }
        }
        for (table, row) in (1..=limits.window_tables).flat_map(|table| (0..batch.rows()).map(move |row| (table, row)))
        {
            let used = (batch.context_lens[row] as usize).div_ceil(limits.block_size);
            for &block in &batch.block_table_of(table, row)[..used] {
                let writer = self.table_writers[block as usize];
                assert!(writer.is_none_or(|writer| writer == (table, row)), "row {row} reads what {writer:?} writes");
            }
            assert!(batch.block_table_of(table, row)[used..].iter().all(|&block| block == 0));
        }
        for row in 0..batch.rows() {
            let used = (batch.context_lens[row] as usize).div_ceil(limits.block_size);
            for &block in &batch.block_table(row)[..used] {
                let writer = self.writers[block as usize];
                assert!(
                    writer.is_none_or(|writer| writer == row),
                    "row {row} reads block {block}, which {writer:?} writes"
                );
            }
            assert!(batch.block_table(row)[used..].iter().all(|&block| block == 0), "zero beyond the last one in use");
        }
    }

    /// Every block that a batch names has memory.
    fn check_memory(&self, batch: &Batch) {
        let block_size = self.shape.limits.block_size;
        let has_memory = |block: u32| assert!(self.has_memory[block as usize], "block {block} has no memory");
        let windowed = batch.window_tables.iter().flat_map(|table| &table.slots);
        batch.slots.iter().chain(windowed).for_each(|slot| has_memory(slot / block_size as u32));
        batch.copies.iter().flat_map(|copy| [copy.from, copy.to]).for_each(has_memory);
        for row in 0..batch.rows() {
            let used = (batch.context_lens[row] as usize).div_ceil(block_size);
            for table in 0..=batch.window_tables.len() {
                batch.block_table_of(table, row)[..used].iter().copied().for_each(has_memory);
            }
        }
    }

    /// Writes the blocks that no pass in flight is before any more.
    fn write_blocks_now(&mut self) {
        let block_size = self.shape.limits.block_size;
        for (passes, blocks, bytes) in &mut self.writes {
            *passes = passes.saturating_sub(1);
            if *passes > 0 {
                continue;
            }
            for (&block, bytes) in blocks.iter().zip(bytes.chunks_exact(8 * block_size)) {
                let slots = &mut self.slots[block as usize * block_size..][..block_size];
                for (slot, bytes) in slots.iter_mut().zip(bytes.as_chunks().0) {
                    *slot = u64::from_le_bytes(*bytes);
                }
            }
        }
        self.writes.retain(|(passes, ..)| *passes > 0);
        for (passes, slot, state) in &mut self.state_writes {
            *passes = passes.saturating_sub(1);
            if *passes == 0 {
                self.states[*slot as usize] = *state;
            }
        }
        self.state_writes.retain(|(passes, ..)| *passes > 0);
    }

    fn copy_blocks(&mut self) {
        let copies = &self.batch.copies;
        let size = self.shape.limits.block_size;
        for copy in copies {
            assert!(copies.iter().all(|other| other.from != copy.to), "block {} is a source and a target", copy.to);
            assert_eq!(
                copies.iter().filter(|other| other.to == copy.to).count(),
                1,
                "block {} is a target twice",
                copy.to
            );
            let from = copy.from as usize * size;
            self.slots.copy_within(from..from + size, copy.to as usize * size);
        }
    }

    /// Whether the states of the batch are what its documentation says.
    fn check_states(&self) {
        let (batch, states) = (&self.batch, self.states.len() as StateSlot);
        if states == 0 {
            assert!(batch.state_sources.is_empty() && batch.state_slots.is_empty() && batch.state_saves.is_empty());
            return;
        }
        assert_eq!((batch.state_sources.len(), batch.state_slots.len()), (batch.rows(), batch.rows()));
        assert_eq!(batch.state_saves.len(), batch.tokens());
        let saved = batch.state_saves.iter().filter(|&&slot| slot != NO_STATE);
        let mut written: Vec<_> = batch.state_slots.iter().chain(saved).copied().collect();
        written.sort_unstable();
        assert!(written.is_sorted_by(|a, b| a < b) && written.iter().all(|&slot| slot < states), "{written:?}");
        for (row, &source) in batch.state_sources.iter().enumerate() {
            let begins = batch.positions[batch.row(row).start] == 0;
            assert_eq!(source == NO_STATE, begins, "row {row}");
            let is_written = written.binary_search(&source).is_ok();
            assert!(
                !is_written || source == batch.state_slots[row],
                "row {row} reads state {source}, which another writes"
            );
        }
    }

    /// Computes the states of all rows, each of which must be what the keys and values of the row say.
    fn write_states(&mut self) {
        if self.states.is_empty() {
            return;
        }
        for copy in &self.batch.state_copies {
            self.states[copy.to as usize] = self.states[copy.from as usize];
        }
        for row in 0..self.batch.rows() {
            let mut state = match self.batch.state_sources[row] {
                NO_STATE => 0,
                source => self.states[source as usize],
            };
            for index in self.batch.row(row) {
                state = digest(state, self.batch.token_ids[index]);
                assert_eq!(state, self.slots[self.batch.slots[index] as usize], "row {row} continues another state");
                if self.batch.state_saves[index] != NO_STATE {
                    self.states[self.batch.state_saves[index] as usize] = state;
                }
            }
            self.states[self.batch.state_slots[row] as usize] = state;
        }
    }

    fn write_slots(&mut self) {
        for row in 0..self.batch.rows() {
            for index in self.batch.row(row) {
                let position = self.batch.positions[index] as usize;
                let before = if position == 0 { 0 } else { self.slots[self.slot(row, position - 1)] };
                self.slots[self.batch.slots[index] as usize] = digest(before, self.batch.token_ids[index]);
            }
        }
    }

    /// Whether the samples are what their documentation says.
    fn check_samples(&self) {
        let (batch, vocab) = (&self.batch, self.shape.vocab);
        let limits = &self.shape.limits;
        assert!(
            batch.samples() <= limits.samples() && batch.pooled_rows() <= limits.pooled_rows(),
            "{} samples",
            batch.samples()
        );
        for sampling in &batch.sampling {
            let entries = &batch.adjustments[sampling.adjusted()];
            assert!(entries.is_sorted_by(|a, b| a.token < b.token), "each token once: {entries:?}");
            assert!(entries.iter().all(|entry| (entry.token as usize) < vocab && entry.bias < f32::INFINITY));
            assert!(sampling.top_logprobs() <= MAX_LOGPROBS);
            assert!(sampling.forced == NO_TOKEN || (sampling.forced as usize) < vocab);
        }
    }

    fn sample(&mut self) {
        self.sampled.clear();
        self.hidden.clear();
        let slots = self.batch.pooled_tokens.iter().map(|&token| self.batch.slots[token as usize]);
        self.hidden.extend(slots.map(|slot| hidden(self.slots[slot as usize])));
        for (sample, (sampling, &token)) in self.batch.sampling.iter().zip(&self.batch.sampled_tokens).enumerate() {
            let row = self.batch.row_starts.partition_point(|&start| start <= token) - 1;
            let context = self.batch.positions[token as usize] as usize + 1;
            assert_eq!(sampling.position as usize, context);
            let start = self.shape.window.map_or(0, |window| context.saturating_sub(window));
            let attended =
                (start..context).fold(0u64, |sum, position| sum.wrapping_add(self.slots[self.slot(row, position)]));
            write_logits(attended, self.shape.vocab, &mut self.logits);
            let logits = &mut self.logits;
            let log_sum = if sampling.logprobs > 0 { log_sum(logits) } else { f64::NAN };
            let logprob = |logit: f32| (f64::from(logit) - log_sum) as f32;
            if sampling.logprobs > 0 {
                let start = sample * MAX_LOGPROBS;
                let ranked = start..start + sampling.top_logprobs();
                let mut ceiling = (f32::INFINITY, 0);
                for at in ranked {
                    // The next after the one before, in the order of rank.
                    let next = (0..)
                        .zip(logits.iter().copied())
                        .filter(|&(token, logit)| logit < ceiling.0 || (logit == ceiling.0 && token > ceiling.1));
                    let best = next.reduce(|best, other| if other.1 > best.1 { other } else { best });
                    (self.top_tokens[at], self.top_logprobs[at]) =
                        best.map_or((NO_TOKEN, f32::NEG_INFINITY), |(token, logit)| (token, logprob(logit)));
                    ceiling = best.map_or((f32::NEG_INFINITY, NO_TOKEN), |(token, logit)| (logit, token));
                }
            }
            let plain = |token: TokenId| (digest(attended, token) >> 50) as f32 / 1024.0 - 8.0;
            let entries = &self.batch.adjustments[sampling.adjusted()];
            let awaited = LogitBias { token: sampling.awaited, uses: LogitBias::UNUSED, bias: 0.0 };
            let is_listed = entries.iter().any(|entry| entry.token == awaited.token);
            let unlisted = (awaited.token != NO_TOKEN && !is_listed).then_some(awaited);
            for entry in entries.iter().copied().chain(unlisted) {
                let uses = match (entry.uses, entry.token == awaited.token) {
                    (uses, false) => uses,
                    (LogitBias::UNUSED, true) => 1,
                    (uses, true) => uses + 1,
                };
                let logit = &mut logits[entry.token as usize];
                if uses != LogitBias::UNUSED {
                    let penalty = sampling.repetition_penalty;
                    *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
                    *logit -= if uses > 0 { sampling.presence_penalty } else { 0.0 };
                    *logit -= sampling.frequency_penalty * uses as f32;
                }
                *logit += entry.bias;
            }
            if sampling.mask != NO_MASK {
                let mask = &self.batch.masks[sampling.mask as usize..];
                let masked = |token: usize| mask[token / 32] >> (token % 32) & 1 == 0;
                logits
                    .iter_mut()
                    .enumerate()
                    .filter(|(token, _)| masked(*token))
                    .for_each(|(_, logit)| *logit = f32::NAN);
            }
            let chosen = match sampling.forced {
                NO_TOKEN => choose(logits, sampling),
                forced => forced,
            };
            self.logprobs[sample] = if sampling.logprobs > 0 { logprob(plain(chosen)) } else { f32::NAN };
            self.sampled.push(chosen);
        }
    }
}

impl Runner for FakeRunner {
    fn submit(&mut self, batch: &Batch) -> Result<()> {
        self.check_memory(batch);
        let mut own = self.idle.pop().expect("no more passes than the depth are in flight");
        own.clone_from(batch);
        if self.in_flight.is_empty() {
            assert!(own.token_ids.iter().all(|&token| token < FROM_PREVIOUS), "the pass before was collected");
        }
        self.in_flight.push_back(own);
        Ok(())
    }

    fn collect(&mut self, deadline: Option<Instant>) -> Result<Option<Sampled<'_>>> {
        if self.made == 0 {
            self.batch.clone_from(self.in_flight.front().expect("a pass is in flight"));
            // What the pass before sampled is known only now.
            let awaited = self.batch.sampling.iter_mut().map(|sampling| &mut sampling.awaited);
            for token in self.batch.token_ids.iter_mut().chain(awaited.filter(|token| **token != NO_TOKEN)) {
                if *token >= FROM_PREVIOUS {
                    *token = self.sampled[(*token - FROM_PREVIOUS) as usize];
                }
            }
            self.check();
            self.check_samples();
            self.check_states();
            self.copy_blocks();
            self.write_slots();
            self.write_windows();
            self.write_states();
        }
        self.made = match deadline {
            None => self.shape.stages,
            Some(_) => self.made + 1,
        };
        if self.made < self.shape.stages {
            return Ok(None);
        }
        self.made = 0;
        self.idle.extend(self.in_flight.pop_front());
        self.sample();
        self.write_blocks_now();
        Ok(Some(Sampled {
            tokens: &self.sampled,
            logprobs: &self.logprobs,
            top_tokens: &self.top_tokens,
            top_logprobs: &self.top_logprobs,
            hidden_states: &self.hidden,
        }))
    }

    fn depth(&self) -> usize {
        self.shape.depth
    }

    fn pass_time(&self) -> Duration {
        Duration::from_micros(self.batch.tokens() as u64)
    }

    fn stages(&self) -> usize {
        self.shape.stages
    }

    fn read_state(&mut self, slot: StateSlot, to: &mut [u8]) -> Result<()> {
        to.copy_from_slice(&self.states[slot as usize].to_le_bytes());
        Ok(())
    }

    fn write_state(&mut self, slot: StateSlot, from: &[u8]) -> Result<()> {
        let state = u64::from_le_bytes(from.try_into().expect("eight bytes"));
        match self.in_flight.len() {
            0 => self.states[slot as usize] = state,
            passes => self.state_writes.push((passes, slot, state)),
        }
        Ok(())
    }

    fn read_blocks(&mut self, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        let block_size = self.shape.limits.block_size;
        let slots = blocks.iter().flat_map(|&block| &self.slots[block as usize * block_size..][..block_size]);
        for (to, slot) in to.chunks_exact_mut(8).zip(slots) {
            to.copy_from_slice(&slot.to_le_bytes());
        }
        Ok(())
    }

    fn write_blocks(&mut self, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        let passes = self.in_flight.len();
        assert!(blocks.iter().all(|&block| self.has_memory[block as usize]), "{blocks:?}");
        self.writes.push((passes, blocks.to_vec(), from.to_vec()));
        if passes == 0 {
            self.write_blocks_now();
        }
        Ok(())
    }

    /// What the blocks held is lost once the passes in flight have read it.
    fn release_blocks(&mut self, unused: &[bool]) -> Result<u64> {
        let is_released = |block: &BlockId| unused[*block as usize] && self.has_memory[*block as usize];
        let blocks: Vec<BlockId> = (0..self.shape.blocks as BlockId).filter(is_released).collect();
        let bytes = blocks.len() * self.shape.limits.block_size * 8;
        self.write_blocks(&blocks, &vec![0xff; bytes])?;
        blocks.iter().for_each(|&block| self.has_memory[block as usize] = false);
        self.memory_left.fetch_add(blocks.len(), Relaxed);
        Ok(bytes as u64)
    }

    fn restore_blocks(&mut self, blocks: &[BlockId]) -> Result<()> {
        assert!(blocks.iter().all(|&block| !self.has_memory[block as usize]), "they were released: {blocks:?}");
        let left = self.memory_left.load(Relaxed).checked_sub(blocks.len()).ok_or(Error::OutOfMemory {
            what: "the KV cache",
            bytes: (blocks.len() * self.shape.limits.block_size * 8) as u64,
            knob: "kv_cache_bytes",
        })?;
        self.memory_left.store(left, Relaxed);
        blocks.iter().for_each(|&block| self.has_memory[block as usize] = true);
        Ok(())
    }

    fn kv_bytes_mapped(&self) -> u64 {
        let blocks = self.has_memory.iter().filter(|&&has_memory| has_memory).count();
        (blocks * self.shape.limits.block_size * 8) as u64
    }
}

/// Why a request must be refused, by the rules of the header; `None` when it must be accepted.
pub fn refusal(prompt: &[TokenId], params: &SamplingParams, shape: &Shape) -> Option<&'static str> {
    let (len, model_len) = (prompt.len(), shape.limits.model_len);
    let reach = model_len.min(len + params.max_tokens.unwrap_or(1) as usize);
    match () {
        () if len == 0 => Some("empty"),
        () if len >= model_len => Some("too long"),
        () if runner::blocks_of(reach, shape.limits.block_size, shape.windowed) > shape.blocks => Some("too large"),
        () => None,
    }
}
