//! How much a request or a model folder may ask for, whatever the engine's options say.
//!
//! Each limit keeps the work and the memory of untrusted input within bounds. Those that a caller can reach stand in the
//! header, in `src/ffi/limits.rs`, which is checked against this table when it is compiled. `docs/security.md` has all of
//! them.

use crate::error::{Error, Result};

/// Completions of one request.
pub const COMPLETIONS: usize = 1024;
/// Completions of all requests that have not ended, and of all prompts of one `nvllm_generate`.
pub const QUEUED_COMPLETIONS: usize = 1 << 20;
/// Stop strings of one request.
pub const STOP_STRINGS: usize = 128;
/// Bytes of one stop string.
pub const STOP_STRING_BYTES: usize = 4096;
/// Stop tokens of one request.
pub const STOP_TOKENS: usize = 1024;
/// Logit biases of one request.
pub const BIASES: usize = 16384;
/// Bytes of one text: a prompt, or what is to be tokenized.
pub const TEXT_BYTES: usize = 16 << 20;
/// Bytes of a JSON schema, a regular expression or a grammar.
pub const STRUCTURE_BYTES: usize = 256 << 10;
/// Bytes of the messages of one conversation, and of its tools.
pub const MESSAGES_BYTES: usize = 16 << 20;

/// Bytes of config.json, and of generation_config.json. Parsed, they take up to 16 times as many.
pub const CONFIG_FILE_BYTES: u64 = 1 << 20;
/// Bytes of tokenizer_config.json.
pub const TOKENIZER_CONFIG_FILE_BYTES: u64 = 4 << 20;
/// Bytes of model.safetensors.index.json.
pub const INDEX_FILE_BYTES: u64 = 16 << 20;
/// Bytes of tokenizer.json. The largest of published models has 33 MB.
pub const TOKENIZER_FILE_BYTES: u64 = 64 << 20;
/// Files that hold the weights of a model.
pub const WEIGHT_FILES: usize = 1024;
/// Bytes of the header of a file of weights, which names its tensors.
pub const WEIGHT_HEADER_BYTES: u64 = 8 << 20;
/// Tensors of a model.
pub const TENSORS: usize = 1 << 16;
/// Query heads of a model, and so key and value heads.
pub const HEADS: usize = 1 << 14;
/// Tokens of one sequence where max_model_len is not set and config.json says more.
pub const UNASKED_MODEL_LEN: usize = 1 << 20;

/// Refuses what is over a limit. `field` names what there is too much of, and `name` the limit as the header does.
///
/// # Errors
///
/// [`Error::Limit`].
pub fn at_most(field: &'static str, found: usize, limit: usize, name: &'static str) -> Result<()> {
    if found > limit { Err(Error::Limit { field, found, limit, name }) } else { Ok(()) }
}
