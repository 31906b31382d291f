//! The C API as the cases call it: each answer is looked at.

use crate::case::violation;
use crate::meter;
use ::capi::engine::*;
use ::capi::requests::*;
use ::capi::status::*;
use ::capi::stepping::*;
use ::capi::text::nvllm_apply_chat_template;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub const OK: i32 = 0;
pub const PANIC: i32 = nvllm_status_code::NVLLM_ERR_PANIC as i32;
pub const DEVICE: i32 = nvllm_status_code::NVLLM_ERR_DEVICE as i32;

/// Calls of the API that were made.
pub static CALLS: AtomicU64 = AtomicU64::new(0);
/// The processor time of the longest step, in nanoseconds.
pub static STEP_NS_MAX: AtomicU64 = AtomicU64::new(0);

/// Microseconds of a step.
pub const BUDGET_US: u64 = 4000;
/// What a step of that budget may compute: far more than it should, since the machine may be busy.
const STEP_NS_LIMIT: u64 = 100_000_000;

/// An engine that ends with the value.
pub struct Engine(*mut nvllm_engine);

// SAFETY: the header allows any thread.
unsafe impl Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

/// A place for an error, as a C caller has it.
pub fn no_error() -> MaybeUninit<nvllm_error> {
    MaybeUninit::uninit()
}

/// Looks at a status and its error, and answers the message.
pub fn judge(call: &str, status: i32, error: &MaybeUninit<nvllm_error>) -> String {
    CALLS.fetch_add(1, Relaxed);
    // SAFETY: every call writes its error.
    let error = unsafe { error.assume_init_ref() };
    if error.status != status {
        violation(format!("{call} returned {status}, but its error has {}", error.status));
    }
    let Some(end) = error.message.iter().position(|&byte| byte == 0) else {
        violation(format!("{call}: the message has no NUL"));
        return String::new();
    };
    let bytes: Vec<u8> = error.message[..end].iter().map(|&byte| byte as u8).collect();
    let message = String::from_utf8(bytes).unwrap_or_else(|_| {
        violation(format!("{call}: the message is no UTF-8"));
        String::new()
    });
    judge_status(call, status, &message);
    if status < 0 && message.is_empty() {
        violation(format!("{call}: {status} without a message"));
    }
    message
}

/// Looks at a status without an error.
pub fn judge_status(call: &str, status: i32, message: &str) {
    if status == PANIC || status == DEVICE || !(-13..=1).contains(&status) {
        violation(format!("{call} returned {status}: {message}"));
    }
    judge_words(call, message);
}

/// No message shows the inside of the library.
pub fn judge_words(call: &str, message: &str) {
    let inside = ["stack backtrace", "/registry/src/", "RUST_BACKTRACE", ".rs:"];
    if message.len() > 4096 || inside.iter().any(|words| message.contains(words)) {
        let end = message.floor_char_boundary(300);
        violation(format!("{call}: a message of {} bytes: {}", message.len(), &message[..end]));
    }
}

/// The default options.
pub fn options() -> nvllm_request_options {
    let mut options = MaybeUninit::<nvllm_request_options>::uninit();
    // SAFETY: the place has this size, and is written whole.
    unsafe {
        nvllm_request_options_init(options.as_mut_ptr(), size_of::<nvllm_request_options>());
        options.assume_init()
    }
}

/// What came out of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    pub tokens: Vec<u32>,
    pub finish: i32,
    pub message: String,
}

impl Engine {
    /// Opens a folder on one thread of the CPU, with small buffers.
    pub fn open(folder: &Path, more: impl FnOnce(&mut nvllm_engine_config)) -> Result<Engine, (i32, String)> {
        let path = CString::new(folder.to_str().unwrap()).unwrap();
        let mut config = MaybeUninit::<nvllm_engine_config>::uninit();
        // SAFETY: the place has this size, and is written whole.
        let mut config = unsafe {
            nvllm_engine_config_init(config.as_mut_ptr(), size_of::<nvllm_engine_config>());
            config.assume_init()
        };
        config.model_path = path.as_ptr();
        config.device = nvllm_device::NVLLM_DEVICE_CPU as i32;
        config.num_threads = 1;
        config.max_num_seqs = 8;
        config.max_batched_tokens = 64;
        config.kv_cache_bytes = 4 << 20;
        config.seed = 1;
        more(&mut config);
        let (mut engine, mut error) = (null_mut(), no_error());
        // SAFETY: all pointers are of live values.
        let status = unsafe { nvllm_engine_new(&config, &mut engine, Some(&mut error)) };
        let message = judge("nvllm_engine_new", status, &error);
        if status == OK { Ok(Engine(engine)) } else { Err((status, message)) }
    }

    /// The demo model.
    pub fn demo() -> Engine {
        let folder = crate::case::root().join("models/demo");
        Engine::open(&folder, |config| config.max_model_len = 512).expect("the demo model opens")
    }

    /// The pointer itself.
    pub fn pointer(&self) -> *mut nvllm_engine {
        self.0
    }

    /// Queues a text.
    pub fn add(&self, prompt: &str, options: &nvllm_request_options) -> Result<u64, (i32, String)> {
        let (mut id, mut error) = (0, no_error());
        // SAFETY: all pointers are of live values.
        let status = unsafe {
            nvllm_add_request(self.0, prompt.as_ptr().cast(), prompt.len(), options, &mut id, Some(&mut error))
        };
        let message = judge("nvllm_add_request", status, &error);
        if status == OK { Ok(id) } else { Err((status, message)) }
    }

