//! The demo model gives the same tokens however its engine is set up and driven.
//!
//! Greedy and sampled requests together, so that both the logits and the random numbers are seen to depend on the request
//! alone. What a runner does with one batch is held in tests/metamorphic.rs; here the scheduler decides.

use nanovllm::batch::TokenId;
use nanovllm::engine::options::{EngineOptions, PrefixCache};
use nanovllm::engine::output::{Finish, Stats};
use nanovllm::engine::sampling_params::SamplingParams;
use nanovllm::engine::{Budget, Engine, Prompt};
use nanovllm::runner::Device;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

/// A way to set an engine up, and its name.
type Variant = (&'static str, fn(&mut EngineOptions));

/// Prompts that share beginnings, one after the other and several at once.
const QUESTIONS: usize = 64;
const BLOCK_SIZE: usize = 16;

fn options() -> EngineOptions {
    let mut options = EngineOptions::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("models/demo"));
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.max_model_len = Some(256);
    options.kv_block_size = Some(BLOCK_SIZE);
    options.kv_cache_bytes = Some(64 << 20);
    options.seed = Some(7);
    options
}

fn question(i: usize) -> String {
    let text = match i % 4 {
        0 => format!("list all prime numbers within {}", 2 + i),
        1 => format!("what is {} + {}?", i, 3 * i % 100),
        2 => "introduce yourself".to_owned(),
        _ => format!("count from {} to {}", i % 10, i % 10 + 20),
    };
    format!(r#"[{{"role": "user", "content": "{text}"}}]"#)
}

/// Every third request is sampled, the others are greedy.
fn params(i: usize) -> SamplingParams {
    let temperature = if i % 3 == 2 { 4.0 } else { 0.0 };
    SamplingParams { tag: i as u64, temperature, max_tokens: Some(120), ..SamplingParams::default() }
}

/// The tokens of each request, and what the engine counted.
fn answers(options: &EngineOptions, budget: Budget) -> (Vec<Vec<TokenId>>, Stats) {
    let mut engine = Engine::open(options, &mut |_| ControlFlow::Continue(())).unwrap();
    let front = engine.front().clone();
    for i in 0..QUESTIONS {
        let prompt = front.chat_template().unwrap().render(&question(i), "").unwrap();
        front.add_request(Prompt::Text(&prompt), params(i)).unwrap();
    }
    let mut tokens: HashMap<u64, Vec<TokenId>> = HashMap::new();
    let mut ended = 0;
    while !front.is_finished() {
        engine.step(budget).unwrap();
        while let Some(output) = engine.next_output() {
            tokens.entry(output.tag).or_default().extend(&output.token_ids);
            assert!(!matches!(output.finish, Some(Finish::Error(_) | Finish::Cancelled)), "{:?}", output.finish);
            ended += usize::from(output.finish.is_some());
        }
    }
    assert_eq!(ended, QUESTIONS, "every request ends once");
    ((0..QUESTIONS as u64).map(|i| tokens.remove(&i).unwrap()).collect(), front.stats())
}

#[test]
fn an_answer_depends_on_its_request_alone() {
    let (wanted, stats) = answers(&options(), Budget::OnePass);
    assert_eq!(stats.preemptions, 0, "64 MiB hold all of them");
    assert!(wanted.iter().all(|tokens| !tokens.is_empty()));
    assert_ne!(wanted[2], wanted[14], "the same words sampled in two requests: the random numbers differ");
    assert_eq!(wanted[6], wanted[10], "and greedy they do not");

    let variants: [Variant; 8] = [
        ("one sequence at a time", |o| o.max_num_seqs = Some(1)),
        ("three sequences at a time", |o| o.max_num_seqs = Some(3)),
        ("prompts cut into single tokens", |o| (o.max_num_seqs, o.max_batched_tokens) = (Some(1), Some(1))),
        ("prompts cut into 7 tokens", |o| (o.max_num_seqs, o.max_batched_tokens) = (Some(7), Some(7))),
        ("prompts cut into 64 tokens", |o| o.max_batched_tokens = Some(64)),
        ("no prefix cache", |o| o.prefix_cache = PrefixCache::Off),
        ("blocks of one token", |o| o.kv_block_size = Some(1)),
        ("one thread", |o| o.num_threads = Some(1)),
    ];
    for (name, change) in variants {
        let mut options = options();
        change(&mut options);
        let (found, _) = answers(&options, Budget::OnePass);
        assert_eq!(found, wanted, "{name}");
    }
}

#[test]
fn preempted_sequences_give_the_same_answers() {
    let (wanted, _) = answers(&options(), Budget::OnePass);
    // 6 layers, 2 heads of 64 numbers of 2 bytes, keys and values: 3 KiB a token. 40 blocks hold about five answers.
    let mut tight = options();
    tight.kv_cache_bytes = Some(40 * BLOCK_SIZE as u64 * 3072);
    for cache in [PrefixCache::On, PrefixCache::Off] {
        tight.prefix_cache = cache;
        let (found, stats) = answers(&tight, Budget::OnePass);
        assert_eq!(stats.kv_blocks_total, 40);
        assert!(stats.preemptions > 0, "the pool is too small for all that run");
        assert_eq!(found, wanted, "{cache:?}");
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
