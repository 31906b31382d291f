//! Status and errors.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use std::ffi::c_char;

/// The result of a call: 0 is success, a positive value is a condition, a negative value is an error. The values are those
/// of nvllm_status_code; a later version may add values.
pub type nvllm_status = i32;

/// The values of nvllm_status.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum nvllm_status_code {
    /// Success.
    NVLLM_OK = 0,
    /// nvllm_poll_output: no output is waiting.
    NVLLM_NO_OUTPUT = 1,
    /// nvllm_step and nvllm_wait of a follower: process 0 has freed its engine. Free this one.
    NVLLM_CLOSED = 2,
    /// nvllm_wait: there is nothing to do, and the time is over or nvllm_wake was called.
    NVLLM_TIMEOUT = 3,
    /// An argument or an option is invalid. The message names it, its value, and what is accepted.
    NVLLM_ERR_INVALID_ARGUMENT = -1,
    /// The buffer is too small. The required size was stored.
    NVLLM_ERR_BUFFER_TOO_SMALL = -2,
    /// A [one] function was called while another one ran on the same engine.
    NVLLM_ERR_BUSY = -3,
    /// A bug in the library. Only nvllm_engine_free may still be called on this engine.
    NVLLM_ERR_PANIC = -4,
    /// No live request, pin or cached prefix matches the arguments.
    NVLLM_ERR_NOT_FOUND = -5,
    /// Not enough memory of the host or of the device, not enough KV cache, or no thread could be created.
    NVLLM_ERR_OUT_OF_MEMORY = -6,
    /// A file could not be read. native_code is errno, or the value of GetLastError() on Windows.
    NVLLM_ERR_IO = -7,
    /// The model files are corrupt or of a kind that is not supported.
    NVLLM_ERR_MODEL = -8,
    /// A device call failed, or there was no memory for a forward pass. native_code is the device's error code, or 0. Only
    /// nvllm_engine_free may still be called on this engine.
    NVLLM_ERR_DEVICE = -9,
    /// A progress callback cancelled the call, or another thread freed the engine of nvllm_generate or nvllm_wait.
    NVLLM_ERR_CANCELLED = -10,
    /// Not supported by this build, or not for this model.
    NVLLM_ERR_UNSUPPORTED = -11,
    /// The queue is full, by max_queue or NVLLM_MAX_QUEUED_COMPLETIONS. Step, then try again.
    NVLLM_ERR_QUEUE_FULL = -12,
    /// The prompt leaves no room for a completion within max_model_len.
    NVLLM_ERR_CONTEXT_LENGTH = -13,
    /// Another process of the engine is gone, was silent for peer_timeout_ms, or was opened with another model or other options; the
    /// message says which. Only nvllm_engine_free may still be called on this engine.
    NVLLM_ERR_PEER = -14,
}

/// Why a call failed. Owned by the caller; its size is fixed at 512 bytes. It needs no initialization: every call that takes
/// one writes it, with status NVLLM_OK and an empty message on success.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_error {
    /// The status that the call returned.
    pub status: nvllm_status,
    /// errno or the device's error code if there is one, else 0.
    pub native_code: i32,
    /// UTF-8, NUL-terminated: what was wanted, what was found, and the option that changes it.
    pub message: [c_char; 504],
}

/// [any] Returns the name of a status, such as "NVLLM_ERR_BUSY", or "unknown status" for any other number. The string is
/// static.
#[unsafe(no_mangle)]
pub extern "C" fn nvllm_status_name(status: nvllm_status) -> *const c_char {
    use nvllm_status_code::*;
    let codes = [
        (NVLLM_OK, c"NVLLM_OK"),
        (NVLLM_NO_OUTPUT, c"NVLLM_NO_OUTPUT"),
        (NVLLM_CLOSED, c"NVLLM_CLOSED"),
        (NVLLM_TIMEOUT, c"NVLLM_TIMEOUT"),
        (NVLLM_ERR_INVALID_ARGUMENT, c"NVLLM_ERR_INVALID_ARGUMENT"),
        (NVLLM_ERR_BUFFER_TOO_SMALL, c"NVLLM_ERR_BUFFER_TOO_SMALL"),
        (NVLLM_ERR_BUSY, c"NVLLM_ERR_BUSY"),
        (NVLLM_ERR_PANIC, c"NVLLM_ERR_PANIC"),
        (NVLLM_ERR_NOT_FOUND, c"NVLLM_ERR_NOT_FOUND"),
        (NVLLM_ERR_OUT_OF_MEMORY, c"NVLLM_ERR_OUT_OF_MEMORY"),
        (NVLLM_ERR_IO, c"NVLLM_ERR_IO"),
        (NVLLM_ERR_MODEL, c"NVLLM_ERR_MODEL"),
        (NVLLM_ERR_DEVICE, c"NVLLM_ERR_DEVICE"),
        (NVLLM_ERR_CANCELLED, c"NVLLM_ERR_CANCELLED"),
        (NVLLM_ERR_UNSUPPORTED, c"NVLLM_ERR_UNSUPPORTED"),
        (NVLLM_ERR_QUEUE_FULL, c"NVLLM_ERR_QUEUE_FULL"),
        (NVLLM_ERR_CONTEXT_LENGTH, c"NVLLM_ERR_CONTEXT_LENGTH"),
        (NVLLM_ERR_PEER, c"NVLLM_ERR_PEER"),
    ];
    let found = codes.iter().find(|(code, _)| *code as nvllm_status == status);
    found.map_or(c"unknown status", |(_, name)| name).as_ptr()
}
