//! Beam search over the fake model without sequences or blocks: whole texts, all of their continuations, and one sort.

use super::oracle::Context;
use super::{EOS, Shape};
use base::TokenId;
use engine::beam_search::EarlyStopping;
use engine::sampling_params::{Eos, SamplingParams};

/// An answer: its tokens, an end token included, the sum of its log-probabilities, and its score.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub tokens: Vec<TokenId>,
    pub logprob: f32,
    pub score: f32,
}

/// The tokens that end an answer.
pub fn ending_tokens(params: &SamplingParams) -> Vec<TokenId> {
    let mut tokens = params.stop_tokens.clone();
    tokens.extend((params.eos == Eos::Stops).then_some(EOS));
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

/// The best answers, as many as there are beams.
pub fn beam_search(prompt: &[TokenId], params: &SamplingParams, shape: &Shape) -> Vec<Found> {
    let beams = params.beams.expect("a request with beams");
    let width = beams.width as usize;
    let pool = shape.pool_tokens();
    let room = shape.limits.model_len.min(pool) - prompt.len();
    let max = params.max_tokens.map_or(room, |max| room.min(max as usize));
    let ending = ending_tokens(params);
    let power = |length: usize| (length as f64).powf(f64::from(beams.length_penalty)) as f32;

    let mut running: Vec<(Vec<TokenId>, f32)> = vec![(Vec::new(), 0.0)];
    let mut found: Vec<Found> = Vec::new();
    for length in 1..=max {
        let mut all = Vec::new();
        for (tokens, sum) in &running {
            let context = Context::of(&[prompt, &tokens[..]].concat(), shape.window);
            for (token, logprob) in (0..).zip(context.logprobs(shape.vocab)) {
                let is_early = length <= params.min_tokens as usize && ending.contains(&token);
                if !is_early {
                    all.push(([&tokens[..], &[token]].concat(), sum + logprob));
                }
            }
        }
        // Stable: among equals the better beam comes first, and then the lower token.
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(width * (1 + ending.len()).max(2));
        let ends = |tokens: &[TokenId]| length == max || ending.contains(tokens.last().unwrap());
        for (tokens, sum) in all.iter().take(width).filter(|(tokens, _)| ends(tokens)) {
            found.push(Found { tokens: tokens.clone(), logprob: *sum, score: sum / power(length) });
        }
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        found.truncate(width);
        running = all.into_iter().filter(|(tokens, _)| !ends(tokens)).take(width).collect();
        let Some((_, best)) = running.first() else { break };
        if found.len() == width {
            let reach = match beams.early_stopping {
                EarlyStopping::WhenFull => break,
                EarlyStopping::Never if beams.length_penalty > 0.0 => max,
                EarlyStopping::Never | EarlyStopping::WhenUnlikely => length,
            };
            if best / power(reach) <= found[width - 1].score {
                break;
            }
        }
    }
    found
}
