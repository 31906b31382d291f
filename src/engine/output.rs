//! What comes out of an engine.

use crate::batch::TokenId;
use crate::error::Error;

/// News of one request: tokens that are new since its last output, and how it ended if it did.
#[derive(Debug, Default)]
pub struct Output {
    /// The request.
    pub request_id: u64,
    /// What the caller gave it to be known by.
    pub tag: u64,
    /// New tokens.
    pub token_ids: Vec<TokenId>,
    /// New text, whole characters only: a character that is cut by a token border waits for its rest.
    pub text: String,
    /// How the request ended; `None` while it goes on.
    pub finish: Option<Finish>,
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Of these, taken over from the prefix cache.
    pub cached_tokens: u32,
    /// Tokens generated so far.
    pub completion_tokens: u32,
    /// From adding the request to its first token, in microseconds; 0 before that.
    pub time_to_first_token_us: u64,
}

/// How a request ended.
#[derive(Debug)]
pub enum Finish {
    /// By an EOS or stop token.
    Stop,
    /// By max_tokens or max_model_len.
    Length,
    /// By a call.
    Cancelled,
    /// By a failure.
    Error(Error),
}

/// What one call of `step` did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepReport {
    /// Outputs that wait to be polled.
    pub outputs: usize,
    /// Sequences that run.
    pub running: usize,
    /// Sequences that wait.
    pub waiting: usize,
    /// Passes finished in this call.
    pub passes: u32,
    /// 1 when a pass was begun and is not finished.
    pub in_flight: u32,
    /// Prompt tokens computed in this call, cached ones not counted.
    pub prefill_tokens: u32,
    /// Tokens generated in this call.
    pub decode_tokens: u32,
    /// Microseconds spent in this call.
    pub elapsed_us: u64,
}

/// Counters since the engine opened, and gauges of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Passes.
    pub steps: u64,
    /// Prompt tokens computed.
    pub prompt_tokens: u64,
    /// Prompt tokens taken over from the prefix cache.
    pub cached_tokens: u64,
    /// Tokens generated.
    pub generated_tokens: u64,
    /// Sequences that had to give their blocks back.
    pub preemptions: u64,
    /// Time spent in passes, in microseconds.
    pub step_time_us: u64,
    /// Sequences that run.
    pub running: u32,
    /// Sequences that wait.
    pub waiting: u32,
    /// Blocks of the KV cache.
    pub kv_blocks_total: u32,
    /// Of these, held by sequences.
    pub kv_blocks_used: u32,
}
