//! `gpu_memory_bytes` and `nvllm_trim` against what `nvidia-smi` says, which must see no other program on GPU 0 meanwhile.
//!
//! The tests need a GPU, so they are ignored unless `--include-ignored` asks for them. `NVLLM_TEST_MODEL` names a larger model than the demo.
use crate::demo;

use base::TokenId;
use engine::options::EngineOptions;
use engine::output::Finish;
use engine::sampling_params::SamplingParams;
use engine::{Budget, Engine, EngineHandle, Prompt};
use runner::Device;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

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

/// Adds 64 requests of 100 tokens that get 300 more.
fn add_requests(handle: &EngineHandle) {
    for tag in 0..64 {
        let prompt: Vec<u32> = (0..100).map(|i| 5 + (i * 7 + tag * 31) % 200).collect();
        let params = SamplingParams {
            tag: u64::from(tag),
            seed: Some(u64::from(tag)),
            max_tokens: Some(300),
            min_tokens: 300,
            temperature: if tag % 2 == 0 { 0.0 } else { 1.0 },
            ..SamplingParams::default()
        };
        handle.add_request(Prompt::Tokens(&prompt), params).unwrap();
    }
}

/// What a run took.
struct Taken {
    /// By the engine's own account.
    own: u64,
    /// By nvidia-smi.
    seen: u64,
    /// What of it the KV cache is.
    kv: u64,
    preemptions: u64,
}

/// An engine with this budget computes the requests.
fn run(gpu_memory_bytes: u64) -> Taken {
    let before = used();
    let mut engine = Engine::open(&options(gpu_memory_bytes), &mut |_| ControlFlow::Continue(())).unwrap();
    let handle = engine.handle().clone();
    add_requests(&handle);
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
    let (own, seen) = (stats.gpu_memory_bytes, most - before);
    Taken { own, seen, kv: info.kv_cache_bytes, preemptions: stats.preemptions }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_budget_holds_all_that_an_engine_takes() {
    let of = |budget: u64| {
        let Taken { own, seen, kv, preemptions } = run(budget);
        println!(
            "budget {:.0} MiB: {:.0} by the engine's account, {:.0} by nvidia-smi, {:.0} of it KV cache, {preemptions} preemptions",
            mib(budget),
            mib(own),
            mib(seen),
            mib(kv)
        );
        let two_percent = budget / 50;
        assert!(seen <= budget + two_percent, "{seen} bytes were taken of {budget}");
        assert!(own.abs_diff(seen) <= two_percent, "{own} bytes by the engine's account, {seen} by nvidia-smi");
        (kv, preemptions)
    };
    of(8 << 30);
    // The cache gets what is left of the budget: so much less leaves 32 MiB, where all requests take 75.
    let (kv, _) = of(3 << 30);
    let (_, preemptions) = of((3 << 30) - kv + (32 << 20));
    assert!(std::env::var_os("NVLLM_TEST_MODEL").is_some() || preemptions > 0, "the budget was not tight");
}

/// The tokens of all requests, with a trim after every `trim_every` steps.
fn answers(engine: &mut Engine, trim_every: usize) -> Vec<Vec<TokenId>> {
    let handle = engine.handle().clone();
    let mut answers = vec![Vec::new(); 64];
    add_requests(&handle);
    for step in 1.. {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            answers[output.tag as usize].extend(&output.token_ids);
            assert!(!matches!(output.finish, Some(Finish::Error(_))), "{:?}", output.finish);
        }
        if handle.is_finished() {
            return answers;
        }
        if step % trim_every == 0 {
            engine.trim().unwrap();
        }
    }
    unreachable!()
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn the_gpu_has_more_memory_after_a_trim_and_answers_stay_the_same() {
    let options = EngineOptions { gpu_memory_bytes: None, kv_cache_bytes: Some(4 << 30), ..options(0) };
    let mut engine = Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap();
    let handle = engine.handle().clone();
    let mapped = || handle.stats().kv_cache_bytes_mapped;
    let whole = handle.model_info().kv_cache_bytes;
    assert_eq!(mapped(), whole);
    let never = usize::MAX;
    let expected = answers(&mut engine, never);
    let before = used();
    let begun = Instant::now();
    let freed = engine.trim().unwrap();
    let took = begun.elapsed();
    let after = used();
    println!(
        "{:.0} MiB of {:.0} given back in {took:?}, {:.0} by nvidia-smi",
        mib(freed),
        mib(whole),
        mib(before - after)
    );
    assert!(freed >= whole / 10 * 9 && mapped() == whole - freed, "{freed} of {whole}");
    assert!((before - after).abs_diff(freed) <= freed / 50, "{freed} bytes, {} by nvidia-smi", before - after);
    assert_eq!(engine.trim().unwrap(), 0);
    // Graphs find the cache where it was; blocks have other numbers now.
    let begun = Instant::now();
    assert_eq!(answers(&mut engine, never), expected);
    println!("with growth to {:.0} MiB {:?}", mib(mapped()), begun.elapsed());
    assert!(used() < before && mapped() < whole);
    for trim_every in [50, 7] {
        let begun = Instant::now();
        engine.trim().unwrap();
        assert_eq!(answers(&mut engine, trim_every), expected, "a trim every {trim_every} steps");
        println!("with a trim every {trim_every} steps {:?}", begun.elapsed());
    }
}
