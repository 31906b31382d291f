//! Models on a GPU whose experts stay in the host's memory, where the CPU computes them.
//!
//! The tests need a GPU, so they are ignored unless `--include-ignored` asks for them.
use crate::driver;
use crate::model::{BF16, compare_rows, config, config_of, magnified};
use crate::reference;
use crate::scratch_folder;

use base::TokenId;
use base::error::Error;
use compute::cuda::Cuda;
use driver::golden;
use engine::options::EngineOptions;
use engine::sampling_params::SamplingParams;
use engine::{Budget, Engine, Prompt};
use formats::source::Source;
use model::description::Description;
use reference::{Decided, Reference, assert_greedy, distance, follow};
use runner::pass_runner::PassRunner;
use runner::{Device, Launching, ModelInfo, OnLoad, Rounding};
use safetensors::Dtype;
use scratch_folder::Folder;
use std::ops::ControlFlow;
use std::path::Path;

/// Experts with and without a shared one, with biases, beside an MLP, and behind recurrent layers.
const CASES: &[&str] = &[
    "afmoe-bf16-tied",
    "deepseek_v3-bf16-halves",
    "ernie4_5_moe-bf16",
    "gemma4_text-bf16-experts",
    "glm4_moe-bf16-not-normed",
    "gpt_oss-bf16-no-bias",
    "granitemoehybrid-bf16-experts",
    "hunyuan_moe-bf16-alpha",
    "lfm2_moe-bf16-not-normed",
    "mixtral-bf16-tied",
    "nemotron_h-bf16-latent",
    "olmoe-bf16-normed",
    "qwen2_moe-bf16-normed",
    "qwen3_5_moe-bf16-wrapped",
    "qwen3_moe-bf16-not-normed",
    "qwen3_next-bf16-not-normed",
];

/// Layers of a model that have experts.
fn layers(path: &Path) -> usize {
    let spec = Description::read(&Source::open(path).unwrap()).unwrap().spec;
    let mut layers: Vec<usize> = spec.expert_layers().map(|(layer, _)| layer).collect();
    layers.dedup();
    layers.len()
}

fn open(path: &Path, config: &EngineOptions) -> (PassRunner<Cuda>, ModelInfo) {
    let source = Source::open(path).unwrap();
    let (runner, info) = runner::cuda::open(&source, config, 0, &mut |_| ControlFlow::Continue(()))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(Some(info.host_experts.layers), config.host_expert_layers);
    assert_eq!(info.host_experts.bytes > 0, info.host_experts.layers > 0);
    (runner, info)
}

