//! The demo model, asked many questions at once.
#![allow(dead_code)]

use base::TokenId;
use engine::options::EngineOptions;
use engine::output::{Finish, Stats};
use engine::sampling_params::SamplingParams;
use engine::{Budget, Engine, Prompt};
use runner::Device;
use std::collections::HashMap;
use std::ops::ControlFlow;

/// Prompts that share beginnings, one after the other and several at once.
pub const QUESTIONS: usize = 64;
pub const BLOCK_SIZE: usize = 16;
/// Bytes of a token's keys and values: 6 layers, 2 heads of 64 numbers of 2 bytes, keys and values.
pub const TOKEN_BYTES: u64 = 3072;
/// The same in int8: numbers of one byte, and a scale of two for each head.
pub const INT8_TOKEN_BYTES: u64 = 6 * 2 * 2 * 66;

/// A small engine whose KV cache holds all questions.
pub fn options(device: Device) -> EngineOptions {
    // Where it was built, when a test runs without cargo.
    let mut options = EngineOptions::new(crate::tree::root().join("models/demo"));
    options.device = device;
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

/// A request for a greedy answer.
pub fn greedy(_: usize) -> SamplingParams {
    SamplingParams { max_tokens: Some(120), ..SamplingParams::default() }
}

/// The answer to each question, asked for as `params` says, and what the engine counted.
pub fn answers(
    options: &EngineOptions,
    budget: Budget,
    params: impl Fn(usize) -> SamplingParams,
) -> (Vec<Vec<TokenId>>, Stats) {
    let mut engine = Engine::open(options, &mut |_| ControlFlow::Continue(())).unwrap();
    let handle = engine.handle().clone();
    for i in 0..QUESTIONS {
        let prompt = handle.chat_template().unwrap().render(&question(i), "").unwrap();
        handle.add_request(Prompt::Text(&prompt), SamplingParams { tag: i as u64, ..params(i) }).unwrap();
    }
    let mut tokens: HashMap<u64, Vec<TokenId>> = HashMap::new();
    let mut ended = 0;
    while !handle.is_finished() {
        engine.step(budget).unwrap();
        while let Some(output) = engine.next_output() {
            tokens.entry(output.tag).or_default().extend(&output.token_ids);
            assert!(!matches!(output.finish, Some(Finish::Error(_) | Finish::Cancelled)), "{:?}", output.finish);
            ended += usize::from(output.finish.is_some());
        }
    }
    assert_eq!(ended, QUESTIONS, "every request ends once");
    ((0..QUESTIONS as u64).map(|i| tokens.remove(&i).unwrap()).collect(), handle.stats())
}

/// A completion that thinks, up to a limit: its tokens, and how many of them were reasoning.
pub type Thought = (Vec<TokenId>, u32);

/// Limits of reasoning: none, at once, within a block and beyond it.
const THINKING_LIMITS: [Option<u32>; 5] = [None, Some(0), Some(1), Some(9), Some(40)];

/// Two completions of each of some prompts whose answers begin with reasoning, at random, and what the engine counted.
pub fn thoughts(options: &EngineOptions, budget: Budget) -> (Vec<Thought>, Stats) {
    const REQUESTS: usize = 25;
    let mut engine = Engine::open(options, &mut |_| ControlFlow::Continue(())).unwrap();
    let handle = engine.handle().clone();
    for i in 0..REQUESTS {
        let begin = "<|im_start|>user\nlist all prime numbers within";
        let prompt = format!("{begin} {}<|im_end|>\n<|im_start|>assistant\n<think>\n", 10 + i % 4);
        let params = SamplingParams {
            tag: 2 * i as u64,
            max_tokens: Some(60),
            max_thinking_tokens: THINKING_LIMITS[i % THINKING_LIMITS.len()],
            temperature: 1.5,
            seed: Some(i as u64),
            completions: 2,
            ..SamplingParams::default()
        };
        handle.add_request(Prompt::Text(&prompt), params).unwrap();
    }
    let mut thoughts = vec![Thought::default(); 2 * REQUESTS];
    while !handle.is_finished() {
        engine.step(budget).unwrap();
        while let Some(output) = engine.next_output() {
            let (tokens, reasoning) = &mut thoughts[output.tag as usize + output.index as usize];
            tokens.extend_from_slice(&output.token_ids);
            *reasoning = output.reasoning_tokens;
        }
    }
    for (index, (tokens, reasoning)) in thoughts.iter().enumerate() {
        // The end marker counts but for its last token.
        let limit = THINKING_LIMITS[index / 2 % THINKING_LIMITS.len()];
        assert!(
            limit.is_none_or(|limit| *reasoning <= limit + 8),
            "completion {index} of {} thinks {reasoning}",
            tokens.len()
        );
    }
    (thoughts, handle.stats())
}
