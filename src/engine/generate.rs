//! Many prompts at once, results in the order of the prompts.

use super::output::Output;
use super::sampling_params::SamplingParams;
use super::{Engine, Prompt};
use crate::error::Result;
use std::ops::ControlFlow;

/// How far [`Engine::generate`] has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Prompts that are done, bad ones included.
    pub finished: usize,
    /// Prompts.
    pub total: usize,
    /// Prompt tokens computed in a second, by the last passes that had any.
    pub prefill_tokens_per_s: f64,
    /// Tokens generated in a second, by the last passes that had any.
    pub decode_tokens_per_s: f64,
    /// Microseconds since the call began.
    pub elapsed_us: u64,
}

impl Engine {
    /// Completes all `prompts`, in their order.
    pub fn generate(
        &mut self,
        prompts: &[Prompt],
        params: &[SamplingParams],
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Vec<Output>> {
        let _ = (prompts, params, progress);
        todo!()
    }
}
