//! How are many prompts completed in one call? Results come in the order of the prompts.
//!
//! A call adds requests as any caller does, and steps. After each pass it takes the outputs of its own requests out of the new
//! ones and adds them to their results; the others go where those of a step go. There is no queue per call: results have
//! memory of their own, and a queue would only copy each output once more.

use crate::api::inbox::Intake;
use crate::api::request::CheckedParams;
use crate::api::sampling_params::SamplingParams;
use crate::results::output::{Finish, Output, OutputQueue};
use crate::{Budget, Engine, EngineHandle, Prompt, Sink};
use base::error::{Error, Result};
use base::limits;
use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// How far [`Engine::generate`] has come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Progress {
    /// Completions that have ended, including those of refused prompts.
    pub finished: usize,
    /// Completions of all prompts.
    pub total: usize,
    /// Prompt tokens computed per second, by the last passes that had any.
    pub prefill_tokens_per_s: f64,
    /// Tokens generated per second, by the last passes that had any.
    pub decode_tokens_per_s: f64,
    /// Microseconds since the call began.
    pub elapsed_us: u64,
    /// Prompt tokens computed since the call began.
    pub prompt_tokens: u64,
    /// Tokens generated since the call began.
    pub generated_tokens: u64,
}

/// The prompts of one call, and their results.
struct GenerateCall<'s> {
    /// The completions of the first prompt, then those of the next.
    results: Vec<Output>,
    /// Where the results of each prompt begin, and where all end. `[prompts + 1]`
    starts: Vec<usize>,
    /// The requests that have not ended, by id.
    owners: HashMap<u64, Owner>,
    /// Completions of `owners` that have not ended.
    unfinished: usize,
    finished: usize,
    /// Receives the outputs of all other requests; `None` leaves them for polling.
    others: Option<&'s mut Sink<'s>>,
}

/// A request of a call.
struct Owner {
    /// Index of its first result.
    start: usize,
    /// Completions that have not ended.
    left: usize,
}

/// Tokens per second; newer passes have greater weight.
#[derive(Default)]
struct Rate {
    tokens: f64,
    seconds: f64,
}

/// What [`Engine::generate_each`] has to know of a prompt before its turn comes.
#[derive(Clone, Copy, Debug)]
pub struct PromptResults {
    /// Echoed in its results.
    pub tag: u64,
    /// Its results.
    pub results: u32,
}

