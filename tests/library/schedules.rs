//! What engines over small models are asked, whatever is shared, evicted, preempted, forked and cut.

use crate::random_requests;

use base::TokenId;
use engine::beam_search::{BeamParams, EarlyStopping};
use engine::sampling_params::{Eos, Pinning, Pooling, SamplingParams};
use engine::{Budget, Engine, Prompt};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;

/// Requests of all kinds, many of which begin alike.
pub fn requests() -> Vec<(Vec<TokenId>, SamplingParams)> {
    let mut runner = TestRunner::deterministic();
    let strategy = (random_requests::prompts(), random_requests::params());
    let mut requests: Vec<_> = (0..24).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
    requests.retain(|(prompt, _)| !prompt.is_empty());
    for (_, params) in &mut requests {
        params.max_tokens = Some(params.max_tokens.unwrap_or(12).min(12));
        params.min_tokens = params.min_tokens.min(12);
        params.pinning = Pinning::Evictable;
    }
    let plain = || SamplingParams { max_tokens: Some(12), ..SamplingParams::default() };
    let long: Vec<TokenId> = (0..90).map(|i| 1 + i * i % 23).collect();
    for len in [90, 60, 89, 33, 32, 31, 90] {
        requests.push((long[..len].to_vec(), plain()));
    }
    let beams = BeamParams { width: 3, length_penalty: 1.0, early_stopping: EarlyStopping::WhenUnlikely };
    requests.push((long.clone(), SamplingParams { beams: Some(beams), ..plain() }));
    requests.push((long.clone(), SamplingParams { completions: 3, temperature: 1.0, ..plain() }));
    requests.push((long.clone(), SamplingParams { num_logprobs: 4, num_prompt_logprobs: 3, ..plain() }));
    requests.push((long.clone(), SamplingParams { pooling: Pooling::Mean, ..plain() }));
    requests.push((long, SamplingParams { pooling: Pooling::Last, ..plain() }));
    requests
}

/// What outputs say, but for times and what was cached.
pub fn answers(engine: &mut Engine, budget: Budget, at_once: usize) -> Vec<BTreeMap<u32, String>> {
    let handle = engine.handle().clone();
    let requests = requests();
    let mut said = vec![BTreeMap::<u32, String>::new(); requests.len()];
    for (group, some) in requests.chunks(at_once).enumerate() {
        for (tag, (prompt, params)) in some.iter().enumerate() {
            let params = SamplingParams { tag: (group * at_once + tag) as u64, ..params.clone() };
            handle.add_request(Prompt::Tokens(prompt), params).unwrap();
        }
        while !handle.is_finished() {
            engine.step(budget).unwrap();
            while let Some(output) = engine.next_output() {
                let text = format!(
                    "{:?} {:?} {:?} {:?} {:?} {}\n",
                    output.token_ids,
                    output.embedding,
                    output.finish,
                    output.logprobs,
                    output.prompt_logprobs,
                    output.score
                );
                *said[output.tag as usize].entry(output.index).or_default() += &text;
            }
        }
    }
    assert!(said.iter().all(|said| !said.is_empty()));
    said
}

/// Runs one request; returns its tokens, and how many of its prompt were cached.
pub fn ask(engine: &mut Engine, prompt: &[TokenId], tokens: u32) -> (Vec<TokenId>, u32) {
    let params = SamplingParams { max_tokens: Some(tokens), eos: Eos::Ignored, ..SamplingParams::default() };
    engine.handle().add_request(Prompt::Tokens(prompt), params).unwrap();
    let (mut answer, mut cached) = (Vec::new(), 0);
    while !engine.handle().is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            answer.extend_from_slice(&output.token_ids);
            cached = output.cached_tokens;
        }
    }
    (answer, cached)
}
