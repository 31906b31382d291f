//! Several completions of one prompt: the prompt is computed once and its blocks are shared, and each completion has the
//! tokens of a request of its own.

use crate::fake_runner;

use base::TokenId;
use compute::batch::BatchLimits;
use engine::options::{EngineOptions, PrefixCache};
use engine::output::{Finish, Output};
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::oracle::{SEED, oracle};
use fake_runner::{Shape, load};
use runner::Device;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::Duration;

const BLOCK_SIZE: usize = 4;

fn shape(tokens: usize, rows: usize, depth: usize) -> Shape {
    let limits = BatchLimits { tokens, rows, model_len: 128, block_size: BLOCK_SIZE, ..BatchLimits::NONE };
    Shape { limits, blocks: 64, vocab: 24, stages: 2, depth, window: None, states: None, windowed: None }
}

fn open(shape: Shape, prefix_cache: PrefixCache) -> Engine {
    Engine::with_runner(load(shape), EngineLimits { max_queue: None, prefix_cache, seed: SEED })
}

fn params(completions: u32, max_tokens: u32) -> SamplingParams {
    let sampled = SamplingParams { temperature: 0.7, eos: Eos::Ignored, ..SamplingParams::default() };
    SamplingParams { completions, max_tokens: Some(max_tokens), ..sampled }
}

fn prompt(len: u32) -> Vec<TokenId> {
    (0..len).map(|i| 1 + i * i % 23).collect()
}

/// Polls all that waits: tokens and, in words, the finish of each completion.
fn poll(engine: &mut Engine, heard: &mut HashMap<(u64, u32), (Vec<TokenId>, String)>) {
    while let Some(output) = engine.next_output() {
        let (tokens, finish) = heard.entry((output.request_id, output.index)).or_default();
        assert!(finish.is_empty(), "completion {} of {} ended twice", output.index, output.request_id);
        tokens.extend(&output.token_ids);
        *finish = output.finish.as_ref().map_or(String::new(), |finish| format!("{finish:?}"));
    }
}

#[test]
fn a_prompt_is_computed_once_and_shared_by_its_completions() {
    // (prompt tokens, blocks that are shared): the last token of a prompt is always computed, and its block an own one.
    for (len, shared) in [(41, 10), (40, 9), (43, 10), (4, 0), (1, 0)] {
        for (cache, depth) in [(PrefixCache::On, 1), (PrefixCache::Off, 1), (PrefixCache::On, 2), (PrefixCache::Off, 2)]
        {
            let name = format!("{len} tokens, {cache:?}, {depth} in flight");
            let shape = shape(16, 8, depth);
            let mut engine = open(shape, cache);
            let handle = engine.handle().clone();
            let id = handle.add_request(Prompt::Tokens(&prompt(len)), params(4, 12)).unwrap();
            let mut heard = HashMap::new();
            let mut peak = 0;
            while !handle.is_finished() {
                engine.step(Budget::OnePass).unwrap();
                poll(&mut engine, &mut heard);
                peak = peak.max(handle.stats().kv_blocks_used);
            }
            for index in 0..4 {
                let wanted = oracle(id, index, &prompt(len), &params(4, 12), &shape).0;
                assert_eq!(heard[&(id, index)], (wanted, "Length".to_owned()), "{name}: completion {index}");
            }
            let stats = handle.stats();
            let computed = len + 3 * (len - shared * BLOCK_SIZE as u32);
            assert_eq!(
                (stats.prompt_tokens, stats.cached_tokens),
                (u64::from(computed), u64::from(4 * len - computed)),
                "{name}"
            );
            let own = (len + 12).div_ceil(BLOCK_SIZE as u32) - shared;
            assert!(peak <= shared + 4 * own, "{name}: {peak} blocks");
            assert_eq!(stats.kv_blocks_used, 0, "{name}");
        }
    }
}

#[test]
fn completions_wait_for_their_prompt_without_holding_others_up() {
    let mut engine = open(shape(16, 8, 1), PrefixCache::On);
    let handle = engine.handle().clone();
    let long = handle.add_request(Prompt::Tokens(&prompt(40)), params(4, 3)).unwrap();
    let other = handle.add_request(Prompt::Tokens(&[9; 7]), params(1, 3)).unwrap();
    let mut order = Vec::new();
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            if output.completion_tokens == 1 {
                order.push((output.request_id, output.index));
            }
        }
    }
    // The third pass brings the last 8 tokens of the prompt, and the other prompt in what is left.
    assert_eq!(order, [(long, 0), (other, 0), (long, 1), (long, 2), (long, 3)]);
}

