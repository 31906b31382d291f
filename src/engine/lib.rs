//! The engine: requests in, outputs out, one step at a time.
//!
//! An engine has two sides. [`EngineHandle`] may be used from any thread: it checks and queues requests, cancels them and
//! reads statistics. [`Engine`] is the side that works, used by one thread at a time.
//!
//! A step drains the inbox of the handle, lets the scheduler fill a [`Batch`], submits it to the runner, collects the tokens
//! and turns them into outputs. Where the runner takes a second pass while the first is in flight, it is scheduled and submitted
//! before the first is collected, so that the device need not wait for the host.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod adjustments;
mod api;
mod dry;
pub mod follower;
mod open;
mod results;
mod saved_prefix;
mod schedule;

pub use api::generate::{NextPrompt, Progress, PromptResults};
pub use api::handle::{EngineHandle, Waited};
pub use api::{beam_search, request, sampling_params};
pub use results::{logprobs, output};
pub use runner::options;
pub use saved_prefix::CachedPrefix;
pub use schedule::blocks::CacheCounts;

use api::handle::TextFiles;
use api::inbox::{Cancel, Intake};
use base::TokenId;
use base::error::{Error, Result, room};
use compute::batch::Batch;
use follower::FollowerEngine;
use options::PrefixCache;
use output::{Finish, Output, OutputQueue, Stats, StepReport};
use request::Arrival;
use results::accept::Postprocessor;
use runner::{Loaded, Runner};
use schedule::deadlines::Deadlines;
use schedule::pass_cost::PassCost;
use schedule::scheduler::{Pass, Scheduler};
use schedule::sequence::{Sequence, SequenceKey};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use text::tokenizer::Tokenizer;

/// The side of an engine that schedules and runs passes.
pub struct Engine {
    handle: Arc<EngineHandle>,
    runner: Box<dyn Runner>,
    scheduler: Scheduler,
    deadlines: Deadlines,
    /// Passes in flight, the oldest first.
    in_flight: VecDeque<Pass>,
    /// Passes that are not in flight, whose memory is used again.
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

/// A prompt as the caller gives it.
#[derive(Clone, Copy, Debug)]
pub enum Prompt<'a> {
    /// Text. Special tokens that are spelled out in it become tokens.
    Text(&'a str),
    /// A pair of texts, for models that read both at once.
    Pair(&'a str, &'a str),
    /// Token ids.
    Tokens(&'a [TokenId]),
}

/// How long one call of [`Engine::step`] works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Budget {
    /// Runs one pass to its end. A pass that an earlier call began is finished and counts.
    OnePass,
    /// Runs until the time is spent, and may return in the middle of a pass. Runs at least one stage of a pass.
    Time(Duration),
}

/// An engine that was opened.
pub enum Opened {
    /// It takes requests.
    Leader(Box<Engine>),
    /// It computes what process 0 schedules.
    Follower(Box<FollowerEngine>),
}

/// Host-side settings that no runner needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineLimits {
    /// Sequences that may wait; `None` is no limit.
    pub max_queue: Option<usize>,
    /// Whether blocks are shared between requests with the same prefix.
    pub prefix_cache: PrefixCache,
    /// Seed of requests without one.
    pub seed: u64,
}

/// Whether the oldest pass in flight was finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PassEnd {
    Reached,
    DeadlineFirst,
}

/// The fraction 1 / `RETURN_SHARE` of a time budget is reserved for what follows the work of the device: outputs, and the return to
/// the caller.
const RETURN_SHARE: u32 = 32;

/// Time that draining the inbox between two passes may take.
const INTAKE_TIME: Duration = Duration::from_micros(500);

/// The fraction 1 / `LATE_SHARE` of a time budget goes to masks that were late, before anything else.
const LATE_SHARE: u32 = 4;

/// How long a call without a time budget waits for a late mask before it drains the inbox again.
const LATE_WAIT: Duration = Duration::from_millis(20);

/// Called with each output during a step. `Break` cancels the request of the output.
pub type Sink<'a> = dyn FnMut(&Output) -> ControlFlow<()> + 'a;

