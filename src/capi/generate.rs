//! Batch convenience: many prompts in one call.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::chat::{nvllm_message, optional, render, tools_of};
use super::engine::nvllm_engine;
use super::guard::{guard, guard_value};
use super::handle::{Handle, HostPointer, visit};
use super::memory::{self, OutStruct, Versioned};
use super::refusal::Refusal;
use super::requests::{nvllm_request_options, sampling_params, tag_and_results};
use super::status::nvllm_status_code::{self, NVLLM_OK};
use super::status::{nvllm_error, nvllm_status};
use super::stepping::{Shown, nvllm_output};
use base::error::Error;
use base::limits;
use engine::sampling_params::SamplingParams;
use engine::{EngineHandle, Progress, Prompt, PromptResults, Sink};
use runner::ModelInfo;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;

/// The results of nvllm_generate. Destroyed by nvllm_result_free; independent of the engine.
pub struct nvllm_result {
    pub(super) outputs: Vec<Shown>,
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
    /// Prompt tokens that the engine computed since the call began.
    pub prompt_tokens: u64,
    /// Tokens that the engine generated since the call began.
    pub generated_tokens: u64,
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
            (engine, prompts, Options::of(memory::slice("options", options, num_options)?, num_prompts)?)
        };
        // SAFETY: the header asks for options of struct_size bytes.
        let outputs =
            unsafe { generate(&engine, prompts, options, |_, _| Ok(()), Reporter::new(progress, progress_user_data))? };
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
            (engine, prompts, Options::of(memory::slice("options", options, num_options)?, num_prompts)?)
        };
        // SAFETY: the header asks for options of struct_size bytes.
        let outputs =
            unsafe { generate(&engine, prompts, options, |_, _| Ok(()), Reporter::new(progress, progress_user_data))? };
        // SAFETY: not NULL by the check above; the header asks for a place to write.
        unsafe { result.write(Box::into_raw(Box::new(nvllm_result { outputs }))) };
        Ok(NVLLM_OK)
    })
}

/// A prompt of nvllm_generate_prompts: text, tokens or messages, whichever is not NULL. nvllm_prompt_init sets the defaults, which are
/// 0 and NULL, so that `nvllm_prompt prompt = {.struct_size = sizeof prompt, .text = "..."}` does as well.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_prompt {
    /// sizeof(nvllm_prompt), set by the caller or by nvllm_prompt_init.
    pub struct_size: usize,
    /// A text, as the prompt of nvllm_add_request.
    pub text: *const c_char,
    /// Length of `text` in bytes. Default 0: up to its NUL.
    pub text_len: usize,
    /// Tokens, which are used unchanged.
    pub tokens: *const u32,
    /// Length of `tokens`.
    pub num_tokens: usize,
    /// A conversation, as that of nvllm_add_chat.
    pub messages: *const nvllm_message,
    /// Length of `messages`.
    pub num_messages: usize,
    /// Variables of the chat template for `messages`: NUL-terminated JSON, or NULL. See options_json of nvllm_apply_chat_template.
    pub template_options: *const c_char,
    /// How the prompt is completed. NULL means what nvllm_default_options fills in.
    pub options: *const nvllm_request_options,
}

/// [any] Sets the defaults: nvllm_prompt_init(&prompt, sizeof prompt). Writes at most struct_size bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_prompt_init(prompt: *mut nvllm_prompt, struct_size: usize) {
    // SAFETY: the header asks for NULL or `struct_size` writable bytes.
    guard_value("nvllm_prompt_init", (), || unsafe { memory::init(prompt, struct_size, nvllm_prompt::DEFAULT) });
}

/// [one] Generates for all prompts, as nvllm_generate does: prompts is an array of num_prompts structs with one struct_size.
///
/// If a prompt cannot run, or its options are invalid, its results have NVLLM_FINISH_ERROR and the other prompts continue, even if it
/// is the only one.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_generate_prompts(
    engine: *mut nvllm_engine,
    prompts: *const nvllm_prompt,
    num_prompts: usize,
    progress: nvllm_generate_progress_fn,
    progress_user_data: *mut c_void,
    result: *mut *mut nvllm_result,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_generate_prompts", error, || {
        check_count(num_prompts)?;
        let result = NonNull::new(result).ok_or(Refusal::Null("result"))?;
        // SAFETY: the header asks for NULL or a live engine.
        let engine = unsafe { visit(engine)? };
        let (mut owned, mut options) = (Vec::new(), Vec::new());
        // SAFETY: the header asks for structs with one struct_size, and for text, tokens and messages of the lengths that they say.
        unsafe {
            memory::read_each("prompts", prompts, num_prompts, nvllm_prompt::DEFAULT, |_, prompt| {
                options.push(prompt.options);
                owned.push(prompt.given(engine.handle()));
                Ok(())
            })?;
        }
        let prompts = owned.iter_mut().map(|given| match given {
            Ok(Given::Text(text)) => Ok(Prompt::Text(text)),
            Ok(Given::Rendered(text)) => Ok(Prompt::Text(text)),
            Ok(Given::Tokens(tokens)) => Ok(Prompt::Tokens(tokens)),
            Err(refusal) => Err(std::mem::replace(refusal, Refusal::Null("prompt"))),
        });
        let reporter = Reporter::new(progress, progress_user_data);
        // SAFETY: the header asks for options of struct_size bytes.
        let outputs =
            unsafe { generate(&engine, prompts.collect(), Options::Each(&options), |_, _| Ok(()), reporter)? };
        // SAFETY: not NULL by the check above; the header asks for a place to write.
        unsafe { result.write(Box::into_raw(Box::new(nvllm_result { outputs }))) };
        Ok(NVLLM_OK)
    })
}

