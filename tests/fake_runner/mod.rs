//! A runner without a model, for tests of the engine: its next token depends on everything a row attends to.
//!
//! Keys and values are simulated by one number a slot, which digests the token there and, through the row's block table,
//! the number of the position before it. So a block that is shared wrongly, reused too early, left out or written at a
//! wrong position changes tokens. What a batch must be by its documentation is asserted.
#![allow(dead_code)]

pub mod oracle;

use nanovllm::batch::{Batch, BatchLimits, FROM_PREVIOUS, NO_MASK, Sampled, Sampling, TokenId};
use nanovllm::error::Result;
use nanovllm::runner::{Device, Loaded, ModelInfo, Runner};
use std::collections::VecDeque;
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
    /// Which row writes to each block in this pass. `[blocks]`
    writers: Vec<Option<usize>>,
    sampled: Vec<TokenId>,
}

/// A fake model that is ready.
pub fn load(shape: Shape) -> Loaded {
    let Shape { limits, blocks, vocab, .. } = shape;
    let runner = Box::new(FakeRunner {
        shape,
        batch: Batch::with_limits(&limits),
        in_flight: VecDeque::with_capacity(shape.depth),
        idle: (0..shape.depth).map(|_| Batch::with_limits(&limits)).collect(),
        made: 0,
        slots: vec![u64::MAX; blocks * limits.block_size],
        writers: vec![None; blocks],
        sampled: Vec::with_capacity(limits.rows),
    });
    let info = ModelInfo {
        device: Device::Cpu,
        vocab_size: vocab,
        num_layers: shape.stages,
        hidden_size: 1,
        bos_token: None,
        eos_tokens: vec![EOS],
        num_parameters: 0,
        weight_bytes: 0,
        kv_cache_bytes: 0,
        num_kv_blocks: blocks,
        limits,
    };
    Loaded { runner, info }
}

/// What a slot holds: the token there, after everything before it.
pub fn digest(before: u64, token: TokenId) -> u64 {
    (before ^ u64::from(token)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd129_0b2a_5cd1_9d47).rotate_left(29)
}

/// The token that follows a text whose slots sum up to `attended`, of those that `may` be next.
pub fn choose(attended: u64, sampling: &Sampling, may: impl Fn(TokenId) -> bool, vocab: usize) -> TokenId {
    let random = if sampling.temperature == 0.0 { 0 } else { sampling.seed ^ sampling.stream << 17 };
    let choice = digest(attended ^ random, sampling.position) >> 16;
    let may_be_next = || (0..vocab as TokenId).filter(|&token| may(token));
    let count = may_be_next().count() as u64;
    assert!(count > 0, "a sample that asks has a token to choose");
    may_be_next().nth((choice % count) as usize).expect("it is one of them")
}

impl FakeRunner {
    fn slot(&self, row: usize, position: usize) -> usize {
        let block_size = self.shape.limits.block_size;
        self.batch.block_table(row)[position / block_size] as usize * block_size + position % block_size
    }

    fn check(&mut self) {
        let (batch, limits) = (&self.batch, &self.shape.limits);
        assert!((1..=limits.tokens).contains(&batch.tokens()), "{} tokens of {limits:?}", batch.tokens());
        assert!((1..=limits.rows).contains(&batch.rows()), "{} rows of {limits:?}", batch.rows());
        assert!(batch.table_width <= limits.table_width());
        assert_eq!(batch.block_tables.len(), batch.rows() * batch.table_width);
        assert_eq!((batch.positions.len(), batch.slots.len()), (batch.tokens(), batch.tokens()));
        assert_eq!(batch.sampling.len(), batch.samples());
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

    fn write_slots(&mut self) {
        for row in 0..self.batch.rows() {
            for index in self.batch.row(row) {
                let position = self.batch.positions[index] as usize;
                let before = if position == 0 { 0 } else { self.slots[self.slot(row, position - 1)] };
                self.slots[self.batch.slots[index] as usize] = digest(before, self.batch.token_ids[index]);
            }
        }
    }

    fn sample(&mut self) {
        self.sampled.clear();
        for (sampling, &token) in self.batch.sampling.iter().zip(&self.batch.sampled_tokens) {
            let row = self.batch.row_starts.partition_point(|&start| start <= token) - 1;
            let context = self.batch.positions[token as usize] as usize + 1;
            assert_eq!(sampling.position as usize, context);
            let attended =
                (0..context).fold(0u64, |sum, position| sum.wrapping_add(self.slots[self.slot(row, position)]));
            let adjusted = &self.batch.adjustments[sampling.adjusted()];
            let mask = (sampling.mask != NO_MASK).then(|| &self.batch.masks[sampling.mask as usize..]);
            let may = |token: TokenId| {
                let masked = mask.is_some_and(|mask| mask[token as usize / 32] >> (token % 32) & 1 == 0);
                !masked && !adjusted.iter().any(|it| it.token == token && it.bias == f32::NEG_INFINITY)
            };
            self.sampled.push(choose(attended, sampling, may, self.shape.vocab));
        }
    }
}

impl Runner for FakeRunner {
    fn submit(&mut self, batch: &Batch) -> Result<()> {
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
            for token in &mut self.batch.token_ids {
                if *token >= FROM_PREVIOUS {
                    *token = self.sampled[(*token - FROM_PREVIOUS) as usize];
                }
            }
            self.check();
            self.write_slots();
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
        Ok(Some(Sampled { tokens: &self.sampled, ..Sampled::default() }))
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
}
