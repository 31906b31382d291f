//! Memory of the KV cache that is given back while the engine lives, and that requests get again.

mod demo;
mod fake_runner;
mod tree;

use base::TokenId;
use base::error::Error;
use compute::batch::BatchLimits;
use engine::options::{EngineOptions, PrefixCache};
use engine::output::Finish;
use engine::sampling_params::{Eos, Pinning, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::oracle::{SEED, oracle};
use fake_runner::{Shape, load, load_beside};
use runner::Device;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const BLOCK_SIZE: usize = 4;
const BLOCK_BYTES: u64 = 8 * BLOCK_SIZE as u64;

fn shape(blocks: usize, depth: usize) -> Shape {
    let limits = BatchLimits { tokens: 32, rows: 4, model_len: 64, block_size: BLOCK_SIZE, ..BatchLimits::NONE };
    Shape { limits, blocks, vocab: 24, stages: 2, depth, window: None, states: None, windowed: None }
}

const LIMITS: EngineLimits = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: SEED };

/// An engine over a fake runner, and for how many blocks there is memory besides those of its cache.
fn open(blocks: usize, depth: usize) -> (Engine, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(0));
    (Engine::with_runner(load_beside(shape(blocks, depth), left.clone()), LIMITS), left)
}

fn params(max_tokens: u32) -> SamplingParams {
    SamplingParams { max_tokens: Some(max_tokens), eos: Eos::Ignored, ..SamplingParams::default() }
}

/// Tokens that no other `kind` begins with.
fn prompt(kind: u32, len: u32) -> Vec<TokenId> {
    (0..len).map(|i| 1 + (kind * 5 + i * i) % 23).collect()
}

fn add(engine: &Engine, kind: u32, len: u32, params: SamplingParams) -> u64 {
    engine.handle().add_request(Prompt::Tokens(&prompt(kind, len)), params).unwrap()
}

/// Tokens, the cached ones of the prompt and the end of each request.
fn finish(engine: &mut Engine) -> HashMap<u64, (Vec<TokenId>, u32, Option<Finish>)> {
    let mut all: HashMap<u64, (Vec<TokenId>, u32, Option<Finish>)> = HashMap::new();
    for _ in 0..10_000 {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            let (tokens, cached, finish) = all.entry(output.request_id).or_default();
            tokens.extend_from_slice(&output.token_ids);
            (*cached, *finish) = (output.cached_tokens, output.finish.clone());
        }
        if engine.handle().is_finished() {
            return all;
        }
    }
    panic!("somebody waits for ever: {:?}", engine.handle().stats());
}

/// Runs a request alone; returns the number of tokens of its prompt that were cached. Its answer is that of an engine of its own.
fn cached(engine: &mut Engine, kind: u32, len: u32, params: SamplingParams) -> u32 {
    let id = add(engine, kind, len, params.clone());
    let (tokens, cached, end) = finish(engine).remove(&id).unwrap();
    assert!(matches!(end, Some(Finish::Length)), "{end:?}");
    assert_eq!(tokens, oracle(id, 0, &prompt(kind, len), &params, &shape(64, 1)).0);
    cached
}

fn mapped_blocks(engine: &Engine) -> u64 {
    engine.handle().stats().kv_cache_bytes_mapped / BLOCK_BYTES
}

#[test]
fn what_nobody_holds_is_given_back_and_what_is_pinned_stays() {
    for depth in [1, 2] {
        let (mut engine, left) = open(32, depth);
        assert_eq!(mapped_blocks(&engine), 32, "an engine that has not stepped");
        assert_eq!(engine.trim().unwrap(), 32 * BLOCK_BYTES, "all of an idle engine");
        assert_eq!((engine.trim().unwrap(), mapped_blocks(&engine)), (0, 0), "and nothing twice");
        let pinned = SamplingParams { pinning: Pinning::Pinned, ..params(3) };
        let id = add(&engine, 0, 9, pinned);
        finish(&mut engine);
        assert_eq!(cached(&mut engine, 1, 9, params(3)), 0);
        assert_eq!(cached(&mut engine, 1, 9, params(3)), 8);
        let mapped = mapped_blocks(&engine);
        assert_eq!(engine.trim().unwrap(), (mapped - 2) * BLOCK_BYTES);
        assert_eq!((mapped_blocks(&engine), left.load(Relaxed)), (2, 30));
        assert_eq!(cached(&mut engine, 0, 9, params(3)), 8, "what is pinned");
        assert_eq!(cached(&mut engine, 1, 9, params(3)), 0, "what is not");
        assert_eq!(cached(&mut engine, 1, 9, params(3)), 8);
        assert_eq!(engine.handle().stats().kv_blocks_total, 32);
        engine.handle().release_prefix(id).unwrap();
        assert!(engine.trim().unwrap() > 0, "a prompt that was released before the call is not pinned");
        assert_eq!(mapped_blocks(&engine), 0);
    }
}

