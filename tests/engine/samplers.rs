//! DRY, XTC and top-n-sigma on the demo model: the same tokens however a request is computed, and what each of them does.

use crate::tree;

use base::TokenId;
use engine::options::{EngineOptions, PrefixCache};
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, Prompt};
use runner::Device;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

const TOKENS: u32 = 40;

fn options() -> EngineOptions {
    let mut options = EngineOptions::new(tree::root().join("models/demo"));
    options.device = Device::Cpu;
    options.num_threads = Some(2);
    options.max_model_len = Some(256);
    options.kv_block_size = Some(16);
    options.kv_cache_bytes = Some(16 << 20);
    options.seed = Some(7);
    options
}

fn open(options: &EngineOptions) -> Engine {
    Engine::open(options, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn text(name: &str) -> String {
    format!("<|im_start|>user\ntell {name} a story about {name} and {name}<|im_end|>\n<|im_start|>assistant\n")
}

/// A request of each kind, and of all at once.
fn requests() -> Vec<(String, SamplingParams)> {
    let plain = SamplingParams { max_tokens: Some(TOKENS), eos: Eos::Ignored, ..SamplingParams::default() };
    let warm = SamplingParams { temperature: 1.5, seed: Some(5), ..plain.clone() };
    let dry = SamplingParams { dry_multiplier: 2.0, dry_allowed_length: 1, ..plain.clone() };
    let xtc = SamplingParams { xtc_probability: 0.5, xtc_threshold: 0.05, ..warm.clone() };
    let all = SamplingParams {
        dry_multiplier: 1.5,
        dry_sequence_breakers: Some(vec!["e".to_owned()]),
        dry_penalty_last_n: Some(30),
        top_n_sigma: 2.0,
        top_p: 0.95,
        repetition_penalty: 1.1,
        ..xtc.clone()
    };
    let sigma = SamplingParams { top_n_sigma: 1.0, ..warm.clone() };
    let kinds = [dry, xtc, all, sigma, plain, warm];
    kinds
        .into_iter()
        .zip(["Ann", "Bob", "Cid", "Dan", "Eve", "Flo"])
        .map(|(params, name)| (text(name), params))
        .collect()
}

/// The tokens of each request, and how often one was preempted.
fn answers(engine: &mut Engine, requests: &[(String, SamplingParams)]) -> (Vec<Vec<TokenId>>, u64) {
    let mut tokens = BTreeMap::new();
    for (text, params) in requests {
        let id = engine.handle().add_request(Prompt::Text(text), params.clone()).unwrap();
        tokens.insert(id, Vec::new());
    }
    while !engine.handle().is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            tokens.get_mut(&output.request_id).expect("a request").extend_from_slice(&output.token_ids);
        }
    }
    (tokens.into_values().collect(), engine.handle().stats().preemptions)
}

#[test]
fn alone_together_in_pieces_preempted_or_cached_the_tokens_are_the_same() {
    let requests = requests();
    let alone: Vec<_> =
        requests.iter().map(|one| answers(&mut open(&options()), std::slice::from_ref(one)).0.remove(0)).collect();
    assert!(alone.iter().all(|tokens| tokens.len() == TOKENS as usize));
    let mut engine = open(&options());
    assert_eq!(answers(&mut engine, &requests).0, alone, "together");
    assert_eq!(answers(&mut engine, &requests).0, alone, "with prompts that are cached");
    let uncached = EngineOptions { prefix_cache: PrefixCache::Off, ..options() };
    assert_eq!(answers(&mut open(&uncached), &requests).0, alone, "without a cache");
    let chunked = EngineOptions { max_batched_tokens: Some(7), max_num_seqs: Some(7), ..options() };
    assert_eq!(answers(&mut open(&chunked), &requests).0, alone, "in pieces");
    // Room for the longest sequence, and hardly more.
    let tight = EngineOptions { kv_cache_bytes: Some(260 * 3072), ..options() };
    let (tokens, preemptions) = answers(&mut open(&tight), &requests);
    assert_eq!(tokens, alone, "preempted");
    assert!(preemptions > 0, "nothing was preempted");
}

