//! Which tokens would extend a repetition, and how much is subtracted from their logits? The DRY penalty.
//!
//! The formula is that of its proposal, <https://github.com/oobabooga/text-generation-webui/pull/5677>, and of llama.cpp: if the last `n` tokens
//! came before, the token that followed them there loses `multiplier * base^(n - allowed_length)`, where `n` is the greatest such number and
//! at least `allowed_length`.
//!
//! For each distance, [`History`] keeps how many of the last tokens equal those so far before. A new token makes each of these numbers one
//! greater, or 0: the cost of a token grows with the tokens looked at, whatever they are. The tokens of a prompt cost the same in all.

use crate::api::sampling_params::SamplingParams;
use crate::results::stop_strings::Search;
use base::TokenId;
use compute::batch::{LogitBias, Sampling};
use std::cmp::Reverse;
use std::sync::Arc;
use text::tokenizer::Tokenizer;

/// What a repetition does not extend across where a request names nothing else. As in llama.cpp.
pub const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

/// Marks a token that has a whole sequence breaker in its text: it is not penalized.
const BREAKER: u32 = 1 << 31;

/// The penalty that a request asks for. Its completions share it.
struct Rules {
    multiplier: f64,
    base: f64,
    /// At least 1.
    allowed_length: u32,
    /// Tokens looked at, at least 1.
    window: usize,
    breakers: Option<Search>,
}

/// The repetitions of one sequence.
#[derive(Clone)]
pub struct History {
    rules: Arc<Rules>,
    /// The tokens, or the last ones that matter, each with its mark.
    tokens: Vec<u32>,
    /// At `d - 1`: how many of the last tokens, up to a sequence breaker, equal those `d` before.
    runs: Vec<u32>,
    /// How much of each sequence breaker the text ends with. `[breakers]`
    matched: Vec<usize>,
}

impl History {
    /// That of a request before its first token; `None` where it asks for no penalty. Without `tokenizer`, or where the text of its tokens is
    /// not known one by one, there are no sequence breakers.
    pub fn new(params: &SamplingParams, prompt: &[TokenId], tokenizer: Option<&Tokenizer>) -> Option<History> {
        if params.dry_multiplier == 0.0 {
            return None;
        }
        let breakers = match &params.dry_sequence_breakers {
            Some(breakers) => Search::new(breakers),
            None => Search::new(&BREAKERS),
        };
        let rules = Rules {
            multiplier: params.dry_multiplier.into(),
            base: params.dry_base.into(),
            allowed_length: params.dry_allowed_length,
            window: params.dry_penalty_last_n.map_or(usize::MAX, |tokens| tokens as usize),
            breakers,
        };
        let matched = vec![0; rules.breakers.as_ref().map_or(0, Search::len)];
        let mut history = History { rules: Arc::new(rules), tokens: Vec::new(), runs: Vec::new(), matched };
        let last = &prompt[prompt.len() - prompt.len().min(history.rules.window)..];
        history.tokens.reserve_exact(last.len());
        let mut unbroken = 0;
        for &token in last {
            let (marked, breaks) = history.read(token, tokenizer);
            history.tokens.push(marked);
            unbroken = if breaks { 0 } else { unbroken + 1 };
        }
        history.runs = runs_of(&history.tokens, unbroken);
        Some(history)
    }

    /// Reserves memory for `tokens` further tokens.
    pub fn reserve(&mut self, tokens: usize) {
        self.tokens.reserve(tokens);
        self.runs.reserve(tokens.min((self.rules.window - 1).saturating_sub(self.runs.len())));
    }

    /// Takes in a token that was generated.
    pub fn push(&mut self, token: TokenId, tokenizer: Option<&Tokenizer>) {
        let (marked, breaks) = self.read(token, tokenizer);
        if self.runs.len() < self.tokens.len().min(self.rules.window - 1) {
            self.runs.push(0);
        }
        let before = &self.tokens[self.tokens.len() - self.runs.len()..];
        for (run, &token) in self.runs.iter_mut().zip(before.iter().rev()) {
            *run = if token == marked && !breaks { *run + 1 } else { 0 };
        }
        self.tokens.push(marked);
    }

