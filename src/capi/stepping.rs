//! Stepping, and outputs.
#![allow(unsafe_code, non_camel_case_types, clippy::missing_safety_doc)]

use super::engine::nvllm_engine;
use super::engine_options::count;
use super::guard::{guard, guard_value};
use super::handle::{Handle, Push, visit};
use super::memory::{self, OutStruct, Versioned};
use super::refusal::{Refusal, status_of};
use super::status::nvllm_status_code::{NVLLM_CLOSED, NVLLM_NO_OUTPUT, NVLLM_OK};
use super::status::{nvllm_error, nvllm_status};
use engine::follower::FollowerReport;
use engine::logprobs::Logprobs;
use engine::output::{Finish, Output, StepReport};
use engine::{Budget, Opened};
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// What one nvllm_step call did.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_step_result {
    /// sizeof(nvllm_step_result), set by the caller or by nvllm_step_result_init.
    pub struct_size: usize,
    /// Outputs that are waiting to be polled.
    pub num_outputs: u32,
    /// Sequences that are running.
    pub num_running: u32,
    /// Requests that are waiting; each of their completions counts.
    pub num_waiting: u32,
    /// Forward passes that this call finished. `steps` of nvllm_stats and nanovllm_passes_total of nvllm_metrics_text count those of
    /// all calls.
    pub num_iterations: u32,
    /// Forward passes that have begun and not finished: at most 1 on the CPU, at most 2 on a GPU.
    pub in_flight: u32,
    /// Prompt tokens that this call computed, without cached ones.
    pub prefill_tokens: u32,
    /// Tokens that this call generated.
    pub decode_tokens: u32,
    /// Duration of this call in microseconds.
    pub elapsed_us: u64,
}

/// Why a completion ended.
#[repr(C)]
pub enum nvllm_finish {
    /// It has not ended.
    NVLLM_FINISH_NONE = 0,
    /// An EOS token, a stop token or a stop string.
    NVLLM_FINISH_STOP = 1,
    /// max_tokens, max_model_len, or the size of the KV cache.
    NVLLM_FINISH_LENGTH = 2,
    /// nvllm_cancel, or a callback.
    NVLLM_FINISH_CANCELLED = 3,
    /// An error: see status and error_message.
    NVLLM_FINISH_ERROR = 4,
    /// max_wait_us: it never ran.
    NVLLM_FINISH_EXPIRED = 5,
}

