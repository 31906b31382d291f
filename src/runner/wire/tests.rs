use super::*;

/// Random numbers of a seed, by SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.below(last - first + 1)
    }
}

fn bounds(depth: usize) -> BatchBounds {
    let limits = BatchLimits { tokens: 64, rows: 8, model_len: 50, block_size: 4, ..BatchLimits::NONE };
    BatchBounds { limits, num_blocks: 64, num_states: 0, vocab_size: 100, depth }
}

fn random_sampling(rng: &mut Rng, batch: &mut Batch, depth: usize) -> Sampling {
    let adjusted_start = batch.adjustments.len() as u32;
    for _ in 0..rng.below(4) {
        let token = rng.below(100) as u32;
        batch.adjustments.push(match rng.below(2) {
            0 => LogitBias::ban(token),
            _ => LogitBias { token, uses: rng.below(5) as u32, bias: rng.below(9) as f32 - 4.5 },
        });
    }
    let mask = if rng.below(3) == 0 { batch.masks.len() as u32 } else { NO_MASK };
    if mask != NO_MASK {
        batch.masks.extend((0..4).map(|_| rng.next() as u32));
    }
    Sampling {
        temperature: rng.below(20) as f32 / 10.0,
        top_p: rng.between(1, 10) as f32 / 10.0,
        min_p: rng.below(11) as f32 / 10.0,
        top_k: rng.below(60) as u32,
        seed: rng.next(),
        stream: rng.next(),
        position: rng.below(50) as u32,
        adjusted_start,
        adjusted_end: batch.adjustments.len() as u32,
        repetition_penalty: rng.between(1, 20) as f32 / 10.0,
        presence_penalty: rng.below(20) as f32 / 10.0 - 1.0,
        frequency_penalty: rng.below(20) as f32 / 10.0 - 1.0,
        awaited: if depth > 1 && rng.below(2) == 0 { FROM_PREVIOUS | rng.below(8) as u32 } else { NO_TOKEN },
        mask,
        forced: if rng.below(4) == 0 { rng.below(100) as u32 } else { NO_TOKEN },
        logprobs: rng.below(MAX_LOGPROBS + 2) as u32,
        top_n_sigma: rng.below(20) as f32 / 10.0 - 1.0,
        xtc_threshold: rng.below(6) as f32 / 10.0,
    }
}

/// A batch as a scheduler forms them: each row has blocks of its own.
fn random_batch(rng: &mut Rng, bounds: &BatchBounds) -> Batch {
    let mut batch = Batch::with_limits(&bounds.limits);
    batch.clear();
    let (rows, width) = (rng.below(9), rng.between(1, 8));
    batch.table_width = width;
    for row in 0..rows {
        let context = rng.between(1, width * 4);
        let new = rng.between(1, context.min(8));
        let blocks: Vec<u32> = (0..width as u32).map(|block| row as u32 * 8 + block).collect();
        for position in context - new..context {
            let is_awaited = bounds.depth > 1 && rng.below(8) == 0;
            let token = if is_awaited { FROM_PREVIOUS | rng.below(8) as u32 } else { rng.below(100) as u32 };
            batch.token_ids.push(token);
            batch.positions.push(position as u32);
            batch.slots.push(blocks[position / 4] * 4 + position as u32 % 4);
        }
        batch.row_starts.push(batch.token_ids.len() as u32);
        batch.context_lens.push(context as u32);
        batch.block_tables.extend(&blocks);
        if bounds.limits.whole_rows {
            batch.token_types.extend((0..new).map(|_| rng.below(2) as u32));
            let end = batch.tokens() as u32;
            let first = end - rng.between(1, new) as u32;
            batch.pooled_ranges.push(PooledRange { first, end, kind: PoolKind::ALL[rng.below(4)] });
        } else if rng.below(3) > 0 {
            let sampling = random_sampling(rng, &mut batch, bounds.depth);
            batch.sampled_tokens.push(batch.tokens() as u32 - 1);
            batch.sampling.push(sampling);
        } else if rng.below(2) == 0 {
            batch.pooled_tokens.push(batch.tokens() as u32 - 1);
        }
    }
    // A row has slots of its own: one that it goes on in, one that it may begin with, one that it may save to.
    for row in 0..if bounds.num_states > 0 { batch.rows() } else { 0 } {
        let first = 3 * row as u32;
        batch.state_slots.push(first);
        batch.state_sources.push([NO_STATE, first, first + 1][rng.below(3)]);
        let tokens = batch.row(row);
        batch.state_saves.resize(tokens.end, NO_STATE);
        if rng.below(2) == 0 {
            batch.state_saves[rng.between(tokens.start, tokens.end - 1)] = first + 2;
        }
    }
    if bounds.num_states > 0 {
        batch.state_copies.extend((0..rng.below(3) as u32).map(|copy| StateCopy { from: copy, to: 23 - copy }));
    }
    batch.copies.extend((0..rng.below(3) as u32).map(|copy| BlockCopy { from: copy, to: 63 - copy }));
    batch
}

