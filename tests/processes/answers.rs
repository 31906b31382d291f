//! What an engine answers to requests of many kinds.

use crate::random_requests;
use base::TokenId;
use engine::sampling_params::{Pinning, Pooling, SamplingParams};
use engine::{Budget, Engine, Prompt};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use std::collections::BTreeMap;

/// Requests of many kinds, and everything that the answers to them say.
pub fn answers(engine: &mut Engine, budget: Budget) -> Vec<BTreeMap<u32, String>> {
    let mut runner = TestRunner::deterministic();
    let strategy = (random_requests::prompts(), random_requests::params());
    let mut requests: Vec<(Vec<TokenId>, SamplingParams)> =
        (0..16).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect();
    requests.retain(|(prompt, _)| !prompt.is_empty());
    let long: Vec<TokenId> = (0..60).map(|i| 1 + i * i % 23).collect();
    let logprobs = SamplingParams { num_logprobs: 4, num_prompt_logprobs: 3, ..SamplingParams::default() };
    requests.push((long.clone(), logprobs));
    requests.push((long, SamplingParams { pooling: Pooling::Mean, ..SamplingParams::default() }));
    let handle = engine.handle().clone();
    for (tag, (prompt, params)) in requests.iter().enumerate() {
        let max_tokens = Some(params.max_tokens.unwrap_or(8).min(8));
        let min_tokens = params.min_tokens.min(8);
        let params =
            SamplingParams { tag: tag as u64, max_tokens, min_tokens, pinning: Pinning::Evictable, ..params.clone() };
        handle.add_request(Prompt::Tokens(prompt), params).unwrap();
    }
    let mut said = vec![BTreeMap::<u32, String>::new(); requests.len()];
    while !handle.is_finished() {
        engine.step(budget).unwrap();
        while let Some(output) = engine.next_output() {
            *said[output.tag as usize].entry(output.index).or_default() += &format!(
                "{:?} {:?} {:?} {:?} {:?}\n",
                output.token_ids, output.embedding, output.finish, output.logprobs, output.prompt_logprobs
            );
        }
    }
    assert!(said.iter().all(|said| !said.is_empty()));
    said
}
