//! The two threads that keep masks from holding a step up: one computes masks, and the other stops a mask when its time is over, on
//! the thread that steps after the rest of its call, on the thread of masks after [`limits::MASK_MS`].
//!
//! Both exist from the first request with a structure to the end of the engine, which waits for them: whatever they do can
//! be stopped. They know neither the engine nor its sequences.

use super::matcher::{Compiled, Matcher, Wanted};
use base::TokenId;
use base::error::Result;
use llguidance::CancellationHandle;
use os::lock::{Condvar, Mutex};
use os::thread;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What is freed on the thread of masks: tables of megabytes, which take milliseconds.
pub(super) enum Garbage {
    Matcher(#[expect(dead_code, reason = "is dropped")] Box<Matcher>),
    Compiled(#[expect(dead_code, reason = "is dropped")] Arc<Compiled>),
}

/// The matcher, all taken in, or why it cannot.
pub(super) type Outcome = std::result::Result<Box<Matcher>, String>;

/// Time that the masks after a pass have in any case, so that small budgets get on, too.
const TIME_MIN: Duration = Duration::from_micros(500);

/// Time that they have at most: beyond that other sequences should not wait for them.
const TIME_MAX: Duration = Duration::from_millis(5);

/// The masks of an engine that come late, and its clock.
pub struct LateMasks {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    born: Instant,
    /// When the thread that steps has to stop, in nanoseconds since `born`.
    until: AtomicU64,
    watch: Mutex<Watch>,
    watch_changed: Condvar,
    queue: Mutex<Queue>,
    queue_changed: Condvar,
    /// A mask has come to its end.
    job_done: Condvar,
}

#[derive(Default)]
struct Watch {
    /// What is to be stopped, and when: one mask per [`Worker`].
    armed: [Option<(Instant, CancellationHandle)>; 2],
    rest: Rest,
    is_closed: bool,
}

/// A thread that computes masks.
#[derive(Clone, Copy)]
enum Worker {
    /// The one that steps.
    Step,
    /// The one that does nothing else.
    Masks,
}

/// How long the watching thread sleeps.
#[derive(Default)]
enum Rest {
    #[default]
    Awake,
    Until(Instant),
    UntilCalled,
}

#[derive(Default)]
struct Queue {
    masks: VecDeque<Arc<LateMask>>,
    garbage: Vec<Garbage>,
    /// Jobs that ended since the engine looked.
    done: usize,
    is_closed: bool,
    /// What the working thread works on.
    current: Option<Arc<LateMask>>,
}

/// A matcher that takes in tokens on another thread.
pub(super) struct LateMask {
    compiled: Arc<Compiled>,
    tokens: Vec<TokenId>,
    wanted: Wanted,
    state: Mutex<MaskState>,
}

enum MaskState {
    Waits(Option<Box<Matcher>>),
    Runs(Option<CancellationHandle>),
    Done(Outcome),
    /// Cancelled, or the result was taken.
    Over,
}

impl LateMasks {
    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// [`Error::NoThread`](base::error::Error::NoThread).
    pub(super) fn start() -> Result<LateMasks> {
        let shared = Arc::new(Shared {
            born: Instant::now(),
            until: AtomicU64::new(u64::MAX),
            watch: Mutex::default(),
            watch_changed: Condvar::new(),
            queue: Mutex::default(),
            queue_changed: Condvar::new(),
            job_done: Condvar::new(),
        });
        let mut masks = LateMasks { shared: shared.clone(), threads: Vec::new() };
        let watching = shared.clone();
        masks.threads.push(thread::spawn("watch", thread::STACK_BYTES, move || watching.watch_for_ever())?);
        masks.threads.push(thread::spawn("masks", thread::STACK_BYTES, move || shared.work_for_ever())?);
        Ok(masks)
    }

    /// Gives the masks that the thread that steps finds from now on the time until `deadline`, within limits.
    pub fn begin(&self, deadline: Option<Instant>) {
        let now = Instant::now();
        let until = deadline.unwrap_or(now + TIME_MAX).clamp(now + TIME_MIN, now + TIME_MAX);
        self.shared.until.store(until.duration_since(self.shared.born).as_nanos() as u64, Relaxed);
    }

    /// Whether that time is over.
    pub(super) fn is_time_over(&self) -> bool {
        self.shared.born.elapsed().as_nanos() as u64 >= self.shared.until.load(Relaxed)
    }

    /// Runs `work`, and stops `matcher` when its time is over.
    pub(super) fn watch<T>(&self, handle: Option<CancellationHandle>, work: impl FnOnce() -> T) -> T {
        let until = self.shared.born.checked_add(Duration::from_nanos(self.shared.until.load(Relaxed)));
        self.shared.watch(Worker::Step, handle.zip(until), work)
    }

    /// Lets another thread take in `tokens`, after what `matcher` has taken in; without one, from the beginning.
    pub(super) fn hand_over(
        &self,
        compiled: &Arc<Compiled>,
        matcher: Option<Box<Matcher>>,
        tokens: &[TokenId],
        wanted: Wanted,
    ) -> Arc<LateMask> {
        let state = Mutex::new(MaskState::Waits(matcher));
        let mask = Arc::new(LateMask { compiled: compiled.clone(), tokens: tokens.to_vec(), wanted, state });
        self.shared.queue.lock().masks.push_back(mask.clone());
        self.shared.queue_changed.notify_one();
        mask
    }

    /// Lets another thread free something.
    pub(super) fn discard(&self, garbage: Garbage) {
        self.shared.queue.lock().garbage.push(garbage);
        self.shared.queue_changed.notify_one();
    }

    /// Waits until a mask that was handed over has come to its end since the last call, or until `deadline`.
    pub fn wait(&self, deadline: Instant) {
        let mut queue = self.shared.queue.lock();
        while queue.done == 0 && (queue.current.is_some() || !queue.masks.is_empty()) {
            let (guard, is_over) = self.shared.job_done.wait_until(queue, deadline);
            queue = guard;
            if is_over {
                break;
            }
        }
        queue.done = 0;
    }
}

impl Drop for LateMasks {
    fn drop(&mut self) {
        self.shared.watch.lock().is_closed = true;
        self.shared.watch_changed.notify_one();
        let mut queue = self.shared.queue.lock();
        queue.is_closed = true;
        for mask in queue.masks.drain(..) {
            mask.abandon();
        }
        if let Some(mask) = &queue.current {
            mask.abandon();
        }
        drop(queue);
        self.shared.queue_changed.notify_one();
        for thread in self.threads.drain(..) {
            // A panic of these threads is in the log.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Runs `work`, and cancels `handle` at the time beside it when `work` takes longer.
    fn watch<T>(&self, worker: Worker, stop: Option<(CancellationHandle, Instant)>, work: impl FnOnce() -> T) -> T {
        let Some((handle, until)) = stop else { return work() };
        let mut watch = self.watch.lock();
        watch.armed[worker as usize] = Some((until, handle));
        let sleeps_too_long = match watch.rest {
            Rest::Awake => false,
            Rest::Until(time) => time > until,
            Rest::UntilCalled => true,
        };
        drop(watch);
        if sleeps_too_long {
            self.watch_changed.notify_one();
        }
        let result = work();
        self.watch.lock().armed[worker as usize] = None;
        result
    }

    fn watch_for_ever(&self) {
        let mut watch = self.watch.lock();
        while !watch.is_closed {
            let now = Instant::now();
            for armed in &mut watch.armed {
                if let Some((_, handle)) = armed.take_if(|(time, _)| now >= *time) {
                    handle.cancel();
                }
            }
            match watch.armed.iter().flatten().map(|(time, _)| *time).min() {
                Some(time) => {
                    watch.rest = Rest::Until(time);
                    (watch, _) = self.watch_changed.wait_until(watch, time);
                }
                None => {
                    watch.rest = Rest::UntilCalled;
                    watch = self.watch_changed.wait(watch);
                }
            }
            watch.rest = Rest::Awake;
        }
    }

    fn work_for_ever(&self) {
        let mut queue = self.queue.lock();
        while !queue.is_closed {
            // First, so that memory does not grow while one mask after another is asked for.
            if let Some(garbage) = queue.garbage.pop() {
                drop(queue);
                drop(garbage);
                queue = self.queue.lock();
                continue;
            }
            let Some(mask) = queue.masks.pop_front() else {
                queue = self.queue_changed.wait(queue);
                continue;
            };
            queue.current = Some(mask.clone());
            drop(queue);
            mask.run(self);
            queue = self.queue.lock();
            queue.current = None;
            queue.done += 1;
            self.job_done.notify_all();
        }
    }
}

impl LateMask {
    fn run(&self, shared: &Shared) {
        let matcher = {
            let mut state = self.state.lock();
            match std::mem::replace(&mut *state, MaskState::Runs(None)) {
                MaskState::Waits(matcher) => matcher,
                _ => return *state = MaskState::Over,
            }
        };
        let outcome = matcher.map_or_else(|| self.compiled.matcher().map(Box::new), Ok).and_then(|mut matcher| {
            match &mut *self.state.lock() {
                MaskState::Runs(handle) => *handle = matcher.cancellation(),
                _ => return Err("it was abandoned".to_owned()),
            }
            let milliseconds = self.compiled.mask_ms() + self.tokens.len() as u64;
            let stop = matcher.cancellation().zip(Instant::now().checked_add(Duration::from_millis(milliseconds)));
            let result = shared.watch(Worker::Masks, stop, || matcher.take_in(&self.tokens, self.wanted));
            if matcher.is_cancelled() {
                self.compiled.note_endless();
                return Err(format!("its next tokens take more than {milliseconds} ms to find, which is the limit"));
            }
            result?;
            self.compiled.note(&matcher);
            Ok(matcher)
        });
        let mut state = self.state.lock();
        if matches!(*state, MaskState::Runs(_)) {
            *state = MaskState::Done(outcome);
        }
    }

    /// What has become of it; `None` while it is not done, and after the first answer.
    pub(super) fn take(&self) -> Option<Outcome> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, MaskState::Over) {
            MaskState::Done(outcome) => Some(outcome),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Cancels the mask. Returns the matcher if no thread works with it.
    pub(super) fn abandon(&self) -> Option<Box<Matcher>> {
        let before = std::mem::replace(&mut *self.state.lock(), MaskState::Over);
        match before {
            MaskState::Waits(matcher) => matcher,
            MaskState::Runs(Some(handle)) => {
                handle.cancel();
                None
            }
            MaskState::Done(outcome) => outcome.ok(),
            MaskState::Runs(None) | MaskState::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structure::{Structure, Structures};
    use crate::tokenizer::Tokenizer;
    use formats::source::Source;
    use std::path::Path;

    #[test]
    fn a_job_that_was_abandoned_before_it_began_ends_at_once() {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../models/demo"));
        let tokenizer = Tokenizer::open(&Source::open(folder).unwrap()).unwrap().unwrap();
        let structures = Structures::new(Some(Arc::new(tokenizer)), 2048);
        let compiled = structures.compile(&Structure::Regex("yes|no".to_owned())).unwrap();
        let late = LateMasks::start().unwrap();
        for _ in 0..200 {
            // Some are abandoned while they wait, some while they run.
            let masks: Vec<Arc<LateMask>> =
                (0..4).map(|_| late.hand_over(&compiled, None, &[], Wanted::Mask)).collect();
            masks.iter().for_each(|mask| drop(mask.abandon()));
            assert!(masks.iter().all(|mask| mask.take().is_none()));
        }
        let last = late.hand_over(&compiled, None, &[], Wanted::Mask);
        while last.take().is_none() {
            late.wait(Instant::now() + Duration::from_secs(1));
        }
    }
}