fn encoded(batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(batch, &mut bytes);
    bytes
}

#[test]
fn a_batch_arrives_as_it_was_sent() {
    for (depth, num_states) in [(1, 0), (2, 0), (1, 24), (2, 24)] {
        let (bounds, mut rng) = (BatchBounds { num_states, ..bounds(depth) }, Rng(depth as u64));
        let (mut decoder, mut found) = (BatchDecoder::new(bounds), Batch::with_limits(&bounds.limits));
        for _ in 0..2000 {
            let batch = random_batch(&mut rng, &bounds);
            let bytes = encoded(&batch);
            assert!(bytes.len() <= bounds.max_bytes());
            decoder.decode(&bytes, &mut found).unwrap();
            assert_eq!(format!("{found:?}"), format!("{batch:?}"));
        }
    }
}

fn bounds_of_encoders() -> BatchBounds {
    let plain = bounds(1);
    BatchBounds { limits: BatchLimits { whole_rows: true, ..plain.limits }, ..plain }
}

#[test]
fn a_batch_of_whole_texts_arrives_as_it_was_sent() {
    let (bounds, mut rng) = (bounds_of_encoders(), Rng(3));
    let (mut decoder, mut found) = (BatchDecoder::new(bounds), Batch::with_limits(&bounds.limits));
    for _ in 0..1000 {
        let batch = random_batch(&mut rng, &bounds);
        let bytes = encoded(&batch);
        assert!(bytes.len() <= bounds.max_bytes());
        decoder.decode(&bytes, &mut found).unwrap();
        assert_eq!(format!("{found:?}"), format!("{batch:?}"));
    }
    // The first of these seeds whose batch has rows.
    let seed = (0..).find(|&seed| random_batch(&mut Rng(seed), &bounds).rows() > 1).unwrap();
    let batch = || random_batch(&mut Rng(seed), &bounds);
    type Spoil = fn(&mut Batch);
    let cases: [(Spoil, &str); 4] = [
        (|batch| batch.token_types.clear(), "of its"),
        (|batch| batch.token_types[0] = 2, "type of a token 2"),
        (|batch| batch.pooled_ranges[0].end = 65, "a pooled range is out of range"),
        (|batch| batch.pooled_ranges[0].first = batch.pooled_ranges[0].end, "a pooled range is out of range"),
    ];
    for (spoil, words) in cases {
        let mut batch = batch();
        spoil(&mut batch);
        let refused = decoder.decode(&encoded(&batch), &mut found).unwrap_err();
        assert!(refused.contains(words), "{refused}");
    }
    let mut bytes = encoded(&batch());
    let at = bytes.len() - 4;
    bytes[at] = 4;
    let refused = decoder.decode(&bytes, &mut found).unwrap_err();
    assert_eq!(refused, "the kind of a pooled range is out of range");
}

#[test]
fn a_batch_is_encoded_into_memory_that_is_there() {
    let (bounds, mut rng) = (bounds(1), Rng(7));
    let batch = random_batch(&mut rng, &bounds);
    let mut bytes = encoded(&batch);
    let before = bytes.as_ptr();
    bytes.clear();
    encode(&batch, &mut bytes);
    assert_eq!(bytes.as_ptr(), before);
}

