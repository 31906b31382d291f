//! The answer to a request, computed without batches, blocks or chunks.

use super::{EOS, Shape, choose, digest};
use nanovllm::batch::{Sampling, TokenId};
use nanovllm::engine::sampling_params::{Eos, SamplingParams, StopToken};

/// The seed of the engines under test.
pub const SEED: u64 = 42;

/// The answer to one completion of a request, computed alone: its tokens, and whether a stop token ended it.
pub fn oracle(id: u64, index: u32, prompt: &[TokenId], params: &SamplingParams, shape: &Shape) -> (Vec<TokenId>, bool) {
    let pool = shape.blocks * shape.limits.block_size;
    let room = shape.limits.model_len.min(pool) - prompt.len();
    let max = params.max_tokens.map_or(room, |max| room.min(max as usize));
    let mut ending = params.stop_tokens.clone();
    if params.eos == Eos::Stops {
        ending.push(EOS);
    }
    let (mut before, mut attended) = (0, 0u64);
    let mut attend = |token| {
        before = digest(before, token);
        attended = attended.wrapping_add(before);
        attended
    };
    let mut sum = prompt.iter().map(|&token| attend(token)).last().expect("a prompt");
    let mut answer = Vec::new();
    while answer.len() < max {
        let sampling = Sampling {
            temperature: params.temperature,
            seed: params.seed.map_or(SEED, |seed| seed + u64::from(index)),
            stream: if params.seed.is_some() { 0 } else { id | u64::from(index) << 48 },
            position: (prompt.len() + answer.len()) as u32,
            ..Sampling::GREEDY
        };
        let banned = if answer.len() < params.min_tokens as usize { &ending[..] } else { &[] };
        let token = choose(sum, &sampling, |token| !banned.contains(&token), shape.vocab);
        if ending.contains(&token) {
            answer.extend((params.stop_token == StopToken::Kept).then_some(token));
            return (answer, true);
        }
        answer.push(token);
        sum = attend(token);
    }
    (answer, false)
}
