//! Requests of all kinds, for random schedules.
#![allow(dead_code)]

use base::TokenId;
use engine::sampling_params::{Eos, Pinning, SamplingParams, StopToken};
use proptest::prelude::*;

/// Tokens that the model under test knows.
pub const VOCAB: usize = 24;

/// Prompts that often begin alike: a piece of one of three stems, and a tail.
pub fn prompts() -> impl Strategy<Value = Vec<TokenId>> {
    let tail = prop::collection::vec(1..VOCAB as TokenId, 0..4);
    (0..3u32, 0..20u32, tail).prop_map(|(stem, len, tail)| {
        let mut prompt: Vec<TokenId> = (0..len).map(|i| 1 + (stem * 5 + i * i) % (VOCAB as u32 - 1)).collect();
        prompt.extend(tail);
        prompt
    })
}

/// Options of all kinds.
pub fn params() -> impl Strategy<Value = SamplingParams> {
    let lengths = (prop::option::weighted(0.8, 1..32u32), 0..6u32);
    let ends = (
        prop::sample::select(vec![Eos::Stops, Eos::Ignored]),
        prop::sample::select(vec![StopToken::Dropped, StopToken::Kept]),
        prop::collection::vec(0..VOCAB as TokenId, 0..2),
    );
    let random = (prop::sample::select(vec![0.0, 0.7]), prop::option::of(0..3u64));
    let more = (-1..2i32, prop::sample::select(vec![1, 1, 1, 2, 4]));
    let adjusted = prop_oneof![
        2 => Just((1.0, 0.0, 0.0, Vec::new())),
        1 => adjustments(),
    ];
    let ranked = prop::sample::select(vec![0, 0, 0, 1, 5, 30]);
    let dry = prop_oneof![
        3 => Just((0.0, 2, None)),
        1 => (prop::sample::select(vec![0.5, 8.0]), 1..4u32, prop::option::of(1..30u32)),
    ];
    let asked = (adjusted, dry, ranked.clone(), ranked);
    let pinning = prop::sample::select(vec![Pinning::Evictable, Pinning::Evictable, Pinning::Pinned]);
    let cache = (prop::sample::select(vec![0, 0, 7]), pinning);
    (lengths, ends, random, more, asked, cache).prop_map(|(lengths, ends, random, more, asked, cache)| {
        let (eos, stop_token, stop_tokens) = ends;
        let (cache_salt, pinning) = cache;
        let (adjusted, dry, num_logprobs, num_prompt_logprobs) = asked;
        let (repetition_penalty, presence_penalty, frequency_penalty, logit_bias) = adjusted;
        let (dry_multiplier, dry_allowed_length, dry_penalty_last_n) = dry;
        let (max_tokens, min_tokens) = lengths;
        let min_tokens = min_tokens.min(max_tokens.unwrap_or(u32::MAX));
        let (temperature, seed) = random;
        let (priority, completions) = more;
        SamplingParams {
            max_tokens,
            min_tokens,
            temperature,
            seed,
            eos,
            stop_token,
            stop_tokens,
            priority,
            completions,
            repetition_penalty,
            presence_penalty,
            frequency_penalty,
            logit_bias,
            dry_multiplier,
            // Its powers are exact.
            dry_base: 2.0,
            dry_allowed_length,
            dry_penalty_last_n,
            num_logprobs,
            num_prompt_logprobs,
            cache_salt,
            pinning,
            ..SamplingParams::default()
        }
    })
}

/// Penalties of repetition, presence and frequency, and biases.
fn adjustments() -> impl Strategy<Value = (f32, f32, f32, Vec<(TokenId, f32)>)> {
    let penalties = |values: [f32; 3]| prop::sample::select(values.to_vec());
    let bias = prop::sample::select(vec![-2.0, 3.0, f32::NEG_INFINITY]);
    // The end token keeps its chance, so that no more than the vocabulary without it is forbidden.
    let biases = prop::collection::btree_map(1..VOCAB as TokenId, bias, 0..4);
    (penalties([1.0, 1.7, 0.6]), penalties([0.0, 2.5, -1.0]), penalties([0.0, 0.75, -0.5]), biases).prop_map(
        |(repetition, presence, frequency, biases)| (repetition, presence, frequency, biases.into_iter().collect()),
    )
}
