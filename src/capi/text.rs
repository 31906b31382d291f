//! Tokenizer and chat template.
//!
//! Buffers: *needed is always stored. If capacity is too small, nothing else is written and the call returns
//! NVLLM_ERR_BUFFER_TOO_SMALL; (NULL, 0) asks for the size. Text is NUL-terminated, and *needed counts the NUL. Usually
//! text_len + 16 tokens suffice; a normalizer may expand unusual text, so use *needed.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::engine::nvllm_engine;
use super::guard::guard;
use super::handle::visit;
use super::memory::{self, Buffer};
use super::refusal::Refusal;
use super::status::nvllm_status_code::{self, NVLLM_OK};
use super::status::{nvllm_error, nvllm_status};
use base::error::Error;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use text::tokenizer::{AddedTokens, Encoding, SpecialTokens, SpelledTokens};

/// Flags of nvllm_tokenize and nvllm_detokenize.
#[repr(C)]
pub enum nvllm_tokenize_flags {
    /// Add the tokens that begin and end a text, as the model's tokenizer does. No effect in nvllm_detokenize.
    NVLLM_TOKENIZE_ADD_SPECIAL = 1,
    /// Parse the spelling of a special token, such as <|im_end|>, as that token; nvllm_detokenize spells it out. Without
    /// this flag the spelling stays text, so that a user's text cannot forge a turn, and nvllm_detokenize omits special
    /// tokens.
    NVLLM_TOKENIZE_PARSE_SPECIAL = 2,
}

const ADD_SPECIAL: u32 = nvllm_tokenize_flags::NVLLM_TOKENIZE_ADD_SPECIAL as u32;
const PARSE_SPECIAL: u32 = nvllm_tokenize_flags::NVLLM_TOKENIZE_PARSE_SPECIAL as u32;

/// [any] Converts text to tokens. flags: NVLLM_TOKENIZE_*.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_tokenize(
    engine: *const nvllm_engine,
    text: *const c_char,
    text_len: usize,
    flags: u32,
    tokens: *mut u32,
    capacity: usize,
    needed: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_tokenize", error, || {
        // SAFETY: the header asks for NULL or a live engine, for text_len bytes, and for room for capacity tokens.
        let (engine, text, buffer) = unsafe {
            let buffer = Buffer::new("tokens", tokens, capacity, needed)?;
            (visit(engine)?, memory::text("text", text, text_len)?, buffer)
        };
        check(flags)?;
        let encoding = Encoding {
            added: if flags & ADD_SPECIAL != 0 { AddedTokens::Add } else { AddedTokens::Omit },
            spelled: if flags & PARSE_SPECIAL != 0 { SpelledTokens::Parse } else { SpelledTokens::Text },
        };
        buffer.fill(&engine.handle().tokenizer()?.encode(text, encoding)?)?;
        Ok(NVLLM_OK)
    })
}

/// [any] Converts tokens to text. Bytes that are not UTF-8 become U+FFFD. flags: NVLLM_TOKENIZE_*.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_detokenize(
    engine: *const nvllm_engine,
    tokens: *const u32,
    num_tokens: usize,
    flags: u32,
    text: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_detokenize", error, || {
        // SAFETY: the header asks for NULL or a live engine, for num_tokens tokens, and for room for capacity bytes.
        let (engine, tokens, buffer) = unsafe {
            let buffer = Buffer::new("text", text.cast::<u8>(), capacity, needed)?;
            (visit(engine)?, memory::slice("tokens", tokens, num_tokens)?, buffer)
        };
        check(flags)?;
        let special = if flags & PARSE_SPECIAL != 0 { SpecialTokens::Keep } else { SpecialTokens::Skip };
        terminated(buffer, engine.handle().tokenizer()?.decode(tokens, special)?)
    })
}

/// [any] Renders the prompt of a conversation with the model's chat template.
///
/// messages_json is an array of objects with "role" and "content". options_json may be NULL; otherwise it is an object with
/// "add_generation_prompt" (default true), "tools", "documents", and any variable that the template uses, such as
/// "enable_thinking".
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_apply_chat_template(
    engine: *const nvllm_engine,
    messages_json: *const c_char,
    messages_len: usize,
    options_json: *const c_char,
    options_len: usize,
    text: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_apply_chat_template", error, || {
        // SAFETY: the header asks for NULL or a live engine, for text of these lengths, and for room for capacity bytes.
        let (engine, messages, options, buffer) = unsafe {
            let buffer = Buffer::new("text", text.cast::<u8>(), capacity, needed)?;
            let messages = memory::text("messages_json", messages_json, messages_len)?;
            (visit(engine)?, messages, memory::text("options_json", options_json, options_len)?, buffer)
        };
        terminated(buffer, engine.handle().chat_template()?.render(messages, options)?)
    })
}

/// Fills a buffer with text and its NUL.
pub(super) fn terminated(buffer: Buffer<u8>, mut text: String) -> Result<nvllm_status_code, Refusal> {
    text.push('\0');
    buffer.fill(text.as_bytes())?;
    Ok(NVLLM_OK)
}

fn check(flags: u32) -> Result<(), Error> {
    if flags & !(ADD_SPECIAL | PARSE_SPECIAL) == 0 {
        return Ok(());
    }
    Err(Error::Option { field: "flags", value: flags.to_string(), wanted: "a combination of NVLLM_TOKENIZE_*" })
}
