//! Batch convenience: many prompts in one call.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::engine::nvllm_engine;
use super::guard::{guard, guard_value};
use super::handle::{Handle, HostPointer, visit};
use super::memory::{self, Place, Versioned};
use super::refusal::Refusal;
use super::requests::{nvllm_request_options, sampling_params, tag_and_results};
use super::status::nvllm_status_code::{self, NVLLM_OK};
use super::status::{nvllm_error, nvllm_status};
use super::stepping::{Shown, nvllm_output};
use base::error::Error;
use base::limits;
use engine::{Asked, Progress, Prompt, Sink};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;

/// The results of nvllm_generate. Destroyed by nvllm_result_free; independent of the engine.
pub struct nvllm_result {
    outputs: Vec<Shown>,
}

/// Progress of nvllm_generate.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_progress {
    /// sizeof(nvllm_progress), set by the library.
    pub struct_size: usize,
    /// Completions that have ended.
    pub finished: usize,
    /// All completions.
    pub total: usize,
    /// Prompt tokens per second, over the last steps.
    pub prefill_tokens_per_s: f64,
    /// Generated tokens per second, over the last steps.
    pub decode_tokens_per_s: f64,
    /// Microseconds since the call began.
    pub elapsed_us: u64,
}

/// Called after every step. progress is valid during the call only. Any return value other than 0 cancels the call.
pub type nvllm_generate_progress_fn =
    Option<unsafe extern "C" fn(progress: *const nvllm_progress, user_data: *mut c_void) -> i32>;

/// [one] Generates for all prompts, and stores the results in *result: in the order of the prompts, and for each prompt as
/// many as its options' n, in the order of their index.
///
/// prompt_lens may be NULL if the prompts are NUL-terminated. options points to num_options pointers, each of which may be
/// NULL. num_options is 0 for the model's defaults, 1 for options that all prompts share, or num_prompts. Shared options
/// that are invalid fail the call. If a prompt cannot run, or its own options are invalid, its results have
/// NVLLM_FINISH_ERROR and the other prompts continue. progress may be NULL; if it cancels, the call returns
/// NVLLM_ERR_CANCELLED without a result. Requests that were added before continue meanwhile.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_generate(
    engine: *mut nvllm_engine,
    prompts: *const *const c_char,
    prompt_lens: *const usize,
    num_prompts: usize,
    options: *const *const nvllm_request_options,
    num_options: usize,
    progress: nvllm_generate_progress_fn,
    progress_user_data: *mut c_void,
    result: *mut *mut nvllm_result,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_generate", error, || {
        check_count(num_prompts)?;
        let result = NonNull::new(result).ok_or(Refusal::Null("result"))?;
        // SAFETY: the header asks for NULL or a live engine, and for arrays of these lengths whose strings have the lengths
        // in prompt_lens, or a NUL.
        let (engine, prompts, options) = unsafe {
            let engine = visit(engine)?;
            let pointers = memory::slice("prompts", prompts, num_prompts)?;
            no_null("a prompt", pointers)?;
            let prompts: Vec<_> = if prompt_lens.is_null() {
                pointers.iter().map(|&prompt| memory::c_text("prompt", prompt).map(Prompt::Text)).collect()
            } else {
                let lens = memory::slice("prompt_lens", prompt_lens, num_prompts)?;
                let pairs = pointers.iter().zip(lens);
                pairs.map(|(&prompt, &len)| memory::text("prompt", prompt, len).map(Prompt::Text)).collect()
            };
            (engine, prompts, memory::slice("options", options, num_options)?)
        };
        // SAFETY: the header asks for options of struct_size bytes.
        let outputs = unsafe { generate(&engine, prompts, options, Reporter::new(progress, progress_user_data))? };
        // SAFETY: not NULL by the check above; the header asks for a place to write.
        unsafe { result.write(Box::into_raw(Box::new(nvllm_result { outputs }))) };
        Ok(NVLLM_OK)
    })
}

