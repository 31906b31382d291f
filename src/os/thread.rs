//! Threads of the library: each has a name, blocks all signals, and has a stack of known size.
#![allow(unsafe_code)]

use super::lock::Mutex;
use base::error::{Error, Result};
use std::cell::Cell;
use std::panic::resume_unwind;
use std::thread::{Builder, JoinHandle, scope};

/// Threads whose names begin so are the library's own: their panics go to the log.
pub const NAME_PREFIX: &str = "nvllm";

/// Stack of a thread that computes, or that waits for work. Only what is touched takes memory.
pub const STACK_BYTES: usize = 2 << 20;

/// Stack for code that recurses as deep as its input says, within limits on the input. Only what is touched takes memory.
pub const DEEP_STACK_BYTES: usize = 64 << 20;

/// All signals blocked on this thread, and so on the threads it creates, until it is dropped: the host's handlers never run
/// on a thread of the library. Windows delivers no signal to a thread that exists already, so nothing is blocked there.
#[cfg(unix)]
struct BlockedSignals {
    before: libc::sigset_t,
}

/// Starts a thread. `purpose` becomes the end of its name, which the system cuts to 15 bytes in all.
///
/// # Errors
///
/// [`Error::NoThread`] when the system refuses one.
pub fn spawn(purpose: &str, stack_bytes: usize, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let signals = BlockedSignals::new();
    let started = builder(purpose, stack_bytes).spawn(work);
    drop(signals);
    started.map_err(|source| Error::NoThread { purpose: purpose.to_owned(), source })
}

thread_local! {
    /// Whether this thread has a stack of [`DEEP_STACK_BYTES`].
    static IS_DEEP: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work` on a thread with a stack of [`DEEP_STACK_BYTES`] and waits for it; on this one where it has such a stack.
///
/// # Errors
///
/// [`Error::NoThread`] when the system refuses one.
///
/// # Panics
///
/// If `work` does: the panic goes on here.
pub fn on_deep_stack<T: Send>(purpose: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    if IS_DEEP.get() {
        return Ok(work());
    }
    beside(purpose, work, || ()).map(|(result, ())| result)
}

/// Runs `work` on a thread as [`on_deep_stack`], and `here` on this one at the same time. Returns when both are done.
///
/// # Errors
///
/// [`Error::NoThread`] when the system refuses a thread; then `here` has not run.
///
/// # Panics
///
/// If either does.
pub fn beside<T: Send, U>(purpose: &str, work: impl FnOnce() -> T + Send, here: impl FnOnce() -> U) -> Result<(T, U)> {
    scope(|scope| {
        let signals = BlockedSignals::new();
        let deep = || {
            IS_DEEP.set(true);
            work()
        };
        let started = builder(purpose, DEEP_STACK_BYTES).spawn_scoped(scope, deep);
        drop(signals);
        let started = started.map_err(|source| Error::NoThread { purpose: purpose.to_owned(), source })?;
        let beside = here();
        let result = started.join().unwrap_or_else(|panic| resume_unwind(panic));
        Ok((result, beside))
    })
}

/// Runs `work` on each of `parts` at the same time: on the first here, on the others on threads of their own. Parts whose thread the system
/// refuses are worked on here. Returns when all are done, with results in the order of parts.
///
/// # Panics
///
/// If `work` does.
pub fn share_out<P: Send, R: Send>(purpose: &str, parts: Vec<P>, work: impl Fn(P) -> R + Sync) -> Vec<R> {
    let parts: Vec<_> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
    let run = |part: &Mutex<Option<P>>| work(part.lock().take().expect("each part is taken once"));
    scope(|scope| {
        let signals = BlockedSignals::new();
        let others = parts.iter().skip(1).map(|part| {
            let run = &run;
            builder(purpose, STACK_BYTES).spawn_scoped(scope, move || run(part)).ok()
        });
        let others: Vec<_> = others.collect();
        drop(signals);
        let mut results: Vec<R> = parts.first().map(run).into_iter().collect();
        for (part, other) in parts.iter().skip(1).zip(others) {
            results.push(match other {
                Some(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                None => run(part),
            });
        }
        results
    })
}

fn builder(purpose: &str, stack_bytes: usize) -> Builder {
    Builder::new().name(format!("{NAME_PREFIX}-{purpose}")).stack_size(stack_bytes)
}

#[cfg(not(unix))]
struct BlockedSignals;

#[cfg(not(unix))]
impl BlockedSignals {
    fn new() -> BlockedSignals {
        BlockedSignals
    }
}

#[cfg(unix)]
impl BlockedSignals {
    fn new() -> BlockedSignals {
        // SAFETY: a signal set is plain memory that the two calls fill; they cannot fail with these arguments.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            BlockedSignals { before }
        }
    }
}

#[cfg(unix)]
impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set was filled by the call in `new`.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// Uses at least a kilobyte of stack per level.
    fn recurse(levels: usize) -> u8 {
        let frame = black_box([levels as u8; 1024]);
        if levels == 0 { frame[0] } else { recurse(levels - 1).wrapping_add(black_box(frame)[1]) }
    }

    #[test]
    fn a_deep_stack_holds_what_a_callers_may_not() {
        on_deep_stack("test", || recurse(16 << 10)).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn threads_are_named_and_block_all_signals() {
        let (name, blocked) = on_deep_stack("test", || {
            // SAFETY: the set is plain memory that the call fills.
            let blocked = unsafe {
                let mut mask: libc::sigset_t = std::mem::zeroed();
                libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), &mut mask);
                libc::sigismember(&mask, libc::SIGUSR1) == 1
            };
            (std::thread::current().name().map(str::to_owned), blocked)
        })
        .unwrap();
        assert_eq!((name.as_deref(), blocked), (Some("nvllm-test"), true));
    }

    #[test]
    fn a_deep_stack_is_used_again() {
        let id = || std::thread::current().id();
        let (outer, inner) = on_deep_stack("test", || (id(), on_deep_stack("again", id).unwrap())).unwrap();
        assert!(outer == inner && outer != id());
    }

    #[test]
    fn parts_are_shared_out_and_their_results_keep_their_order() {
        for parts in 0..5 {
            let given: Vec<usize> = (0..parts).collect();
            assert_eq!(share_out("test", given, |part| part * part), (0..parts).map(|p| p * p).collect::<Vec<_>>());
        }
    }

    #[test]
    fn both_sides_run() {
        assert_eq!(beside("test", || 1, || 2).unwrap(), (1, 2));
    }
}