#[test]
fn requests_go_on_whenever_memory_is_given_back() {
    for depth in [1, 2] {
        for budget in [Budget::OnePass, Budget::Time(std::time::Duration::ZERO)] {
            let (mut engine, _) = open(32, depth);
            let ids: Vec<u64> = (0..6).map(|kind| add(&engine, kind, 10 + kind, params(20))).collect();
            let mut tokens: HashMap<u64, Vec<TokenId>> = HashMap::new();
            while !engine.handle().is_finished() {
                engine.step(budget).unwrap();
                engine.trim().unwrap();
                let stats = engine.handle().stats();
                assert_eq!(mapped_blocks(&engine), u64::from(stats.kv_blocks_used));
                while let Some(output) = engine.next_output() {
                    tokens.entry(output.request_id).or_default().extend(&output.token_ids);
                }
            }
            for (kind, id) in (0..).zip(ids) {
                let expected = oracle(id, 0, &prompt(kind, 10 + kind), &params(20), &shape(32, depth)).0;
                assert_eq!(tokens[&id], expected, "depth {depth}, {budget:?}");
            }
        }
    }
}

#[test]
fn a_small_cache_is_used_up_before_it_grows() {
    let (mut engine, _) = open(32, 1);
    engine.trim().unwrap();
    cached(&mut engine, 0, 9, params(3));
    assert_eq!(mapped_blocks(&engine), 3, "11 tokens were computed");
    cached(&mut engine, 1, 9, params(3));
    assert_eq!(mapped_blocks(&engine), 3, "a cached prompt is evicted first");
    cached(&mut engine, 2, 25, params(3));
    assert_eq!(mapped_blocks(&engine), 7);
}

#[test]
fn without_memory_requests_wait_for_those_that_run() {
    for depth in [1, 2] {
        let (mut engine, left) = open(32, depth);
        let pinned = SamplingParams { pinning: Pinning::Pinned, ..params(1) };
        // Memory for 9 blocks: a request takes up to 8, and another one waits or is preempted.
        add(&engine, 9, 36, pinned);
        finish(&mut engine);
        engine.trim().unwrap();
        engine.handle().release_prefix(1).unwrap();
        left.store(0, Relaxed);
        let ids: Vec<u64> = (0..4).map(|kind| add(&engine, kind, 12, params(19))).collect();
        let all = finish(&mut engine);
        for (kind, id) in (0..).zip(ids) {
            let (tokens, _, end) = &all[&id];
            assert!(matches!(end, Some(Finish::Length)), "depth {depth}: {end:?}");
            assert_eq!(*tokens, oracle(id, 0, &prompt(kind, 12), &params(19), &shape(32, depth)).0, "depth {depth}");
        }
        assert_eq!(mapped_blocks(&engine), 9);
    }
}

#[test]
fn a_request_that_waits_for_nobody_gets_the_error_and_the_next_one_works() {
    for depth in [1, 2] {
        let (mut engine, left) = open(32, depth);
        engine.trim().unwrap();
        left.store(0, Relaxed);
        // One that has not begun.
        let ids = [add(&engine, 0, 9, params(3)), add(&engine, 1, 9, SamplingParams { completions: 3, ..params(3) })];
        for id in ids {
            let Some(Finish::Error(error)) = finish(&mut engine).remove(&id).map(|(.., end)| end).unwrap_or_default()
            else {
                // Both ended in the steps of the first.
                continue;
            };
            assert!(matches!(*error, Error::OutOfMemory { what: "the KV cache", .. }), "{error}");
        }
        let stats = engine.handle().stats();
        assert_eq!((stats.running, stats.waiting, stats.kv_blocks_used), (0, 0, 0));
        // One that grows: it keeps what it has said.
        left.store(3, Relaxed);
        let id = add(&engine, 2, 9, params(30));
        let (tokens, _, end) = finish(&mut engine).remove(&id).unwrap();
        assert!(matches!(end, Some(Finish::Error(error)) if matches!(*error, Error::OutOfMemory { .. })));
        let whole = oracle(id, 0, &prompt(2, 9), &params(30), &shape(32, depth)).0;
        assert!(!tokens.is_empty() && whole.starts_with(&tokens), "{tokens:?} of {whole:?}");
        left.store(29, Relaxed);
        assert_eq!(cached(&mut engine, 3, 9, params(30)), 0, "depth {depth}");
        assert_eq!(engine.handle().stats().kv_blocks_used, 0);
    }
}

