//! The demo model gives the same tokens however its engine is set up and driven.
//!
//! Greedy and sampled requests together, so that both the logits and the random numbers are seen to depend on the request
//! alone. What a runner does with one batch is held in tests/library/metamorphic.rs; here the scheduler decides.

use crate::demo;

use base::TokenId;
use demo::{BLOCK_SIZE, INT8_TOKEN_BYTES, TOKEN_BYTES};
use engine::Budget;
use engine::beam_search::{BeamParams, EarlyStopping};
use engine::options::{EngineOptions, PrefixCache};
use engine::output::Stats;
use engine::sampling_params::SamplingParams;
use runner::{Device, KvCacheDtype};
use std::time::Duration;

/// A way to set an engine up, and its name.
type Variant = (&'static str, fn(&mut EngineOptions));

fn options() -> EngineOptions {
    demo::options(Device::Cpu)
}

/// Every third request is sampled, the others are greedy; some have penalties, some ask for log-probabilities, and two search.
fn params(i: usize) -> SamplingParams {
    let plain = SamplingParams { temperature: if i % 3 == 2 { 4.0 } else { 0.0 }, ..demo::greedy(i) };
    match i {
        4 | 25 => SamplingParams { beams: Some(BEAMS), max_tokens: Some(24), ..plain },
        _ if i % 5 == 3 => SamplingParams { repetition_penalty: 1.3, frequency_penalty: 0.2, num_logprobs: 3, ..plain },
        _ if i % 8 == 7 => SamplingParams { presence_penalty: -0.5, num_prompt_logprobs: 2, ..plain },
        _ => plain,
    }
}

const BEAMS: BeamParams = BeamParams { width: 3, length_penalty: 1.0, early_stopping: EarlyStopping::WhenUnlikely };

fn int8() -> EngineOptions {
    EngineOptions { kv_cache_dtype: KvCacheDtype::Int8, ..options() }
}

fn answers(options: &EngineOptions, budget: Budget) -> (Vec<Vec<TokenId>>, Stats) {
    demo::answers(options, budget, params)
}

#[test]
fn an_answer_depends_on_its_request_alone() {
    let (wanted, stats) = answers(&options(), Budget::OnePass);
    assert_eq!(stats.preemptions, 0, "64 MiB hold all of them");
    assert!(wanted.iter().all(|tokens| !tokens.is_empty()));
    assert_ne!(wanted[2], wanted[14], "the same words sampled in two requests: the random numbers differ");
    assert_eq!(wanted[6], wanted[10], "and greedy they do not");

    let variants: [Variant; 11] = [
        ("one sequence at a time", |o| o.max_num_seqs = Some(1)),
        ("three sequences at a time", |o| o.max_num_seqs = Some(3)),
        ("prompts cut into single tokens", |o| (o.max_num_seqs, o.max_batched_tokens) = (Some(1), Some(1))),
        ("prompts cut into 7 tokens", |o| (o.max_num_seqs, o.max_batched_tokens) = (Some(7), Some(7))),
        ("prompts cut into 64 tokens", |o| o.max_batched_tokens = Some(64)),
        ("no prefix cache", |o| o.prefix_cache = PrefixCache::Off),
        ("blocks of one token", |o| o.kv_block_size = Some(1)),
        ("one thread", |o| o.num_threads = Some(1)),
        ("two ranks", |o| o.tensor_parallel_size = 2),
        ("three ranks, two of which share a KV head", |o| o.tensor_parallel_size = 3),
        ("four ranks", |o| (o.tensor_parallel_size, o.max_batched_tokens) = (4, Some(64))),
    ];
    let (wanted_of_int8, _) = answers(&int8(), Budget::OnePass);
    for (format, wanted) in [(options(), wanted), (int8(), wanted_of_int8)] {
        for (name, change) in variants {
            let mut options = format.clone();
            change(&mut options);
            let (found, _) = answers(&options, Budget::OnePass);
            assert_eq!(found, wanted, "{name}, {:?}", options.kv_cache_dtype);
        }
    }
}

#[test]
fn preempted_sequences_give_the_same_answers() {
    let formats = [(options(), TOKEN_BYTES), (int8(), INT8_TOKEN_BYTES)];
    let caches = || [PrefixCache::On, PrefixCache::Off];
    for ((roomy, token_bytes), cache) in formats.iter().flat_map(|format| caches().map(|cache| (format, cache))) {
        let (wanted, _) = answers(roomy, Budget::OnePass);
        // They hold about five answers.
        let kv_cache_bytes = Some(40 * BLOCK_SIZE as u64 * token_bytes);
        let tight = EngineOptions { kv_cache_bytes, prefix_cache: cache, ..roomy.clone() };
        let (found, stats) = answers(&tight, Budget::OnePass);
        assert_eq!(stats.kv_blocks_total, 40);
        assert!(stats.preemptions > 0, "the pool is too small for all that run");
        assert_eq!(found, wanted, "{cache:?}, {:?}", roomy.kv_cache_dtype);
    }
}

#[test]
fn passes_cut_by_the_clock_give_the_same_answers() {
    let (wanted, _) = answers(&options(), Budget::OnePass);
    for budget_us in [1, 50, 4000] {
        let (found, _) = answers(&options(), Budget::Time(Duration::from_micros(budget_us)));
        assert_eq!(found, wanted, "{budget_us} us a call");
    }
}

#[test]
fn a_prompt_asked_before_is_taken_from_the_prefix_cache() {
    let (_, stats) = answers(&EngineOptions { max_num_seqs: Some(1), ..options() }, Budget::OnePass);
    assert!(stats.cached_tokens > 0, "introduce yourself is asked 16 times");
    let off = EngineOptions { max_num_seqs: Some(1), prefix_cache: PrefixCache::Off, ..options() };
    assert_eq!(answers(&off, Budget::OnePass).1.cached_tokens, 0);
}