/// [one] As nvllm_generate, for prompts of tokens; prompt_lens is required.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_generate_tokens(
    engine: *mut nvllm_engine,
    prompts: *const *const u32,
    prompt_lens: *const usize,
    num_prompts: usize,
    options: *const *const nvllm_request_options,
    num_options: usize,
    progress: nvllm_generate_progress_fn,
    progress_user_data: *mut c_void,
    result: *mut *mut nvllm_result,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_generate_tokens", error, || {
        check_count(num_prompts)?;
        let result = NonNull::new(result).ok_or(Refusal::Null("result"))?;
        // SAFETY: the header asks for NULL or a live engine, and for arrays of these lengths.
        let (engine, prompts, options) = unsafe {
            let engine = visit(engine)?;
            let pointers = memory::slice("prompts", prompts, num_prompts)?;
            no_null("a prompt", pointers)?;
            let pairs = pointers.iter().zip(memory::slice("prompt_lens", prompt_lens, num_prompts)?);
            let prompts: Vec<_> =
                pairs.map(|(&prompt, &len)| memory::slice("prompt", prompt, len).map(Prompt::Tokens)).collect();
            (engine, prompts, memory::slice("options", options, num_options)?)
        };
        // SAFETY: the header asks for options of struct_size bytes.
        let outputs = unsafe { generate(&engine, prompts, options, Reporter::new(progress, progress_user_data))? };
        // SAFETY: not NULL by the check above; the header asks for a place to write.
        unsafe { result.write(Box::into_raw(Box::new(nvllm_result { outputs }))) };
        Ok(NVLLM_OK)
    })
}

/// [any] Returns the number of results: for each prompt its n, or 1 if its n is invalid. 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_result_count(result: *const nvllm_result) -> usize {
    guard_value("nvllm_result_count", 0, || {
        // SAFETY: the header asks for NULL or a live result.
        unsafe { result.as_ref() }.map_or(0, |result| result.outputs.len())
    })
}

/// [any] Reads one completion, with all its tokens and text. The pointers in *output stay valid until nvllm_result_free.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_result_get(
    result: *const nvllm_result,
    index: usize,
    output: *mut nvllm_output,
) -> nvllm_status {
    // SAFETY: the same requirements.
    guard("nvllm_result_get", None, || unsafe { get(result, index, output) })
}

/// [any] As nvllm_result_get, and says in *error why it failed.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_result_get_with_error(
    result: *const nvllm_result,
    index: usize,
    output: *mut nvllm_output,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    // SAFETY: the same requirements.
    guard("nvllm_result_get_with_error", error, || unsafe { get(result, index, output) })
}

/// Shows a result.
///
/// # Safety
///
/// `result` is NULL or live, and `output` is NULL or has struct_size bytes.
unsafe fn get(
    result: *const nvllm_result,
    index: usize,
    output: *mut nvllm_output,
) -> Result<nvllm_status_code, Refusal> {
    let output = NonNull::new(output).ok_or(Refusal::Null("output"))?;
    // SAFETY: promised by the caller; NULL was refused above.
    let (result, output) = unsafe { (result.as_ref().ok_or(Refusal::Null("result"))?, Place::new(output)?) };
    let count = result.outputs.len();
    output.write(result.outputs.get(index).ok_or(Refusal::Index { what: "result", index, count })?.view());
    Ok(NVLLM_OK)
}

/// Destroys a result. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_result_free(result: *mut nvllm_result) {
    guard_value("nvllm_result_free", (), || {
        if !result.is_null() {
            // SAFETY: the header asks for a pointer from nvllm_generate, which came from a Box, and that it is not used again.
            drop(unsafe { Box::from_raw(result) });
        }
    });
}

// SAFETY: repr(C), struct_size first; integers and floats.
unsafe impl Versioned for nvllm_progress {
    const NAME: &'static str = "nvllm_progress";
}

/// The host's progress callback.
struct Reporter {
    call: nvllm_generate_progress_fn,
    user_data: HostPointer,
}

impl Reporter {
    fn new(call: nvllm_generate_progress_fn, user_data: *mut c_void) -> Reporter {
        Reporter { call, user_data: HostPointer(user_data) }
    }

