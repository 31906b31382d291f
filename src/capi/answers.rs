//! Answers: content, reasoning and tool calls.
//!
//! A model writes its reasoning and its tool calls as text between markers. A parser reads that text while it is written, and returns what
//! became known: pieces of content, of reasoning and of the arguments of calls. It knows how the model writes from the model folder: by its
//! "response_template", or by the markers of its chat template. The markers are special tokens in most models, so set
//! keep_special_tokens in the options of the request. The pieces in which a text arrives change nothing but where events are cut.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::engine::nvllm_engine;
use super::guard::{guard, guard_value};
use super::handle::visit;
use super::memory::{self, Buffer};
use super::refusal::Refusal;
use super::status::nvllm_status_code::{self, NVLLM_OK};
use super::status::{nvllm_error, nvllm_status};
use super::text::terminated;
use parking_lot::Mutex;
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use text::answer::{AnswerParser, Event, Message, ToolList};

/// Reads one answer. Destroyed by nvllm_answer_parser_free; independent of the engine, which may be freed first. One thread at a time may
/// use it, not always the same one; a violation returns NVLLM_ERR_BUSY.
pub struct nvllm_answer_parser {
    inner: Mutex<Reader>,
}

/// What a parser has read, and the events of its last call.
struct Reader {
    state: State,
    texts: Vec<Vec<u8>>,
    events: Vec<nvllm_answer_event>,
}

// SAFETY: the pointers in `events` point into `texts`, which moves along with them.
unsafe impl Send for Reader {}

enum State {
    Reading(Box<AnswerParser>),
    Ended(Message),
    /// A panic has stopped a call.
    Lost,
}

/// Kinds of events.
#[repr(C)]
pub enum nvllm_answer_event_kind {
    /// A further piece of the content, which is for the user.
    NVLLM_ANSWER_CONTENT = 1,
    /// A further piece of the reasoning.
    NVLLM_ANSWER_REASONING = 2,
    /// A tool call begins. The text is the name of the tool.
    NVLLM_ANSWER_TOOL_CALL_BEGIN = 3,
    /// A further piece of the arguments of a call. All pieces of one call together are a JSON object.
    NVLLM_ANSWER_TOOL_CALL_ARGUMENTS = 4,
    /// A tool call is complete. The text is the id that the model gave to it, in most cases none.
    NVLLM_ANSWER_TOOL_CALL_END = 5,
    /// A call that has begun cannot be read, and is none. The text says why. What the model has written follows as content.
    NVLLM_ANSWER_TOOL_CALL_BROKEN = 6,
}

/// What became known of an answer. This struct never grows.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_answer_event {
    /// NVLLM_ANSWER_*.
    pub kind: i32,
    /// Which tool call, from 0; 0 for content and reasoning. Calls that broke count.
    pub call_index: u32,
    /// Text, UTF-8 and NUL-terminated.
    pub text: *const c_char,
    /// Length of `text` in bytes, without the NUL.
    pub text_len: usize,
}

/// [any] Begins to read an answer of this engine's model.
///
/// prompt, of prompt_len bytes, is the text after which the model writes, or its end; NULL if it is not known. A chat template may have
/// begun the answer, as with <think>. tools is NUL-terminated JSON, or NULL: the tools of the request, which say what type the arguments
/// have where the model writes them without types.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_answer_parser_new(
    engine: *const nvllm_engine,
    prompt: *const c_char,
    prompt_len: usize,
    tools: *const c_char,
    parser: *mut *mut nvllm_answer_parser,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_answer_parser_new", error, || {
        let parser = NonNull::new(parser).ok_or(Refusal::Null("parser"))?;
        if !parser.is_aligned() {
            return Err(Refusal::Misaligned("parser", align_of::<*mut nvllm_answer_parser>()));
        }
        // SAFETY: the header asks for NULL or a live engine, for prompt_len bytes, and for text that ends in a NUL.
        let (engine, prompt, tools) = unsafe {
            let tools = if tools.is_null() { None } else { Some(memory::c_text("tools", tools)?) };
            (visit(engine)?, memory::text("prompt", prompt, prompt_len)?, tools)
        };
        let tools = tools.map(ToolList::parse).transpose()?.unwrap_or_default();
        let reading = AnswerParser::new(engine.handle().answer_format()?, tools.json(), prompt);
        let reader = Reader { state: State::Reading(Box::new(reading)), texts: Vec::new(), events: Vec::new() };
        let made = Box::new(nvllm_answer_parser { inner: Mutex::new(reader) });
        // SAFETY: not NULL and aligned by the checks above; the header asks for a place to write.
        unsafe { parser.write(Box::into_raw(made)) };
        Ok(NVLLM_OK)
    })
}

/// Reads a further piece of the answer, text_len bytes of whole characters, such as the text of an output. *events receives what became
/// known, an array of *num_events, which stays valid until the next call with this parser.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_answer_parser_feed(
    parser: *mut nvllm_answer_parser,
    text: *const c_char,
    text_len: usize,
    events: *mut *const nvllm_answer_event,
    num_events: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_answer_parser_feed", error, || {
        // SAFETY: the header asks for text_len bytes.
        let text = unsafe { memory::text("text", text, text_len)? };
        // SAFETY: the header asks for NULL or a live parser, and for places to write.
        unsafe {
            read(parser, events, num_events, |state| match state {
                State::Reading(mut reading) => {
                    let events = reading.feed(text);
                    (State::Reading(reading), Ok(events))
                }
                other => (other, Err(Refusal::AnswerEnded)),
            })
        }
    })
}

