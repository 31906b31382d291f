//! The engine: requests in, outputs out, one step at a time.
//!
//! An engine has two sides. [`Front`] may be used from any thread: it checks and queues requests, cancels them and reads
//! statistics. [`Engine`] is the side that works, used by one thread at a time.

pub mod chat_template;
pub mod generate;
pub mod options;
pub mod output;
pub mod sampling_params;
pub mod tokenizer;

use crate::batch::TokenId;
use crate::error::Result;
use crate::runner::{Loaded, ModelInfo};
use options::{EngineOptions, PrefixCache};
use output::{Output, Stats, StepReport};
use sampling_params::SamplingParams;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// The side of an engine that may be used from any thread.
pub struct Front {}

/// The side of an engine that works.
pub struct Engine {}

/// A prompt as the caller has it.
#[derive(Clone, Copy, Debug)]
pub enum Prompt<'a> {
    /// Text, whose spelled special tokens become tokens.
    Text(&'a str),
    /// Tokens.
    Tokens(&'a [TokenId]),
}

/// How long one call of [`Engine::step`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// One pass, to its end; one that was begun by an earlier call is finished and counts.
    OnePass,
    /// Until the time is spent, in the middle of a pass if need be.
    Time(Duration),
}

/// Host-side settings that no runner needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Requests that may wait; `None` is no limit.
    pub max_queue: Option<usize>,
    /// Whether blocks are shared between requests with the same prefix.
    pub prefix_cache: PrefixCache,
    /// Seed of requests that bring none.
    pub seed: u64,
}

impl Engine {
    /// Loads a model folder. `progress` hears a fraction from 0 to 1 and may cancel.
    pub fn open(options: &EngineOptions, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<Engine> {
        let _ = (options, progress);
        todo!()
    }

    /// An engine over a runner that is ready: without tokenizer and chat template, so for token ids only.
    pub fn with_runner(loaded: Loaded, limits: EngineLimits) -> Engine {
        let _ = (loaded, limits);
        todo!()
    }

    /// The side that other threads may use.
    pub fn front(&self) -> &Arc<Front> {
        todo!()
    }

    /// Takes in new requests, works for `budget`, and queues outputs. Returns at once when there is nothing to do.
    ///
    /// A failure of one request is an output of that request; an error here means that the engine cannot go on.
    pub fn step(&mut self, budget: Budget) -> Result<StepReport> {
        let _ = budget;
        todo!()
    }

    /// Like [`step`](Self::step), but hands each output to `sink`; when it breaks, the output's request is cancelled.
    pub fn step_with(
        &mut self,
        budget: Budget,
        sink: &mut dyn FnMut(&Output) -> ControlFlow<()>,
    ) -> Result<StepReport> {
        let _ = (budget, sink);
        todo!()
    }

    /// The oldest output that waits. It stays readable until the next call of this method or of `step`.
    pub fn next_output(&mut self) -> Option<&Output> {
        todo!()
    }
}

impl Front {
    /// Checks a request and queues it; its id is the answer. Fails without a trace when it can never run.
    pub fn add_request(&self, prompt: Prompt, params: SamplingParams) -> Result<u64> {
        let _ = (prompt, params);
        todo!()
    }

    /// Asks for a request to end; it ends with [`output::Finish::Cancelled`] at the next step.
    pub fn cancel(&self, request_id: u64) -> Result<()> {
        let _ = request_id;
        todo!()
    }

    /// Whether nothing waits, runs, or is queued for polling.
    pub fn is_finished(&self) -> bool {
        todo!()
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// Facts about the model. `bos_token` and `eos_tokens` have generation_config.json applied.
    pub fn model_info(&self) -> &ModelInfo {
        todo!()
    }

    /// The request options that generation_config.json implies, else: greedy.
    pub fn default_params(&self) -> SamplingParams {
        todo!()
    }

    /// The tokenizer.
    ///
    /// # Errors
    ///
    /// [`Error::NoTokenizer`](crate::error::Error::NoTokenizer) when the model folder brings none.
    pub fn tokenizer(&self) -> Result<&tokenizer::Tokenizer> {
        todo!()
    }

    /// The chat template.
    ///
    /// # Errors
    ///
    /// [`Error::NoChatTemplate`](crate::error::Error::NoChatTemplate) when the model folder brings none.
    pub fn chat_template(&self) -> Result<&chat_template::ChatTemplate> {
        todo!()
    }
}