/// What the caller gave as a prompt.
enum Given<'a> {
    Text(&'a str),
    Rendered(String),
    Tokens(&'a [u32]),
}

impl nvllm_prompt {
    const DEFAULT: nvllm_prompt = nvllm_prompt {
        struct_size: size_of::<nvllm_prompt>(),
        text: std::ptr::null(),
        text_len: 0,
        tokens: std::ptr::null(),
        num_tokens: 0,
        messages: std::ptr::null(),
        num_messages: 0,
        template_options: std::ptr::null(),
        options: std::ptr::null(),
    };

    /// The one of text, tokens and messages that is given.
    ///
    /// # Safety
    ///
    /// As the header says of the struct's pointers.
    unsafe fn given<'a>(&self, handle: &EngineHandle) -> Result<Given<'a>, Refusal> {
        // SAFETY: promised by the caller.
        unsafe {
            match (self.text.is_null(), self.tokens.is_null(), self.messages.is_null()) {
                (false, true, true) if self.text_len == 0 => memory::c_text("text", self.text).map(Given::Text),
                (false, true, true) => memory::text("text", self.text, self.text_len).map(Given::Text),
                (true, false, true) => memory::slice("tokens", self.tokens, self.num_tokens).map(Given::Tokens),
                (true, true, false) => {
                    let messages = memory::slice("messages", self.messages, self.num_messages)?;
                    let template_options = optional("template_options", self.template_options)?;
                    render(handle, messages, template_options, tools_of(self.options)?.as_ref()).map(Given::Rendered)
                }
                (text, tokens, messages) => {
                    Err(Refusal::Prompts([text, tokens, messages].into_iter().filter(|is_null| !is_null).count()))
                }
            }
        }
    }
}

// SAFETY: repr(C), struct_size first; integers and pointers.
unsafe impl Versioned for nvllm_prompt {
    const NAME: &'static str = "nvllm_prompt";
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
    let (result, output) = unsafe { (result.as_ref().ok_or(Refusal::Null("result"))?, OutStruct::new(output)?) };
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
pub(super) struct Reporter {
    call: nvllm_generate_progress_fn,
    user_data: HostPointer,
}

impl Reporter {
    pub(super) fn new(call: nvllm_generate_progress_fn, user_data: *mut c_void) -> Reporter {
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
            prompt_tokens: progress.prompt_tokens,
            generated_tokens: progress.generated_tokens,
        };
        // SAFETY: the host gave the function with this type, to be called inside this call; `shown` lives until it returns.
        match unsafe { call(&raw const shown, self.user_data.0) } {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}

/// Refuses more prompts than results are made for, before anything is made of them.
pub(super) fn check_count(prompts: usize) -> Result<(), Error> {
    limits::at_most("num_prompts", prompts, limits::QUEUED_COMPLETIONS, "NVLLM_MAX_QUEUED_COMPLETIONS")
}

/// The options of many prompts.
pub(super) enum Options<'a> {
    /// Those of all prompts; NULL means the model's own.
    Shared(*const nvllm_request_options),
    /// As many as there are prompts.
    Each(&'a [*const nvllm_request_options]),
}

impl Options<'_> {
    /// What an array of none, one or `prompts` pointers means.
    pub(super) fn of(array: &[*const nvllm_request_options], prompts: usize) -> Result<Options<'_>, Refusal> {
        match array {
            [] => Ok(Options::Shared(std::ptr::null())),
            [one] => Ok(Options::Shared(*one)),
            each if each.len() == prompts => Ok(Options::Each(each)),
            more => Err(Refusal::OptionCount { options: more.len(), prompts }),
        }
    }
}

/// Changes options before they are checked for the model.
pub(super) type Prepare = fn(&mut SamplingParams, &ModelInfo) -> Result<(), Error>;

pub(super) fn no_null<T>(what: &'static str, pointers: &[*const T]) -> Result<(), Refusal> {
    if pointers.iter().any(|pointer| pointer.is_null()) { Err(Refusal::Null(what)) } else { Ok(()) }
}

/// Runs what can run. A prompt's own options are looked at when its turn comes; options for all prompts that make no sense
/// fail the call.
///
/// # Safety
///
/// Each of `options` is NULL or has struct_size bytes, and its arrays have the lengths it says, until this returns.
pub(super) unsafe fn generate(
    engine: &Handle,
    prompts: Vec<Result<Prompt, Refusal>>,
    options: Options,
    prepare: Prepare,
    reporter: Reporter,
) -> Result<Vec<Shown>, Refusal> {
    let handle = engine.handle();
    // Either the options of all prompts, or those of each.
    let (shared, own) = match options {
        Options::Each(own) => (None, own),
        Options::Shared(options) => {
            // SAFETY: promised by the caller.
            let mut params = unsafe { sampling_params(handle, options)? };
            prepare(&mut params, handle.model_info())?;
            let options = Arc::new(handle.check(params)?);
            handle.check_structure(&options)?;
            (Some(options), &[][..])
        }
    };
    let asked: Vec<PromptResults> = (0..prompts.len())
        .map(|index| match &shared {
            Some(options) => PromptResults { tag: options.params.tag, results: options.params.completions },
            None => {
                // SAFETY: promised by the caller.
                let (tag, results) = unsafe { tag_and_results(own[index]) };
                PromptResults { tag, results: results as u32 }
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
            None => unsafe { sampling_params(handle, own[index]) },
        };
        let checked = params.and_then(|mut params| {
            prepare(&mut params, handle.model_info())?;
            Ok(Arc::new(handle.check(params)?))
        });
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
    for (index, &PromptResults { tag, results: count }) in asked.iter().enumerate() {
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
