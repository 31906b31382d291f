//! Whole models on two GPUs: against one GPU, and against themselves.

use super::{PATIENCE, devices, within};
use crate::driver::{self, Logits, Sequence, dtype_of, golden, greedy, pass};
use crate::reference::{HALF_PRECISION, Reference, distance, follow};
use base::TokenId;
use compute::batch::{Batch, BatchLimits, NO_STATE};
use compute::cuda::{Cuda, Transport};
use formats::DType;
use formats::source::Source;
use runner::options::EngineOptions;
use runner::parallel::ParallelRunner;
use runner::pass_runner::PassRunner;
use runner::{Device, Launching, Rounding, Switches};
use std::ops::ControlFlow;
use std::time::Duration;

/// Golden checkpoints whose heads the kernels know, of several families, with heads that are divided evenly, unevenly and not at all.
pub const CASES: &[&str] = &[
    "cohere2-f16-pattern3",
    "gemma2-bf16-head64",
    "gemma3-bf16-old-keys",
    "glm4-bf16-no-bias",
    "granite-f16-tied",
    "llama-bf16-head80-gqa1",
    "llama-f16-head64-llama3",
    "mistral-bf16-window24-head128",
    "muse_glimmer-bf16-tied",
    "olmo2-f16",
    "phi3-f16-longrope-short96",
    "qwen2-bf16-head96-gqa7",
    "qwen2-f16-head128",
    "qwen3-bf16-head128",
    "qwen3-bf16-head64-gqa16",
    "qwen3-f16-head256",
    "seed_oss-bf16-out-bias",
];

/// Quantized weights, whose groups are of inputs: a rank has some outputs of a matrix, or whole groups.
const QUANTIZED: &[&str] = &[
    "quantized/awq-f16-head64",
    "quantized/ct-int4-bf16-head64",
    "quantized/ct-mxfp4-bf16-head64",
    "quantized/ct-w8a8-bf16-head64",
    "quantized/fp8-block-bf16-head64",
    "quantized/gptq4-f16-head64",
];

/// A checkpoint with heads for up to 16 ranks.
pub const MANY_HEADS: &str = "qwen3-bf16-head64-gqa16";

/// Those of `cases` with a query head for each rank.
fn with_heads_for_all<'a>(cases: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let ranks = devices().len();
    let heads = |name: &str| {
        let config = std::fs::read(golden(name).join("config.json")).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        let text = config.get("text_config").unwrap_or(&config);
        text["num_attention_heads"].as_u64().unwrap() as usize
    };
    cases.iter().copied().filter(move |name| heads(name) >= ranks)
}

const LIMIT: Duration = Duration::from_secs(60);

impl Logits for ParallelRunner<Cuda> {
    fn logits_of(&self, row: usize) -> Vec<f32> {
        self.first().logits_of(row)
    }

    fn keeps_states(&self) -> bool {
        self.first().keeps_states()
    }
}

pub fn config(name: &str) -> EngineOptions {
    EngineOptions {
        device: Device::Cuda { index: 0 },
        kv_block_size: Some(16),
        max_num_seqs: Some(24),
        kv_cache_bytes: Some(64 << 20),
        max_model_len: driver::config_of(name).max_model_len,
        peer_timeout: Some(PATIENCE),
        processes: None,
        ..driver::config()
    }
}

pub fn alone(name: &str, config: &EngineOptions) -> (PassRunner<Cuda>, BatchLimits) {
    let source = Source::open(&golden(name)).unwrap();
    let (runner, info) = runner::cuda::open(&source, config, 0, &mut |_| ControlFlow::Continue(()))
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    (runner, info.limits)
}

pub fn together(name: &str, config: &EngineOptions) -> (ParallelRunner<Cuda>, BatchLimits) {
    together_by(None, name, config)
}

pub fn together_by(
    transport: Option<Transport>,
    name: &str,
    config: &EngineOptions,
) -> (ParallelRunner<Cuda>, BatchLimits) {
    let source = Source::open(&golden(name)).unwrap();
    let devices = devices();
    let config = EngineOptions { tensor_parallel_size: devices.len(), ..config.clone() };
    let proceed = &mut |_| ControlFlow::Continue(());
    let (runner, info) = runner::cuda::open_ranks_by(transport, &Switches::NONE, &source, &config, &devices, proceed)
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(info.num_ranks, devices.len());
    (runner, info.limits)
}

fn prompt(len: usize) -> Vec<TokenId> {
    (0..len as u32).map(|i| (i * 37 + 5) % 89).collect()
}

