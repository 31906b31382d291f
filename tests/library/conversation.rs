//! A conversation of several turns: each turn takes the turns before it from the prefix cache.

use engine::options::{EngineOptions, PrefixCache};
use engine::sampling_params::SamplingParams;
use engine::{Engine, Prompt};
use runner::Device;
use serde_json::json;
use std::ops::ControlFlow;

const BLOCK_SIZE: usize = 4;

/// The answers of three turns, and the tokens of each prompt: all, and of these from the cache.
fn converse(prefix_cache: PrefixCache) -> (Vec<String>, Vec<(usize, usize)>) {
    let mut options = EngineOptions::new(crate::tree::root().join("models/demo"));
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.kv_block_size = Some(BLOCK_SIZE);
    options.kv_cache_bytes = Some(16 << 20);
    options.prefix_cache = prefix_cache;
    let mut engine = Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap();
    let mut messages = vec![json!({"role": "system", "content": "You are Brenna, the blacksmith."})];
    let (mut answers, mut counts) = (Vec::new(), Vec::new());
    for question in ["hello", "what do you sell?", "goodbye"] {
        messages.push(json!({"role": "user", "content": question}));
        let messages_json = serde_json::to_string(&messages).unwrap();
        let prompt = engine.handle().chat_template().unwrap().render(&messages_json, "").unwrap();
        let params = [SamplingParams { max_tokens: Some(60), ..SamplingParams::default() }];
        let results = engine.generate(&[Prompt::Text(&prompt)], &params, &mut |_| ControlFlow::Continue(())).unwrap();
        let result = &results[0];
        assert!(!result.text.is_empty(), "{:?}", result.finish);
        counts.push((result.prompt_tokens as usize, result.cached_tokens as usize));
        messages.push(json!({"role": "assistant", "content": result.text}));
        answers.push(result.text.clone());
    }
    (answers, counts)
}

#[test]
fn a_later_turn_computes_only_what_is_new() {
    let (answers, counts) = converse(PrefixCache::On);
    assert_eq!(counts[0].1, 0, "nothing was there");
    for turn in 1..counts.len() {
        let ((before, _), (prompt, cached)) = (counts[turn - 1], counts[turn]);
        // The prompt before is found whole, as far as it filled blocks, and the answer to it as well. What is new is the end
        // of that answer's turn and the question, which are short.
        assert!(cached > before, "turn {turn}: {cached} of {prompt} tokens, and the turn before had {before}");
        assert_eq!(cached % BLOCK_SIZE, 0, "whole blocks are shared");
        assert!(prompt - cached < 30, "turn {turn}: {cached} of {prompt} tokens");
    }
    let (others, counts) = converse(PrefixCache::Off);
    assert_eq!(answers, others, "the cache changes no answer");
    assert!(counts.iter().all(|&(_, cached)| cached == 0), "{counts:?}");
}
