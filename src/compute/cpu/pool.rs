//! The threads of an engine.
//!
//! They are created when the engine opens, joined when it is freed, and sleep between steps. The calling thread works
//! too: a pool of one thread creates none.
//!
//! A loop is opened, drained and closed. Threads that come while it is open take ranges off one counter; the caller
//! waits only for those inside, so a thread that has not woken up or lost its core between loops holds up nobody. Both
//! sides spin for [`SPIN`] and then sleep: pure spinning takes the cores away from the very thread it waits for as soon
//! as another process is busy.
#![allow(unsafe_code)]

use super::nodes::Node;
use base::log::{self, Level};
use os::lock::{Condvar, Mutex};
use os::thread::{STACK_BYTES, spawn};
use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long a thread spins before it parks. Longer than the serial work between two loops of a decode
/// step, short against the slice of a scheduler.
const SPIN: Duration = Duration::from_micros(20);

/// What the threads of a loop do: the thread's number, and a range of items.
type Work<'a> = dyn Fn(usize, Range<usize>) + Sync + 'a;

/// A team of threads that share loops.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// `loop number << 32 | workers inside << 2 | CALLER_SLEEPS | OPEN`
    state: AtomicU64,
    /// First item that nobody has taken.
    cursor: Cursor,
    /// The loop that is open. Written by the caller while nobody is inside.
    task: UnsafeCell<Option<Task>>,
    /// Whether a loop runs: loops do not nest.
    running: AtomicBool,
    /// Which workers sleep and must be woken. `[threads - 1]`
    asleep: Box<[AtomicBool]>,
    ending: AtomicBool,
    /// What the first work that panicked said.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Told when the last worker leaves a closed loop; goes with `panic`.
    all_left: Condvar,
}

/// Alone on its cache line, because every thread of a loop writes it.
#[repr(align(128))]
struct Cursor(AtomicUsize);

#[derive(Clone, Copy)]
struct Task {
    work: &'static Work<'static>,
    items: usize,
    chunk: usize,
}

const OPEN: u64 = 1;
const CALLER_SLEEPS: u64 = 2;
const INSIDE: u64 = 4;
const INSIDE_MASK: u64 = 0xffff_fffc;
const NUMBER: u64 = 1 << 32;

// SAFETY: `task` is the only field that is not `Sync`. It is written with no worker inside and the loop closed, and read
// by workers inside only; `state` orders the two.
unsafe impl Sync for Shared {}

impl Pool {
    /// A pool of `threads` threads, the caller's included; fewer where the system refuses one, which is logged.
    ///
    /// The threads block all signals, so that the host's handlers never run on them.
    pub fn new(threads: usize) -> Pool {
        Pool::on_node(threads, None)
    }

    /// As [`new`](Pool::new), with threads that run on `node`, but for the caller's.
    pub fn on_node(threads: usize, node: Option<&Node>) -> Pool {
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            cursor: Cursor(AtomicUsize::new(0)),
            task: UnsafeCell::new(None),
            running: AtomicBool::new(false),
            asleep: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            ending: AtomicBool::new(false),
            panic: Mutex::new(None),
            all_left: Condvar::new(),
        });
        let mut workers = Vec::with_capacity(threads.saturating_sub(1));
        for thread in 1..threads {
            let (shared, node) = (shared.clone(), node.cloned());
            let serve = move || {
                node.iter().for_each(Node::bind_this_thread);
                shared.serve(thread);
            };
            match spawn(&format!("cpu-{thread}"), STACK_BYTES, serve) {
                Ok(worker) => workers.push(worker),
                Err(refusal) => {
                    log::log(
                        Level::Warn,
                        format_args!("{threads} threads wanted, {thread} had: {refusal}; lower num_threads"),
                    );
                    break;
                }
            }
        }
        Pool { shared, workers }
    }

    /// Threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `work(thread, range)` until the ranges, of at most `chunk` items each, have covered `0..items`.
    ///
    /// Ranges are handed out as threads become free, so a thread that lost its core holds up nobody for long. Returns
    /// when all are done. `thread` is below [`Pool::threads`] and no two calls of the same number overlap. Ranges begin
    /// at multiples of `chunk`.
    ///
    /// # Panics
    ///
    /// If `work` panics: the others end their ranges, then the first panic goes on here. If another loop of this pool
    /// runs: loops do not nest.
    pub fn for_each(&self, items: usize, chunk: usize, work: &Work<'_>) {
        let shared = &*self.shared;
        let chunk = chunk.max(1);
        let helpers = items.div_ceil(chunk).saturating_sub(1).min(self.workers.len());
        assert!(!shared.running.swap(true, Ordering::Acquire), "a loop runs in this pool already");
        let _running = Running(shared);
        if helpers == 0 {
            for start in (0..items).step_by(chunk) {
                work(0, start..items.min(start + chunk));
            }
            return;
        }
        // SAFETY: the reference is used by threads inside the loop only, and this function returns or unwinds only after
        // `close_and_wait` has seen the last of them leave.
        let work = unsafe { std::mem::transmute::<&Work<'_>, &'static Work<'static>>(work) };
        // SAFETY: the loop is closed and nobody is inside: `running` was ours to take, and the loop before waited.
        unsafe { *shared.task.get() = Some(Task { work, items, chunk }) };
        shared.cursor.0.store(0, Ordering::Relaxed);
        shared.state.fetch_add(NUMBER | OPEN, Ordering::SeqCst);
        for (worker, asleep) in self.workers[..helpers].iter().zip(&shared.asleep) {
            if asleep.load(Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        shared.drain(0);
        shared.close_and_wait();
        if let Some(panic) = shared.panic.lock().take() {
            resume_unwind(panic);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches the panics of its work, so it ends in peace.
            let _ = worker.join();
        }
    }
}

/// A loop that runs, until it is dropped.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.store(false, Ordering::Release);
    }
}