#[test]
fn prefixes_are_saved_restored_and_forked_after_memory_was_given_back() {
    for depth in [1, 2] {
        let (mut engine, left) = open(32, depth);
        cached(&mut engine, 0, 21, params(2));
        let prefix = engine.find_prefix(&prompt(0, 21), 0).unwrap();
        let mut bytes = vec![0; prefix.bytes()];
        engine.save_prefix(&prefix, &mut bytes).unwrap();
        engine.trim().unwrap();
        assert!(matches!(engine.find_prefix(&prompt(0, 21), 0), Err(Error::NotCached { .. })));
        left.store(3, Relaxed);
        assert!(matches!(engine.restore_prefix(&bytes), Err(Error::OutOfMemory { .. })));
        assert_eq!(mapped_blocks(&engine), 0, "nothing has changed");
        left.store(32, Relaxed);
        assert_eq!(engine.restore_prefix(&bytes).unwrap(), 20, "depth {depth}");
        assert_eq!((mapped_blocks(&engine), cached(&mut engine, 0, 21, params(2))), (5, 20));

        let first = add(&engine, 1, 12, params(20));
        engine.step(Budget::OnePass).unwrap();
        engine.step(Budget::OnePass).unwrap();
        engine.trim().unwrap();
        let fork = engine.fork(first, 0, params(5)).unwrap();
        engine.trim().unwrap();
        let all = finish(&mut engine);
        assert!([first, fork].iter().all(|id| matches!(all[id].2, Some(Finish::Length))), "depth {depth}");
        assert!(all[&fork].1 >= 12, "the fork found {} tokens", all[&fork].1);
    }
}

#[test]
fn several_ranks_refuse() {
    let mut loaded = load(shape(32, 1));
    loaded.info.num_ranks = 2;
    let mut engine = Engine::with_runner(loaded, LIMITS);
    let error = engine.trim().unwrap_err();
    assert!(
        matches!(error, Error::Unsupported { .. }) && error.to_string().contains("tensor_parallel_size"),
        "{error}"
    );
}

fn demo_options() -> EngineOptions {
    EngineOptions { max_num_seqs: Some(64), ..demo::options(Device::Cpu) }
}

/// Bytes of this process that are resident and its own.
#[cfg(target_os = "linux")]
fn private_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<u64> = statm.split_whitespace().map(|number| number.parse().unwrap()).collect();
    (pages[1] - pages[2]) * 4096
}

/// The greedy answers to prompts of 240 tokens that share nothing.
fn demo_answers(engine: &mut Engine, prompts: std::ops::Range<u32>) -> Vec<Vec<TokenId>> {
    let tokens: Vec<Vec<TokenId>> =
        prompts.map(|kind| (0..240).map(|i| 5 + (i * 7 + kind * 31 + i * i * kind) % 200).collect()).collect();
    let prompts: Vec<Prompt> = tokens.iter().map(|tokens| Prompt::Tokens(tokens)).collect();
    let params = vec![SamplingParams { eos: Eos::Ignored, ..params(8) }; prompts.len()];
    let outputs = engine.generate(&prompts, &params, &mut |_| ControlFlow::Continue(())).unwrap();
    outputs.into_iter().map(|output| output.token_ids).collect()
}

#[test]
#[cfg(target_os = "linux")]
fn the_process_becomes_smaller_and_the_answers_stay_the_same() {
    let mut engine = Engine::open(&demo_options(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(engine.handle().stats().kv_cache_bytes_mapped, 0, "memory that was not touched");
    // What passes need besides is there after the first.
    demo_answers(&mut engine, 900..901);
    for round in 0..2 {
        let before = private_bytes();
        let answers = demo_answers(&mut engine, 0..60);
        let (used, mapped) = (private_bytes(), engine.handle().stats().kv_cache_bytes_mapped);
        // Later, cached prompts are evicted before the cache grows.
        assert!(round > 0 || mapped >= 60 * 240 * demo::TOKEN_BYTES, "{mapped}");
        assert!(used - before > mapped / 2, "{} bytes were used for {mapped}", used - before);
        // From another thread, as long as no call is in progress.
        let freed = std::thread::scope(|scope| scope.spawn(|| engine.trim()).join().unwrap().unwrap());
        let after = private_bytes();
        println!("round {round}: {mapped} bytes in use, {freed} given back, the process has {} less", used - after);
        assert!(freed >= mapped * 9 / 10 && freed <= mapped, "{freed} of {mapped}");
        assert!(
            used - after >= freed * 9 / 10,
            "{freed} bytes were given back, and the process has {} less",
            used - after
        );
        assert_eq!(engine.handle().stats().kv_cache_bytes_mapped, 0);
        assert_eq!(engine.trim().unwrap(), 0);
        assert_eq!(demo_answers(&mut engine, 0..60), answers);
        engine.trim().unwrap();
    }
}
