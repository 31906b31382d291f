//! The engine: requests in, outputs out, one step at a time.
//!
//! An engine has two sides. [`Front`] may be used from any thread: it checks and queues requests, cancels them and reads
//! statistics. [`Engine`] is the side that works, used by one thread at a time.
//!
//! A step drains the front's inbox, lets the scheduler fill a [`Batch`], submits it to the runner, collects the tokens and
//! turns them into outputs. The scheduler changes a sequence in flight only when its pass is collected, so the same parts
//! can keep one pass in flight while the next is scheduled.

mod block_manager;
pub mod chat_template;
mod deadlines;
mod front;
mod generate;
mod generation_config;
mod open;
pub mod options;
pub mod output;
mod pass_cost;
pub mod sampling_params;
mod scheduler;
mod sequence;
mod stop_strings;
pub mod tokenizer;

pub use front::Front;
pub use generate::Progress;

use crate::batch::{Batch, TokenId};
use crate::error::Result;
use crate::runner::{Loaded, Runner};
use deadlines::Deadlines;
use front::TextFiles;
use options::PrefixCache;
use output::{Finish, Output, OutputQueue, Stats, StepReport};
use pass_cost::PassCost;
use scheduler::{News, Pass, Scheduler};
use sequence::{Place, Sequence};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The side of an engine that works.
pub struct Engine {
    front: Arc<Front>,
    runner: Box<dyn Runner>,
    scheduler: Scheduler,
    deadlines: Deadlines,
    /// The pass in flight; without rows, none is.
    pass: Pass,
    /// Time that the pass in flight has taken so far.
    pass_spent: Duration,
    batch: Batch,
    cost: PassCost,
    outputs: OutputQueue,
    stats: Stats,
    /// Requests that ended since the front heard of it last.
    ended: Vec<u64>,
    arrivals: Vec<Sequence>,
    cancels: Vec<Place>,
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

/// What hears each output during a step. `Break` cancels the output's request.
pub type Sink<'a> = dyn FnMut(&Output) -> ControlFlow<()> + 'a;

impl Engine {
    /// An engine over a runner that is ready: without tokenizer and chat template, so for token ids only.
    pub fn with_runner(loaded: Loaded, limits: EngineLimits) -> Engine {
        Engine::assemble(loaded, limits, TextFiles::default())
    }

    fn assemble(loaded: Loaded, limits: EngineLimits, text: TextFiles) -> Engine {
        let Loaded { runner, info } = loaded;
        Engine {
            runner,
            scheduler: Scheduler::new(info.limits, info.num_kv_blocks, limits.prefix_cache),
            deadlines: Deadlines::default(),
            pass: Pass::with_limits(&info.limits),
            pass_spent: Duration::ZERO,
            batch: Batch::with_limits(&info.limits),
            cost: PassCost::default(),
            outputs: OutputQueue::default(),
            stats: Stats { kv_blocks_total: info.num_kv_blocks as u32, ..Stats::default() },
            ended: Vec::with_capacity(info.limits.rows),
            arrivals: Vec::new(),
            cancels: Vec::new(),
            front: Arc::new(Front::new(info, limits, text)),
        }
    }

    /// The side that other threads may use.
    pub fn front(&self) -> &Arc<Front> {
        &self.front
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
        self.work(budget, &mut |outputs, front| {
            while let Some(output) = outputs.pop() {
                if sink(&output).is_break() {
                    // It may have ended with this very output; then there is nothing left to cancel.
                    let _ = front.cancel(output.request_id);
                }
                outputs.recycle(output);
            }
        })
    }

    /// The oldest output that waits. It stays readable until the next call of this method.
    pub fn next_output(&mut self) -> Option<&Output> {
        let Engine { front, outputs, .. } = self;
        let waiting = outputs.len().saturating_sub(1);
        let output = outputs.show();
        front.publish_outputs(waiting);
        output
    }

