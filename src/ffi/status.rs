//! Status and errors.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use std::ffi::c_char;

/// What a call answers: 0 is success, a positive number a condition, a negative one an error.
/// The values are those of nvllm_status_code; a later version may add some.
pub type nvllm_status = i32;

/// The values of nvllm_status.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum nvllm_status_code {
    /// Success.
    NVLLM_OK = 0,
    /// nvllm_poll_output: no output waits.
    NVLLM_NO_OUTPUT = 1,
    /// An argument or option makes no sense; the message names it, its value, and what is accepted.
    NVLLM_ERR_INVALID_ARGUMENT = -1,
    /// The buffer is too small; the size it should have was stored.
    NVLLM_ERR_BUFFER_TOO_SMALL = -2,
    /// A [one] function was entered while another ran on the same engine.
    NVLLM_ERR_BUSY = -3,
    /// A bug in the library. Only nvllm_engine_free is left for this engine.
    NVLLM_ERR_PANIC = -4,
    /// No live request has this id.
    NVLLM_ERR_NOT_FOUND = -5,
    /// Memory of the host, of the device, or of the KV cache does not suffice.
    NVLLM_ERR_OUT_OF_MEMORY = -6,
    /// A file could not be read; native_code is errno.
    NVLLM_ERR_IO = -7,
    /// The model files are corrupt, or of a kind that is not supported.
    NVLLM_ERR_MODEL = -8,
    /// A device call failed; native_code is the device's own code. Only nvllm_engine_free is left for this engine.
    NVLLM_ERR_DEVICE = -9,
    /// A progress callback said stop.
    NVLLM_ERR_CANCELLED = -10,
    /// Not in this build, or not for this model.
    NVLLM_ERR_UNSUPPORTED = -11,
    /// No room beside the requests that wait, by max_queue or NVLLM_MAX_QUEUED_COMPLETIONS: step, then try again.
    NVLLM_ERR_QUEUE_FULL = -12,
    /// The prompt leaves no place for an answer within max_model_len.
    NVLLM_ERR_CONTEXT_LENGTH = -13,
}

/// Why a call failed. Owned by the caller, and frozen at 512 bytes. It needs no preparation: every call that takes one
/// writes it, with status NVLLM_OK and an empty message when all went well.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_error {
    /// The status that the call returned.
    pub status: nvllm_status,
    /// errno or a device's code where there is one, else 0.
    pub native_code: i32,
    /// UTF-8, NUL-terminated: what was wanted, what there was, and the option that changes it.
    pub message: [c_char; 504],
}

/// [any] The name of a status, as in "NVLLM_ERR_BUSY"; "unknown status" for a number that is none. A static string.
#[unsafe(no_mangle)]
pub extern "C" fn nvllm_status_name(status: nvllm_status) -> *const c_char {
    use nvllm_status_code::*;
    let codes = [
        (NVLLM_OK, c"NVLLM_OK"),
        (NVLLM_NO_OUTPUT, c"NVLLM_NO_OUTPUT"),
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
    ];
    let found = codes.iter().find(|(code, _)| *code as nvllm_status == status);
    found.map_or(c"unknown status", |(_, name)| name).as_ptr()
}