#[test]
fn any_bytes_are_refused_or_are_a_batch() {
    let (bounds, mut rng) = (BatchBounds { num_states: 24, ..bounds(2) }, Rng(3));
    let (mut decoder, mut found) = (BatchDecoder::new(bounds), Batch::with_limits(&bounds.limits));
    let (mut accepted, mut refused) = (0, 0);
    for _ in 0..50_000 {
        let mut bytes = encoded(&random_batch(&mut rng, &bounds));
        for _ in 0..rng.between(1, 4) {
            let at = rng.below(bytes.len() / 4) * 4;
            let value = match rng.below(3) {
                0 => rng.next() as u32,
                1 => rng.below(100) as u32,
                _ => u32::MAX - rng.below(2) as u32,
            };
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        bytes.truncate(if rng.below(20) == 0 { rng.below(bytes.len()) } else { bytes.len() });
        match decoder.decode(&bytes, &mut found) {
            Ok(()) => {
                accepted += 1;
                assert_eq!(encoded(&found), bytes);
            }
            Err(_) => refused += 1,
        }
    }
    assert!(accepted > 1000 && refused > 1000, "{accepted} accepted, {refused} refused");
}

#[test]
fn each_number_out_of_range_is_named() {
    type Spoil = fn(&mut Batch);
    const CASES: &[(&str, Spoil)] = &[
        ("its token 100 is out of range", |b| b.token_ids[0] = 100),
        ("its token 2147483648 is out of range", |b| b.token_ids[0] = FROM_PREVIOUS),
        ("its slot 256 is out of range", |b| b.slots[0] = 256),
        ("two of its tokens have slot", |b| b.slots[0] = b.slots[1]),
        ("its block 64 is out of range", |b| b.block_tables[0] = 64),
        ("its rows do not divide its tokens", |b| b.row_starts[0] = 1),
        ("it has 51 tokens of a sequence, but there may be", |b| b.context_lens[0] = 51),
        ("the positions of a row are not those", |b| b.positions[0] += 1),
        ("a row has 4 new tokens in a context of 2", |b| b.context_lens[0] = 2),
        ("its sampled token 4 is out of range", |b| b.sampled_tokens[0] = 4),
        ("the temperature of a sample is out of range", |b| b.sampling[0].temperature = f32::NAN),
        ("the top_p of a sample is out of range", |b| b.sampling[0].top_p = 0.0),
        ("the range of adjustments of a sample", |b| b.sampling[0].adjusted_end = 1),
        ("the mask of a sample is out of range", |b| b.sampling[0].mask = 0),
        ("the awaited token of a sample", |b| b.sampling[0].awaited = FROM_PREVIOUS),
        ("the forced token of a sample", |b| b.sampling[0].forced = 100),
        ("its adjusted token 100 is out of range", |b| b.adjustments.push(LogitBias::ban(100))),
        ("its block of a copy 64 is out of range", |b| b.copies.push(BlockCopy { from: 64, to: 0 })),
        ("it has 9 samples, but there may be 8", |b| {
            b.sampled_tokens.resize(9, 3);
            b.sampling.resize(9, Sampling::GREEDY);
        }),
    ];
    let bounds = bounds(1);
    let mut decoder = BatchDecoder::new(bounds);
    let mut found = Batch::with_limits(&bounds.limits);
    for (message, spoil) in CASES {
        let mut batch = Batch::with_limits(&bounds.limits);
        batch.table_width = 13;
        batch.token_ids.extend([1, 2, 3, 4]);
        batch.positions.extend([0, 1, 2, 3]);
        batch.slots.extend([8, 9, 10, 11]);
        batch.row_starts.push(4);
        batch.context_lens.push(4);
        batch.block_tables.resize(13, 2);
        batch.sampled_tokens.push(3);
        batch.sampling.push(Sampling::GREEDY);
        decoder.decode(&encoded(&batch), &mut found).unwrap();
        spoil(&mut batch);
        let refused = decoder.decode(&encoded(&batch), &mut found).expect_err(message);
        assert!(refused.starts_with(message), "{refused}, but wanted {message}");
    }
}

#[test]
fn states_that_rows_would_share_are_refused() {
    let bounds = BatchBounds { num_states: 24, ..bounds(1) };
    let (mut decoder, mut found, mut rng) = (BatchDecoder::new(bounds), Batch::with_limits(&bounds.limits), Rng(5));
    let batch = loop {
        let batch = random_batch(&mut rng, &bounds);
        if batch.rows() >= 2 {
            break batch;
        }
    };
    type Spoil = fn(&mut Batch);
    let cases: [(&str, Spoil); 7] = [
        ("state 0 is written twice", |batch| batch.state_slots[1] = 0),
        ("state 3 is written twice", |batch| batch.state_saves[0] = 3),
        ("state 3 is read by one row and written by another", |batch| batch.state_sources[0] = 3),
        ("its state 24 is out of range", |batch| batch.state_slots[0] = 24),
        ("its state 24 is out of range", |batch| batch.state_sources[1] = 24),
        ("its state of a copy 99 is out of range", |batch| batch.state_copies = vec![StateCopy { from: 0, to: 99 }]),
        ("0 of its", |batch| {
            (batch.state_slots, batch.state_sources, batch.state_saves) = (Vec::new(), Vec::new(), Vec::new());
        }),
    ];
    for (wanted, spoil) in cases {
        let mut spoiled = random_batch(&mut Rng(5), &bounds);
        spoiled.clone_from(&batch);
        spoil(&mut spoiled);
        let reason = decoder.decode(&encoded(&spoiled), &mut found).unwrap_err();
        assert!(reason.contains(wanted), "{wanted}: {reason}");
    }
}
