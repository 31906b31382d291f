//! Why a call fails: the engine's errors and those that only a C caller can make, and the status of each.

use super::status::nvllm_status_code::{self, *};
use base::error::Error;
use std::fmt;

/// The reason why a call fails.
#[derive(Debug)]
pub(super) enum Refusal {
    /// A required pointer is NULL.
    Null(&'static str),
    /// A pointer is NULL although its length is not 0.
    NullWithLength(&'static str, usize),
    /// A pointer is not aligned to its type.
    Misaligned(&'static str, usize),
    /// A length exceeds the address space.
    TooLong(&'static str, usize),
    /// A struct_size is not that of any version of the struct.
    StructSize { name: &'static str, size: usize },
    /// A field that this library does not know is set.
    NewerFields { name: &'static str, known: usize, size: usize },
    /// The buffer is too small for the result.
    BufferTooSmall { needed: usize, capacity: usize },
    /// An index is out of range.
    Index { what: &'static str, index: usize, count: usize },
    /// The number of options is neither 0, 1, nor the number of prompts.
    OptionCount { options: usize, prompts: usize },
    /// A prompt has not one of text, tokens and messages, but this many.
    Prompts(usize),
    /// Another [one] function is running on this engine.
    Busy,
    /// An earlier call poisoned the engine.
    Poisoned(nvllm_status_code),
    /// The engine was freed while the call waited.
    Freed,
    /// The answer of a parser has ended.
    AnswerEnded,
    /// A panic has stopped a call of a parser.
    ParserLost,
    /// The engine belongs to the process this one was forked from.
    Forked { opened_in: u32, here: u32 },
    /// An element of an array is refused.
    Element { array: &'static str, index: usize, reason: Box<Refusal> },
    /// The engine refused.
    Engine(Error),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Engine(error)
    }
}

impl Refusal {
    /// What the C caller sees.
    pub(super) fn status(&self) -> nvllm_status_code {
        match self {
            Refusal::Null(_)
            | Refusal::NullWithLength(..)
            | Refusal::Misaligned(..)
            | Refusal::TooLong(..)
            | Refusal::StructSize { .. }
            | Refusal::NewerFields { .. }
            | Refusal::Index { .. }
            | Refusal::OptionCount { .. }
            | Refusal::Prompts(_)
            | Refusal::AnswerEnded => NVLLM_ERR_INVALID_ARGUMENT,
            Refusal::BufferTooSmall { .. } => NVLLM_ERR_BUFFER_TOO_SMALL,
            Refusal::Busy => NVLLM_ERR_BUSY,
            Refusal::Poisoned(status) => *status,
            Refusal::Freed => NVLLM_ERR_CANCELLED,
            Refusal::ParserLost => NVLLM_ERR_PANIC,
            Refusal::Forked { .. } => NVLLM_ERR_UNSUPPORTED,
            Refusal::Element { reason, .. } => reason.status(),
            Refusal::Engine(error) => status_of(error),
        }
    }

    /// errno or the device's code, 0 where there is none.
    pub(super) fn native_code(&self) -> i32 {
        match self {
            Refusal::Engine(
                Error::Io { source, .. } | Error::Descriptor { source, .. } | Error::NoThread { source, .. },
            ) => source.raw_os_error().unwrap_or(0),
            Refusal::Engine(Error::Device { code, .. }) => *code,
            Refusal::Element { reason, .. } => reason.native_code(),
            _ => 0,
        }
    }
}

/// The status of an engine's error.
pub(super) fn status_of(error: &Error) -> nvllm_status_code {
    match error {
        Error::PromptEmpty
        | Error::TokenOutOfRange { .. }
        | Error::Option { .. }
        | Error::ModelLen { .. }
        | Error::Limit { .. }
        | Error::NotUtf8 { .. }
        | Error::SavedPrefix { .. }
        | Error::ChatTemplate { .. }
        | Error::Tokenizer { .. }
        | Error::Structure { .. }
        | Error::StructureLost { .. }
        | Error::Json { .. } => NVLLM_ERR_INVALID_ARGUMENT,
        Error::PromptTooLong { .. } | Error::PromptFarTooLong { .. } | Error::TextTooLong { .. } => {
            NVLLM_ERR_CONTEXT_LENGTH
        }
        Error::RequestTooLarge { .. }
        | Error::PinsFull { .. }
        | Error::NoFreeBlocks { .. }
        | Error::NoFreeState
        | Error::StatesTooLarge { .. }
        | Error::KvCacheTooSmall { .. }
        | Error::NoThread { .. }
        | Error::GpuBudget { .. }
        | Error::ExpertsTooLarge { .. }
        | Error::OutOfMemory { .. } => NVLLM_ERR_OUT_OF_MEMORY,
        // A file that does not fit into memory.
        Error::Io { source, .. } if source.kind() == std::io::ErrorKind::OutOfMemory => NVLLM_ERR_OUT_OF_MEMORY,
        Error::QueueFull { .. } => NVLLM_ERR_QUEUE_FULL,
        Error::UnknownRequest { .. } | Error::UnknownPin { .. } | Error::NotCached { .. } => NVLLM_ERR_NOT_FOUND,
        Error::NoTokenizer | Error::NoChatTemplate { .. } | Error::Unsupported { .. } => NVLLM_ERR_UNSUPPORTED,
        Error::Io { .. } | Error::Descriptor { .. } => NVLLM_ERR_IO,
        Error::ModelFile { .. }
        | Error::Architecture { .. }
        | Error::UnsupportedModel { .. }
        | Error::MissingTensor { .. }
        | Error::TensorShape { .. }
        | Error::EmptyMatrix { .. }
        | Error::UnreadTensor { .. }
        | Error::CodedTensor { .. }
        | Error::TensorDtype { .. } => NVLLM_ERR_MODEL,
        Error::Device { .. } | Error::PassLost { .. } | Error::RankLost => NVLLM_ERR_DEVICE,
        Error::Peer { .. } => NVLLM_ERR_PEER,
        Error::Cancelled => NVLLM_ERR_CANCELLED,
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Refusal::Element { array, index, reason } => write!(f, "{array}[{index}]: {reason}"),
            Refusal::Prompts(given) => {
                write!(f, "the prompt has {given} of text, tokens and messages, but must have one")
            }
            Refusal::Null(what) => write!(f, "{what} is NULL"),
            Refusal::NullWithLength(what, len) => write!(f, "{what} is NULL, but its length is {len}"),
            Refusal::Misaligned(what, align) => write!(f, "{what} is not aligned to {align} bytes"),
            Refusal::TooLong(what, len) => write!(f, "{what} has length {len}, which exceeds the address space"),
            Refusal::StructSize { name, size } => {
                write!(f, "struct_size of {name} is {size}: set it to sizeof, or call the _init function of the struct")
            }
            Refusal::NewerFields { name, known, size } => write!(
                f,
                "{name} has {size} bytes, of which this library knows {known}, and a field beyond them is set: the program needs a newer libnanovllm"
            ),
            Refusal::BufferTooSmall { needed, capacity } => {
                write!(f, "the result needs a buffer of {needed}, but capacity is {capacity}")
            }
            Refusal::Index { what, index, count } => write!(f, "{what} {index} does not exist: there are {count}"),
            Refusal::OptionCount { options, prompts } => {
                write!(f, "num_options is {options}, but must be 0, 1, or the number of prompts, {prompts}")
            }
            Refusal::Busy => {
                write!(
                    f,
                    "another [one] function is running on this engine: call them from one thread at a time, and not inside a callback"
                )
            }
            Refusal::Poisoned(NVLLM_ERR_DEVICE) => {
                write!(
                    f,
                    "an earlier call lost a pass or the device: only nvllm_engine_free may be called on this engine"
                )
            }
            Refusal::Poisoned(NVLLM_ERR_PEER) => {
                write!(f, "an earlier call lost another process: only nvllm_engine_free may be called on this engine")
            }
            Refusal::Poisoned(_) => {
                write!(
                    f,
                    "an earlier call hit a bug in the library: only nvllm_engine_free may be called on this engine"
                )
            }
            Refusal::Freed => write!(f, "nvllm_engine_free was called while this call waited"),
            Refusal::AnswerEnded => {
                write!(f, "nvllm_answer_parser_finish has ended the answer: make a parser for the next one")
            }
            Refusal::ParserLost => write!(
                f,
                "an earlier call hit a bug in the library: only nvllm_answer_parser_free may be called on this parser"
            ),
            Refusal::Forked { opened_in, here } => {
                write!(
                    f,
                    "the engine was opened in process {opened_in}, and this is its fork {here}: open an engine of its own here"
                )
            }
            Refusal::Engine(error) => write!(f, "{error}"),
        }
    }
}
