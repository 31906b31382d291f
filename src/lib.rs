//! An LLM inference engine as a library: continuous batching, a paged KV cache, a prefix cache, on the CPU or on NVIDIA GPUs.
//!
//! An [`Engine`] opens a model, a folder as Hugging Face has it or a GGUF file. It works only while it is called: a program steps it, and polls
//! outputs. Requests may come at any time and from any thread, through its [`EngineHandle`].
//!
//! ```
//! use nanovllm::{Budget, Engine, Prompt, SamplingParams};
//!
//! let mut engine = Engine::open("models/demo")?;
//! let params = SamplingParams { max_tokens: Some(8), ..engine.handle().default_params() };
//! let id = engine.handle().add(Prompt::Text("list all prime numbers within 100"), params)?;
//! let mut text = String::new();
//! while !engine.handle().is_finished() {
//!     engine.step(Budget::OnePass)?;
//!     while let Some(output) = engine.poll() {
//!         assert_eq!(output.request_id, id);
//!         text += &output.text;
//!     }
//! }
//! assert!(!text.is_empty());
//! # Ok::<(), nanovllm::Error>(())
//! ```
//!
//! Where nothing else is to be done meanwhile, [`Engine::generate`] completes a list of prompts in one call.
//!
//! This API carries no promise of stability yet: `docs/rust-api.txt` lists what is public, and CHANGELOG.md says what changes. The C API, for which the
//! same engine is built as `libnanovllm.so`, only grows. An engine of several processes is opened by the C API alone.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod api;

pub use api::{Engine, EngineHandle, Message, log};
pub use base::TokenId;
pub use base::error::{Error, Result};
pub use engine::options::EngineOptions;
pub use engine::output::{Finish, Output, Stats, StepReport};
pub use engine::sampling_params::SamplingParams;
pub use engine::{Budget, Progress, Prompt};
pub use text::structure::Structure;

/// The values of options, of [`EngineOptions`] and [`SamplingParams`].
pub mod options {
    pub use compute::{KvCacheDtype, Rounding};
    pub use engine::beam_search::{BeamParams, EarlyStopping};
    pub use engine::options::{ExpertCounting, PrefixCache};
    pub use engine::sampling_params::{Eos, Pinning, Pooling, StopToken};
    pub use formats::DType;
    pub use os::{Files, Loading};
    pub use runner::{Device, ExpertDivision, Launching, OnLoad, Processes};
    pub use text::tokenizer::SpecialTokens;
}

/// Answers: content, reasoning and tool calls.
pub mod answer {
    pub use text::answer::{
        AnswerParser, Event, Malformed, Message, ParallelCalls, ToolCall, ToolChoice, ToolList, ToolSchemas, ToolUse,
    };
}

/// What outputs, statistics and models consist of.
pub mod facts {
    pub use engine::CacheCounts;
    pub use engine::logprobs::Logprobs;
    pub use runner::ModelInfo;
}

/// The programs of docs/rust.md, which are compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/rust.md")]
struct Page;
