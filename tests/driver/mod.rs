//! Drives a runner by hand: sequences with blocks of their own, and the batches they form.
//!
//! The engine does this with a scheduler; here a test says exactly which tokens meet in which pass.
#![allow(dead_code)]

pub use crate::tree::root;
use base::TokenId;
use base::error::Result;
use compute::batch::{Batch, BatchLimits, BlockId, NO_STATE, Sampling, StateSlot};
use compute::cpu::{Cpu, Isa};
use formats::DType;
use formats::source::Source;
use runner::options::EngineOptions;
use runner::pass_runner::PassRunner;
use runner::{Device, ModelInfo, Runner};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

/// Blocks of each block table: sequences of one test have fewer.
const BLOCKS_APART: u32 = 1600;

/// The folder of a case in tests/golden.
pub fn golden(name: &str) -> PathBuf {
    root().join("tests/golden").join(name)
}

/// Settings that hold any of the tests' batches.
pub fn config() -> EngineOptions {
    EngineOptions {
        device: Device::Cpu,
        num_threads: Some(2),
        max_num_seqs: Some(64),
        max_batched_tokens: Some(512),
        kv_block_size: Some(4),
        kv_cache_bytes: Some(32 << 20),
        ..EngineOptions::new("")
    }
}

/// [`config`] for a golden case: the contexts of one whose name ends in `-short` and a number are as short as that.
pub fn config_of(name: &str) -> EngineOptions {
    let shortest = name.rsplit_once("-short").map(|(_, len)| len.parse().unwrap());
    EngineOptions { max_model_len: shortest, ..config() }
}

/// A runner on the CPU that uses the instructions of `isa`.
pub fn open(folder: &Path, config: &EngineOptions, isa: Isa) -> Result<(PassRunner<Cpu>, ModelInfo)> {
    let cpu = Cpu::new(config.num_threads.unwrap_or(1), isa);
    runner::cpu::open(&Source::open(folder)?, config, cpu, &mut |_| ControlFlow::Continue(()))
}

/// A sequence and the blocks that hold its keys and values.
#[derive(Clone)]
pub struct Sequence {
    pub tokens: Vec<TokenId>,
    pub computed: usize,
    pub blocks: Vec<BlockId>,
    /// The slot of its recurrent state, or [`NO_STATE`] where the model keeps none: sequences of one batch need different ones.
    pub state: StateSlot,
}

impl Sequence {
    pub fn new(tokens: &[TokenId], blocks: impl IntoIterator<Item = BlockId>) -> Sequence {
        Sequence { tokens: tokens.to_vec(), computed: 0, blocks: blocks.into_iter().collect(), state: NO_STATE }
    }

    /// The same with its own slot for the recurrent state, where the model of `runner` keeps any.
    pub fn of(self, runner: &impl Logits, state: StateSlot) -> Sequence {
        Sequence { state: if runner.keeps_states() { state } else { NO_STATE }, ..self }
    }

    /// Tokens that were not computed yet.
    pub fn pending(&self) -> usize {
        self.tokens.len() - self.computed
    }

    /// Adds the next `count` tokens as a row, which is sampled greedily when no token is left after them.
    pub fn bring(&mut self, count: usize, limits: &BatchLimits, batch: &mut Batch) {
        let row = batch.rows();
        let end = self.computed + count;
        for position in self.computed..end {
            let block = self.blocks[position / limits.block_size];
            batch.token_ids.push(self.tokens[position]);
            batch.positions.push(position as u32);
            batch.slots.push(block * limits.block_size as u32 + (position % limits.block_size) as u32);
        }
        batch.row_starts.push(batch.token_ids.len() as u32);
        batch.context_lens.push(end as u32);
        if self.state != NO_STATE {
            batch.state_sources.push(if self.computed == 0 { NO_STATE } else { self.state });
            batch.state_slots.push(self.state);
            batch.state_saves.resize(batch.tokens(), NO_STATE);
        }
        let used = end.div_ceil(limits.block_size);
        batch.block_tables.extend_from_slice(&self.blocks[..used]);
        batch.block_tables.resize((row + 1) * batch.table_width, 0);
        for (index, table) in batch.window_tables.iter_mut().enumerate() {
            // Blocks that no sequence of a test has in the first table.
            let apart = (index as u32 + 1) * BLOCKS_APART;
            let begin = batch.slots.len() - count;
            table.slots.extend(batch.slots[begin..].iter().map(|slot| slot + apart * limits.block_size as u32));
            table.block_tables.extend(self.blocks[..used].iter().map(|block| block + apart));
            table.block_tables.resize((row + 1) * batch.table_width, 0);
        }
        if end == self.tokens.len() {
            batch.sampled_tokens.push(batch.tokens() as u32 - 1);
            batch.sampling.push(Sampling { position: end as u32, ..Sampling::GREEDY });
        }
        self.computed = end;
    }
}

/// A runner whose logits can be read.
pub trait Logits: Runner {
    /// Those of sample `row` of the last pass. `[vocab]`
    fn logits_of(&self, row: usize) -> Vec<f32>;
    /// Whether the model keeps recurrent states.
    fn keeps_states(&self) -> bool;
}

impl Logits for PassRunner<Cpu> {
    fn logits_of(&self, row: usize) -> Vec<f32> {
        logits(self, row).to_vec()
    }

    fn keeps_states(&self) -> bool {
        self.state_shape().slots > 0
    }
}

/// One pass from begin to end: the tokens it chose, one a sampled row.
pub fn pass(runner: &mut impl Runner, batch: &Batch) -> Vec<TokenId> {
    runner.submit(batch).unwrap();
    runner.collect(None).unwrap().expect("no deadline was given").tokens.to_vec()
}

/// Row `row` of the logits of the last pass.
pub fn logits(runner: &PassRunner<Cpu>, row: usize) -> &[f32] {
    let logits = runner.logits();
    &logits.values()[row * logits.cols()..(row + 1) * logits.cols()]
}

/// Greedy tokens after a prompt, alone in its batches, and the logits of each. `[count]`, `[count, vocab]`
pub fn greedy(
    runner: &mut impl Logits,
    limits: &BatchLimits,
    prompt: &[TokenId],
    count: usize,
) -> (Vec<TokenId>, Vec<Vec<f32>>) {
    let mut sequence = Sequence::new(prompt, 0..limits.table_width() as u32).of(runner, 0);
    let mut batch = Batch::with_limits(limits);
    let mut rows = Vec::new();
    for _ in 0..count {
        batch.clear();
        sequence.bring(sequence.pending(), limits, &mut batch);
        sequence.tokens.extend(pass(runner, &batch));
        rows.push(runner.logits_of(0));
    }
    (sequence.tokens[prompt.len()..].to_vec(), rows)
}

/// The number type of a golden case, from its name.
pub fn dtype_of(name: &str) -> DType {
    match name.split('-').find(|part| ["f32", "f16", "bf16"].contains(part)) {
        Some("f32") => DType::F32,
        Some("f16") => DType::F16,
        Some("bf16") => DType::Bf16,
        _ => panic!("{name} names no number type"),
    }
}
