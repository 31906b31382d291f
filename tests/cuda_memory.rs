//! `gpu_memory_bytes` against what `nvidia-smi` says, which must see no other program on GPU 0 meanwhile.
//!
//! The tests need a GPU, so they are ignored unless `--include-ignored` asks for them. `NVLLM_TEST_MODEL` names a larger model than the demo.
#![cfg(nvllm_cuda)]

mod demo;

use nanovllm::engine::options::EngineOptions;
use nanovllm::engine::sampling_params::SamplingParams;
use nanovllm::engine::{Budget, Engine, Prompt};
use nanovllm::runner::Device;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;

/// Bytes of GPU 0 that are in use, to a mebibyte.
fn used() -> u64 {
    let query = ["--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"];
    let output = Command::new("nvidia-smi").args(query).output().expect("nvidia-smi is installed");
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().parse::<u64>().unwrap_or_else(|_| panic!("nvidia-smi says {text:?}")) << 20
}

fn options(gpu_memory_bytes: u64) -> EngineOptions {
    let demo = demo::options(Device::Cuda { index: 0 });
    let model_path = std::env::var_os("NVLLM_TEST_MODEL").map_or(demo.model_path.clone(), PathBuf::from);
    EngineOptions {
        model_path,
        kv_cache_bytes: None,
        gpu_memory_bytes: Some(gpu_memory_bytes),
        max_model_len: Some(4096),
        max_num_seqs: Some(256),
        ..demo
    }
}

/// An engine with this budget computes 64 requests: what it took by its own account and by nvidia-smi, and what of it the KV cache is.
fn run(gpu_memory_bytes: u64) -> (u64, u64, u64) {
    let before = used();
    let mut engine = Engine::open(&options(gpu_memory_bytes), &mut |_| ControlFlow::Continue(())).unwrap();
    let handle = engine.handle().clone();
    for tag in 0..64 {
        let prompt: Vec<u32> = (0..100).map(|i| 5 + (i * 7 + tag * 31) % 200).collect();
        let params = SamplingParams {
            tag: u64::from(tag),
            max_tokens: Some(300),
            min_tokens: 300,
            temperature: if tag % 2 == 0 { 0.0 } else { 1.0 },
            ..SamplingParams::default()
        };
        handle.add_request(Prompt::Tokens(&prompt), params).unwrap();
    }
    let mut most = 0;
    let mut steps = 0;
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while engine.next_output().is_some() {}
        if steps % 100 == 0 {
            most = most.max(used());
        }
        steps += 1;
    }
    most = most.max(used());
    let (stats, info) = (handle.stats(), handle.model_info());
    (stats.gpu_memory_bytes, most - before, info.kv_cache_bytes)
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_budget_holds_all_that_an_engine_takes() {
    let of = |budget: u64| {
        let (own, seen, kv) = run(budget);
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        println!(
            "budget {:.0} MiB: {:.0} by the engine's account, {:.0} by nvidia-smi, {:.0} of it KV cache",
            mib(budget),
            mib(own),
            mib(seen),
            mib(kv)
        );
        let two_percent = budget / 50;
        assert!(seen <= budget + two_percent, "{seen} bytes were taken of {budget}");
        assert!(own.abs_diff(seen) <= two_percent, "{own} bytes by the engine's account, {seen} by nvidia-smi");
    };
    of(3 << 30);
    of(8 << 30);
}