/// An increment of one completion of a request: what is new since its last output, and how it ended if it did.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct nvllm_output {
    /// sizeof(nvllm_output), set by the caller of nvllm_poll_output and nvllm_result_get, or by nvllm_output_init.
    pub struct_size: usize,
    /// Id of the request.
    pub request_id: u64,
    /// tag of the request's options.
    pub tag: u64,
    /// New tokens. [num_token_ids]
    pub token_ids: *const u32,
    /// Length of `token_ids`.
    pub num_token_ids: usize,
    /// New text, UTF-8 and NUL-terminated. It continues the prompt, so a space at its beginning is kept. It consists of whole
    /// characters: a character whose bytes are not complete is held back, and so is text that may become a stop string.
    pub text: *const c_char,
    /// Length of `text` in bytes, without the NUL.
    pub text_len: usize,
    /// Index of the completion within its request, from 0.
    pub index: u32,
    /// NVLLM_FINISH_*.
    pub finish_reason: i32,
    /// The error if finish_reason is NVLLM_FINISH_ERROR; else NVLLM_OK.
    pub status: nvllm_status,
    /// Number of tokens of the prompt.
    pub prompt_tokens: u32,
    /// Number of prompt tokens that were taken from the prefix cache, or from another completion of the request.
    pub cached_tokens: u32,
    /// Number of tokens generated so far.
    pub completion_tokens: u32,
    /// Microseconds from adding the request to its first token or its embedding; 0 before that.
    pub time_to_first_token_us: u64,
    /// Natural logarithms of the probabilities of token_ids by the model alone, before penalties, biases, temperature and
    /// filters. [num_token_ids], or NULL if num_logprobs is 0 or there are no new tokens.
    pub logprobs: *const f32,
    /// The most likely tokens at each position, in descending order of probability, and ascending order of token id where
    /// probabilities are equal; UINT32_MAX where fewer tokens have any probability. [num_token_ids, num_logprobs], or NULL.
    pub top_tokens: *const u32,
    /// Log-probabilities of `top_tokens`. [num_token_ids, num_logprobs], or NULL.
    pub top_logprobs: *const f32,
    /// Sum of the log-probabilities of all tokens of the completion so far; for a result of beam search, its EOS token
    /// included.
    pub cumulative_logprob: f32,
    /// Message of the error if finish_reason is NVLLM_FINISH_ERROR; else NULL. UTF-8 and NUL-terminated.
    pub error_message: *const c_char,
    /// The pooled embedding, in the output that ends the request; else NULL. It is not normalized, unless NVLLM_POOLING_AUTO is asked for and the model's
    /// folder says so: divide by its length to compute a cosine. [embedding_len]
    pub embedding: *const f32,
    /// Its length: hidden_size of the model, with NVLLM_POOLING_AUTO embedding_size, with embedding_dimensions that many; or 0.
    pub embedding_len: usize,
    /// num_logprobs of the request's options.
    pub num_logprobs: u32,
    /// num_prompt_logprobs of the request's options; 0 if this output contains none.
    pub num_prompt_logprobs: u32,
    /// Log-probability of each prompt token but the first, given those before it. [prompt_tokens - 1], or NULL if
    /// num_prompt_logprobs is 0 or the prompt has one token.
    pub prompt_logprobs: *const f32,
    /// As top_tokens, for the prompt. [prompt_tokens - 1, num_prompt_logprobs], or NULL.
    pub prompt_top_tokens: *const u32,
    /// Log-probabilities of `prompt_top_tokens`. [prompt_tokens - 1, num_prompt_logprobs], or NULL.
    pub prompt_top_logprobs: *const f32,
    /// Beam search: cumulative_logprob divided by completion_tokens to the power of length_penalty. Else 0.
    pub score: f32,
    /// 0.
    pub reserved: u32,
    /// Number of tokens of reasoning so far, without its markers; 0 if max_thinking_tokens of the request's options is not set. Of an end
    /// marker that is several tokens, all but the last count.
    pub reasoning_tokens: u32,
    /// The scores of a classifier with NVLLM_POOLING_AUTO, in the output that ends the request; else NULL. One for each label of the model: see nvllm_label.
    /// Where the model has one label, or says so, each is between 0 and 1 by itself; else they add up to 1, unless the model wants its logits as they are.
    /// With scores_tokens of nvllm_model_info, one for each label of each prompt token, token after token, and each token is scored by itself.
    /// [num_scores]
    pub scores: *const f32,
    /// Length of `scores`: num_labels of the model, times prompt_tokens with scores_tokens, or 0.
    pub num_scores: usize,
}

/// Receives one output, which is valid during the call only. Any return value other than 0 cancels the request.
pub type nvllm_output_fn = Option<unsafe extern "C" fn(output: *const nvllm_output, user_data: *mut c_void) -> i32>;

/// [any] Sets struct_size, and all else to 0: nvllm_step_result_init(&result, sizeof result). Writes at most struct_size bytes. Setting
/// struct_size alone is sufficient, because the call that takes the struct writes all other fields.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_step_result_init(result: *mut nvllm_step_result, struct_size: usize) {
    // SAFETY: the header asks for NULL or `struct_size` writable bytes.
    guard_value("nvllm_step_result_init", (), || unsafe { memory::init_zeroed(result, struct_size) });
}

/// [one] Runs forward passes.
///
/// With budget_us = 0 it runs exactly one forward pass to its end. With a greater budget it works until that many
/// microseconds have passed, and then returns, even in the middle of a pass, which the next call continues: on the CPU a
/// pass is interrupted between two layers. It runs as many passes as fit. result may be NULL. Returns immediately when there
/// is nothing to do.
///
/// In a process that follows (process_index above 0) it computes what process 0 schedules: with budget_us = 0 it waits for a pass and
/// returns when that has ended; with a greater budget it returns when the budget is spent, or later if a pass waits for another process.
/// NVLLM_CLOSED if process 0 has freed its engine. num_iterations counts the passes. Call it again and again: while it is not called,
/// all processes wait.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_step(
    engine: *mut nvllm_engine,
    budget_us: u64,
    result: *mut nvllm_step_result,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_step", error, || {
        // SAFETY: the header asks for NULL or a live engine, and for NULL or a struct of struct_size bytes.
        let (engine, result) =
            unsafe { (visit(engine)?, NonNull::new(result).map(|result| OutStruct::new(result)).transpose()?) };
        let budget = match budget_us {
            0 => Budget::OnePass,
            _ => Budget::Time(Duration::from_micros(budget_us)),
        };
        let (report, status) = engine.work(|work| match &mut work.opened {
            Opened::Follower(follower) => {
                let FollowerReport { step, is_closed } = follower.step(budget)?;
                Ok((step, if is_closed { NVLLM_CLOSED } else { NVLLM_OK }))
            }
            Opened::Leader(leader) => {
                let report = match work.push {
                    None => leader.step(budget)?,
                    Some(push) => leader.step_with(budget, &mut push.sink(&engine))?,
                };
                Ok((report, NVLLM_OK))
            }
        })?;
        if let Some(result) = result {
            result.write(report.into());
        }
        Ok(status)
    })
}