    /// Makes as many passes as `budget` allows, and calls `deliver` after each and at the end.
    fn work(&mut self, budget: Budget, deliver: &mut dyn FnMut(&mut OutputQueue, &Front)) -> Result<StepReport> {
        let started = Instant::now();
        // A time too long to be added to the clock never ends.
        let deadline = match budget {
            Budget::OnePass => None,
            Budget::Time(time) => started.checked_add(time),
        };
        let mut report = StepReport::default();
        loop {
            self.take_inbox();
            if !self.pass.is_in_flight() {
                self.begin_pass(budget)?;
            }
            if !self.pass.is_in_flight() || self.finish_pass(deadline, &mut report)? == PassEnd::DeadlineFirst {
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
        report.waiting = self.scheduler.waiting();
        report.in_flight = u32::from(self.pass.is_in_flight());
        report.elapsed_us = started.elapsed().as_micros() as u64;
        Ok(report)
    }

    /// Takes over what other threads asked for, and ends what has waited for too long.
    fn take_inbox(&mut self) {
        self.front.drain(&mut self.arrivals, &mut self.cancels);
        for sequence in self.arrivals.drain(..) {
            if let Some(deadline) = sequence.deadline() {
                self.deadlines.add(deadline, sequence.place);
            }
            self.scheduler.add(sequence);
        }
        for place in self.cancels.drain(..) {
            if let Some(mut sequence) = self.scheduler.cancel(place) {
                sequence.end(Finish::Cancelled, self.front.tokenizer().ok(), self.outputs.begin());
                self.ended.push(place.id());
            }
        }
        while let Some(place) = self.deadlines.pop_missed() {
            if let Some(mut sequence) = self.scheduler.expire(place) {
                sequence.end(Finish::Expired, self.front.tokenizer().ok(), self.outputs.begin());
                self.ended.push(place.id());
            }
        }
    }

    /// Submits the next pass, if there is anything to do.
    fn begin_pass(&mut self, budget: Budget) -> Result<()> {
        let aim = match budget {
            Budget::OnePass => usize::MAX,
            Budget::Time(time) => self.cost.tokens_within(time, self.runner.stages()),
        };
        self.pass.clear();
        self.batch.clear();
        self.scheduler.schedule(aim, &mut self.pass, &mut self.batch);
        if self.pass.is_in_flight() {
            let begun = Instant::now();
            self.runner.submit(&self.batch)?;
            self.pass_spent = begun.elapsed();
        }
        Ok(())
    }

    /// Works on the pass in flight and, when it comes to its end, turns its tokens into outputs.
    fn finish_pass(&mut self, deadline: Option<Instant>, report: &mut StepReport) -> Result<PassEnd> {
        let begun = Instant::now();
        let sampled = self.runner.collect(deadline)?;
        let now = Instant::now();
        self.pass_spent += now.duration_since(begun);
        let Some(sampled) = sampled else { return Ok(PassEnd::DeadlineFirst) };

        let Engine { front, scheduler, pass, outputs, ended, stats, .. } = self;
        let tokenizer = front.tokenizer().ok();
        scheduler.collect(pass, sampled, |sequence, news| {
            let output = outputs.begin();
            match news {
                News::Token(token) => sequence.accept(token, tokenizer, now, output),
                News::Cancelled => sequence.end(Finish::Cancelled, tokenizer, output),
            }
            if output.finish.is_some() {
                ended.push(output.request_id);
            }
        });
        let generated = sampled.len();
        report.passes += 1;
        report.prefill_tokens += pass.prompt_tokens as u32;
        report.decode_tokens += generated as u32;
        stats.steps += 1;
        stats.prompt_tokens += pass.prompt_tokens as u64;
        stats.generated_tokens += generated as u64;
        stats.step_time_us += self.pass_spent.as_micros() as u64;
        self.cost.observe(pass.tokens, self.pass_spent);
        pass.clear();
        Ok(PassEnd::Reached)
    }

    /// Delivers new outputs, and lets other threads know where the engine stands.
    fn publish(&mut self, deliver: &mut dyn FnMut(&mut OutputQueue, &Front)) {
        let Engine { front, scheduler, outputs, stats, ended, .. } = self;
        deliver(outputs, front);
        stats.running = scheduler.running() as u32;
        stats.waiting = scheduler.waiting() as u32;
        stats.kv_blocks_used = scheduler.used_blocks() as u32;
        stats.cached_tokens = scheduler.cached_tokens();
        stats.preemptions = scheduler.preemptions();
        front.publish(stats, outputs.len(), ended);
    }
}
