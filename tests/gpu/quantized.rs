//! Models of quantized weights on a GPU: folders against transformers, GGUF files against the numbers that their blocks stand for, and
//! weights that are rounded while a model opens against the CPU.
//!
//! The tests need a GPU, so they are ignored unless `--include-ignored` asks for them.
use crate::blocks;
use crate::driver;
use crate::gguf_file;
use crate::reference;
use crate::scratch_folder;

use base::TokenId;
use compute::batch::{Batch, BatchLimits};
use compute::cpu::Isa;
use compute::cuda::Cuda;
use driver::{Logits, Sequence, config_of, dtype_of, golden, pass};
use formats::DType;
use formats::source::Source;
use gguf_file::GgufFile;
use reference::{Decided, Reference, assert_greedy, distance, follow};
use runner::options::EngineOptions;
use runner::pass_runner::PassRunner;
use runner::{Device, KvCacheDtype, Launching, OnLoad, Rounding};
use scratch_folder::Folder;
use serde_json::Value;
use std::ops::ControlFlow;
use std::path::Path;

/// The folders of tests/golden/quantized whose heads the kernels know.
const FOLDERS: &[&str] = &[
    "awq-f16-head64",
    "awq-f16-qwen3_5",
    "awq-f16-qwen3_moe",
    "ct-int4-bf16-head64",
    "ct-int4-bf16-lfm2",
    "ct-mxfp4-bf16-head64",
    "ct-w8a8-bf16-head64",
    "fp8-block-bf16-head64",
    "fp8-block-bf16-qwen3_5",
    "fp8-block-bf16-qwen3_moe",
    "gptq4-f16-head64",
    "gptq4-f16-qwen3_5",
    "gptq4-f16-qwen3_moe",
    "mxfp4-bf16-gpt_oss",
];

/// GGUF files of whose folders the same holds.
const FILES: &[&str] = &[
    "ernie4_5-bf16",
    "exaone4-bf16",
    "gemma2-bf16",
    "gemma3-bf16",
    "glm4-bf16",
    "granite-f16",
    "hunyuan-bf16-alpha",
    "llama-f16",
    "mistral-f16",
    "mistral3-bf16",
    "olmo2-f16",
    "olmo3-bf16",
    "phi3-f16-longrope-short96",
    "seed_oss-bf16",
];

fn config() -> EngineOptions {
    EngineOptions {
        device: Device::Cuda { index: 0 },
        kv_block_size: Some(16),
        kv_cache_bytes: Some(64 << 20),
        ..driver::config()
    }
}

fn open(path: &Path, config: &EngineOptions) -> (PassRunner<Cuda>, BatchLimits) {
    let source = Source::open(path).unwrap();
    let (runner, info) = runner::cuda::open(&source, config, 0, &mut |_| ControlFlow::Continue(()))
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    (runner, info.limits)
}

/// As far as cuda_model.rs allows plain weights, and half as far again: the numbers of codes are rounded to the number type of the model.
fn limit(dtype: DType) -> f32 {
    if dtype == DType::F16 { 7.5e-3 } else { 4e-2 }
}

/// The logits of a prompt of 70 tokens and of ten tokens after it, then those of batches of up to 300 rows.
fn rows(path: &Path, config: &EngineOptions) -> Vec<Vec<f32>> {
    let (mut runner, limits) = open(path, config);
    rows_of(&mut runner, &limits)
}

fn rows_of(runner: &mut impl Logits, limits: &BatchLimits) -> Vec<Vec<f32>> {
    let prompt = |len: usize| -> Vec<TokenId> { (0..len as u32).map(|i| (i * 37 + 5) % 48).collect() };
    let known = Reference {
        prompt: prompt(50),
        tokens: (0..10).map(|i| 3 + i * 7 % 40).collect(),
        logits: Vec::new(),
        bf16_apart: Vec::new(),
    };
    let (mut rows, _) = follow(runner, limits, &known);
    let mut batch = Batch::with_limits(limits);
    for count in [3, 11, 30, 60] {
        let width = limits.table_width() as u32;
        let mut sequences: Vec<Sequence> =
            (0..count).map(|i| Sequence::new(&prompt(1 + (i as usize * 7) % 9), i * width..(i + 1) * width)).collect();
        for _ in 0..2 {
            batch.clear();
            for sequence in &mut sequences {
                sequence.bring(sequence.pending(), limits, &mut batch);
                sequence.tokens.push(7);
            }
            pass(runner, &batch);
            rows.extend((0..count as usize).map(|row| runner.logits_of(row)));
        }
    }
    rows
}