/// The reference's own tokens, so that rows can be compared whatever came before.
fn reference() -> Reference {
    Reference {
        prompt: prompt(70),
        tokens: (0..10).map(|i| 3 + i * 7 % 90).collect(),
        logits: Vec::new(),
        bf16_apart: Vec::new(),
    }
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn two_gpus_compute_nearly_what_one_computes_and_the_same_in_every_run() {
    compute_nearly_what_one_computes(None, CASES);
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn two_gpus_compute_with_weights_in_codes_what_one_computes() {
    compute_nearly_what_one_computes(None, QUANTIZED);
    have_the_bits_of_one(None, QUANTIZED);
}

pub fn compute_nearly_what_one_computes(transport: Option<Transport>, cases: &[&str]) {
    for name in with_heads_for_all(cases) {
        within(LIMIT, || {
            let config = config(name);
            let (mut one, limits) = alone(name, &config);
            let (wanted, _) = follow(&mut one, &limits, &reference());
            let (mut two, limits) = together_by(transport, name, &config);
            let (found, _) = follow(&mut two, &limits, &reference());
            let apart = wanted.iter().zip(&found).map(|(a, b)| distance(b, a)).fold(0.0, f32::max);
            println!("{name}: logits at most {apart:.5} of their norm apart");
            let bound = if dtype_of(name) == DType::F16 { 1e-2 } else { 2.0 * HALF_PRECISION };
            assert!(apart <= bound, "{name}: {apart} apart");
            let (again, _) = follow(&mut two, &limits, &reference());
            assert!(found == again, "{name}: a second run differs");
        });
    }
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn a_batch_invariant_row_has_the_same_bits_on_one_and_on_two_gpus() {
    have_the_bits_of_one(None, CASES);
}

pub fn have_the_bits_of_one(transport: Option<Transport>, cases: &[&str]) {
    for name in with_heads_for_all(cases) {
        within(LIMIT, || {
            let config = EngineOptions { rounding: Rounding::BatchInvariant, ..config(name) };
            let (mut one, limits) = alone(name, &config);
            let (mut two, _) = together_by(transport, name, &config);
            let (wanted, _) = follow(&mut one, &limits, &reference());
            let (found, _) = follow(&mut two, &limits, &reference());
            for (step, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
                assert!(found == wanted, "{name}, step {step}: {} apart", distance(found, wanted));
            }
            // Among others, and in chunks.
            let keeps_states = one.keeps_states();
            let rows = |runner: &mut dyn FnMut(&Batch, &mut Vec<Vec<f32>>)| {
                let mut rows = Vec::new();
                let mut sequences: Vec<Sequence> = (0..20)
                    .map(|i| Sequence {
                        state: if keeps_states { i } else { NO_STATE },
                        ..Sequence::new(&prompt(1 + (i as usize * 7) % 50), i * 6..(i + 1) * 6)
                    })
                    .collect();
                let mut batch = Batch::with_limits(&limits);
                for _ in 0..4 {
                    batch.clear();
                    for sequence in &mut sequences {
                        let pending = sequence.pending();
                        sequence.bring(pending, &limits, &mut batch);
                        sequence.tokens.push(7);
                    }
                    runner(&batch, &mut rows);
                }
                rows
            };
            let wanted = rows(&mut |batch, rows| {
                pass(&mut one, batch);
                rows.extend((0..20).map(|row| one.logits_of(row)));
            });
            let found = rows(&mut |batch, rows| {
                pass(&mut two, batch);
                rows.extend((0..20).map(|row| two.logits_of(row)));
            });
            assert!(found == wanted, "{name}: batches of 20 differ");
        });
    }
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn graphs_compute_nearly_what_launches_compute_on_two_gpus() {
    compute_by_graphs(None, &["qwen3-bf16-head128", "olmo2-f16", "gemma2-bf16-head64", MANY_HEADS]);
}

pub fn compute_by_graphs(transport: Option<Transport>, cases: &[&str]) {
    for name in with_heads_for_all(cases) {
        for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
            within(LIMIT, || {
                let config = EngineOptions { rounding, ..config(name) };
                let (mut graphs, limits) = together_by(transport, name, &config);
                let (mut eager, _) =
                    together_by(transport, name, &EngineOptions { launching: Launching::Eager, ..config.clone() });
                let (wanted, _) = follow(&mut graphs, &limits, &reference());
                let (found, _) = follow(&mut eager, &limits, &reference());
                let apart = wanted.iter().zip(&found).map(|(a, b)| distance(b, a)).fold(0.0, f32::max);
                let bound = if rounding == Rounding::BatchInvariant { 0.0 } else { 2.0 * HALF_PRECISION };
                assert!(apart <= bound, "{name}, {rounding:?}: {apart} apart");
            });
        }
    }
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn engines_on_two_gpus_come_and_go_and_leave_the_devices_as_they_were() {
    come_and_go(None, 20);
}

/// As many engines as `engines`. Memory is free again as after the fifth.
pub fn come_and_go(transport: Option<Transport>, engines: usize) {
    let probes: Vec<_> = devices().into_iter().map(|device| Cuda::open(device, DType::Bf16).unwrap()).collect();
    let name = MANY_HEADS;
    let config = EngineOptions { max_num_seqs: Some(4), ..config(name) };
    let mut wanted = None;
    let mut free = Vec::new();
    for _ in 0..engines {
        within(LIMIT, || {
            let (mut first, limits) = together_by(transport, name, &config);
            let found = greedy(&mut first, &limits, &prompt(20), 6);
            assert!(*wanted.get_or_insert(found.clone()) == found, "a later engine computes the same");
            drop(first);
            free.push(probes.iter().map(|probe| probe.memory().unwrap().0).collect::<Vec<_>>());
        });
    }
    assert_eq!(free[4], free[engines - 1], "free bytes after each: {free:?}");
}