/// [any] Waits until there is something to do, for at most timeout_us microseconds. NVLLM_OK if nvllm_step has work or nvllm_poll_output
/// has an output, else NVLLM_TIMEOUT. With timeout_us = 0 it only looks; UINT64_MAX is no limit. The thread sleeps meanwhile.
///
/// For a loop that serves requests of other threads: wait, step, poll all outputs, and again. A request is work from the moment it is
/// added until its last output is queued, also while another thread is inside nvllm_step. So are a pass that was left in the middle, a
/// cancelled request and a released prompt. Outputs that nobody polls end every wait at once.
///
/// Several threads may wait; work ends the wait of each. If the engine becomes unusable meanwhile, they return its error. If it is freed,
/// they return NVLLM_ERR_CANCELLED, and it is destroyed when the last of them has returned.
///
/// In a process that follows, there is work when process 0 has scheduled a pass. NVLLM_CLOSED if process 0 has freed its engine.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_wait(
    engine: *const nvllm_engine,
    timeout_us: u64,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_wait", error, || {
        // SAFETY: the header asks for NULL or a live engine.
        let engine = unsafe { visit(engine)? };
        let deadline = match timeout_us {
            u64::MAX => None,
            // A time that the clock cannot represent is no limit either.
            _ => Instant::now().checked_add(Duration::from_micros(timeout_us)),
        };
        engine.wait(deadline)
    })
}

/// [any] Ends every nvllm_wait that is in progress on this engine, and the next one that begins, with NVLLM_TIMEOUT unless there is
/// something to do. For a loop that has to look at something else, such as a flag that ends it: set the flag, then wake the loop.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_wake(
    engine: *const nvllm_engine,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_wake", error, || {
        // SAFETY: the header asks for NULL or a live engine.
        unsafe { visit(engine)? }.handle().wake();
        Ok(NVLLM_OK)
    })
}

/// [any] Returns 1 if no request is waiting or running and no output is waiting to be polled; else 0. Stays 0 until outputs are polled:
/// a loop of nvllm_step and this function alone never ends. Returns 1 as well for an engine that can no longer be used: check the status
/// of nvllm_step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_is_finished(engine: *const nvllm_engine) -> i32 {
    guard_value("nvllm_is_finished", 1, || {
        // SAFETY: the header asks for NULL or a live engine.
        unsafe { visit(engine) }.map_or(1, |engine| i32::from(engine.handle().is_finished()))
    })
}

/// [any] Sets struct_size, and all else to 0: nvllm_output_init(&output, sizeof output). Writes at most struct_size bytes. Setting
/// struct_size alone is sufficient, because the call that takes the struct writes all other fields.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvllm_output_init(output: *mut nvllm_output, struct_size: usize) {
    // SAFETY: the header asks for NULL or `struct_size` writable bytes.
    guard_value("nvllm_output_init", (), || unsafe { memory::init_zeroed(output, struct_size) });
}

/// [one] Takes the oldest output; NVLLM_NO_OUTPUT if none is waiting. The pointers in *output stay valid until the next
/// [one] call on this engine.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_poll_output(
    engine: *mut nvllm_engine,
    output: *mut nvllm_output,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_poll_output", error, || {
        let output = NonNull::new(output).ok_or(Refusal::Null("output"))?;
        // SAFETY: the header asks for NULL or a live engine, and for struct_size bytes; NULL was refused above.
        let (engine, place) = unsafe { (visit(engine)?, OutStruct::new(output)?) };
        engine.work(|work| match &mut work.opened {
            Opened::Follower(_) => Ok(NVLLM_NO_OUTPUT),
            Opened::Leader(leader) => match leader.next_output() {
                None => Ok(NVLLM_NO_OUTPUT),
                Some(output) => {
                    place.write(*work.polled.fill(output));
                    Ok(NVLLM_OK)
                }
            },
        })
    })
}

