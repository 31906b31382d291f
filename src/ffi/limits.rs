//! Limits.
//!
//! What one request may ask for, whatever the engine's options say. A call that asks for more answers
//! NVLLM_ERR_INVALID_ARGUMENT with a message that names the limit. docs/security.md says why each is there.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use crate::limits;

/// Completions of one request.
pub const NVLLM_MAX_COMPLETIONS: usize = 1024;
/// Completions of all requests of an engine that have not ended, and of all prompts of one nvllm_generate. max_queue lowers it.
pub const NVLLM_MAX_QUEUED_COMPLETIONS: usize = 1048576;
/// Stop strings of one request.
pub const NVLLM_MAX_STOP_STRINGS: usize = 128;
/// Bytes of one stop string.
pub const NVLLM_MAX_STOP_STRING_BYTES: usize = 4096;
/// Stop tokens of one request.
pub const NVLLM_MAX_STOP_TOKENS: usize = 1024;
/// Logit biases of one request.
pub const NVLLM_MAX_BIASES: usize = 16384;
/// Bytes of one text: a prompt, or what is to be tokenized.
pub const NVLLM_MAX_TEXT_BYTES: usize = 16777216;
/// Bytes of a JSON schema, a regular expression or a Lark grammar.
pub const NVLLM_MAX_STRUCTURE_BYTES: usize = 262144;
/// Milliseconds that adding a request waits for its structure to be compiled; then it is refused.
pub const NVLLM_STRUCTURE_COMPILE_MS: u64 = 2000;
/// Bytes of the JSON of one conversation, and of its tools.
pub const NVLLM_MAX_MESSAGES_BYTES: usize = 16777216;

/// The header and the library agree.
const _: () = {
    assert!(NVLLM_MAX_COMPLETIONS == limits::COMPLETIONS);
    assert!(NVLLM_MAX_QUEUED_COMPLETIONS == limits::QUEUED_COMPLETIONS);
    assert!(NVLLM_MAX_STOP_STRINGS == limits::STOP_STRINGS);
    assert!(NVLLM_MAX_STOP_STRING_BYTES == limits::STOP_STRING_BYTES);
    assert!(NVLLM_MAX_STOP_TOKENS == limits::STOP_TOKENS);
    assert!(NVLLM_MAX_BIASES == limits::BIASES);
    assert!(NVLLM_MAX_TEXT_BYTES == limits::TEXT_BYTES);
    assert!(NVLLM_MAX_STRUCTURE_BYTES == limits::STRUCTURE_BYTES);
    assert!(NVLLM_STRUCTURE_COMPILE_MS == limits::STRUCTURE_COMPILE_MS);
    assert!(NVLLM_MAX_MESSAGES_BYTES == limits::MESSAGES_BYTES);
};