/// The logits of the steps of a reference, and how far they are from it at most.
fn furthest(path: &Path, name: &str, config: &EngineOptions, limit: f32) -> (f32, Decided) {
    let reference = Reference::read(name);
    let (mut runner, info) = open(path, config);
    let (rows, chosen) = follow(&mut runner, &info.limits, &reference);
    let apart = rows.iter().zip(&reference.logits).map(|(found, wanted)| distance(found, wanted));
    let what = format!("{name}, {:?}, {:?} layers", config.launching, config.host_expert_layers);
    let furthest = apart.fold(0.0, f32::max);
    assert!(furthest <= limit, "{what}: {furthest} apart");
    let decided = assert_greedy(&chosen, &rows, &reference, limit, &what);
    println!("{what}: logits at most {furthest:.5} of their norm apart, {decided:?}");
    (furthest, decided)
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn logits_and_greedy_tokens_are_those_of_transformers() {
    let mut all = Decided::default();
    for name in CASES {
        let path = golden(name);
        for on_host in [1, layers(&path)] {
            for launching in [Launching::Graphs, Launching::Eager] {
                let config = EngineOptions { host_expert_layers: Some(on_host), launching, ..config_of(name) };
                all += furthest(&path, name, &config, magnified(name) * BF16).1;
            }
        }
    }
    all.assert_at_least(0.3, "all cases");
}

/// What the host computes of a row depends on that row alone, and so does the rest with batch-invariant rounding: no bit differs with other rows, padding,
/// chunks or graphs.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_row_depends_on_neither_batch_nor_chunks_nor_graphs() {
    for name in
        ["glm4_moe-bf16-not-normed", "gpt_oss-bf16-no-bias", "qwen3_5_moe-bf16-wrapped", "qwen3_moe-bf16-not-normed"]
    {
        for on_host in [1, layers(&golden(name))] {
            let rounding = Rounding::BatchInvariant;
            let config = EngineOptions { host_expert_layers: Some(on_host), rounding, ..config() };
            compare_rows(&[name], &config, 0.0);
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn quantized_experts_are_computed_from_their_codes() {
    // The CPU rounds what it multiplies with codes to integers.
    const LIMIT: f32 = 9e-2;
    for name in ["awq-f16-qwen3_moe", "ct-int4-bf16-qwen3_moe", "fp8-block-bf16-qwen3_moe", "mxfp4-bf16-gpt_oss"] {
        let path = golden(&format!("quantized/{name}"));
        for on_host in [1, layers(&path)] {
            let config = EngineOptions { host_expert_layers: Some(on_host), ..config() };
            furthest(&path, &format!("quantized/{name}"), &config, LIMIT);
        }
    }
}

/// A folder of zeros with the shape of a larger Qwen3-MoE: 150 MB of experts in each of eight layers.
fn large(test: &str) -> Folder {
    const HIDDEN: usize = 1024;
    const WIDTH: usize = 768;
    const EXPERTS: usize = 32;
    const LAYERS: usize = 8;
    let folder = Folder::copy("qwen3_moe-bf16-not-normed", test);
    folder.edit_json("config.json", |config| {
        config["hidden_size"] = HIDDEN.into();
        config["moe_intermediate_size"] = WIDTH.into();
        config["num_local_experts"] = EXPERTS.into();
        config["num_hidden_layers"] = LAYERS.into();
    });
    folder.edit_tensors(|tensors| {
        let old = std::mem::take(tensors);
        let mut zeros = |name: String, shape: Vec<usize>| {
            let bytes = vec![0; 2 * shape.iter().product::<usize>()];
            tensors.insert(name, (Dtype::BF16, shape, bytes));
        };
        for (name, (_, shape, _)) in &old {
            let wide = |size: &usize| if *size == 32 { HIDDEN } else { *size };
            let Some(of_layer) = name.strip_prefix("model.layers.0.") else {
                if !name.starts_with("model.layers.") {
                    zeros(name.clone(), shape.iter().map(wide).collect());
                }
                continue;
            };
            for layer in (0..LAYERS).filter(|_| !of_layer.starts_with("mlp.")) {
                zeros(format!("model.layers.{layer}.{of_layer}"), shape.iter().map(wide).collect());
            }
        }
        for layer in 0..LAYERS {
            zeros(format!("model.layers.{layer}.mlp.gate.weight"), vec![EXPERTS, HIDDEN]);
            for expert in 0..EXPERTS {
                for (part, shape) in [("gate", [WIDTH, HIDDEN]), ("up", [WIDTH, HIDDEN]), ("down", [HIDDEN, WIDTH])] {
                    zeros(format!("model.layers.{layer}.mlp.experts.{expert}.{part}_proj.weight"), shape.to_vec());
                }
            }
        }
    });
    folder
}

/// Beside a budget that holds half of the experts.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn as_many_experts_stay_on_the_host_as_the_budget_does_not_hold() {
    let folder = large("host-experts");
    let options = |budget: u64, host_expert_layers| EngineOptions {
        model_path: folder.path.clone(),
        device: Device::Cuda { index: 0 },
        gpu_memory_bytes: Some(budget),
        kv_cache_bytes: None,
        max_batched_tokens: Some(256),
        max_num_seqs: Some(8),
        host_expert_layers,
        ..config()
    };
    let open = |options: &EngineOptions| Engine::open(options, &mut |_| ControlFlow::Continue(()));
    let roomy = open(&options(8 << 30, None)).unwrap();
    let (all, info) = (roomy.handle().stats().gpu_memory_bytes, roomy.handle().model_info().clone());
    assert_eq!(info.host_experts.layers, 0);
    drop(roomy);
    // The cache of the roomy one is as large as its sequences can use.
    let budget = all - info.kv_cache_bytes - (600 << 20) + (512 << 20);
    let mut engine = open(&options(budget, None)).unwrap();
    let (taken, found) = (engine.handle().stats().gpu_memory_bytes, engine.handle().model_info().host_experts);
    println!("budget of {budget} bytes: {taken} taken, {found:?}");
    assert!((1..8).contains(&found.layers), "{found:?}");
    assert!(taken <= budget + budget / 50, "{taken} bytes of {budget}");
    let prompt: Vec<TokenId> = (5..40).collect();
    let params = SamplingParams { max_tokens: Some(9), ..SamplingParams::default() };
    engine.handle().add_request(Prompt::Tokens(&prompt), params).unwrap();
    let mut answer: Vec<TokenId> = Vec::new();
    while !engine.handle().is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            answer.extend(&output.token_ids);
        }
    }
    assert!(!answer.is_empty());
    drop(engine);
    let tight = all - info.kv_cache_bytes - (700 << 20);
    match open(&options(tight, Some(0))) {
        Err(Error::ExpertsTooLarge { asked: 0, fits, layers: 8, .. }) => {
            println!("budget of {tight} bytes: at least {fits} layers");
            assert!((1..8).contains(&fits), "{fits}");
            let engine = open(&options(tight, Some((fits + 2).min(8)))).unwrap();
            assert_eq!(engine.handle().model_info().host_experts.layers, (fits + 2).min(8));
        }
        other => panic!("{:?}", other.map(drop)),
    }
    match open(&options(8 << 30, Some(9))) {
        Err(Error::Option { field: "host_expert_layers", .. }) => (),
        other => panic!("{:?}", other.map(drop)),
    }
}

/// Weights that are quantized while a model opens.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn experts_may_be_quantized_while_they_are_loaded() {
    let name = "qwen3_moe-bf16-not-normed";
    let path = golden(name);
    let rows = |host_expert_layers| {
        let config = EngineOptions { host_expert_layers, on_load: OnLoad::Int8, ..config_of(name) };
        let (mut runner, info) = open(&path, &config);
        follow(&mut runner, &info.limits, &Reference::read(name)).0
    };
    let wanted = rows(Some(0));
    let apart = rows(Some(2)).iter().zip(&wanted).map(|(a, b)| distance(a, b)).fold(0.0, f32::max);
    println!("int8: {apart:.5} apart");
    assert!(apart <= BF16, "{apart} apart");
}