    fn report(&self, progress: &Progress) -> ControlFlow<()> {
        let Some(call) = self.call else { return ControlFlow::Continue(()) };
        let shown = nvllm_progress {
            struct_size: size_of::<nvllm_progress>(),
            finished: progress.finished,
            total: progress.total,
            prefill_tokens_per_s: progress.prefill_tokens_per_s,
            decode_tokens_per_s: progress.decode_tokens_per_s,
            elapsed_us: progress.elapsed_us,
        };
        // SAFETY: the host gave the function with this type, to be called inside this call; `shown` lives until it returns.
        match unsafe { call(&raw const shown, self.user_data.0) } {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}

/// Refuses more prompts than results are made for, before anything is made of them.
fn check_count(prompts: usize) -> Result<(), Error> {
    limits::at_most("num_prompts", prompts, limits::QUEUED_COMPLETIONS, "NVLLM_MAX_QUEUED_COMPLETIONS")
}

fn no_null<T>(what: &'static str, pointers: &[*const T]) -> Result<(), Refusal> {
    if pointers.iter().any(|pointer| pointer.is_null()) { Err(Refusal::Null(what)) } else { Ok(()) }
}

/// Runs what can run. A prompt's own options are looked at when its turn comes; options for all prompts that make no sense
/// fail the call.
///
/// # Safety
///
/// Each of `options` is NULL or has struct_size bytes, and its arrays have the lengths it says, until this returns.
unsafe fn generate(
    engine: &Handle,
    prompts: Vec<Result<Prompt, Refusal>>,
    options: &[*const nvllm_request_options],
    reporter: Reporter,
) -> Result<Vec<Shown>, Refusal> {
    let handle = engine.handle();
    if options.len() > 1 && options.len() != prompts.len() {
        return Err(Refusal::OptionCount { options: options.len(), prompts: prompts.len() });
    }
    let shared = match options {
        [] => Some(Arc::new(handle.check(handle.default_params())?)),
        [one] => {
            // SAFETY: promised by the caller.
            let options = Arc::new(handle.check(unsafe { sampling_params(handle, *one)? })?);
            handle.check_structure(&options)?;
            Some(options)
        }
        _ => None,
    };
    let asked: Vec<Asked> = (0..prompts.len())
        .map(|index| match &shared {
            Some(options) => Asked { tag: options.params.tag, results: options.params.completions },
            None => {
                // SAFETY: promised by the caller.
                let (tag, results) = unsafe { tag_and_results(options[index]) };
                Asked { tag, results: results as u32 }
            }
        })
        .collect();
    // What each prompt that cannot run shows.
    let mut refused: BTreeMap<usize, Refusal> = BTreeMap::new();
    let prompts: Vec<Option<Prompt>> = (0..)
        .zip(prompts)
        .map(|(index, prompt)| prompt.map_err(|refusal| refused.insert(index, refusal)).ok())
        .collect();
    let mut ask = |index: usize| {
        let prompt = prompts[index]?;
        let params = match &shared {
            Some(options) => return Some((prompt, Arc::clone(options))),
            // SAFETY: promised by the caller.
            None => unsafe { sampling_params(handle, options[index]) },
        };
        let checked = params.and_then(|params| Ok(Arc::new(handle.check(params)?)));
        checked.map(|options| (prompt, options)).map_err(|refusal| refused.insert(index, refusal)).ok()
    };

    let outputs = engine.work(|work| {
        let mut cancelled = false;
        let mut progress = |progress: &Progress| {
            cancelled |= engine.is_freed() || reporter.report(progress).is_break();
            if cancelled { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let mut push = work.push.map(|push| push.sink(engine));
        let others = push.as_mut().map(|push| push as &mut Sink);
        let outputs = work.engine()?.generate_each(&asked, &mut ask, others, &mut progress)?;
        if cancelled { Err(Error::Cancelled.into()) } else { Ok(outputs) }
    })?;

    let mut results = Vec::new();
    results.try_reserve_exact(outputs.len()).map_err(|_| Error::OutOfMemory {
        what: "the results",
        bytes: (outputs.len() * size_of::<Shown>()) as u64,
        knob: "num_prompts or n",
    })?;
    let mut outputs = outputs.into_iter();
    for (index, &Asked { tag, results: count }) in asked.iter().enumerate() {
        let refusal = refused.get(&index);
        results.extend(outputs.by_ref().take(count as usize).map(|output| match refusal {
            Some(refusal) => Shown::refused(tag, output.index, refusal),
            None => {
                let mut shown = Shown::default();
                shown.fill(&output);
                shown
            }
        }));
    }
    Ok(results)
}
