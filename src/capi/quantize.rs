//! Quantizing model folders.
//!
//! A folder is quantized once, and opens as quickly as any other afterwards.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::engine::nvllm_progress_fn;
use super::engine_options::on_load;
use super::guard::guard;
use super::memory;
use super::status::nvllm_status_code::NVLLM_OK;
use super::status::{nvllm_error, nvllm_status};
use formats::source::Source;
use runner::quantize_folder;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::path::Path;

/// [any] Quantizes the model folder model_path, and writes it as the folder to, which must not exist or be empty. quantization is
/// NVLLM_QUANTIZATION_INT8 or NVLLM_QUANTIZATION_INT4.
///
/// The matrices of the layers get the numbers that an engine gives them with the same quantization, in the format pack-quantized of
/// compressed-tensors; the embedding table and the head stay as they are, and can be quantized when the new folder is opened. Other files
/// of the folder, such as the tokenizer, are copied, those of additional_chat_templates among them. progress may be NULL; a value other
/// than 0 cancels, and leaves what was written.
///
/// Nothing outside of the folder is read: NVLLM_ERR_MODEL for a link that leads out of it. Exception: the folder is a snapshot of
/// a download cache and the link leads into blobs/ beside snapshots/. NVLLM_ERR_MODEL as well for devices, sockets and FIFOs, for
/// names that are not UTF-8, and if the new folder lies in model_path.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_quantize_folder(
    model_path: *const c_char,
    to: *const c_char,
    quantization: i32,
    progress: nvllm_progress_fn,
    progress_user_data: *mut c_void,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_quantize_folder", error, || {
        // SAFETY: the header asks for NULL or NUL-terminated strings.
        let (from, to) = unsafe { (memory::c_text("model_path", model_path)?, memory::c_text("to", to)?) };
        let on_load = on_load(quantization)?;
        let source = Source::open(Path::new(from))?;
        quantize_folder(&source, Path::new(to), on_load, &mut |fraction| match progress {
            // SAFETY: the host gave the function with this type, to be called inside this call.
            Some(progress) if unsafe { progress(fraction, progress_user_data) } != 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        })?;
        Ok(NVLLM_OK)
    })
}
