//! Logging: one callback for the whole process.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::guard::{guard_value, process};
use super::handle::HostPointer;
use base::log::{self, Level};
use os::lock::Mutex;
use std::cell::Cell;
use std::ffi::{c_char, c_void};

/// Severity of a message.
#[repr(C)]
pub enum nvllm_log_level {
    /// Nothing is logged.
    NVLLM_LOG_OFF = 0,
    /// Something failed.
    NVLLM_LOG_ERROR = 1,
    /// Something is unexpected, but work continues.
    NVLLM_LOG_WARN = 2,
    /// A milestone, such as a loaded model.
    NVLLM_LOG_INFO = 3,
    /// Detail for debugging the library.
    NVLLM_LOG_DEBUG = 4,
}

/// Receives one message: message_len bytes of UTF-8, and a NUL. The message is valid during the call only.
pub type nvllm_log_fn =
    Option<unsafe extern "C" fn(level: i32, message: *const c_char, message_len: usize, user_data: *mut c_void)>;

type LogCall = unsafe extern "C" fn(i32, *const c_char, usize, *mut c_void);

type Sink = Option<(LogCall, HostPointer)>;

/// The host's callback, for each process by its number. Locked while it runs, so that messages come one at a time, and so
/// that a host which has replaced its callback may free what the old one used.
static SINKS: [Mutex<Sink>; log::PROCESSES] = [const { Mutex::new(None) }; log::PROCESSES];

thread_local! {
    /// Whether this thread is inside the host's log callback: what it calls there does not deliver again.
    static DELIVERING: Cell<bool> = const { Cell::new(false) };
    /// What the callback that this thread is inside of was replaced by, there.
    static REPLACEMENT: Cell<Option<Sink>> = const { Cell::new(None) };
}

/// [any] Sends messages with a level of at most max_level (NVLLM_LOG_*) to a callback. NULL, the default, disables logging.
///
/// The library queues at most 256 messages. A call that is about to return hands them to the callback, one at a time, on the
/// thread that made the call. When this function returns, the previous callback is not running on any other thread and will
/// not be called again. The child of a fork() starts without a callback.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_set_log_callback(callback: nvllm_log_fn, user_data: *mut c_void, max_level: i32) {
    guard_value("nvllm_set_log_callback", (), || {
        let level = callback.and(match max_level {
            ..=0 => None,
            1 => Some(Level::Error),
            2 => Some(Level::Warn),
            3 => Some(Level::Info),
            _ => Some(Level::Debug),
        });
        let Some(sink) = SINKS.get(process() as usize) else { return };
        let replacement = callback.map(|call| (call, HostPointer(user_data)));
        if DELIVERING.get() {
            // This thread holds the lock, in `deliver`.
            REPLACEMENT.set(Some(replacement));
        } else {
            *sink.lock() = replacement;
        }
        log::set_max_level(level);
    });
}

/// Hands waiting messages to the callback. Leaves them to another thread that is doing so already.
pub(super) fn deliver() {
    if DELIVERING.get() || !log::is_waiting() {
        return;
    }
    let Some(mut sink) = SINKS.get(process() as usize).and_then(Mutex::try_lock) else { return };
    DELIVERING.set(true);
    while let Some((call, user_data)) = *sink
        && let Some((level, mut message)) = log::pop()
    {
        let len = message.len();
        message.push('\0');
        // SAFETY: the host gave the function with this type; the message and its NUL live until it returns.
        unsafe { call(level as i32, message.as_ptr().cast(), len, user_data.0) };
        if let Some(replacement) = REPLACEMENT.take() {
            *sink = replacement;
        }
    }
    DELIVERING.set(false);
}