/// Returns a prompt and its options when its turn comes; `None` if it cannot run, and its results stay empty.
pub type NextPrompt<'a, 'p> = dyn FnMut(usize) -> Option<(Prompt<'p>, Arc<CheckedParams>)> + 'a;

/// Most sequences of one call that wait in the engine. More prompts are added as these begin to run.
const WAITING_MAX: usize = 1 << 14;

impl Engine {
    /// Completes all `prompts` and returns when the last one has ended: all tokens and text of each completion, those of the
    /// first prompt before those of the next. `params` has no entry (the defaults of the model), one entry for all prompts, or
    /// one entry per prompt.
    ///
    /// The results of a refused prompt have [`Finish::Error`], and the others continue. Requests that are in the engine
    /// already run as well, and their outputs stay queued. If there are more prompts than `max_queue`, the rest is added as
    /// requests begin to run. `progress` is called after each pass; when it breaks, all unfinished prompts end with
    /// [`Finish::Cancelled`] and keep the tokens that they have.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for another number of `params`; the errors of [`generate_each`](Self::generate_each).
    pub fn generate(
        &mut self,
        prompts: &[Prompt],
        params: &[SamplingParams],
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Vec<Output>> {
        if params.len() > 1 && params.len() != prompts.len() {
            return Err(Error::Option {
                field: "num_options",
                value: params.len().to_string(),
                wanted: "0, 1 or the number of prompts",
            });
        }
        let handle = self.handle().clone();
        let default = if params.is_empty() { Some(handle.default_params()) } else { None };
        let of = |prompt: usize| default.as_ref().unwrap_or_else(|| params.get(prompt).unwrap_or(&params[0]));
        let prompts_to_run = |prompt| PromptResults { tag: of(prompt).tag, results: of(prompt).results() as u32 };
        let prompts_to_run: Vec<PromptResults> = (0..prompts.len()).map(prompts_to_run).collect();
        let mut refused = Vec::new();
        let mut ask = |prompt: usize| match handle.check(of(prompt).clone()) {
            Ok(options) => Some((prompts[prompt], Arc::new(options))),
            Err(error) => {
                refused.push((prompt, Arc::new(error)));
                None
            }
        };
        let mut results = self.generate_each(&prompts_to_run, &mut ask, None, progress)?;
        let starts: Vec<usize> = starts(&prompts_to_run).collect();
        for (prompt, error) in refused {
            for result in &mut results[starts[prompt]..starts[prompt + 1]] {
                result.finish = Some(Finish::Error(error.clone()));
            }
        }
        Ok(results)
    }

    /// [`generate`](Self::generate) for prompts that `ask` returns when their turn comes. The outputs of requests that are in the
    /// engine already go to `others`, as in [`step_with`](Self::step_with), or stay queued without it.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] and [`Error::OutOfMemory`] for too many results. After any other error, the engine cannot continue.
    pub fn generate_each<'s>(
        &mut self,
        prompts_to_run: &[PromptResults],
        ask: &mut NextPrompt,
        others: Option<&'s mut Sink<'s>>,
        progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Vec<Output>> {
        let started = Instant::now();
        let mut call = GenerateCall::new(prompts_to_run, others)?;
        let (mut prefill, mut decode) = (Rate::default(), Rate::default());
        let (mut prompt_tokens, mut generated_tokens) = (0, 0);
        let mut added = 0;
        while call.finished < call.results.len() {
            added = call.add(self.handle(), ask, added);
            let report = self.work(Budget::OnePass, &mut |outputs, handle| call.deliver(outputs, handle))?;
            prefill.observe(report.prefill_tokens, report.elapsed_us);
            decode.observe(report.decode_tokens, report.elapsed_us);
            prompt_tokens += u64::from(report.prefill_tokens);
            generated_tokens += u64::from(report.decode_tokens);
            let now = Progress {
                finished: call.finished,
                total: call.results.len(),
                prefill_tokens_per_s: prefill.per_second(),
                decode_tokens_per_s: decode.per_second(),
                elapsed_us: started.elapsed().as_micros() as u64,
                prompt_tokens,
                generated_tokens,
            };
            if progress(&now).is_break() {
                self.cancel_rest(&mut call, added)?;
                break;
            }
        }
        Ok(call.results)
    }

    /// Ends the prompts that `call` has not finished; those from `added` on never became requests.
    fn cancel_rest(&mut self, call: &mut GenerateCall<'_>, added: usize) -> Result<()> {
        for &id in call.owners.keys() {
            // Another thread may have cancelled it already.
            let _ = self.handle().cancel(id);
        }
        let unborn = call.starts[added];
        for result in &mut call.results[unborn..] {
            result.finish = Some(Finish::Cancelled);
        }
        self.take_inbox(Intake::All);
        self.publish(&mut |outputs, handle| call.deliver(outputs, handle));
        // Sequences with a row in a pass in flight end with that pass.
        while !call.owners.is_empty() {
            self.work(Budget::OnePass, &mut |outputs, handle| call.deliver(outputs, handle))?;
        }
        Ok(())
    }
}

/// Where the results of each prompt begin, and where all end. `[prompts + 1]`
fn starts(prompts_to_run: &[PromptResults]) -> impl Iterator<Item = usize> {
    let ends = prompts_to_run.iter().scan(0, |end, one| {
        *end += one.results as usize;
        Some(*end)
    });
    std::iter::once(0).chain(ends)
}

impl<'s> GenerateCall<'s> {
    fn new(prompts_to_run: &[PromptResults], others: Option<&'s mut Sink<'s>>) -> Result<GenerateCall<'s>> {
        let total = prompts_to_run.iter().map(|one| one.results as usize).sum();
        if total > limits::QUEUED_COMPLETIONS {
            let (limit, name) = (limits::QUEUED_COMPLETIONS, "NVLLM_MAX_QUEUED_COMPLETIONS");
            return Err(Error::Limit { field: "the number of completions of all prompts", found: total, limit, name });
        }
        let mut results = Vec::new();
        results.try_reserve_exact(total).map_err(|_| Error::OutOfMemory {
            what: "the results",
            bytes: (total * size_of::<Output>()) as u64,
            knob: "num_prompts or n",
        })?;
        for &PromptResults { tag, results: count } in prompts_to_run {
            results.extend((0..count).map(|index| Output { tag, index, ..Output::default() }));
        }
        Ok(GenerateCall {
            results,
            starts: starts(prompts_to_run).collect(),
            owners: HashMap::new(),
            unfinished: 0,
            finished: 0,
            others,
        })
    }

    /// Adds prompts from `next` on until enough sequences wait; returns the first prompt that was not added.
    fn add(&mut self, handle: &EngineHandle, ask: &mut NextPrompt, mut next: usize) -> usize {
        while next + 1 < self.starts.len() && (self.unfinished < WAITING_MAX || handle.waiting() < WAITING_MAX) {
            let (start, end) = (self.starts[next], self.starts[next + 1]);
            // The queue gets room as requests begin to run; if nothing waits or runs, it never does.
            if !handle.has_room((end - start) as u32) && !handle.is_idle() {
                return next;
            }
            let refused = match ask(next) {
                None => None,
                Some((prompt, options)) => match handle.add_checked(prompt, options, Instant::now()) {
                    Ok(id) => {
                        self.owners.insert(id, Owner { start, left: end - start });
                        self.unfinished += end - start;
                        next += 1;
                        continue;
                    }
                    // Beams may need more room than there are results.
                    Err(Error::QueueFull { .. }) if !handle.is_idle() => return next,
                    Err(error) => Some(Arc::new(error)),
                },
            };
            for result in &mut self.results[start..end] {
                result.finish = refused.clone().map(Finish::Error);
            }
            self.finished += end - start;
            next += 1;
        }
        next
    }

    /// Takes the outputs of its own requests, and passes the others on.
    fn deliver(&mut self, outputs: &mut OutputQueue, handle: &EngineHandle) {
        self.receive(outputs);
        if let Some(others) = &mut self.others {
            outputs.drain_into(others, handle);
        }
    }

    /// Takes the outputs of its own requests, and leaves the others for polling.
    fn receive(&mut self, outputs: &mut OutputQueue) {
        while let Some(mut output) = outputs.pop_fresh() {
            let Some(owner) = self.owners.get_mut(&output.request_id) else {
                outputs.keep(output);
                continue;
            };
            let result = &mut self.results[owner.start + output.index as usize];
            result.token_ids.extend_from_slice(&output.token_ids);
            result.text.push_str(&output.text);
            result.embedding.extend_from_slice(&output.embedding);
            result.scores.extend_from_slice(&output.scores);
            result.logprobs.extend(&output.logprobs);
            result.prompt_logprobs.extend(&output.prompt_logprobs);
            result.cumulative_logprob = output.cumulative_logprob;
            result.score = output.score;
            result.request_id = output.request_id;
            result.prompt_tokens = output.prompt_tokens;
            result.cached_tokens = output.cached_tokens;
            result.completion_tokens = output.completion_tokens;
            result.reasoning_tokens = output.reasoning_tokens;
            result.time_to_first_token_us = output.time_to_first_token_us;
            result.finish = output.finish.take();
            if result.finish.is_some() {
                self.finished += 1;
                self.unfinished -= 1;
                owner.left -= 1;
                if owner.left == 0 {
                    self.owners.remove(&output.request_id);
                }
            }
            outputs.recycle(output);
        }
    }
}

impl Rate {
    /// Weight of all earlier passes after one more pass: about the last ten count.
    const MEMORY: f64 = 0.9;

    /// Adds a pass. A pass without such tokens does not change the rate.
    fn observe(&mut self, tokens: u32, elapsed_us: u64) {
        if tokens > 0 {
            self.tokens = self.tokens * Rate::MEMORY + f64::from(tokens);
            self.seconds = self.seconds * Rate::MEMORY + elapsed_us as f64 * 1e-6;
        }
    }

    fn per_second(&self) -> f64 {
        if self.seconds > 0.0 { self.tokens / self.seconds } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_follows_the_last_passes() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_second(), 0.0);
        rate.observe(10, 1_000);
        rate.observe(0, 9_000_000);
        assert!((rate.per_second() - 10_000.0).abs() < 1e-6);
        for _ in 0..100 {
            rate.observe(1, 1_000);
        }
        assert!((rate.per_second() - 1_000.0).abs() < 1.0);
    }
}