/// Says that the answer ends here. *events receives the last events, as from nvllm_answer_parser_feed. A second call has none.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_answer_parser_finish(
    parser: *mut nvllm_answer_parser,
    events: *mut *const nvllm_answer_event,
    num_events: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_answer_parser_finish", error, || {
        // SAFETY: the header asks for NULL or a live parser, and for places to write.
        unsafe {
            read(parser, events, num_events, |state| match state {
                State::Reading(reading) => {
                    let (events, message) = reading.finish();
                    (State::Ended(message), Ok(events))
                }
                other => (other, Ok(Vec::new())),
            })
        }
    })
}

/// Writes the message so far, as JSON in the form of a message for nvllm_apply_chat_template: an object with "role", "content", and if there
/// are some "reasoning_content" and "tool_calls", an array of {"type": "function", "id", "function": {"name", "arguments"}}. Arguments are
/// objects, and "id" is there if the model wrote one. Calls that are not complete are left out. The buffer is used as by nvllm_tokenize,
/// with a NUL. Events that were returned stay valid.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_answer_parser_message(
    parser: *const nvllm_answer_parser,
    text: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_answer_parser_message", error, || {
        // SAFETY: the header asks for NULL or a live parser, and for room for capacity bytes.
        let (parser, buffer) = unsafe {
            let buffer = Buffer::new("text", text.cast::<u8>(), capacity, needed)?;
            (parser.as_ref().ok_or(Refusal::Null("parser"))?, buffer)
        };
        let reader = parser.inner.try_lock().ok_or(Refusal::Busy)?;
        let message = match &reader.state {
            State::Reading(reading) => reading.message().to_chat_message(),
            State::Ended(message) => message.to_chat_message(),
            State::Lost => return Err(Refusal::ParserLost),
        };
        terminated(buffer, message.to_string())
    })
}

/// Destroys a parser. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_answer_parser_free(parser: *mut nvllm_answer_parser) {
    guard_value("nvllm_answer_parser_free", (), || {
        if !parser.is_null() {
            // SAFETY: the header asks for a pointer from nvllm_answer_parser_new, which came from a Box, and that it is not used again.
            drop(unsafe { Box::from_raw(parser) });
        }
    });
}

/// Makes one step of a parser, and shows its events.
///
/// # Safety
///
/// `parser` is NULL or live; `events` and `num_events` are NULL or may be written.
unsafe fn read(
    parser: *mut nvllm_answer_parser,
    events: *mut *const nvllm_answer_event,
    num_events: *mut usize,
    step: impl FnOnce(State) -> (State, Result<Vec<Event>, Refusal>),
) -> Result<nvllm_status_code, Refusal> {
    // SAFETY: promised by the caller.
    let parser = unsafe { parser.as_ref() }.ok_or(Refusal::Null("parser"))?;
    let events = NonNull::new(events).ok_or(Refusal::Null("events"))?;
    let num_events = NonNull::new(num_events).ok_or(Refusal::Null("num_events"))?;
    if !events.is_aligned() || !num_events.is_aligned() {
        return Err(Refusal::Misaligned("events or num_events", align_of::<usize>()));
    }
    let mut reader = parser.inner.try_lock().ok_or(Refusal::Busy)?;
    let state = match std::mem::replace(&mut reader.state, State::Lost) {
        State::Lost => return Err(Refusal::ParserLost),
        state => state,
    };
    let (state, found) = step(state);
    reader.state = state;
    let found = found?;
    reader.show(found);
    // SAFETY: not NULL and aligned by the checks above; writable by the caller's promise.
    unsafe {
        events.write(reader.events.as_ptr());
        num_events.write(reader.events.len());
    }
    Ok(NVLLM_OK)
}

impl Reader {
    /// Makes `found` what the caller sees, until the next call.
    fn show(&mut self, found: Vec<Event>) {
        use nvllm_answer_event_kind::*;
        self.events.clear();
        self.texts.clear();
        for event in found {
            let (kind, index, text) = match event {
                Event::Content(text) => (NVLLM_ANSWER_CONTENT, 0, text),
                Event::Reasoning(text) => (NVLLM_ANSWER_REASONING, 0, text),
                Event::ToolCallBegin { index, name } => (NVLLM_ANSWER_TOOL_CALL_BEGIN, index, name),
                Event::ToolCallArguments { index, text } => (NVLLM_ANSWER_TOOL_CALL_ARGUMENTS, index, text),
                Event::ToolCallEnd { index, id } => (NVLLM_ANSWER_TOOL_CALL_END, index, id.unwrap_or_default()),
                Event::ToolCallBroken { index, reason } => (NVLLM_ANSWER_TOOL_CALL_BROKEN, index, reason),
            };
            let text_len = text.len();
            let mut text = text.into_bytes();
            text.push(0);
            self.events.push(nvllm_answer_event {
                kind: kind as i32,
                call_index: index as u32,
                text: text.as_ptr().cast(),
                text_len,
            });
            // The vector moves, its bytes do not.
            self.texts.push(text);
        }
    }
}
