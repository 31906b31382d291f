//! What one request asks for.

use crate::batch::TokenId;

/// The options of a request, checked by [`SamplingParams::check`] when it is added.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// Echoed in every output.
    pub tag: u64,
    /// Tokens to generate at most; `None` goes to `max_model_len`.
    pub max_tokens: Option<u32>,
    /// Tokens before which no EOS or stop id may come.
    pub min_tokens: u32,
    /// 0 is greedy.
    pub temperature: f32,
    /// From above 0 to 1.
    pub top_p: f32,
    /// From 0 to 1.
    pub min_p: f32,
    /// 0 is off.
    pub top_k: u32,
    /// The request's own random stream; `None` draws from the engine's seed and the request's id.
    pub seed: Option<u64>,
    /// What the model's end tokens do.
    pub eos: Eos,
    /// Whether the token that stopped the request is part of its output.
    pub stop_token: StopToken,
    /// Higher runs first.
    pub priority: i32,
    /// Tokens that end the request, besides EOS.
    pub stop_tokens: Vec<TokenId>,
}

/// What the model's end tokens do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eos {
    /// They end the request.
    Stops,
    /// They are tokens like any other.
    Ignored,
}

/// Whether the token that stopped the request is part of its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopToken {
    /// It is left out of tokens and text.
    Dropped,
    /// It is kept.
    Kept,
}