    /// Queues tokens.
    pub fn add_tokens(&self, prompt: &[u32], options: &nvllm_request_options) -> Result<u64, (i32, String)> {
        let (mut id, mut error) = (0, no_error());
        // SAFETY: all pointers are of live values.
        let status = unsafe {
            nvllm_add_request_tokens(self.0, prompt.as_ptr(), prompt.len(), options, &mut id, Some(&mut error))
        };
        let message = judge("nvllm_add_request_tokens", status, &error);
        if status == OK { Ok(id) } else { Err((status, message)) }
    }

    /// Makes one step, and looks at what it costs.
    pub fn step(&self) -> i32 {
        let mut error = no_error();
        let before = meter::thread_ns();
        // SAFETY: the engine is live.
        let status = unsafe { nvllm_step(self.0, BUDGET_US, null_mut(), Some(&mut error)) };
        let ns = meter::thread_ns() - before;
        STEP_NS_MAX.fetch_max(ns, Relaxed);
        if ns > STEP_NS_LIMIT {
            violation(format!("a step of 4 ms computed for {} ms", ns / 1_000_000));
        }
        judge("nvllm_step", status, &error);
        status
    }

    /// Takes an output and looks at it.
    pub fn poll(&self) -> Option<(u64, Answer)> {
        let mut output = MaybeUninit::<nvllm_output>::zeroed();
        let mut error = no_error();
        // SAFETY: zero is a value of the struct, and its size is set; the pointers in it are valid until the next call.
        unsafe {
            (*output.as_mut_ptr()).struct_size = size_of::<nvllm_output>();
            let status = nvllm_poll_output(self.0, output.as_mut_ptr(), Some(&mut error));
            judge("nvllm_poll_output", status, &error);
            if status != OK {
                return None;
            }
            let output = output.assume_init();
            Some((output.request_id, look_at(&output)))
        }
    }

    /// Whether nothing is left to do.
    pub fn is_finished(&self) -> bool {
        // SAFETY: the engine is live.
        unsafe { nvllm_is_finished(self.0) == 1 }
    }

    /// Steps until all requests have ended, and answers what `id` got.
    pub fn finish(&self, id: u64) -> Answer {
        let mut answer = Answer::default();
        while !self.is_finished() {
            if self.step() != OK {
                break;
            }
            while let Some((of, part)) = self.poll() {
                if of == id {
                    answer.tokens.extend(&part.tokens);
                    answer.finish = part.finish;
                    answer.message = part.message;
                }
            }
        }
        answer
    }

    /// The text of a chat template, or the status of its refusal.
    pub fn chat(&self, messages: &[u8], options: &[u8]) -> Result<String, (i32, String)> {
        let mut room = 4096;
        for _ in 0..2 {
            let mut text = vec![0u8; room];
            let (mut needed, mut error) = (0, no_error());
            let options_at = if options.is_empty() { null() } else { options.as_ptr().cast() };
            // SAFETY: all pointers are of live values of these lengths.
            let status = unsafe {
                nvllm_apply_chat_template(
                    self.0,
                    messages.as_ptr().cast(),
                    messages.len(),
                    options_at,
                    options.len(),
                    text.as_mut_ptr().cast(),
                    room,
                    &mut needed,
                    Some(&mut error),
                )
            };
            let message = judge("nvllm_apply_chat_template", status, &error);
            match status {
                OK => {
                    text.truncate(needed - 1);
                    return Ok(String::from_utf8(text).unwrap_or_else(|_| {
                        violation("nvllm_apply_chat_template wrote what is no UTF-8");
                        String::new()
                    }));
                }
                -2 => room = needed,
                _ => return Err((status, message)),
            }
        }
        violation("nvllm_apply_chat_template asks for more room each time");
        Err((-2, String::new()))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // SAFETY: the engine is live, and not used again.
        unsafe { nvllm_engine_free(self.0) };
    }
}

/// Reads all that an output points to.
///
/// # Safety
///
/// The output is still valid.
pub unsafe fn look_at(output: &nvllm_output) -> Answer {
    // SAFETY: promised by the caller; the lengths are those of the header.
    unsafe {
        let list = |data: *const u32, len| if data.is_null() { &[] } else { std::slice::from_raw_parts(data, len) };
        let tokens: Vec<u32> = list(output.token_ids, output.num_token_ids).to_vec();
        if !output.text.is_null() {
            let text = std::slice::from_raw_parts(output.text.cast::<u8>(), output.text_len + 1);
            if text[output.text_len] != 0 || std::str::from_utf8(&text[..output.text_len]).is_err() {
                violation("the text of an output is no UTF-8, or does not end with a NUL");
            }
        }
        let message = match output.error_message.is_null() {
            true => String::new(),
            false => CStr::from_ptr(output.error_message).to_string_lossy().into_owned(),
        };
        judge_words("an output", &message);
        if output.status == PANIC {
            violation(format!("an output ended with a panic: {message}"));
        }
        if !(0..=5).contains(&output.finish_reason) {
            violation(format!("an output ended with {}", output.finish_reason));
        }
        Answer { tokens, finish: output.finish_reason, message }
    }
}

/// A request that every engine of the demo model answers in the same way.
pub struct Good(Answer);

impl Good {
    /// Asks a new engine.
    pub fn of(engine: &Engine) -> Good {
        Good(Good::ask(engine).expect("a good request is answered"))
    }

    fn ask(engine: &Engine) -> Result<Answer, (i32, String)> {
        let mut options = options();
        options.max_tokens = 8;
        let id = engine.add("The first prime numbers are 2, 3, 5", &options)?;
        Ok(engine.finish(id))
    }

    /// Asks again.
    pub fn check(&self, engine: &Engine) {
        match Good::ask(engine) {
            Ok(answer) if answer == self.0 => {}
            Ok(answer) => violation(format!("a good request was answered with {answer:?} instead of {:?}", self.0)),
            Err((status, message)) => violation(format!("a good request was refused with {status}: {message}")),
        }
    }
}