    /// Adds the penalties to what a sample has at the end of `entries`, in ascending order of the tokens.
    pub fn write(&self, sampling: &mut Sampling, entries: &mut Vec<LogitBias>) {
        let (start, known) = (sampling.adjusted_start as usize, entries.len());
        let len = self.tokens.len();
        let visible = len.min(self.rules.window);
        for (before, &run) in self.runs.iter().enumerate() {
            // What is older than the window is not compared.
            let run = run.min((visible - before - 1) as u32);
            let next = self.tokens[len - before - 1];
            if run >= self.rules.allowed_length && next & BREAKER == 0 {
                entries.push(LogitBias { token: next, uses: run, bias: 0.0 });
            }
        }
        entries[known..].sort_unstable_by_key(|entry| (entry.token, Reverse(entry.uses)));
        let (mut end, mut latest) = (known, None);
        for at in known..entries.len() {
            let LogitBias { token, uses: run, .. } = entries[at];
            if latest.replace(token) == Some(token) {
                continue;
            }
            let penalty = self.rules.penalty(run);
            match entries[start..known].binary_search_by_key(&token, |entry| entry.token) {
                Ok(index) => {
                    let bias = &mut entries[start + index].bias;
                    // Minus infinity is a ban, and stays one; nothing else becomes one.
                    *bias = if bias.is_finite() { (*bias - penalty).max(f32::MIN) } else { *bias };
                }
                Err(_) => {
                    entries[end] = LogitBias { token, uses: LogitBias::UNUSED, bias: -penalty };
                    end += 1;
                }
            }
        }
        entries.truncate(end);
        entries[start..].sort_unstable_by_key(|entry| entry.token);
        sampling.adjusted_end = end as u32;
    }

    /// A token with its mark, and whether its text, after that of the tokens before, has the end of a sequence breaker.
    fn read(&mut self, token: TokenId, tokenizer: Option<&Tokenizer>) -> (u32, bool) {
        let (Some(breakers), Some(tokenizer)) = (&self.rules.breakers, tokenizer) else { return (token, false) };
        let text = tokenizer.token_bytes(token).unwrap_or_default();
        let breaks = breakers.advance(&mut self.matched, text);
        (if breaks && breakers.is_in(text) { token | BREAKER } else { token }, breaks)
    }
}

impl Rules {
    /// What is subtracted where the last `run` tokens came before, at least `allowed_length`. Products alone, so that every system
    /// computes the same bits.
    fn penalty(&self, run: u32) -> f32 {
        let (mut power, mut factor, mut exponent) = (1.0, self.base, run - self.allowed_length);
        while exponent > 0 {
            power *= if exponent % 2 == 1 { factor } else { 1.0 };
            factor *= factor;
            exponent /= 2;
        }
        ((self.multiplier * power) as f32).min(f32::MAX)
    }
}

/// For each distance how many of the last tokens equal those so far before, at most `most`: the Z algorithm on the tokens in reverse order.
fn runs_of(tokens: &[u32], most: u32) -> Vec<u32> {
    let len = tokens.len();
    let at = |index: usize| tokens[len - 1 - index];
    // Up to `end`, tokens from `start` on are known to equal the first ones.
    let (mut runs, mut start, mut end) = (vec![0u32; len.saturating_sub(1)], 0, 0);
    for distance in 1..len {
        let mut run = 0;
        if distance < end {
            run = (runs[distance - start - 1] as usize).min(end - distance);
        }
        while distance + run < len && at(run) == at(distance + run) {
            run += 1;
        }
        if distance + run > end {
            (start, end) = (distance, distance + run);
        }
        runs[distance - 1] = run as u32;
    }
    runs.iter_mut().for_each(|run| *run = (*run).min(most));
    runs
}

#[cfg(test)]
mod tests;