impl Engine {
    /// An engine over an opened runner, without tokenizer and chat template: it accepts only token ids.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    pub fn with_runner(loaded: Loaded, limits: EngineLimits) -> Engine {
        Engine::assemble(loaded, limits, TextFiles::default()).expect("there is memory for an engine")
    }

    /// Like [`with_runner`](Self::with_runner), with a tokenizer.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    pub fn with_tokenizer(loaded: Loaded, limits: EngineLimits, tokenizer: Tokenizer) -> Engine {
        let text = TextFiles { tokenizer: Some(Arc::new(tokenizer)), ..TextFiles::default() };
        Engine::assemble(loaded, limits, text).expect("there is memory for an engine")
    }

    fn assemble(loaded: Loaded, limits: EngineLimits, text: TextFiles) -> Result<Engine> {
        let Loaded { runner, info } = loaded;
        let limits = match info.limits.whole_rows {
            // No later pass reads keys and values.
            true => EngineLimits { prefix_cache: PrefixCache::Off, ..limits },
            false => limits,
        };
        let mut engine = Engine {
            scheduler: Scheduler::new(info.limits, info.num_kv_blocks, limits.prefix_cache, info.window)?
                .with_states(info.states)?
                .with_windows(info.windowed)?,
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
            handle: EngineHandle::new(info, limits, text, runner.peers()),
            runner,
        };
        engine.publish_stats();
        Ok(engine)
    }

    /// The side of this engine that other threads may use.
    pub fn handle(&self) -> &Arc<EngineHandle> {
        &self.handle
    }

    /// Takes in new requests, runs passes for `budget`, and queues outputs. Returns at once when there is nothing to do.
    ///
    /// A failure of one request is an output of that request.
    ///
    /// # Errors
    ///
    /// [`Error::Device`], [`Error::Peer`] and [`Error::PassLost`]: a pass was not computed, and the engine cannot be used any more.
    pub fn step(&mut self, budget: Budget) -> Result<StepReport> {
        self.work(budget, &mut |outputs, _| outputs.keep_fresh())
    }

    /// Like [`step`](Self::step), but passes each output to `sink` after the pass that produced it, and queues none.
    ///
    /// Outputs that an earlier call queued come first. When `sink` breaks, the request of the output is cancelled.
    pub fn step_with(&mut self, budget: Budget, sink: &mut Sink) -> Result<StepReport> {
        self.work(budget, &mut |outputs, handle| outputs.drain_into(sink, handle))
    }

    /// Removes from the cache the prefixes that no sequence holds and that are not pinned.
    pub fn reset_prefix_cache(&mut self) {
        // Prompts that were released before this call are not pinned any more.
        self.take_inbox(Intake::All);
        self.scheduler.reset_prefix_cache();
    }

    /// Gives back the memory of all KV blocks that no sequence and no pin holds, as far as it can be; returns the bytes. What these blocks
    /// held is not cached any more, unless no byte can be given back. The blocks get memory again when requests need them.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where several ranks compute, and [`Error::Device`].
    pub fn trim(&mut self) -> Result<u64> {
        let ranks = self.handle.model_info().num_ranks;
        if ranks > 1 {
            let what = format!(
                "giving KV cache memory back takes an engine of one rank, and this one has {ranks}: set tensor_parallel_size to 1"
            );
            return Err(Error::Unsupported { what });
        }
        // Requests that were cancelled and prompts that were released before this call hold nothing.
        self.take_inbox(Intake::All);
        let unused = self.scheduler.unused_blocks()?;
        let bytes = self.runner.release_blocks(&unused)?;
        if bytes > 0 {
            self.scheduler.pool().withdraw(&unused);
        }
        self.publish_stats();
        Ok(bytes)
    }

    /// How many tokens each expert of a layer was chosen for since the engine was opened; none for a layer without experts. Passes in flight may count.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] where [`expert_counting`](options::EngineOptions::expert_counting) is off or there is no such layer, and [`Error::Device`].
    pub fn expert_tokens(&mut self, layer: usize) -> Result<Vec<u64>> {
        let layers = self.handle.model_info().num_layers;
        if layer >= layers {
            let value = format!("{layer}, and the model has {layers} layers");
            return Err(Error::Option { field: "layer", value, wanted: "below the number of layers" });
        }
        self.runner.expert_counts(layer)?.ok_or(Error::Option {
            field: "expert_statistics",
            value: "0".to_owned(),
            wanted: "1 in an engine that counts the tokens of its experts",
        })
    }

    /// Removes the oldest output from the queue. It stays valid until the next call of this method.
    pub fn next_output(&mut self) -> Option<&Output> {
        let Engine { handle, outputs, .. } = self;
        let waiting = outputs.len().saturating_sub(1);
        let output = outputs.show();
        handle.publish_outputs(waiting);
        output
    }

    /// Lets `time` pass for `max_wait` of the requests that wait, without waiting for it. For tests, which need no quiet machine then.
    pub fn advance_max_wait(&mut self, time: Duration) {
        self.deadlines.advance(time);
    }

    /// Makes as many passes as `budget` allows: schedule, run, postprocess. Calls `deliver` after each pass and at the end.
    fn work(&mut self, budget: Budget, deliver: &mut dyn FnMut(&mut OutputQueue, &EngineHandle)) -> Result<StepReport> {
        let started = Instant::now();
        // A time that the clock cannot represent is no limit.
        let deadline = match budget {
            Budget::OnePass => None,
            Budget::Time(time) => started.checked_add(time - time / RETURN_SHARE),
        };
        let mut report = StepReport::default();
        loop {
            let time_left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // Requests that arrive at the end of a call wait for the next one.
            if report.passes == 0 || time_left.is_none_or(|left| left > INTAKE_TIME) {
                self.take_inbox(Intake::OnePass);
            }
            self.settle_late(deadline);
            // The first pass of a call begins in any case, so that small budgets make progress.
            let latest = deadline.filter(|_| report.passes > 0 || !self.in_flight.is_empty());
            self.begin_passes(budget, latest).map_err(pass_lost)?;
            if self.in_flight.is_empty() && self.wait_for_late(deadline) {
                continue;
            }
            if self.in_flight.is_empty()
                || self.finish_pass(deadline, &mut report).map_err(pass_lost)? == PassEnd::DeadlineFirst
            {
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

    /// Takes in the requests and cancels of other threads, and ends requests that have waited for too long, as many as `intake`
    /// allows.
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
            // A request that was cancelled before a step took it in passes through the scheduler, so that it ends like any other.
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

    /// Continues or ends the sequences whose masks were late.
    fn settle_late(&mut self, deadline: Option<Instant>) {
        let Engine { handle, scheduler, outputs, ended, .. } = self;
        let Some(late) = handle.late_masks().filter(|_| scheduler.has_late()) else { return };
        let now = Instant::now();
        late.begin(deadline.map(|deadline| now + deadline.saturating_duration_since(now) / LATE_SHARE));
        let mut postprocessor = Postprocessor::new(handle, outputs, ended);
        scheduler.settle(|sequence, finish| postprocessor.end(sequence, finish));
    }

    /// Waits for a late mask while there is nothing else to do. Returns `false` when there is none or the time is over.
    fn wait_for_late(&mut self, deadline: Option<Instant>) -> bool {
        let Some(late) = self.handle.late_masks().filter(|_| self.scheduler.has_late()) else { return false };
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return false;
        }
        late.wait(deadline.unwrap_or(now + LATE_WAIT));
        true
    }

    /// Schedules and submits as many passes as the runner accepts, while there is work and each is likely to be submitted
    /// before `latest`.
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
            let Engine { scheduler, runner, batch, .. } = self;
            scheduler.schedule(token_budget, &mut |blocks| runner.restore_blocks(blocks), &mut pass, batch)?;
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

    /// Adds a finished pass to the statistics, to `report`, and to the estimate of the cost of a pass.
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

    /// Delivers new outputs, and publishes the state of the engine to other threads.
    fn publish(&mut self, deliver: &mut dyn FnMut(&mut OutputQueue, &EngineHandle)) {
        deliver(&mut self.outputs, &self.handle);
        self.publish_stats();
    }

    /// The same without outputs.
    fn publish_stats(&mut self) {
        let Engine { handle, runner, scheduler, outputs, in_flight, stats, ended, .. } = self;
        stats.running = scheduler.running() as u32;
        stats.waiting = scheduler.waiting() as u32;
        stats.kv_blocks_used = scheduler.used_blocks() as u32;
        stats.kv_cache_bytes_mapped = runner.kv_bytes_mapped();
        stats.cached_tokens = scheduler.cached_tokens();
        stats.preemptions = scheduler.preemptions();
        stats.prefix_cache = scheduler.cache_counts();
        handle.publish(stats, outputs.len(), in_flight.len(), ended);
    }
}

/// The error of a pass that could not be submitted or collected.
///
/// A pass is not withdrawn after that: scheduling it has preempted sequences, taken over blocks and block copies, and replaced
/// the sample index by which each sequence finds its awaited token in the pass before.
fn pass_lost(reason: Error) -> Error {
    match reason {
        Error::Device { .. } | Error::Peer { .. } => reason,
        _ => Error::PassLost { reason: Box::new(reason) },
    }
}
