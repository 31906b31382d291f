//! What becomes of the results of a pass: tokens are accepted, and outputs, log-probabilities and metrics are made of them.

pub mod accept;
pub mod histogram;
pub mod logprobs;
pub mod metrics;
pub mod output;
pub mod pooled_result;
pub mod stop_strings;