/// [one] Delivers outputs to a callback instead of the queue. The callback is called inside nvllm_step, and inside
/// nvllm_generate for other requests, on the calling thread. NULL returns to polling.
#[unsafe(no_mangle)]
#[must_use]
pub unsafe extern "C" fn nvllm_set_output_callback(
    engine: *mut nvllm_engine,
    callback: nvllm_output_fn,
    user_data: *mut c_void,
    error: Option<&mut MaybeUninit<nvllm_error>>,
) -> nvllm_status {
    guard("nvllm_set_output_callback", error, || {
        // SAFETY: the header asks for NULL or a live engine.
        let engine = unsafe { visit(engine)? };
        engine.work(|work| {
            work.push = Push::new(callback, user_data);
            Ok(NVLLM_OK)
        })
    })
}

impl Push {
    /// Hands each output to the host, in memory that all of them share.
    pub(super) fn sink(self, engine: &Handle) -> impl FnMut(&Output) -> ControlFlow<()> {
        let mut shown = Shown::default();
        move |output| self.deliver(engine, shown.fill(output))
    }

    /// Hands an output to the host, unless the host has freed the engine; `Break` cancels the request.
    fn deliver(&self, engine: &Handle, output: &nvllm_output) -> ControlFlow<()> {
        if engine.is_freed() {
            return ControlFlow::Break(());
        }
        // SAFETY: the host gave the function with this type; the output and its memory live until it returns.
        match unsafe { (self.call)(output, self.user_data.0) } {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    }
}

// SAFETY: repr(C), struct_size first; integers.
unsafe impl Versioned for nvllm_step_result {
    const NAME: &'static str = "nvllm_step_result";
}

// SAFETY: repr(C), struct_size first; integers, floats and pointers.
unsafe impl Versioned for nvllm_output {
    const NAME: &'static str = "nvllm_output";
}

impl From<StepReport> for nvllm_step_result {
    fn from(report: StepReport) -> nvllm_step_result {
        nvllm_step_result {
            struct_size: size_of::<nvllm_step_result>(),
            num_outputs: count(report.outputs),
            num_running: count(report.running),
            num_waiting: count(report.waiting),
            num_iterations: report.passes,
            in_flight: report.in_flight,
            prefill_tokens: report.prefill_tokens,
            decode_tokens: report.decode_tokens,
            elapsed_us: report.elapsed_us,
        }
    }
}

/// An output as C sees it, with memory of its own that is used again.
pub(super) struct Shown {
    view: nvllm_output,
    /// The tokens, and a 0 so that the pointer is good when there are none.
    tokens: Vec<u32>,
    /// The text and its NUL.
    text: Vec<u8>,
    /// The error's message and its NUL.
    error: Vec<u8>,
    embedding: Vec<f32>,
    scores: Vec<f32>,
    logprobs: Logprobs,
    prompt_logprobs: Logprobs,
}

// SAFETY: the pointers in `view` lead to the vectors beside it, which move with it.
unsafe impl Send for Shown {}

impl Default for Shown {
    fn default() -> Shown {
        let view = nvllm_output {
            struct_size: size_of::<nvllm_output>(),
            request_id: 0,
            tag: 0,
            token_ids: std::ptr::null(),
            num_token_ids: 0,
            text: std::ptr::null(),
            text_len: 0,
            index: 0,
            finish_reason: 0,
            status: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            completion_tokens: 0,
            time_to_first_token_us: 0,
            logprobs: std::ptr::null(),
            top_tokens: std::ptr::null(),
            top_logprobs: std::ptr::null(),
            cumulative_logprob: 0.0,
            error_message: std::ptr::null(),
            embedding: std::ptr::null(),
            embedding_len: 0,
            num_logprobs: 0,
            num_prompt_logprobs: 0,
            prompt_logprobs: std::ptr::null(),
            prompt_top_tokens: std::ptr::null(),
            prompt_top_logprobs: std::ptr::null(),
            score: 0.0,
            reserved: 0,
            reasoning_tokens: 0,
            scores: std::ptr::null(),
            num_scores: 0,
        };
        Shown {
            view,
            tokens: Vec::new(),
            text: Vec::new(),
            error: Vec::new(),
            embedding: Vec::new(),
            scores: Vec::new(),
            logprobs: Logprobs::default(),
            prompt_logprobs: Logprobs::default(),
        }
    }
}

impl Shown {
    /// Copies an output; the pointers of the answer are good until the next call, wherever `self` is moved.
    pub(super) fn fill(&mut self, output: &Output) -> &nvllm_output {
        self.tokens.clear();
        self.tokens.extend_from_slice(&output.token_ids);
        self.tokens.push(0);
        self.text.clear();
        self.text.extend_from_slice(output.text.as_bytes());
        self.text.push(0);
        self.embedding.clear();
        self.embedding.extend_from_slice(&output.embedding);
        self.scores.clone_from(&output.scores);
        self.logprobs.clone_from(&output.logprobs);
        self.prompt_logprobs.clone_from(&output.prompt_logprobs);
        let (finish, status) = match &output.finish {
            None => (nvllm_finish::NVLLM_FINISH_NONE, NVLLM_OK),
            Some(Finish::Stop) => (nvllm_finish::NVLLM_FINISH_STOP, NVLLM_OK),
            Some(Finish::Length) => (nvllm_finish::NVLLM_FINISH_LENGTH, NVLLM_OK),
            Some(Finish::Cancelled) => (nvllm_finish::NVLLM_FINISH_CANCELLED, NVLLM_OK),
            Some(Finish::Expired) => (nvllm_finish::NVLLM_FINISH_EXPIRED, NVLLM_OK),
            Some(Finish::Error(error)) => (nvllm_finish::NVLLM_FINISH_ERROR, status_of(error)),
        };
        let error_message = match &output.finish {
            Some(Finish::Error(error)) => self.keep_message(error.to_string()),
            _ => std::ptr::null(),
        };
        self.view = nvllm_output {
            request_id: output.request_id,
            tag: output.tag,
            index: output.index,
            token_ids: self.tokens.as_ptr(),
            num_token_ids: output.token_ids.len(),
            text: self.text.as_ptr().cast(),
            text_len: output.text.len(),
            finish_reason: finish as i32,
            status: status as nvllm_status,
            prompt_tokens: output.prompt_tokens,
            cached_tokens: output.cached_tokens,
            completion_tokens: output.completion_tokens,
            time_to_first_token_us: output.time_to_first_token_us,
            logprobs: start(&self.logprobs.logprobs),
            top_tokens: start(&self.logprobs.top_tokens),
            top_logprobs: start(&self.logprobs.top_logprobs),
            cumulative_logprob: output.cumulative_logprob,
            num_logprobs: count(self.logprobs.alternatives),
            num_prompt_logprobs: count(self.prompt_logprobs.alternatives),
            prompt_logprobs: start(&self.prompt_logprobs.logprobs),
            prompt_top_tokens: start(&self.prompt_logprobs.top_tokens),
            prompt_top_logprobs: start(&self.prompt_logprobs.top_logprobs),
            score: output.score,
            reasoning_tokens: output.reasoning_tokens,
            error_message,
            embedding: if output.embedding.is_empty() { std::ptr::null() } else { self.embedding.as_ptr() },
            embedding_len: output.embedding.len(),
            scores: start(&self.scores),
            num_scores: self.scores.len(),
            ..self.view
        };
        &self.view
    }

    /// A result of a request that was refused before it began.
    pub(super) fn refused(tag: u64, index: u32, refusal: &Refusal) -> Shown {
        let mut shown = Shown::default();
        shown.fill(&Output { tag, index, ..Output::default() });
        shown.view.finish_reason = nvllm_finish::NVLLM_FINISH_ERROR as i32;
        shown.view.status = refusal.status() as nvllm_status;
        shown.view.error_message = shown.keep_message(refusal.to_string());
        shown
    }

    /// The output that was copied last.
    pub(super) fn view(&self) -> nvllm_output {
        self.view
    }

    fn keep_message(&mut self, message: String) -> *const c_char {
        self.error = message.into_bytes();
        self.error.push(0);
        self.error.as_ptr().cast()
    }
}

/// Where an array begins; NULL where it is empty.
fn start<T>(array: &[T]) -> *const T {
    if array.is_empty() { std::ptr::null() } else { array.as_ptr() }
}