fn furthest(wanted: &[Vec<f32>], found: &[Vec<f32>]) -> f32 {
    assert_eq!(wanted.len(), found.len());
    wanted.iter().zip(found).map(|(wanted, found)| distance(found, wanted)).fold(0.0, f32::max)
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn folders_give_the_logits_of_the_numbers_that_their_codes_stand_for() {
    let mut all = Decided::default();
    for name in FOLDERS {
        let path = golden(&format!("quantized/{name}"));
        let reference = Reference::read(&format!("quantized/{name}"));
        for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
            for launching in [Launching::Graphs, Launching::Eager] {
                let (mut runner, limits) = open(&path, &EngineOptions { rounding, launching, ..config() });
                let (found, chosen) = follow(&mut runner, &limits, &reference);
                let apart = furthest(&reference.logits, &found);
                let what = format!("{name}, {rounding:?}, {launching:?}");
                println!("{what}: at most {apart:.5} apart");
                // A recurrence magnifies what is rounded.
                let limit = limit(dtype_of(name)) * if name.ends_with("qwen3_5") { 4.0 } else { 1.0 };
                assert!(apart <= limit, "{what}: {apart} apart");
                let decided = assert_greedy(&chosen, &found, &reference, limit, &what);
                // The limit leaves less than half of some references.
                if !name.ends_with("qwen3_5") {
                    decided.assert_at_least(if name.ends_with("gpt_oss") { 0.3 } else { 0.4 }, &what);
                    all += decided;
                }
            }
        }
    }
    all.assert_at_least(0.5, "all folders");
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn files_of_blocks_give_the_logits_of_the_numbers_that_they_stand_for() {
    let path = |kind: &str| std::env::temp_dir().join(format!("nanovllm-{kind}-{}.gguf", std::process::id()));
    let (coded_path, plain_path) = (path("coded"), path("plain"));
    for (name, kinds) in blocks::mixtures() {
        let (coded, plain) = blocks::files(&kinds, [256, 512]);
        std::fs::write(&coded_path, coded.bytes()).unwrap();
        std::fs::write(&plain_path, plain.bytes()).unwrap();
        for dtype in [DType::Bf16, DType::F16] {
            let config = |rounding, kv_cache_dtype| EngineOptions {
                dtype: Some(dtype),
                rounding,
                kv_cache_dtype,
                max_model_len: Some(64),
                ..config()
            };
            let invariant = config(Rounding::BatchInvariant, KvCacheDtype::Auto);
            let wanted = rows(&plain_path, &invariant);
            assert!(rows(&coded_path, &invariant) == wanted, "{name} in {dtype:?}: bits differ");
            let apart = furthest(&wanted, &rows(&coded_path, &config(Rounding::Fastest, KvCacheDtype::Auto)));
            println!("{name} in {dtype:?}: at most {apart:.5} apart");
            assert!(apart <= limit(dtype), "{name} in {dtype:?}: {apart} apart");
            let apart = furthest(&wanted, &rows(&coded_path, &config(Rounding::Fastest, KvCacheDtype::Int8)));
            assert!(apart <= 8e-2, "{name} in {dtype:?}, keys and values in int8: {apart} apart");
        }
    }
    std::fs::remove_file(&coded_path).unwrap();
    std::fs::remove_file(&plain_path).unwrap();
}

fn merge(config: &mut Value, edits: &Value) {
    for (name, value) in edits.as_object().unwrap() {
        match (config.get_mut(name), value) {
            (Some(inner @ Value::Object(_)), Value::Object(_)) => merge(inner, value),
            _ => config[name] = value.clone(),
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn files_of_families_give_the_logits_of_their_folders() {
    for name in FILES {
        let file = GgufFile::assemble(name, "cuda");
        let folder = Folder::copy(&file.folder, &format!("cuda-gguf-{name}"));
        folder.edit_json("config.json", |config| merge(config, &file.config));
        let config = EngineOptions { max_model_len: config_of(name).max_model_len.or(Some(64)), ..config() };
        let apart = furthest(&rows(&folder.path, &config), &rows(&file.path, &config));
        println!("{name}: at most {apart:.5} apart");
        assert!(apart <= limit(dtype_of(name)), "{name}: {apart} apart");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn weights_that_are_rounded_on_load_give_the_logits_that_they_give_on_the_cpu() {
    for name in ["qwen3-bf16-head128", "llama-f16-head64-llama3", "qwen2-bf16-head96-gqa7"] {
        let short = |config| EngineOptions { max_model_len: Some(64), ..config };
        let plain = rows(&golden(name), &short(config()));
        let mut from_plain = Vec::new();
        for on_load in [OnLoad::Int8, OnLoad::Int4] {
            let on_cpu = EngineOptions { on_load, dtype: Some(DType::F32), ..short(driver::config()) };
            let (mut cpu, info) = driver::open(&golden(name), &on_cpu, Isa::Portable).unwrap();
            let wanted = rows_of(&mut cpu, &info.limits);
            let found = rows(&golden(name), &EngineOptions { on_load, ..short(config()) });
            let apart = furthest(&wanted, &found);
            from_plain.push(furthest(&plain, &found));
            println!(
                "{name}, {on_load:?}: at most {apart:.5} apart from the CPU, {:.5} from plain weights",
                from_plain.last().unwrap()
            );
            assert!(apart <= limit(dtype_of(name)), "{name}, {on_load:?}: {apart} apart");
        }
        assert!(0.0 < from_plain[0] && from_plain[0] < from_plain[1], "{name}: 8 bits are nearer than 4");
    }
}
