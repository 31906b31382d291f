//! The engine: requests in, outputs out, one step at a time.
//!
//! An engine has two sides. [`EngineHandle`] may be used from any thread: it checks and queues requests, cancels them and
//! reads statistics. [`Engine`] is the side that works, used by one thread at a time.
//!
//! A step drains the inbox of the handle, lets the scheduler fill a [`Batch`], submits it to the runner, collects the tokens
//! and turns them into outputs. Where the runner takes a second pass while the first is in flight, it is scheduled and submitted
//! before the first is collected, so that the device need not wait for the host.

mod adjustments;
pub mod beam_search;
mod block_manager;
pub mod chat_template;
mod deadlines;
mod generate;
mod generation_config;
mod handle;
mod histogram;
mod inbox;
pub mod logprobs;
mod metrics;
mod open;
pub mod options;
pub mod output;
mod pass_cost;
mod pins;
mod postprocess;
pub mod request;
pub mod sampling_params;
mod saved_prefix;
mod scheduler;
mod sequence;
mod stop_strings;
pub mod structure;
pub mod tokenizer;
mod validation;

pub use generate::{Ask, Asked, Progress};
pub use handle::EngineHandle;
pub use saved_prefix::CachedPrefix;

use crate::batch::{Batch, TokenId};
use crate::error::{Result, room};
use crate::runner::{Loaded, Runner};
use deadlines::Deadlines;
use handle::TextFiles;
use inbox::{Cancel, Intake};
use options::PrefixCache;
use output::{Finish, Output, OutputQueue, Stats, StepReport};
use pass_cost::PassCost;
use postprocess::Postprocessor;
use request::Arrival;
use scheduler::{Pass, Scheduler};
use sequence::{Sequence, SequenceKey};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokenizer::Tokenizer;

/// The side of an engine that works.
pub struct Engine {
    handle: Arc<EngineHandle>,
    runner: Box<dyn Runner>,
    scheduler: Scheduler,
    deadlines: Deadlines,
    /// Passes in flight, the oldest first.
    in_flight: VecDeque<Pass>,
    /// Passes that are not.
    idle: Vec<Pass>,
    batch: Batch,
    cost: PassCost,
    outputs: OutputQueue,
    stats: Stats,
    /// Requests of which a completion or beam has ended and the handle was not told yet.
    ended: Vec<u64>,
    arrivals: Vec<Arrival>,
    cancels: Vec<Cancel>,
    unpins: Vec<SequenceKey>,
}

/// A prompt as the caller has it.
#[derive(Clone, Copy, Debug)]
pub enum Prompt<'a> {
    /// Text, whose spelled special tokens become tokens.
    Text(&'a str),
    /// Tokens.
    Tokens(&'a [TokenId]),
}

/// How long one call of [`Engine::step`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// One pass, to its end; one that was begun by an earlier call is finished and counts.
    OnePass,
    /// Until the time is spent, in the middle of a pass if need be; at least one stage of a pass is made.
    Time(Duration),
}

/// Host-side settings that no runner needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Requests that may wait; `None` is no limit.
    pub max_queue: Option<usize>,
    /// Whether blocks are shared between requests with the same prefix.
    pub prefix_cache: PrefixCache,
    /// Seed of requests that bring none.
    pub seed: u64,
}

/// Whether the pass in flight came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassEnd {
    Reached,
    DeadlineFirst,
}

/// One part in so many of a time budget is left for what follows the device's work: outputs, and the way back to the caller.
const RETURN_SHARE: u32 = 32;

/// Time that a pass's part of the inbox may take.
const INTAKE_TIME: Duration = Duration::from_micros(500);

/// One part in so many of a time budget is for masks that were late before anything else is done.
const LATE_SHARE: u32 = 4;

/// How long a call without a time budget waits for a late mask before it looks for new requests and cancellations.
const LATE_WAIT: Duration = Duration::from_millis(20);

/// What hears each output during a step. `Break` cancels the output's request.
pub type Sink<'a> = dyn FnMut(&Output) -> ControlFlow<()> + 'a;