impl Shared {
    /// A worker's life.
    fn serve(&self, thread: usize) {
        let mut served = 0;
        while !self.ending.load(Ordering::SeqCst) {
            if let Some(number) = self.try_enter(served) {
                self.drain(thread);
                self.leave();
                served = number;
            } else {
                self.rest(thread, served);
            }
        }
    }

    /// Enters the loop that is open, unless it is number `served`; returns its number.
    fn try_enter(&self, served: u64) -> Option<u64> {
        let mut state = self.state.load(Ordering::SeqCst);
        loop {
            let number = state / NUMBER;
            if state & OPEN == 0 || number == served {
                return None;
            }
            match self.state.compare_exchange_weak(state, state + INSIDE, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return Some(number),
                Err(now) => state = now,
            }
        }
    }

    /// Leaves the loop, and wakes the caller if it sleeps and this was the last worker.
    fn leave(&self) {
        let before = self.state.fetch_sub(INSIDE, Ordering::SeqCst);
        if before & INSIDE_MASK == INSIDE && before & CALLER_SLEEPS != 0 {
            let _caller_waits = self.panic.lock();
            self.all_left.notify_one();
        }
    }

    /// Takes ranges until none is left. A panic is kept for the caller and ends the loop early.
    fn drain(&self, thread: usize) {
        // SAFETY: this thread is the caller, or a worker inside the loop; `task` is not written while either drains.
        let Some(Task { work, items, chunk }) = (unsafe { *self.task.get() }) else { return };
        let drained = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let start = self.cursor.0.fetch_add(chunk, Ordering::Relaxed);
                if start >= items {
                    break;
                }
                work(thread, start..items.min(start + chunk));
            }
        }));
        if let Err(panic) = drained {
            self.cursor.0.store(items, Ordering::Relaxed);
            self.panic.lock().get_or_insert(panic);
        }
    }

    /// Lets nobody in any more and waits until all have left.
    fn close_and_wait(&self) {
        self.state.fetch_and(!OPEN, Ordering::SeqCst);
        let inside = || self.state.load(Ordering::SeqCst) & INSIDE_MASK != 0;
        if spin_while(inside) {
            return;
        }
        let mut lock = self.panic.lock();
        self.state.fetch_or(CALLER_SLEEPS, Ordering::SeqCst);
        while inside() {
            lock = self.all_left.wait(lock);
        }
        self.state.fetch_and(!CALLER_SLEEPS, Ordering::SeqCst);
    }

    /// Waits for a loop other than `served`: it spins first, then parks.
    fn rest(&self, thread: usize, served: u64) {
        let idle = || {
            let state = self.state.load(Ordering::SeqCst);
            (state & OPEN == 0 || state / NUMBER == served) && !self.ending.load(Ordering::SeqCst)
        };
        if spin_while(idle) {
            return;
        }
        let asleep = &self.asleep[thread - 1];
        asleep.store(true, Ordering::SeqCst);
        // Either the caller sees the flag and wakes this thread, or this thread sees the loop that the caller opened.
        if idle() {
            thread::park();
        }
        asleep.store(false, Ordering::SeqCst);
    }
}

