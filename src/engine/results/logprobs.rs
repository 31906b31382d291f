//! Log-probabilities of tokens that follow one another, on their way from the runner to the caller.

use base::TokenId;
use compute::batch::Chosen;

/// The log-probability of each token of a row, and the likeliest tokens in the place of each.
///
/// They are those of the model itself: natural logarithms of the softmax of its logits, before penalties, biases, temperature
/// and filters.
#[derive(Debug, Default, PartialEq)]
pub struct Logprobs {
    /// Alternatives that are asked for; 0 where log-probabilities are not.
    pub alternatives: usize,
    /// Of the tokens themselves, also where they are not among the likeliest. `[tokens]`
    pub logprobs: Vec<f32>,
    /// The likeliest tokens, likeliest first; [`NO_TOKEN`](compute::batch::NO_TOKEN) where the model gives fewer any probability.
    /// `[tokens, alternatives]`
    pub top_tokens: Vec<TokenId>,
    /// Their log-probabilities. `[tokens, alternatives]`
    pub top_logprobs: Vec<f32>,
}

impl Logprobs {
    /// Tokens that it knows of.
    pub fn len(&self) -> usize {
        self.logprobs.len()
    }

    /// Whether it knows of none.
    pub fn is_empty(&self) -> bool {
        self.logprobs.is_empty()
    }

    /// Adds the next token.
    pub fn push(&mut self, chosen: &Chosen) {
        self.logprobs.push(chosen.logprob);
        self.top_tokens.extend_from_slice(chosen.top_tokens);
        self.top_logprobs.extend_from_slice(chosen.top_logprobs);
    }

    /// Adds the tokens of another one, which has as many alternatives, or none.
    pub fn extend(&mut self, other: &Logprobs) {
        self.alternatives = self.alternatives.max(other.alternatives);
        self.logprobs.extend_from_slice(&other.logprobs);
        self.top_tokens.extend_from_slice(&other.top_tokens);
        self.top_logprobs.extend_from_slice(&other.top_logprobs);
    }

    /// Forgets all and keeps the memory.
    pub fn clear(&mut self) {
        self.alternatives = 0;
        self.logprobs.clear();
        self.top_tokens.clear();
        self.top_logprobs.clear();
    }
}

impl Clone for Logprobs {
    fn clone(&self) -> Logprobs {
        let mut copy = Logprobs::default();
        copy.clone_from(self);
        copy
    }

    /// Copies into the memory this one already has.
    fn clone_from(&mut self, source: &Logprobs) {
        self.clear();
        self.extend(source);
    }
}
