//! Classifiers and rerankers: scores of texts and of pairs of texts. And what models of embeddings want before their texts.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::engine::nvllm_engine;
use super::generate::{Options, Reporter, check_count, generate, no_null, nvllm_generate_progress_fn, nvllm_result};
use super::guard::guard;
use super::handle::visit;
use super::memory::{self, Buffer};
use super::refusal::Refusal;
use super::requests::nvllm_request_options;
use super::status::nvllm_status_code::NVLLM_OK;
use super::status::{nvllm_error, nvllm_status};
use super::text::terminated;
use base::error::Error;
use engine::Prompt;
use engine::sampling_params::{Pooling, SamplingParams};
use runner::ModelInfo;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// [one] Scores texts, or pairs of texts, with a classifier or a reranker, and stores the results in *result, in the order of the texts: scores
/// of each output has one score per label. A pair is a text of `texts` and one of `seconds` with the same index, such as a query and a document.
///
/// seconds is NULL for texts alone, else an array of as many; a NULL in it is a text alone. Texts are NUL-terminated UTF-8. options, num_options, progress and
/// the results of texts that cannot be scored are as in nvllm_generate, where NVLLM_POOLING_NONE counts as NVLLM_POOLING_AUTO.
///
/// A model that is no classifier scores the tokens that score_tokens of the options names, one score per token, after texts alone: write the pair into the text, as
/// the model wants it. NVLLM_ERR_UNSUPPORTED if there are none.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_score(
    engine: *mut nvllm_engine,
    texts: *const *const c_char,
    seconds: *const *const c_char,
    num_texts: usize,
    options: *const *const nvllm_request_options,
    num_options: usize,
    progress: nvllm_generate_progress_fn,
    progress_user_data: *mut c_void,
    result: *mut *mut nvllm_result,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_score", error, || {
        check_count(num_texts)?;
        let result = NonNull::new(result).ok_or(Refusal::Null("result"))?;
        // SAFETY: the header asks for NULL or a live engine.
        let engine = unsafe { visit(engine)? };
        // SAFETY: the header asks for arrays of these lengths whose strings have a NUL.
        let (prompts, options) = unsafe {
            let texts = memory::slice("texts", texts, num_texts)?;
            no_null("a text", texts)?;
            let seconds = match seconds.is_null() {
                true => &[][..],
                false => memory::slice("seconds", seconds, num_texts)?,
            };
            let prompt = |(index, &text): (usize, &*const c_char)| {
                let text = memory::c_text("text", text)?;
                match seconds.get(index).filter(|second| !second.is_null()) {
                    Some(&second) => Ok(Prompt::Pair(text, memory::c_text("second text", second)?)),
                    None => Ok(Prompt::Text(text)),
                }
            };
            let prompts: Vec<_> = texts.iter().enumerate().map(prompt).collect();
            (prompts, Options::of(memory::slice("options", options, num_options)?, num_texts)?)
        };
        let reporter = Reporter::new(progress, progress_user_data);
        // SAFETY: the header asks for options of struct_size bytes.
        let outputs = unsafe { generate(&engine, prompts, options, as_scores, reporter)? };
        // SAFETY: not NULL by the check above; the header asks for a place to write.
        unsafe { result.write(Box::into_raw(Box::new(nvllm_result { outputs }))) };
        Ok(NVLLM_OK)
    })
}

/// What options of generation mean where scores are asked for.
fn as_scores(params: &mut SamplingParams, info: &ModelInfo) -> Result<(), Error> {
    if !params.score_tokens.is_empty() {
        return Ok(());
    }
    if info.pooled.scores.is_none() {
        let what =
            "the model is no classifier: it gives scores of tokens alone, which score_tokens of the options names";
        return Err(Error::Unsupported { what: what.to_owned() });
    }
    if params.pooling == Pooling::None {
        params.pooling = Pooling::Auto;
    }
    Ok(())
}

/// [any] Queues a pair of texts, NUL-terminated UTF-8, for a classifier or a reranker. Otherwise as nvllm_add_request; set pooling of the options to
/// NVLLM_POOLING_AUTO.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_add_request_pair(
    engine: *mut nvllm_engine,
    text: *const c_char,
    second: *const c_char,
    options: *const nvllm_request_options,
    request_id: *mut u64,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_add_request_pair", error, || {
        // SAFETY: the header asks for NULL or a live engine, and for strings with a NUL.
        let (engine, text, second) =
            unsafe { (visit(engine)?, memory::c_text("text", text)?, memory::c_text("second text", second)?) };
        // SAFETY: the header asks for NULL or options of struct_size bytes, and for NULL or a place for the id.
        unsafe { super::requests::add(engine.handle(), Prompt::Pair(text, second), options, request_id) }
    })
}

/// [any] Copies the name of the label `index` of a classifier, of num_labels in nvllm_model_info. Buffers are as in nvllm_detokenize.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_label(
    engine: *const nvllm_engine,
    index: usize,
    text: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_label", error, || {
        // SAFETY: the header asks for NULL or a live engine, and for room for capacity bytes.
        let (engine, buffer) = unsafe { (visit(engine)?, Buffer::new("text", text.cast::<u8>(), capacity, needed)?) };
        let scores = engine.handle().model_info().pooled.scores.as_ref();
        let labels = scores.map_or(&[][..], |scores| &scores.labels);
        let label = labels.get(index).ok_or(Refusal::Index { what: "label", index, count: labels.len() })?;
        terminated(buffer, label.clone())
    })
}

/// [any] Copies what stands before texts of a kind, such as "query" or "document", by config_sentence_transformers.json of the model's folder: put it before the
/// text yourself. name is NUL-terminated UTF-8, or NULL for the default of the folder. An empty text where there is no such name, or no default. Buffers
/// are as in nvllm_detokenize.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_named_prompt(
    engine: *const nvllm_engine,
    name: *const c_char,
    text: *mut c_char,
    capacity: usize,
    needed: *mut usize,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_named_prompt", error, || {
        // SAFETY: the header asks for NULL or a live engine, for NULL or a string with a NUL, and for room for capacity bytes.
        let (engine, name, buffer) = unsafe {
            let buffer = Buffer::new("text", text.cast::<u8>(), capacity, needed)?;
            let name = if name.is_null() { None } else { Some(memory::c_text("name", name)?) };
            (visit(engine)?, name, buffer)
        };
        let pooled = &engine.handle().model_info().pooled;
        let name = name.or(pooled.default_prompt.as_deref());
        let found = pooled.prompts.iter().find(|(known, _)| Some(known.as_str()) == name);
        terminated(buffer, found.map_or_else(String::new, |(_, text)| text.clone()))
    })
}
