//! Limits.
//!
//! What one request may ask for, whatever the engine's options say. A call that exceeds a limit returns
//! NVLLM_ERR_INVALID_ARGUMENT with a message that names the limit. docs/security.md gives the reason for each.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use base::limits;

/// Completions per request.
pub const NVLLM_MAX_COMPLETIONS: usize = 1024;
/// Completions of all requests of an engine that have not ended, and of all prompts of one nvllm_generate call. max_queue
/// lowers it.
pub const NVLLM_MAX_QUEUED_COMPLETIONS: usize = 1048576;
/// Stop strings per request.
pub const NVLLM_MAX_STOP_STRINGS: usize = 128;
/// Bytes per stop string.
pub const NVLLM_MAX_STOP_STRING_BYTES: usize = 4096;
/// Stop tokens per request.
pub const NVLLM_MAX_STOP_TOKENS: usize = 1024;
/// Logit biases per request.
pub const NVLLM_MAX_BIASES: usize = 16384;
/// Tokens per request whose probabilities are its scores.
pub const NVLLM_MAX_SCORE_TOKENS: usize = 64;
/// Sequence breakers of the DRY penalty per request.
pub const NVLLM_MAX_DRY_BREAKERS: usize = 64;
/// Bytes per sequence breaker.
pub const NVLLM_MAX_DRY_BREAKER_BYTES: usize = 128;
/// Bytes per text: a prompt, or a text to tokenize.
pub const NVLLM_MAX_TEXT_BYTES: usize = 16777216;
/// Bytes of a JSON schema, a regular expression or a Lark grammar.
pub const NVLLM_MAX_STRUCTURE_BYTES: usize = 262144;
/// Milliseconds that adding a request waits for its structure to be compiled. After that the request is refused.
pub const NVLLM_STRUCTURE_COMPILE_MS: u64 = 2000;
/// Messages of one conversation that is given as an array.
pub const NVLLM_MAX_MESSAGES: usize = 32768;
/// Bytes of the JSON of one conversation, and of its options with the tools.
pub const NVLLM_MAX_MESSAGES_BYTES: usize = 16777216;

/// The header and the library agree.
const _: () = {
    assert!(NVLLM_MAX_COMPLETIONS == limits::COMPLETIONS);
    assert!(NVLLM_MAX_QUEUED_COMPLETIONS == limits::QUEUED_COMPLETIONS);
    assert!(NVLLM_MAX_STOP_STRINGS == limits::STOP_STRINGS);
    assert!(NVLLM_MAX_STOP_STRING_BYTES == limits::STOP_STRING_BYTES);
    assert!(NVLLM_MAX_STOP_TOKENS == limits::STOP_TOKENS);
    assert!(NVLLM_MAX_BIASES == limits::BIASES);
    assert!(NVLLM_MAX_SCORE_TOKENS == limits::SCORE_TOKENS);
    assert!(NVLLM_MAX_DRY_BREAKERS == limits::DRY_BREAKERS);
    assert!(NVLLM_MAX_DRY_BREAKER_BYTES == limits::DRY_BREAKER_BYTES);
    assert!(NVLLM_MAX_TEXT_BYTES == limits::TEXT_BYTES);
    assert!(NVLLM_MAX_STRUCTURE_BYTES == limits::STRUCTURE_BYTES);
    assert!(NVLLM_STRUCTURE_COMPILE_MS == limits::STRUCTURE_COMPILE_MS);
    assert!(NVLLM_MAX_MESSAGES == limits::MESSAGES);
    assert!(NVLLM_MAX_MESSAGES_BYTES == limits::MESSAGES_BYTES);
};
