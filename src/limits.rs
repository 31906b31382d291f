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

/// Refuses what is over a limit. `field` names what there is too much of, and `name` the limit as the header does.
///
/// # Errors
///
/// [`Error::Limit`].
pub fn at_most(field: &'static str, found: usize, limit: usize, name: &'static str) -> Result<()> {
    if found > limit { Err(Error::Limit { field, found, limit, name }) } else { Ok(()) }
}
