//! What callers can do about the prefix cache: measure it, empty it, keep tenants apart, and pin what must stay.

use crate::fake_runner;

use base::TokenId;
use base::error::Error;
use compute::batch::BatchLimits;
use engine::options::PrefixCache;
use engine::output::Finish;
use engine::sampling_params::{Eos, Pinning, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::oracle::SEED;
use fake_runner::{Shape, load};
use std::ops::ControlFlow;

const BLOCK_SIZE: usize = 4;

/// An engine of `blocks` blocks for sequences of up to 32 tokens, which are 8 blocks.
fn open(blocks: usize, depth: usize, prefix_cache: PrefixCache) -> Engine {
    let limits = BatchLimits { tokens: 16, rows: 4, model_len: 32, block_size: BLOCK_SIZE, ..BatchLimits::NONE };
    let shape = Shape { limits, blocks, vocab: 24, stages: 2, depth, window: None, states: None, windowed: None };
    Engine::with_runner(load(shape), EngineLimits { max_queue: None, prefix_cache, seed: SEED })
}

fn params(max_tokens: u32) -> SamplingParams {
    SamplingParams { max_tokens: Some(max_tokens), eos: Eos::Ignored, ..SamplingParams::default() }
}

fn pinned(max_tokens: u32) -> SamplingParams {
    SamplingParams { pinning: Pinning::Pinned, ..params(max_tokens) }
}

/// A prompt that no other `kind` shares a token with.
fn prompt(kind: u32, len: u32) -> Vec<TokenId> {
    (0..len).map(|i| 1 + kind * 5 + i % 5).collect()
}

/// Runs a request alone; returns the number of tokens of its prompt that were cached.
fn cached(engine: &mut Engine, prompt: &[TokenId], params: &SamplingParams) -> u32 {
    let prompts = [Prompt::Tokens(prompt)];
    let results = engine.generate(&prompts, std::slice::from_ref(params), &mut |_| ControlFlow::Continue(())).unwrap();
    assert!(matches!(results[0].finish, Some(Finish::Length)), "{:?}", results[0].finish);
    results[0].cached_tokens
}

/// Adds a request and steps until nothing is left.
fn run(engine: &mut Engine, prompt: &[TokenId], params: SamplingParams) -> u64 {
    let id = engine.handle().add_request(Prompt::Tokens(prompt), params).unwrap();
    finish(engine);
    id
}

fn finish(engine: &mut Engine) {
    for _ in 0..1000 {
        engine.step(Budget::OnePass).unwrap();
        while engine.next_output().is_some() {}
        if engine.handle().is_finished() {
            return;
        }
    }
    panic!("somebody waits for ever: {:?}", engine.handle().stats());
}

#[test]
fn the_cache_counts_what_was_looked_up_found_and_lost() {
    let mut engine = open(8, 1, PrefixCache::On);
    let counts = |engine: &Engine| {
        let counts = engine.handle().stats().prefix_cache;
        (counts.queries, counts.hits, counts.evictions)
    };
    cached(&mut engine, &prompt(0, 10), &params(2));
    assert_eq!(counts(&engine), (10, 0, 0));
    cached(&mut engine, &prompt(0, 11), &params(1));
    assert_eq!(counts(&engine), (21, 8, 0), "two blocks of four");
    // 29 tokens take all 8 blocks: two or three of them were cached, the full ones of the first answer among them.
    cached(&mut engine, &prompt(1, 29), &params(3));
    let (queries, hits, evictions) = counts(&engine);
    assert_eq!((queries, hits), (50, 8));
    assert!((2..=3).contains(&evictions), "{evictions}");
    let text = engine.handle().metrics_text();
    for line in ["prefix_cache_queries_total 50", "prefix_cache_hits_total 8", "kv_blocks_pinned 0"] {
        assert!(text.contains(&format!("nanovllm_{line}\n")), "{line} in {text}");
    }
}

#[test]
fn a_reset_forgets_what_nobody_holds() {
    for depth in [1, 2] {
        let mut engine = open(32, depth, PrefixCache::On);
        cached(&mut engine, &prompt(0, 12), &params(1));
        let handle = engine.handle().clone();
        let pin = run(&mut engine, &prompt(1, 12), pinned(1));
        handle.add_request(Prompt::Tokens(&prompt(2, 12)), params(15)).unwrap();
        for _ in 0..3 {
            engine.step(Budget::OnePass).unwrap();
        }
        engine.reset_prefix_cache();
        assert_eq!(cached(&mut engine, &prompt(0, 12), &params(1)), 0, "depth {depth}: forgotten");
        assert_eq!(cached(&mut engine, &prompt(1, 12), &params(1)), 8, "depth {depth}: pinned");
        assert_eq!(cached(&mut engine, &prompt(2, 12), &params(1)), 8, "depth {depth}: held by the one that runs");
        finish(&mut engine);
        handle.release_prefix(pin).unwrap();
        engine.reset_prefix_cache();
        for kind in 0..3 {
            assert_eq!(cached(&mut engine, &prompt(kind, 12), &params(1)), 0, "depth {depth}: {kind} is forgotten");
        }
    }
}

#[test]
fn requests_with_different_salts_share_nothing() {
    let mut engine = open(32, 1, PrefixCache::On);
    let salted = |cache_salt| SamplingParams { cache_salt, ..params(1) };
    for (name, salt, expected) in [
        ("the first of salt 7", 7, 0),
        ("the second of salt 7", 7, 8),
        ("no salt", 0, 0),
        ("no salt again", 0, 8),
        ("another salt", u64::MAX, 0),
        ("salt 7 once more", 7, 8),
    ] {
        assert_eq!(cached(&mut engine, &prompt(0, 12), &salted(salt)), expected, "{name}");
    }
}

#[test]
fn a_pinned_prompt_outlives_any_pressure_until_it_is_released() {
    for depth in [1, 2] {
        let mut engine = open(12, depth, PrefixCache::On);
        let handle = engine.handle().clone();
        let id = run(&mut engine, &prompt(0, 13), SamplingParams { completions: 2, ..pinned(2) });
        let stats = handle.stats();
        assert_eq!(
            (stats.kv_blocks_used, stats.kv_blocks_pinned),
            (3, 3),
            "depth {depth}: the full blocks of 13 tokens"
        );
        // What is left is used over and over.
        for kind in [1, 2, 3, 1] {
            run(&mut engine, &prompt(kind, 20), params(12));
        }
        assert_eq!(cached(&mut engine, &prompt(0, 13), &params(1)), 12, "depth {depth}");
        handle.release_prefix(id).unwrap();
        assert!(matches!(handle.release_prefix(id), Err(Error::UnknownPin { id: 1 })), "depth {depth}");
        assert_eq!(cached(&mut engine, &prompt(0, 13), &params(1)), 12, "depth {depth}: not evicted at once");
        assert_eq!((handle.stats().kv_blocks_used, handle.stats().kv_blocks_pinned), (0, 0), "depth {depth}");
        for kind in [1, 2, 3] {
            run(&mut engine, &prompt(kind, 20), params(12));
        }
        assert_eq!(cached(&mut engine, &prompt(0, 13), &params(1)), 0, "depth {depth}: but in its turn");
    }
}

#[test]
fn pins_leave_every_request_its_blocks_and_more_pins_are_refused() {
    let mut engine = open(12, 2, PrefixCache::On);
    let handle = engine.handle().clone();
    run(&mut engine, &prompt(0, 9), pinned(1));
    let error = handle.add_request(Prompt::Tokens(&prompt(1, 12)), pinned(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "pin_prompt asks for 3 KV blocks, but 2 of the 4 that may be pinned are taken: release a prefix, raise \
         kv_cache_bytes or lower max_model_len"
    );
    run(&mut engine, &prompt(1, 11), pinned(1));
    assert_eq!(handle.stats().kv_blocks_used, 4);
    // The longest requests there may be, several at once, in what is left.
    for kind in [2, 3, 2] {
        handle.add_request(Prompt::Tokens(&prompt(kind, 28)), params(4)).unwrap();
    }
    finish(&mut engine);
    assert_eq!(handle.stats().kv_blocks_used, 4);
}

#[test]
fn what_ends_before_its_prompt_is_computed_pins_nothing() {
    let mut engine = open(12, 1, PrefixCache::On);
    let handle = engine.handle().clone();
    // Waiting, then running.
    for steps in [0, 1] {
        let id = handle.add_request(Prompt::Tokens(&prompt(0, 17)), pinned(3)).unwrap();
        for _ in 0..steps {
            engine.step(Budget::OnePass).unwrap();
        }
        assert_eq!(handle.stats().kv_blocks_pinned, 4, "promised");
        handle.cancel(id).unwrap();
        finish(&mut engine);
        assert_eq!((handle.stats().kv_blocks_used, handle.stats().kv_blocks_pinned), (0, 0), "after {steps} steps");
        assert!(matches!(handle.release_prefix(id), Err(Error::UnknownPin { .. })));
    }
}

#[test]
fn a_pin_released_before_it_is_made_is_never_made() {
    let mut engine = open(12, 1, PrefixCache::On);
    let handle = engine.handle().clone();
    let id = handle.add_request(Prompt::Tokens(&prompt(0, 17)), pinned(3)).unwrap();
    engine.step(Budget::OnePass).unwrap();
    handle.release_prefix(id).unwrap();
    finish(&mut engine);
    assert_eq!((handle.stats().kv_blocks_used, handle.stats().kv_blocks_pinned), (0, 0));
}

#[test]
fn without_a_prefix_cache_nothing_can_be_pinned() {
    let engine = open(12, 1, PrefixCache::Off);
    match engine.handle().add_request(Prompt::Tokens(&[1]), pinned(1)) {
        Err(Error::Option { field, .. }) => assert_eq!(field, "pin_prompt"),
        other => panic!("{other:?}"),
    }
}
