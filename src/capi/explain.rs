//! Explaining which kernels compute a model.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::engine::nvllm_engine_config;
use super::guard::{guard, guard_value};
use super::memory::{self, Buffer, Versioned};
use super::refusal::Refusal;
use super::status::{nvllm_error, nvllm_status};
use super::text::terminated;
use formats::source::Source;
use os::Files;
use runner::explain::{Question, explain};
use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// What nvllm_explain describes: the forward pass of some sequences, and where it is computed.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_explain_options {
    /// sizeof(nvllm_explain_options), set by the caller or by nvllm_explain_options_init.
    pub struct_size: usize,
    /// "h100", "h200", "a100" or "rtx4090", which need not be in this machine. Default NULL: the processor of this machine.
    pub gpu: *const c_char,
    /// Sequences of the pass, from 1 to 65536. Default 1.
    pub rows: u32,
    /// New tokens of each sequence: 1 when it generates, more for a prompt. At most 1048576 in all rows. Default 1.
    pub tokens: u32,
    /// Tokens that each sequence has after the pass. Default 0: as many as it brings, but at least 1024 where the model has as many.
    pub context_len: u32,
    /// The layer, from 0. Default 0.
    pub layer: u32,
}

impl nvllm_explain_options {
    const DEFAULT: nvllm_explain_options = nvllm_explain_options {
        struct_size: size_of::<nvllm_explain_options>(),
        gpu: std::ptr::null(),
        rows: 1,
        tokens: 1,
        context_len: 0,
        layer: 0,
    };
}

// SAFETY: repr(C), struct_size first; integers and a pointer.
unsafe impl Versioned for nvllm_explain_options {
    const NAME: &'static str = "nvllm_explain_options";
}

/// [any] Sets the defaults: nvllm_explain_options_init(&options, sizeof options). Writes at most struct_size bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_explain_options_init(options: *mut nvllm_explain_options, struct_size: usize) {
    // SAFETY: the header asks for NULL or `struct_size` writable bytes.
    guard_value("nvllm_explain_options_init", (), || unsafe {
        memory::init(options, struct_size, nvllm_explain_options::DEFAULT)
    });
}

/// [any] Describes as text how an engine with this config would compute one layer and the head of the model. Each product and attention
/// have their kernel, thread blocks and bytes and, on a GPU, the least time that memory or arithmetic needs. No engine is opened, and no
/// GPU is needed. options may be NULL.
///
/// Of config, model_path, dtype, quantization, kv_cache_dtype, batch_invariant and max_model_len count: the pass is that of one rank.
/// Kernels of a GPU are those of a machine that has cuBLASLt. The text is for people, and its form may change. The buffer is used as by nvllm_tokenize, with a NUL.
///
/// NVLLM_ERR_INVALID_ARGUMENT for a GPU, rows, tokens, a context or a layer that there are not, NVLLM_ERR_UNSUPPORTED for a GPU in a build
/// without CUDA.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_explain(
    config: *const nvllm_engine_config,
    options: *const nvllm_explain_options,
    text: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_explain", error, || {
        let config = NonNull::new(config.cast_mut()).ok_or(Refusal::Null("config"))?;
        // SAFETY: the header asks for structs of struct_size bytes, and for room for capacity bytes; NULL was refused above.
        let (config, options, buffer) = unsafe {
            let buffer = Buffer::new("text", text.cast::<u8>(), capacity, needed)?;
            let config = memory::read(config, nvllm_engine_config::DEFAULT)?;
            let options = match NonNull::new(options.cast_mut()) {
                Some(options) => memory::read(options, nvllm_explain_options::DEFAULT)?,
                None => nvllm_explain_options::DEFAULT,
            };
            (config, options, buffer)
        };
        let gpu = match options.gpu.is_null() {
            true => None,
            // SAFETY: not NULL, and the header asks for a NUL-terminated string.
            false => Some(unsafe { memory::c_text("gpu", options.gpu)? }.to_owned()),
        };
        let engine = config.options(Files::OnDisk, config.path()?)?;
        engine.check()?;
        let source = Source::open(&engine.model_path)?;
        let question = Question {
            gpu,
            rows: options.rows as usize,
            tokens: options.tokens as usize,
            context: Some(options.context_len as usize).filter(|&context| context > 0),
            layer: options.layer as usize,
        };
        terminated(buffer, explain(&source, &engine, &question)?)
    })
}
