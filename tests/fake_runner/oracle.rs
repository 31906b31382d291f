//! The answer to a request, computed without batches, blocks or chunks.

use super::{EOS, Shape, choose, digest, log_sum, write_logits};
use base::TokenId;
use compute::batch::{NO_TOKEN, Sampling};
use engine::logprobs::Logprobs;
use engine::sampling_params::{Eos, SamplingParams, StopToken};

/// The seed of the engines under test.
pub const SEED: u64 = 42;

/// What the model knows of a text.
#[derive(Clone, Default)]
pub struct Context {
    /// What each slot holds.
    slots: Vec<u64>,
    window: Option<usize>,
}

impl Context {
    /// The text `tokens`, to a model whose tokens attend to `window` tokens.
    pub fn of(tokens: &[TokenId], window: Option<usize>) -> Context {
        let mut context = Context { slots: Vec::new(), window };
        tokens.iter().for_each(|&token| context.push(token));
        context
    }

    /// The same text with one token more.
    pub fn push(&mut self, token: TokenId) {
        self.slots.push(digest(self.slots.last().copied().unwrap_or(0), token));
    }

    /// Of the token after it. `[vocab]`
    pub fn logits(&self, vocab: usize) -> Vec<f32> {
        let mut logits = Vec::new();
        let start = self.window.map_or(0, |window| self.slots.len().saturating_sub(window));
        let attended = self.slots[start..].iter().fold(0u64, |sum, &slot| sum.wrapping_add(slot));
        write_logits(attended, vocab, &mut logits);
        logits
    }

    /// Of the token after it. `[vocab]`
    pub fn logprobs(&self, vocab: usize) -> Vec<f32> {
        let logits = self.logits(vocab);
        let log_sum = log_sum(&logits);
        logits.iter().map(|&logit| (f64::from(logit) - log_sum) as f32).collect()
    }
}

/// Those of `tokens` from index `first` on, each after those before it, with this many alternatives.
pub fn logprobs(tokens: &[TokenId], first: usize, alternatives: u32, shape: &Shape) -> Logprobs {
    let vocab = shape.vocab;
    let mut found = Logprobs { alternatives: alternatives as usize, ..Logprobs::default() };
    let mut context = Context::of(&tokens[..first], shape.window);
    for &token in &tokens[first..] {
        let logprobs = context.logprobs(vocab);
        found.logprobs.push(logprobs[token as usize]);
        let mut ranked: Vec<(TokenId, f32)> = (0..).zip(context.logits(vocab)).collect();
        ranked.sort_by(|a, b| b.1.total_cmp(&a.1));
        for rank in 0..alternatives as usize {
            let token = ranked.get(rank).map_or(NO_TOKEN, |(token, _)| *token);
            found.top_tokens.push(token);
            found.top_logprobs.push(logprobs.get(token as usize).copied().unwrap_or(f32::NEG_INFINITY));
        }
        context.push(token);
    }
    found
}

/// The answer to one completion of a request, computed alone: its tokens, and whether a stop token ended it.
pub fn oracle(id: u64, index: u32, prompt: &[TokenId], params: &SamplingParams, shape: &Shape) -> (Vec<TokenId>, bool) {
    let pool = shape.pool_tokens();
    let room = shape.limits.model_len.min(pool) - prompt.len();
    let max = params.max_tokens.map_or(room, |max| room.min(max as usize));
    let mut ending = params.stop_tokens.clone();
    if params.eos == Eos::Stops {
        ending.push(EOS);
    }
    let mut context = Context::of(prompt, shape.window);
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
        let logits: Vec<f32> = (0..)
            .zip(context.logits(shape.vocab))
            .map(|(token, logit)| adjusted(token, logit, prompt, &answer, params))
            .zip(0..)
            .map(|(logit, token)| if banned.contains(&token) { f32::NEG_INFINITY } else { logit })
            .collect();
        let token = choose(&logits, &sampling);
        if ending.contains(&token) {
            answer.extend((params.stop_token == StopToken::Kept).then_some(token));
            return (answer, true);
        }
        answer.push(token);
        context.push(token);
    }
    (answer, false)
}

/// The logit of a token after penalties and bias.
fn adjusted(token: TokenId, logit: f32, prompt: &[TokenId], answer: &[TokenId], params: &SamplingParams) -> f32 {
    let uses = answer.iter().filter(|&&other| other == token).count();
    let mut logit = logit;
    if uses > 0 || prompt.contains(&token) {
        let penalty = params.repetition_penalty;
        logit = if logit > 0.0 { logit / penalty } else { logit * penalty };
    }
    if uses > 0 {
        logit -= params.presence_penalty;
    }
    logit -= params.frequency_penalty * uses as f32;
    let bias = params.logit_bias.iter().find(|(biased, _)| *biased == token);
    let bias = bias.map_or(0.0, |(_, bias)| *bias);
    logit + (bias - repeated(token, prompt, answer, params))
}

/// The DRY penalty of a token.
fn repeated(token: TokenId, prompt: &[TokenId], answer: &[TokenId], params: &SamplingParams) -> f32 {
    let tokens = [prompt, answer].concat();
    let window = params.dry_penalty_last_n.map_or(usize::MAX, |tokens| tokens as usize);
    let tokens = &tokens[tokens.len() - tokens.len().min(window)..];
    let runs = (1..tokens.len()).filter(|&at| tokens[at] == token).map(|at| {
        let pairs = tokens[..at].iter().rev().zip(tokens.iter().rev());
        pairs.take_while(|(before, last)| before == last).count() as u32
    });
    let run = runs.filter(|run| *run >= params.dry_allowed_length).max();
    run.map_or(0.0, |run| params.dry_multiplier * params.dry_base.powi((run - params.dry_allowed_length) as i32))
}