/// The tokens of one request.
fn answer(text: &str, params: &SamplingParams) -> Vec<TokenId> {
    answers(&mut open(&options()), &[(text.to_owned(), params.clone())]).0.remove(0)
}

/// How many of the last tokens, with what follows them, came before: the longest repetition of an answer.
fn longest_repetition(tokens: &[TokenId]) -> usize {
    let from = |a: usize, b: usize| tokens[a..].iter().zip(&tokens[b..]).take_while(|(x, y)| x == y).count();
    (0..tokens.len())
        .flat_map(|a| (a + 1..tokens.len()).map(move |b| (a, b)))
        .map(|(a, b)| from(a, b))
        .max()
        .unwrap_or(0)
}

#[test]
fn dry_breaks_a_loop() {
    // Each answer of the greedy model ends in a loop when its end is ignored.
    let plain = SamplingParams { max_tokens: Some(100), eos: Eos::Ignored, ..SamplingParams::default() };
    let text = text("Ann");
    let looped = longest_repetition(&answer(&text, &plain));
    assert!(looped >= 20, "{looped}");
    let none = Some(Vec::new());
    let dry = SamplingParams { dry_multiplier: 5.0, dry_base: 2.0, dry_sequence_breakers: none, ..plain.clone() };
    let broken = longest_repetition(&answer(&text, &dry));
    assert!(broken <= 8, "{broken} after {looped}");
    let long = SamplingParams { dry_allowed_length: 200, ..dry.clone() };
    assert_eq!(answer(&text, &long), answer(&text, &plain), "a repetition that is allowed");
    let short = SamplingParams { dry_penalty_last_n: Some(2), ..dry };
    assert_eq!(answer(&text, &short), answer(&text, &plain), "no repetition fits into two tokens");
}

#[test]
fn xtc_in_any_case_takes_the_top_and_top_n_sigma_leaves_it() {
    let greedy =
        SamplingParams { max_tokens: Some(1), eos: Eos::Ignored, num_logprobs: 4, ..SamplingParams::default() };
    let text = text("Bob");
    let mut engine = open(&options());
    let first = |engine: &mut Engine, params: &SamplingParams| {
        let results =
            engine.generate(&[Prompt::Text(&text)], std::slice::from_ref(params), &mut |_| ControlFlow::Continue(()));
        let result = results.unwrap().remove(0);
        (result.token_ids[0], result.logprobs)
    };
    let (top, logprobs) = first(&mut engine, &greedy);
    // Flat enough that the second token has a fifth of the probability, and no other has.
    let [first_logprob, second_logprob, third_logprob, ..] = logprobs.top_logprobs[..] else { panic!("four") };
    let second = logprobs.top_tokens[1];
    let temperature = (first_logprob - second_logprob) / 2f32.ln();
    let share = |logprob: f32| ((logprob - first_logprob) / temperature).exp();
    assert!(share(third_logprob) < 0.49, "the third token of this prompt is less likely");
    let only = SamplingParams { temperature, top_k: 2, xtc_probability: 1.0, xtc_threshold: 0.2, ..greedy.clone() };
    for seed in 1..30 {
        let xtc = SamplingParams { seed: Some(seed), ..only.clone() };
        assert_eq!(first(&mut engine, &xtc).0, second, "seed {seed}");
        let alone = SamplingParams { xtc_threshold: 0.5, ..xtc.clone() };
        let never = SamplingParams { xtc_probability: 0.0, ..xtc.clone() };
        assert_eq!(first(&mut engine, &alone).0, first(&mut engine, &never).0, "no second token reaches a half");
        let sigma = SamplingParams { top_n_sigma: 1e-6, temperature: 100.0, seed: Some(seed), ..greedy.clone() };
        assert_eq!(first(&mut engine, &sigma).0, top, "seed {seed}");
    }
    let at_times = |seed| SamplingParams { seed: Some(seed), xtc_probability: 0.5, ..only.clone() };
    let seconds = (1..200).filter(|&seed| first(&mut engine, &at_times(seed)).0 == second).count();
    // Half of them by XTC, and a third of the others by chance.
    assert!((110..155).contains(&seconds), "{seconds} of 199");
}