/// Spins while `condition` holds, for [`SPIN`] at most; tells whether it has ceased to hold.
pub(super) fn spin_while(condition: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    loop {
        for _ in 0..16 {
            if !condition() {
                return true;
            }
            std::hint::spin_loop();
        }
        if begin.elapsed() >= SPIN {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Visits of each item in a loop.
    fn visits(pool: &Pool, items: usize, chunk: usize) -> Vec<usize> {
        let visits: Vec<AtomicUsize> = (0..items).map(|_| AtomicUsize::new(0)).collect();
        pool.for_each(items, chunk, &|thread, range| {
            assert!(thread < pool.threads());
            assert!(range.len() <= chunk.max(1) && range.start.is_multiple_of(chunk.max(1)));
            for item in range {
                visits[item].fetch_add(1, Ordering::Relaxed);
            }
        });
        visits.into_iter().map(AtomicUsize::into_inner).collect()
    }

    /// Holds each thread that comes until `wanted` threads are in the loop.
    fn meet(present: &AtomicUsize, wanted: usize) {
        present.fetch_add(1, Ordering::SeqCst);
        while present.load(Ordering::SeqCst) < wanted {
            thread::yield_now();
        }
    }

    fn wait_until(condition: impl Fn() -> bool) {
        let begin = Instant::now();
        while !condition() {
            assert!(begin.elapsed() < Duration::from_secs(60), "it never happened");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn every_item_is_visited_once_in_every_loop() {
        for threads in [0, 1, 2, 3, 8] {
            let pool = Pool::new(threads);
            for (items, chunk) in [(0, 1), (1, 1), (1, 100), (7, 2), (100, 0), (1000, 1), (1000, 7), (1000, 999)] {
                for _ in 0..20 {
                    assert_eq!(visits(&pool, items, chunk), vec![1; items], "{threads} threads, chunks of {chunk}");
                }
            }
        }
    }

    #[test]
    fn sleeping_workers_take_part_in_the_next_loop() {
        let pool = Pool::new(3);
        for _ in 0..20 {
            wait_until(|| pool.shared.asleep.iter().all(|a| a.load(Ordering::SeqCst)));
            let present = AtomicUsize::new(0);
            pool.for_each(3, 1, &|_, _| meet(&present, 3));
        }
    }

    #[test]
    fn two_ranges_of_one_thread_never_overlap() {
        let pool = Pool::new(4);
        let busy: [AtomicBool; 4] = Default::default();
        pool.for_each(2000, 1, &|thread, _| {
            assert!(!busy[thread].swap(true, Ordering::SeqCst));
            std::hint::spin_loop();
            busy[thread].store(false, Ordering::SeqCst);
        });
    }

    #[test]
    fn a_panic_on_any_thread_reaches_the_caller_and_the_pool_goes_on() {
        let pool = Pool::new(2);
        for guilty in 0..2 {
            let present = AtomicUsize::new(0);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                pool.for_each(2, 1, &|thread, _| {
                    meet(&present, 2);
                    assert!(thread != guilty, "thread {thread} is guilty");
                })
            }));
            let said = *outcome.expect_err("the panic was lost").downcast::<String>().expect("a message");
            assert_eq!(said, format!("thread {guilty} is guilty"));
            assert_eq!(visits(&pool, 100, 3), vec![1; 100]);
        }
    }

    #[test]
    fn a_loop_within_a_loop_is_refused() {
        let pool = Pool::new(2);
        let nested = catch_unwind(AssertUnwindSafe(|| pool.for_each(1, 1, &|_, _| pool.for_each(1, 1, &|_, _| ()))));
        assert!(nested.is_err());
        assert_eq!(visits(&pool, 10, 1), vec![1; 10]);
    }

    #[cfg(unix)]
    #[test]
    fn workers_block_all_signals_and_the_caller_keeps_its_mask() {
        let blocked = || {
            // SAFETY: the set is plain memory that the call fills.
            unsafe {
                let mut mask: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask);
                libc::sigismember(&mask, libc::SIGUSR1) == 1
            }
        };
        let pool = Pool::new(2);
        let (present, found) = (AtomicUsize::new(0), Mutex::new([false; 2]));
        pool.for_each(2, 1, &|thread, _| {
            meet(&present, 2);
            found.lock()[thread] = blocked();
        });
        assert_eq!(*found.lock(), [false, true]);
    }

    #[test]
    fn dropping_a_pool_ends_its_threads() {
        let pool = Pool::new(3);
        let shared = Arc::downgrade(&pool.shared);
        drop(pool);
        assert_eq!(shared.strong_count(), 0, "each thread holds one count while it lives");
    }
}