impl Engine {
    /// An engine over a runner that is ready: without tokenizer and chat template, so for token ids only.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    pub fn with_runner(loaded: Loaded, limits: EngineLimits) -> Engine {
        Engine::assemble(loaded, limits, TextFiles::default()).expect("there is memory for an engine")
    }

    /// The same, with a tokenizer.
    pub fn with_tokenizer(loaded: Loaded, limits: EngineLimits, tokenizer: Tokenizer) -> Engine {
        let text = TextFiles { tokenizer: Some(Arc::new(tokenizer)), ..TextFiles::default() };
        Engine::assemble(loaded, limits, text).expect("there is memory for an engine")
    }

    fn assemble(loaded: Loaded, limits: EngineLimits, text: TextFiles) -> Result<Engine> {
        let Loaded { runner, info } = loaded;
        Ok(Engine {
            scheduler: Scheduler::new(info.limits, info.num_kv_blocks, limits.prefix_cache)?,
            deadlines: Deadlines::default(),
            in_flight: VecDeque::with_capacity(runner.depth()),
            idle: (0..runner.depth()).map(|_| Pass::with_limits(&info.limits)).collect::<Result<_>>()?,
            batch: Batch::within(&info.limits)?,
            cost: PassCost::default(),
            outputs: OutputQueue::default(),
            stats: Stats { kv_blocks_total: info.num_kv_blocks as u32, ..Stats::default() },
            ended: room(info.limits.rows, "the sequences that run", "max_num_seqs")?,
            arrivals: Vec::new(),
            cancels: Vec::new(),
            unpins: Vec::new(),
            handle: Arc::new(EngineHandle::new(info, limits, text)),
            runner,
        })
    }

    /// The side of this engine that other threads may use.
    pub fn handle(&self) -> &Arc<EngineHandle> {
        &self.handle
    }

    /// Takes in new requests, works for `budget`, and queues outputs. Returns at once when there is nothing to do.
    ///
    /// A failure of one request is an output of that request; an error here means that the engine cannot go on.
    pub fn step(&mut self, budget: Budget) -> Result<StepReport> {
        self.work(budget, &mut |outputs, _| outputs.keep_fresh())
    }

    /// Like [`step`](Self::step), but hands each output to `sink` after the pass that made it, and queues none.
    ///
    /// Outputs that an earlier call queued come first. When `sink` breaks, the output's request is cancelled.
    pub fn step_with(&mut self, budget: Budget, sink: &mut Sink) -> Result<StepReport> {
        self.work(budget, &mut |outputs, handle| {
            while let Some(output) = outputs.pop() {
                if sink(&output).is_break() {
                    // It may have ended with this very output; then there is nothing left to cancel.
                    let _ = handle.cancel(output.request_id);
                }
                outputs.recycle(output);
            }
        })
    }

    /// Forgets the prefixes that no sequence holds and that are not pinned, so that later prompts are computed anew.
    pub fn reset_prefix_cache(&mut self) {
        // What was released before this call is not pinned any more.
        self.take_inbox(Intake::All);
        self.scheduler.reset_prefix_cache();
    }

    /// The oldest output that waits. It stays readable until the next call of this method.
    pub fn next_output(&mut self) -> Option<&Output> {
        let Engine { handle, outputs, .. } = self;
        let waiting = outputs.len().saturating_sub(1);
        let output = outputs.show();
        handle.publish_outputs(waiting);
        output
    }

    /// Makes as many passes as `budget` allows: schedule, run, postprocess. Calls `deliver` after each pass and at the end.
    fn work(&mut self, budget: Budget, deliver: &mut dyn FnMut(&mut OutputQueue, &EngineHandle)) -> Result<StepReport> {
        let started = Instant::now();
        // A time too long to be added to the clock never ends.
        let deadline = match budget {
            Budget::OnePass => None,
            Budget::Time(time) => started.checked_add(time - time / RETURN_SHARE),
        };
        let mut report = StepReport::default();
        loop {
            let time_left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // What arrives at the end of a call waits for the next one.
            if report.passes == 0 || time_left.is_none_or(|left| left > INTAKE_TIME) {
                self.take_inbox(Intake::OnePass);
            }
            self.settle_late(deadline);
            // A call that has done nothing yet begins a pass in any case, so that small budgets get on, too.
            let latest = deadline.filter(|_| report.passes > 0 || !self.in_flight.is_empty());
            self.begin_passes(budget, latest)?;
            if self.in_flight.is_empty() && self.wait_for_late(deadline) {
                continue;
            }
            if self.in_flight.is_empty() || self.finish_pass(deadline, &mut report)? == PassEnd::DeadlineFirst {
                break;
            }
            if budget == Budget::OnePass || deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                break;
            }
            self.publish(deliver);
        }
        self.publish(deliver);
        report.outputs = self.outputs.len();
        report.running = self.scheduler.running();
        report.waiting = self.handle.waiting();
        report.in_flight = self.in_flight.len() as u32;
        report.elapsed_us = started.elapsed().as_micros() as u64;
        Ok(report)
    }

    /// Takes over what other threads asked for, and ends what has waited for too long: as much of it as `intake` says.
    fn take_inbox(&mut self, intake: Intake) {
        let Engine { handle, scheduler, deadlines, outputs, ended, arrivals, cancels, unpins, .. } = self;
        handle.drain(intake, arrivals, cancels, unpins);
        for arrival in arrivals.drain(..) {
            for sequence in arrival.into_sequences() {
                if let Some(deadline) = sequence.deadline() {
                    deadlines.add(deadline, sequence.key);
                }
                scheduler.add(sequence);
            }
        }
        for key in unpins.drain(..) {
            scheduler.unpin(key);
        }
        let mut postprocessor = Postprocessor::new(handle, outputs, ended);
        let mut end = |mut sequence: Sequence, finish: Finish| postprocessor.end(&mut sequence, finish);
        for Cancel { key, arrival } in cancels.drain(..) {
            // One that was cancelled before any step saw it passes through, so that it ends like any other.
            arrival.into_iter().flat_map(Arrival::into_sequences).for_each(|sequence| scheduler.add(sequence));
            scheduler.cancel_request(key, &Finish::Cancelled, &mut end);
        }
        for _ in 0..intake.entries() {
            let Some(key) = deadlines.pop_missed() else { break };
            scheduler.expire(key);
        }
        for _ in 0..intake.entries() {
            let Some((sequence, finish)) = scheduler.next_leaving() else { break };
            end(sequence, finish);
        }
    }

    /// Lets the sequences go on, or end, whose masks were late.
    fn settle_late(&mut self, deadline: Option<Instant>) {
        let Engine { handle, scheduler, outputs, ended, .. } = self;
        let Some(late) = handle.late_masks().filter(|_| scheduler.has_late()) else { return };
        let now = Instant::now();
        late.begin(deadline.map(|deadline| now + deadline.saturating_duration_since(now) / LATE_SHARE));
        let mut postprocessor = Postprocessor::new(handle, outputs, ended);
        scheduler.settle(|sequence, finish| postprocessor.end(sequence, finish));
    }

    /// Waits for a late mask where nothing else is to be done. Answers `false` when there is none or the time is over.
    fn wait_for_late(&mut self, deadline: Option<Instant>) -> bool {
        let Some(late) = self.handle.late_masks().filter(|_| self.scheduler.has_late()) else { return false };
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return false;
        }
        late.wait(deadline.unwrap_or(now + LATE_WAIT));
        true
    }

    /// Submits as many passes as the runner takes, while there is anything to do and each is likely to be submitted before
    /// `latest`.
    fn begin_passes(&mut self, budget: Budget, latest: Option<Instant>) -> Result<()> {
        while let Some(mut pass) = self.idle.pop() {
            let begun = Instant::now();
            if latest.is_some_and(|latest| begun + self.cost.beginning() > latest) {
                self.idle.push(pass);
                break;
            }
            let token_budget = match budget {
                Budget::OnePass => usize::MAX,
                Budget::Time(time) => self.cost.tokens_within(time, self.runner.stages()),
            };
            pass.clear();
            self.batch.clear();
            self.scheduler.schedule(token_budget, &mut pass, &mut self.batch);
            if pass.is_empty() {
                self.idle.push(pass);
                break;
            }
            self.runner.submit(&self.batch)?;
            self.cost.observe_beginning(begun.elapsed());
            self.in_flight.push_back(pass);
        }
        Ok(())
    }

    /// Runs the oldest pass in flight, at most until `deadline`, and postprocesses it when it is done.
    fn finish_pass(&mut self, deadline: Option<Instant>, report: &mut StepReport) -> Result<PassEnd> {
        let Engine { handle, runner, scheduler, in_flight, outputs, ended, .. } = self;
        let Some(sampled) = runner.collect(deadline)? else { return Ok(PassEnd::DeadlineFirst) };
        let pass = in_flight.pop_front().expect("a pass is in flight");
        let now = Instant::now();
        if let Some(late) = handle.late_masks() {
            late.begin(deadline);
        }
        let mut postprocessor = Postprocessor::new(handle, outputs, ended);
        scheduler.collect(&pass, &sampled, |sequence, event| postprocessor.on_event(sequence, event, now));
        let generated_tokens = postprocessor.generated_tokens();
        self.count_pass(&pass, generated_tokens, report);
        self.idle.push(pass);
        Ok(PassEnd::Reached)
    }

    /// Adds a finished pass to the statistics, to `report`, and to what is known of the cost of a pass.
    fn count_pass(&mut self, pass: &Pass, generated_tokens: u32, report: &mut StepReport) {
        report.passes += 1;
        report.prefill_tokens += pass.prompt_tokens as u32;
        report.decode_tokens += generated_tokens;
        let took = self.runner.pass_time();
        self.stats.steps += 1;
        self.stats.prompt_tokens += pass.prompt_tokens as u64;
        self.stats.generated_tokens += u64::from(generated_tokens);
        self.stats.step_time_us += took.as_micros() as u64;
        self.handle.metrics().count_pass(pass.rows(), took);
        self.cost.observe(pass.tokens, took);
    }

    /// Delivers new outputs, and lets other threads know where the engine stands.
    fn publish(&mut self, deliver: &mut dyn FnMut(&mut OutputQueue, &EngineHandle)) {
        let Engine { handle, scheduler, outputs, stats, ended, .. } = self;
        deliver(outputs, handle);
        stats.running = scheduler.running() as u32;
        stats.waiting = scheduler.waiting() as u32;
        stats.kv_blocks_used = scheduler.used_blocks() as u32;
        stats.cached_tokens = scheduler.cached_tokens();
        stats.preemptions = scheduler.preemptions();
        stats.prefix_cache = scheduler.cache_counts();
        handle.publish(stats, outputs.len(), ended);
    }
}
