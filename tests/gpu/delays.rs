//! The same passes again and again on a GPU: equal logits, bit for bit, whatever the order in which kernels meet.
//!
//! Kernels begin before those ahead of them have ended (decision 9). One that reads too early does so rarely, unless the kernels were compiled
//! with `NVLLM_CUDA_DELAYS=1`: then warps pause at random where kernels wait and where they let the next one begin.
//! `NVLLM_TEST_STEPS` is the number of passes of each configuration (500), `NVLLM_TEST_MODEL` a folder of one more model.
use crate::driver;

use base::TokenId;
use compute::batch::{Batch, BatchLimits};
use compute::cuda::Cuda;
use driver::{Sequence, golden, pass};
use formats::source::Source;
use runner::options::EngineOptions;
use runner::pass_runner::PassRunner;
use runner::{Device, KvCacheDtype, Rounding, SharedPrefixes, Switches};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// One prompt pass and decode passes: what each left in the logits.
const PASSES: usize = 10;
/// Rows of the batches: the kernels for few rows, for up to 64, and what is padded between sizes of graphs.
const ROWS: [u32; 8] = [1, 2, 5, 8, 12, 24, 40, 64];
const BLOCKS_PER_ROW: u32 = 6;
/// Rows of long contexts: their (row, KV head)s are split over thread blocks that leave parts for each other.
const LONG_ROWS: [usize; 2] = [160, 256];
const LONG_CONTEXT: usize = 256;

