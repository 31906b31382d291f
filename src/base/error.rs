//! What can fail without being a bug, and what does the message say?
//!
//! A variant carries the facts that its message needs. The message says what was wanted, what there was, and which option
//! changes it. Bugs are panics; "not now" is an `Option`.

use crate::TokenId;
use crate::limits;
use std::fmt;
use std::path::PathBuf;

/// The result of anything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// An empty vector that grows to `len` values without allocating: for sizes that an option or a model determines.
///
/// # Errors
///
/// [`Error::OutOfMemory`] with `what` and `knob`, where an ordinary vector would end the process.
pub fn room<T>(len: usize, what: &'static str, knob: &'static str) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let bytes = len.saturating_mul(size_of::<T>()) as u64;
    values.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { what, bytes, knob })?;
    Ok(values)
}

/// A vector of `len` copies of `value`.
///
/// # Errors
///
/// As [`room`].
pub fn filled<T: Clone>(value: T, len: usize, what: &'static str, knob: &'static str) -> Result<Vec<T>> {
    let mut values = room(len, what, knob)?;
    values.resize(len, value);
    Ok(values)
}

/// An expected failure.
#[derive(Debug)]
pub enum Error {
    // ---- of one request ----
    /// A prompt without tokens.
    PromptEmpty,
    /// The request can never run, however long it waits.
    PromptTooLong {
        /// Tokens of the prompt.
        tokens: usize,
        /// `max_model_len`.
        limit: usize,
    },
    /// A model that computes texts whole cannot compute this one.
    TextTooLong {
        /// Tokens of the text.
        tokens: usize,
        /// The most that a text may have.
        limit: usize,
        /// What sets this limit.
        option: &'static str,
    },
    /// The request can never run. The rest of its prompt was not tokenized.
    PromptFarTooLong {
        /// Minimum number of tokens of the prompt.
        tokens: usize,
        /// `max_model_len`.
        limit: usize,
    },
    /// A token id that the model does not have.
    TokenOutOfRange {
        /// The id.
        token: TokenId,
        /// Its index in the prompt or option list.
        index: usize,
        /// Tokens of the vocabulary.
        vocab_size: usize,
    },
    /// The request needs more KV blocks than exist.
    RequestTooLarge {
        /// Maximum length that the request may reach.
        tokens: usize,
        /// Tokens that the whole KV cache holds.
        pool_tokens: usize,
    },
    /// The blocks of the prompt exceed those that may still be pinned.
    PinsFull {
        /// Full blocks of the prompt.
        blocks: usize,
        /// Blocks that are pinned.
        pinned: usize,
        /// Blocks that may be pinned.
        limit: usize,
    },
    /// The queue has no room for the request.
    QueueFull {
        /// `max_queue`, or the library's own limit.
        limit: usize,
        /// Completions that are queued.
        waiting: usize,
        /// Completions of the request.
        wanted: usize,
    },
    /// A request or a file asks for more than a limit allows.
    Limit {
        /// What exceeds the limit: a field's name in the header.
        field: &'static str,
        /// Its value.
        found: usize,
        /// Its maximum.
        limit: usize,
        /// The limit's name in the header, or the option that sets it.
        name: &'static str,
    },
    /// An option of a request or an engine has an invalid value.
    Option {
        /// The field's name in the header.
        field: &'static str,
        /// What was given.
        value: String,
        /// What is accepted, as in "a number from 0 to 2".
        wanted: &'static str,
    },
    /// `max_model_len` is 0, or more than the model was made for.
    ModelLen {
        /// What was given.
        found: usize,
        /// Positions that config.json gives the model, what rope scaling adds included.
        limit: usize,
    },
    /// Text that is not UTF-8.
    NotUtf8 {
        /// Which argument.
        what: &'static str,
        /// Bytes before the first invalid one.
        valid_bytes: usize,
    },
    /// No request of this id is alive.
    UnknownRequest {
        /// The id.
        id: u64,
    },
    /// Bytes that are not a prefix which this engine can restore.
    SavedPrefix {
        /// The property that does not agree.
        what: &'static str,
        /// Its value in the bytes.
        found: String,
        /// The value that is required.
        wanted: String,
    },
    /// The prefix cache has no block of these tokens.
    NotCached {
        /// Number of tokens.
        tokens: usize,
        /// Tokens per block. Only full blocks are cached.
        block_size: usize,
    },
    /// A prefix needs more blocks than are free now.
    NoFreeBlocks {
        /// Blocks that the prefix needs.
        blocks: usize,
        /// Blocks that are free.
        free: usize,
    },
    /// Sequences that run hold all recurrent states, so that none can be restored.
    NoFreeState,
    /// A budget has no room for the recurrent states of all sequences that may run.
    StatesTooLarge {
        /// Bytes of the budget.
        bytes: u64,
        /// Bytes of the state of a sequence.
        state_bytes: u64,
        /// Sequences that may run.
        sequences: usize,
        /// Sequences whose states fit, beside one KV block.
        fits: u64,
    },
    /// The request pins no prompt.
    UnknownPin {
        /// The request's id.
        id: u64,
    },
    /// The model folder has no tokenizer, so text is not supported.
    NoTokenizer,
    /// The model has no chat template that can be used.
    NoChatTemplate {
        /// Those that it has, none of which is the default.
        named: Vec<String>,
    },
    /// The chat template refused the messages, or is invalid.
    ChatTemplate {
        /// The message of the template engine.
        reason: String,
    },
    /// The tokenizer refused the text.
    Tokenizer {
        /// The message of the tokenizer.
        reason: String,
    },
    /// The structure of a request cannot be used.
    Structure {
        /// The kind of structure that its text should have been.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// A completion cannot continue in the structure of its request.
    StructureLost {
        /// Tokens of the completion.
        tokens: usize,
        /// What stopped it.
        reason: String,
    },
    /// Text that should have been JSON of a certain form.
    Json {
        /// Which argument.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },

    // ---- of opening an engine ----
    /// A file could not be read.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A descriptor of the caller could not be used.
    Descriptor {
        /// The file of the model that it was given for.
        path: PathBuf,
        /// Its value.
        descriptor: i64,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A file of the model folder is invalid.
    ModelFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A model of a kind that this library does not support.
    Architecture {
        /// The architecture in config.json.
        found: String,
        /// The architectures that this library supports.
        known: Vec<&'static str>,
    },
    /// The model has a setting that this library does not support, such as an unknown rope_scaling.
    UnsupportedModel {
        /// The setting in config.json.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What is supported.
        supported: &'static str,
    },
    /// A tensor is not in the model folder.
    MissingTensor {
        /// Its name.
        name: String,
        /// The shape it should have.
        shape: Vec<usize>,
    },
    /// A tensor has another shape than config.json implies.
    TensorShape {
        /// Its name.
        name: String,
        /// The shape it has.
        found: Vec<usize>,
        /// The shape it should have.
        wanted: Vec<usize>,
    },
    /// A matrix that is to be quantized has no numbers.
    EmptyMatrix {
        /// Its name.
        name: String,
        /// The shape it has.
        shape: Vec<usize>,
    },
    /// A tensor has a number type that is not supported.
    TensorDtype {
        /// Its name.
        name: String,
        /// Its type as the file spells it.
        found: String,
    },
    /// A tensor of quantized weights is not what their quantization needs.
    CodedTensor {
        /// Its name.
        name: String,
        /// What it has: a type, or a value.
        found: String,
        /// What it must have.
        wanted: String,
    },
    /// A part of the decoder has a tensor that nothing reads.
    UnreadTensor {
        /// The first of them by name.
        name: String,
        /// How many there are besides it.
        others: usize,
    },
    /// The KV cache budget does not hold one block.
    KvCacheTooSmall {
        /// Bytes allowed.
        bytes: u64,
        /// Bytes of one block.
        block_bytes: u64,
    },
    /// `gpu_memory_bytes` is too small.
    GpuBudget {
        /// Its value.
        budget: u64,
        /// What does not fit.
        parts: &'static str,
        /// Bytes of that.
        needed: u64,
    },
    /// A GPU has no room for the experts that shall not stay in the host's memory.
    ExpertsTooLarge {
        /// Layers whose experts shall stay in the host's memory.
        asked: usize,
        /// The fewest that leave enough room.
        fits: usize,
        /// Layers that have experts.
        layers: usize,
        /// Bytes of the weights that shall be on the GPU.
        needed: u64,
        /// Bytes that it has for them.
        room: u64,
    },
    /// Memory could not be allocated.
    OutOfMemory {
        /// What the memory is for.
        what: &'static str,
        /// Size of the allocation.
        bytes: u64,
        /// The option that makes it smaller.
        knob: &'static str,
    },
    /// The system refused to start a thread.
    NoThread {
        /// The purpose of the thread: the end of its name.
        purpose: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A feature that this build or device does not have.
    Unsupported {
        /// What was requested, and what to use instead.
        what: String,
    },
    /// A device call failed. The engine cannot be used any more.
    Device {
        /// The call.
        call: &'static str,
        /// The device's error code.
        code: i32,
    },
    /// A pass could not be computed for a reason other than a device call, such as too little memory. The engine cannot be
    /// used any more.
    PassLost {
        /// Why.
        reason: Box<Error>,
    },
    /// Another rank of the engine has failed, and its error says more. The engine cannot be used any more.
    RankLost,
    /// Another process of the engine cannot be worked with: it is gone, silent, or was opened otherwise. The engine cannot be used any
    /// more.
    Peer {
        /// Which process.
        process: usize,
        /// What is wrong with it, and the option that matters if there is one.
        reason: String,
    },
    /// A progress callback cancelled the call.
    Cancelled,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::PromptEmpty => write!(f, "the prompt has no tokens, but at least one is needed"),
            Error::PromptTooLong { tokens, limit } => {
                write!(
                    f,
                    "prompt has {tokens} tokens, but max_model_len is {limit}, of which one is reserved for the completion"
                )
            }
            Error::TextTooLong { tokens, limit, option } => {
                write!(
                    f,
                    "the text has {tokens} tokens, but {option} is {limit}, and the model computes a text whole: set truncate_prompt_tokens to cut it"
                )
            }
            Error::PromptFarTooLong { tokens, limit } => {
                write!(
                    f,
                    "prompt has at least {tokens} tokens, but max_model_len is {limit}, of which one is reserved for the completion"
                )
            }
            Error::TokenOutOfRange { token, index, vocab_size } => {
                write!(f, "token {token} at index {index} is beyond the vocabulary of {vocab_size}")
            }
            Error::RequestTooLarge { tokens, pool_tokens } => write!(
                f,
                "request may reach {tokens} tokens, but the whole KV cache holds {pool_tokens}: lower max_tokens or raise kv_cache_bytes"
            ),
            Error::PinsFull { blocks, pinned, limit } => write!(
                f,
                "pin_prompt asks for {blocks} KV blocks, but {pinned} of the {limit} that may be pinned are taken: release a prefix, raise kv_cache_bytes or lower max_model_len"
            ),
            Error::QueueFull { limit: limits::QUEUED_COMPLETIONS, waiting, wanted } => write!(
                f,
                "{waiting} completions have not ended, and {wanted} more would exceed {} (NVLLM_MAX_QUEUED_COMPLETIONS): step the engine",
                limits::QUEUED_COMPLETIONS
            ),
            Error::QueueFull { limit, waiting, wanted } => write!(
                f,
                "max_queue is {limit}, but {waiting} completions are queued and this request adds {wanted}: step the engine or raise max_queue"
            ),
            Error::Limit { field, found, limit, name } => {
                write!(f, "{field} is {found}, but must be at most {limit} ({name})")
            }
            Error::Option { field, value, wanted } => write!(f, "{field} is {value}, but must be {wanted}"),
            Error::ModelLen { found, limit } => {
                write!(
                    f,
                    "max_model_len is {found}, but must be from 1 to {limit}, the positions that config.json gives the model"
                )
            }
            Error::NotUtf8 { what, valid_bytes } => {
                write!(f, "{what} is not UTF-8: the byte at offset {valid_bytes} is invalid")
            }
            Error::UnknownRequest { id } => write!(f, "request {id} is not alive: it has ended or was never added"),
            Error::SavedPrefix { what, found, wanted } => {
                write!(f, "the saved prefix cannot be restored: its {what} is {found}, but must be {wanted}")
            }
            Error::NotCached { tokens, block_size } => write!(
                f,
                "the prefix cache has no block of these {tokens} tokens: it holds full blocks of {block_size} tokens, separately for each cache_salt"
            ),
            Error::StatesTooLarge { bytes, state_bytes, sequences, fits } => write!(
                f,
                "the recurrent states of {sequences} sequences take {state_bytes} bytes each, but {bytes} bytes are for these and the KV cache, which hold {fits}: \
                 set max_num_seqs to at most {fits}, or raise kv_cache_bytes or memory_utilization"
            ),
            Error::NoFreeState => {
                write!(
                    f,
                    "sequences that run hold all recurrent states: let one end first, or set a lower max_num_seqs for the same kv_cache_bytes"
                )
            }
            Error::NoFreeBlocks { blocks, free } => write!(
                f,
                "the prefix needs {blocks} KV blocks, but {free} are free: step until requests have ended, release pinned prompts or raise kv_cache_bytes"
            ),
            Error::UnknownPin { id } => write!(
                f,
                "request {id} pins no prompt: it was added without pin_prompt, its prefix was released, or it ended before its prompt was computed"
            ),
            Error::NoTokenizer => {
                write!(f, "the model folder has no tokenizer.json, so text is not supported: use token ids")
            }
            Error::NoChatTemplate { named } if named.is_empty() => write!(
                f,
                "the model folder has no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json"
            ),
            Error::NoChatTemplate { named } => write!(
                f,
                "the model has the chat templates {}, but must have one named default, which chat_template.jinja is, or tool_use for tools",
                named.join(", ")
            ),
            Error::ChatTemplate { reason } => write!(f, "chat template: {reason}"),
            Error::Tokenizer { reason } => write!(f, "tokenizer: {reason}"),
            Error::Structure { what, reason } => {
                write!(f, "structure is not a {what} that this library supports: {reason}")
            }
            Error::StructureLost { tokens, reason } => {
                write!(f, "structure: the completion cannot continue after {tokens} tokens: {reason}")
            }
            Error::Json { what, reason } => write!(f, "{what}: {reason}"),
            Error::Io { path, source } => write!(f, "{}: {source}", path.display()),
            Error::Descriptor { path, descriptor, source } => {
                write!(
                    f,
                    "{}: is given by descriptor {descriptor}, but must be a part of an open file: {source}",
                    path.display()
                )
            }
            Error::ModelFile { path, reason } => write!(f, "{}: {reason}", path.display()),
            Error::Architecture { found, known } => {
                const DECODER: &str = "ForCausalLM";
                let (decoders, others): (Vec<&str>, Vec<&str>) =
                    known.iter().partition(|class| class.ends_with(DECODER));
                let decoders: Vec<&str> = decoders.iter().map(|class| class.trim_end_matches(DECODER)).collect();
                write!(
                    f,
                    "architecture {found} is not supported; supported: {} (each followed by {DECODER})",
                    decoders.join(", ")
                )?;
                write!(f, "; and {}", others.join(", "))
            }
            Error::UnsupportedModel { setting, value, supported } => {
                write!(f, "config.json: {setting} is {value}, which is not supported: it must be {supported}")
            }
            Error::MissingTensor { name, shape } => {
                write!(f, "tensor {name} of shape {shape:?} is missing from the model folder")
            }
            Error::TensorShape { name, found, wanted } => {
                write!(f, "tensor {name} has shape {found:?}, but config.json implies {wanted:?}")
            }
            Error::EmptyMatrix { name, shape } => {
                write!(
                    f,
                    "tensor {name} has shape {shape:?}, but a matrix must have numbers to be quantized: open the folder without quantization"
                )
            }
            Error::TensorDtype { name, found } => {
                write!(
                    f,
                    "tensor {name} has type {found}, but only BF16, F16 and F32 are supported, and Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, Q2_K, Q3_K, IQ1_S to IQ4_XS, TQ1_0, TQ2_0 and MXFP4 in GGUF files"
                )
            }
            Error::CodedTensor { name, found, wanted } => {
                write!(f, "tensor {name} of quantized weights has {found}, but must have {wanted}")
            }
            Error::UnreadTensor { name, others } => {
                let more = if *others > 0 { format!(" and {others} more") } else { String::new() };
                write!(
                    f,
                    "unexpected tensor {name}{more}: config.json describes no such weight, or the model computes more than its class"
                )
            }
            Error::KvCacheTooSmall { bytes, block_bytes } => write!(
                f,
                "the KV cache may take {bytes} bytes, but one block takes {block_bytes}: raise kv_cache_bytes or memory_utilization"
            ),
            Error::GpuBudget { budget, parts, needed } => {
                write!(f, "gpu_memory_bytes is {budget}, but {parts} take {needed} bytes: raise gpu_memory_bytes")
            }
            Error::ExpertsTooLarge { asked, fits, layers, needed, room } => {
                write!(
                    f,
                    "with the experts of {asked} of {layers} layers in the host's memory, the weights take {needed} bytes of the GPU, which has room for \
                     {room}: set host_expert_layers to at least {fits}, or to 0 for as many as are needed"
                )
            }
            Error::OutOfMemory { what, bytes, knob } => {
                write!(f, "not enough memory for {what} of {bytes} bytes: lower {knob}")
            }
            Error::NoThread { purpose, source } => {
                write!(
                    f,
                    "could not start a thread for {purpose}: {source}; raise the process's limit on threads or memory"
                )
            }
            Error::Unsupported { what } => write!(f, "{what}"),
            Error::Device { call, code } => {
                write!(f, "{call} failed with code {code}; the engine cannot be used any more")
            }
            Error::PassLost { reason } => write!(f, "{reason}; a pass is lost, and the engine cannot be used any more"),
            Error::RankLost => {
                write!(
                    f,
                    "another rank of the engine failed, so that a pass is lost; the engine cannot be used any more"
                )
            }
            Error::Peer { process, reason } => write!(f, "process {process}: {reason}"),
            Error::Cancelled => write!(f, "cancelled by the progress callback"),
        }
    }
}

impl std::error::Error for Error {}
