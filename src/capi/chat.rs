//! Conversations: messages in.
//!
//! A message is a role and a text. nvllm_add_chat renders a conversation with the model's chat template and queues it;
//! nvllm_apply_chat_template_messages only renders it. Messages with more than a role and a text, such as calls of tools, are
//! written as JSON: see nvllm_apply_chat_template.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::engine::nvllm_engine;
use super::guard::guard;
use super::handle::visit;
use super::memory::{self, Buffer};
use super::refusal::Refusal;
use super::requests::{add, nvllm_request_options};
use super::status::{nvllm_error, nvllm_status};
use super::text::terminated;
use base::limits;
use engine::{EngineHandle, Prompt};
use serde_json::{Map, Value as Json, json};
use std::borrow::Cow;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use text::answer::ToolUse;

/// A message of a conversation, of which there are at most NVLLM_MAX_MESSAGES. This struct never grows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_message {
    /// Who says it, as the chat template calls them: "system", "user" or "assistant" in most. NUL-terminated UTF-8. Required.
    pub role: *const c_char,
    /// What they say. NUL-terminated UTF-8. Required.
    pub content: *const c_char,
}

/// [any] Queues a conversation, to be answered by the model: renders it as nvllm_apply_chat_template_messages does, and queues
/// that prompt as nvllm_add_request does.
///
/// template_options may be NULL; otherwise it is NUL-terminated JSON: see options_json of nvllm_apply_chat_template. The template gets the
/// tools of options. options may be NULL, and so may request_id, which receives the id. To go on, append the answer and the next question to the messages and
/// call again: the prefix cache holds what was computed before.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_add_chat(
    engine: *mut nvllm_engine,
    messages: *const nvllm_message,
    num_messages: usize,
    template_options: *const c_char,
    options: *const nvllm_request_options,
    request_id: *mut u64,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_add_chat", error, || {
        // SAFETY: the header asks for NULL or a live engine, for an array of messages, and for text that ends in a NUL.
        let (engine, messages, template_options) = unsafe {
            (
                visit(engine)?,
                memory::slice("messages", messages, num_messages)?,
                optional("template_options", template_options)?,
            )
        };
        // SAFETY: the header asks for NULL or options of struct_size bytes, whose texts end in a NUL.
        let tools = unsafe { tools_of(options)? };
        // SAFETY: the header asks for messages of text that ends in a NUL.
        let prompt = unsafe { render(engine.handle(), messages, template_options, tools.as_ref())? };
        // SAFETY: the header asks for NULL or options of struct_size bytes, and for NULL or a place for the id.
        unsafe { add(engine.handle(), Prompt::Text(&prompt), options, request_id) }
    })
}

/// [any] Renders the prompt of a conversation with the model's chat template, as nvllm_apply_chat_template does.
///
/// options_json may be NULL; otherwise it is NUL-terminated. The buffer is used as by nvllm_tokenize, with a NUL.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_apply_chat_template_messages(
    engine: *const nvllm_engine,
    messages: *const nvllm_message,
    num_messages: usize,
    options_json: *const c_char,
    text: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_apply_chat_template_messages", error, || {
        // SAFETY: the header asks for NULL or a live engine, for an array of messages, for text that ends in a NUL, and for room for
        // capacity bytes.
        let (engine, messages, options, buffer) = unsafe {
            let buffer = Buffer::new("text", text.cast::<u8>(), capacity, needed)?;
            let messages = memory::slice("messages", messages, num_messages)?;
            (visit(engine)?, messages, optional("options_json", options_json)?, buffer)
        };
        // SAFETY: the header asks for messages of text that ends in a NUL.
        terminated(buffer, unsafe { render(engine.handle(), messages, options, None)? })
    })
}

/// The prompt of a conversation.
///
/// # Safety
///
/// The strings of `messages` are NULL or end in a NUL.
pub(super) unsafe fn render(
    handle: &EngineHandle,
    messages: &[nvllm_message],
    template_options: &str,
    tools: Option<&ToolUse>,
) -> Result<String, Refusal> {
    limits::at_most("num_messages", messages.len(), limits::MESSAGES, "NVLLM_MAX_MESSAGES")?;
    let mut json = Vec::with_capacity(messages.len());
    let mut bytes = 0;
    for (index, message) in messages.iter().enumerate() {
        let refused = |reason| Refusal::Element { array: "messages", index, reason: Box::new(reason) };
        // SAFETY: promised by the caller.
        let (role, content) = unsafe {
            let role = memory::c_text("role", message.role).map_err(refused)?;
            (role, memory::c_text("content", message.content).map_err(refused)?)
        };
        bytes += role.len() + content.len();
        limits::at_most("the length of all messages", bytes, limits::MESSAGES_BYTES, "NVLLM_MAX_MESSAGES_BYTES")?;
        json.push(json!({"role": role, "content": content}));
    }
    let messages = serde_json::Value::Array(json).to_string();
    let template_options = match tools.and_then(ToolUse::told) {
        Some(tools) => with_tools(template_options, tools),
        None => Cow::Borrowed(template_options),
    };
    Ok(handle.chat_template()?.render(&messages, &template_options)?)
}

/// The options of a template with the tools of a request, unless they have tools of their own.
fn with_tools<'a>(template_options: &'a str, tools: &Json) -> Cow<'a, str> {
    let mut options = match template_options.trim().is_empty() {
        true => Map::new(),
        // What is no object is refused by the template, in its words.
        false => match serde_json::from_str(template_options) {
            Ok(Json::Object(options)) => options,
            _ => return Cow::Borrowed(template_options),
        },
    };
    if options.contains_key("tools") {
        return Cow::Borrowed(template_options);
    }
    options.insert("tools".to_owned(), tools.clone());
    Cow::Owned(Json::Object(options).to_string())
}

/// The tools of a caller's request options.
///
/// # Safety
///
/// `options` is NULL or has struct_size bytes, and its texts end in a NUL.
pub(super) unsafe fn tools_of(options: *const nvllm_request_options) -> Result<Option<ToolUse>, Refusal> {
    let Some(options) = NonNull::new(options.cast_mut()) else { return Ok(None) };
    // SAFETY: promised by the caller; not NULL by the check above.
    unsafe { memory::read(options, nvllm_request_options::default())?.tools() }
}

/// Text that ends in a NUL; none is empty.
///
/// # Safety
///
/// `text` is NULL or ends in a NUL.
pub(super) unsafe fn optional<'a>(what: &'static str, text: *const c_char) -> Result<&'a str, Refusal> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: promised by the caller; not NULL by the check above.
    unsafe { memory::c_text(what, text) }
}