#[test]
fn each_completion_ends_once_also_by_cancel_and_by_time() {
    for (name, steps_before, cancelled) in [("before it ran", 0, 4), ("inside its prompt", 2, 4), ("half done", 12, 2)]
    {
        let mut engine = open(shape(16, 2, 1), PrefixCache::Off);
        let handle = engine.handle().clone();
        let id = handle.add_request(Prompt::Tokens(&prompt(40)), params(4, 8)).unwrap();
        let mut heard = HashMap::new();
        for _ in 0..steps_before {
            engine.step(Budget::OnePass).unwrap();
        }
        handle.cancel(id).unwrap();
        assert!(handle.cancel(id).is_err(), "{name}: once is enough");
        engine.step(Budget::OnePass).unwrap();
        poll(&mut engine, &mut heard);
        assert!(handle.is_finished() && handle.stats().kv_blocks_used == 0, "{name}");
        assert_eq!(heard.values().filter(|(_, finish)| finish == "Cancelled").count(), cancelled, "{name}");
        assert_eq!(heard.values().filter(|(_, finish)| finish == "Length").count(), 4 - cancelled, "{name}");
    }

    let mut engine = open(shape(16, 1, 1), PrefixCache::On);
    let handle = engine.handle().clone();
    let add =
        |max_wait| handle.add_request(Prompt::Tokens(&[1, 2]), SamplingParams { max_wait, ..params(3, 4) }).unwrap();
    // The third waits for the one row for longer than that, but the first has run.
    let runs = add(Some(Duration::from_secs(3600)));
    let expires = add(Some(Duration::from_nanos(1)));
    let mut heard = HashMap::new();
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        poll(&mut engine, &mut heard);
        engine.advance_max_wait(Duration::from_secs(600));
    }
    for index in 0..3 {
        assert_eq!(heard[&(expires, index)], (vec![], "Expired".to_owned()));
        assert_eq!((heard[&(runs, index)].0.len(), &heard[&(runs, index)].1[..]), (4, "Length"));
    }
}

#[test]
fn generate_gives_the_completions_of_each_prompt_in_order() {
    let shape = shape(16, 8, 1);
    let mut engine = open(shape, PrefixCache::On);
    let (first, third) = (prompt(9), prompt(5));
    let prompts = [Prompt::Tokens(&first), Prompt::Tokens(&[]), Prompt::Tokens(&third), Prompt::Tokens(&third)];
    let seeded = SamplingParams { seed: Some(70), tag: 5, ..params(3, 6) };
    let each = [seeded.clone(), params(2, 4), params(1, 3), params(0, 3)];
    let mut last = (0, 0);
    let results = engine
        .generate(&prompts, &each, &mut |progress| {
            last = (progress.finished, progress.total);
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(last, (7, 7));
    let indices: Vec<u32> = results.iter().map(|result| result.index).collect();
    assert_eq!(indices, [0, 1, 2, 0, 1, 0, 0]);
    for (index, result) in results[..3].iter().enumerate() {
        assert_eq!(result.token_ids, oracle(0, index as u32, &first, &seeded, &shape).0);
        assert_eq!((result.tag, result.completion_tokens), (5, 6));
    }
    let refused = |result: &Output| matches!(result.finish, Some(Finish::Error(_)));
    assert_eq!(results.iter().map(refused).collect::<Vec<_>>(), [false, false, false, true, true, false, true]);
}

// ---- the demo model ----

fn demo(prefix_cache: PrefixCache) -> Engine {
    let mut options = EngineOptions::new(crate::tree::root().join("models/demo"));
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.max_model_len = Some(256);
    options.kv_block_size = Some(16);
    options.kv_cache_bytes = Some(16 << 20);
    options.seed = Some(7);
    options.prefix_cache = prefix_cache;
    Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn completions_have_the_tokens_of_requests_with_the_seeds_that_follow() {
    let text =
        "<|im_start|>user\nlist all prime numbers within 50, and tell me more<|im_end|>\n<|im_start|>assistant\n";
    let sampled = SamplingParams { temperature: 3.0, max_tokens: Some(24), ..SamplingParams::default() };
    let all = SamplingParams { seed: Some(900), completions: 5, ..sampled.clone() };
    let single: Vec<_> = (0..5).map(|i| SamplingParams { seed: Some(900 + i), ..sampled.clone() }).collect();
    let mut wanted: Option<Vec<(Vec<TokenId>, String)>> = None;
    for cache in [PrefixCache::On, PrefixCache::Off] {
        let run = |prompts: &[Prompt], params: &[SamplingParams]| -> Vec<(Vec<TokenId>, String)> {
            let results = demo(cache).generate(prompts, params, &mut |_| ControlFlow::Continue(())).unwrap();
            results.into_iter().map(|result| (result.token_ids, result.text)).collect()
        };
        let together = run(&[Prompt::Text(text)], std::slice::from_ref(&all));
        assert_eq!(together, run(&[Prompt::Text(text); 5], &single), "{cache:?}");
        assert!(together.iter().any(|other| *other != together[0]), "they differ from one another");
        assert_eq!(*wanted.get_or_insert_with(|| together.clone()), together, "with and without a cache");
    }
}