fn config() -> EngineOptions {
    EngineOptions {
        device: Device::Cuda { index: 0 },
        kv_block_size: Some(16),
        max_num_seqs: Some(64),
        max_model_len: Some((16 * BLOCKS_PER_ROW) as usize),
        kv_cache_bytes: Some(512 << 20),
        ..driver::config()
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn passes_leave_the_same_logits_whenever_their_kernels_meet() {
    let steps = std::env::var("NVLLM_TEST_STEPS").map_or(500, |steps| steps.parse().unwrap());
    let mut folders: Vec<PathBuf> =
        ["qwen3-bf16-head128", "qwen2-f16-head128", "gemma2-bf16-head64"].map(golden).to_vec();
    folders.extend(std::env::var_os("NVLLM_TEST_MODEL").map(PathBuf::from));
    let variants = [
        (SharedPrefixes::WhereItPays, config()),
        (SharedPrefixes::WhereItPays, EngineOptions { rounding: Rounding::BatchInvariant, ..config() }),
        (SharedPrefixes::WhereItPays, EngineOptions { kv_cache_dtype: KvCacheDtype::Int8, ..config() }),
        (SharedPrefixes::Always, config()),
    ];
    for folder in &folders {
        for &(shared_prefixes, ref config) in &variants {
            let name = format!(
                "{}, {:?}, KV cache {:?}, {:?}",
                folder.display(),
                config.rounding,
                config.kv_cache_dtype,
                shared_prefixes
            );
            let source = Source::open(folder).unwrap();
            let switches = Switches { shared_prefixes, ..Switches::NONE };
            let (mut runner, info) =
                runner::cuda::open_with(&switches, &source, config, 0, &mut |_| ControlFlow::Continue(())).unwrap();
            let wanted = ROWS.map(|rows| logits_of_passes(&mut runner, &info.limits, rows));
            let mut made = ROWS.len() * PASSES;
            while made < steps {
                for (rows, wanted) in ROWS.into_iter().zip(&wanted) {
                    let found = logits_of_passes(&mut runner, &info.limits, rows);
                    for (step, (found, wanted)) in found.iter().zip(wanted).enumerate() {
                        assert!(found == wanted, "{name}: {rows} rows, pass {step}: other logits after {made} passes");
                    }
                    made += PASSES;
                }
            }
            println!("{name}: {made} passes");
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn parts_that_thread_blocks_leave_for_each_other_are_complete_whenever_they_meet() {
    let steps: usize = std::env::var("NVLLM_TEST_STEPS").map_or(500, |steps| steps.parse().unwrap());
    for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
        let config = EngineOptions {
            rounding,
            kv_block_size: Some(64),
            max_num_seqs: Some(256),
            max_batched_tokens: Some(4096),
            max_model_len: Some(LONG_CONTEXT),
            ..config()
        };
        let source = Source::open(&golden("qwen2-f16-head128")).unwrap();
        let switches = Switches { shared_prefixes: SharedPrefixes::Never, ..Switches::NONE };
        let (mut runner, info) =
            runner::cuda::open_with(&switches, &source, &config, 0, &mut |_| ControlFlow::Continue(())).unwrap();
        for rows in LONG_ROWS {
            let mut sequences = prompted(&mut runner, &info.limits, rows);
            let begun = sequences.clone();
            let mut wanted = Vec::new();
            for round in 0..steps.div_ceil(PASSES) {
                sequences.clone_from(&begun);
                for step in 0..PASSES {
                    let found = decoded(&mut runner, &info.limits, &mut sequences);
                    if round == 0 {
                        wanted.push(found);
                    } else {
                        assert!(
                            found == wanted[step],
                            "{rounding:?}, {rows} rows: other logits in round {round}, pass {step}"
                        );
                    }
                }
            }
            println!("{rounding:?}, {rows} rows: {} passes", steps.div_ceil(PASSES) * PASSES);
        }
    }
}

/// `rows` sequences of different lengths after their prompts.
fn prompted(runner: &mut PassRunner<Cuda>, limits: &BatchLimits, rows: usize) -> Vec<Sequence> {
    let blocks = (LONG_CONTEXT / limits.block_size) as u32;
    let mut batch = Batch::with_limits(limits);
    let sequences = (0..rows).map(|row| {
        let len = 100 + row * 37 % (LONG_CONTEXT - 100 - PASSES);
        let prompt: Vec<TokenId> = (0..len).map(|i| ((i * 37 + row * 11 + 5) % 89) as TokenId).collect();
        let mut sequence = Sequence::new(&prompt, (row as u32 * blocks..).take(blocks as usize));
        batch.clear();
        sequence.bring(sequence.pending(), limits, &mut batch);
        sequence.tokens.extend(pass(runner, &batch));
        sequence
    });
    sequences.collect()
}

/// The bits of the logits of a pass that brings one token of each sequence.
fn decoded(runner: &mut PassRunner<Cuda>, limits: &BatchLimits, sequences: &mut [Sequence]) -> Vec<u32> {
    let mut batch = Batch::with_limits(limits);
    batch.clear();
    for sequence in sequences.iter_mut() {
        sequence.bring(1, limits, &mut batch);
    }
    let chosen = pass(runner, &batch);
    for (sequence, token) in sequences.iter_mut().zip(chosen) {
        sequence.tokens.push(token);
    }
    let sampled = sequences.len() * runner.vocab_size();
    runner.read_logits().unwrap()[..sampled].iter().map(|logit| logit.to_bits()).collect()
}

/// The bits of all logits of [`PASSES`] passes over `rows` sequences, whose first blocks are the same.
fn logits_of_passes(runner: &mut PassRunner<Cuda>, limits: &BatchLimits, rows: u32) -> Vec<Vec<u32>> {
    let prompt: Vec<TokenId> = (0..40).map(|i| (i * 37 + 5) % 89).collect();
    let own = BLOCKS_PER_ROW - 2;
    let mut sequences: Vec<Sequence> = (0..rows)
        .map(|row| {
            let mut sequence =
                Sequence::new(&prompt[..40 - row as usize % 5], (0..2).chain(2 + own * row..2 + own * (row + 1)));
            // The first row computes the shared blocks in the first pass, in which the others read them.
            sequence.computed = if row == 0 { 0 } else { 32 };
            sequence
        })
        .collect();
    let mut batch = Batch::with_limits(limits);
    let passes = (0..PASSES).map(|_| {
        batch.clear();
        for sequence in &mut sequences {
            sequence.bring(sequence.pending(), limits, &mut batch);
        }
        let chosen = pass(runner, &batch);
        for (sequence, token) in sequences.iter_mut().zip(chosen) {
            sequence.tokens.push(token);
        }
        let sampled = rows as usize * runner.vocab_size();
        runner.read_logits().unwrap()[..sampled].iter().map(|logit| logit.to_bits()).collect()
    });
    passes.collect()
}
