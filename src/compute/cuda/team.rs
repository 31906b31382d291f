//! Do the ranks of this process still compute together?
//!
//! A rank that fails or leaves breaks the team, as does whoever waits for too long: a kernel, a thread, or the thread that watches over a
//! communicator of NCCL. Invariant: a team that is broken ends all waits, of kernels by a word in host memory and of threads by the
//! barrier, now and later.

use super::driver::{Address, Context, Pinned};
use base::error::{Error, Result};
use os::lock::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

/// How long a thread waits for the others in [`Team::meet`] at least.
const MEETING: Duration = Duration::from_secs(60);

/// How long the end of an engine waits for the communicators of NCCL to end.
const ENDING: Duration = Duration::from_secs(5);

/// Whether the ranks still compute together.
pub struct Team {
    /// One word, which is not 0 once the team is broken.
    broken: Pinned,
    barrier: Barrier,
    /// How long a kernel waits for another rank.
    patience: Duration,
    /// Threads that watch over communicators of NCCL.
    watches: Mutex<Vec<JoinHandle<()>>>,
}

// SAFETY: the word of `broken` is reached by atomic accesses alone, and the rest locks or does not change.
unsafe impl Sync for Team {}

impl Team {
    /// A team of `ranks` threads of this process, whose kernels wait for each other for at most `patience`.
    ///
    /// # Errors
    ///
    /// Where there is no pinned memory.
    pub fn new(context: &Arc<Context>, ranks: usize, patience: Duration) -> Result<Team> {
        let broken = Pinned::zeroed(context, 4, "pinned memory", "locked memory limits")?;
        Ok(Team { broken, barrier: Barrier::new(ranks), patience, watches: Mutex::default() })
    }

    /// Whether a rank has failed or left, or a kernel has waited for too long.
    pub fn is_broken(&self) -> bool {
        self.broken.word().load(Ordering::SeqCst) != 0
    }

    /// Ends all waits of kernels and threads, now and later.
    pub fn break_up(&self) {
        self.broken.word().store(1, Ordering::SeqCst);
        self.barrier.break_up();
    }

    /// Whether no rank has failed or left. A kernel may have given up its wait.
    pub fn is_whole(&self) -> bool {
        !self.barrier.state.lock().is_broken
    }

    /// Forgets that kernels have given up their waits. A rank that fails meanwhile has broken the barrier, too.
    pub fn forget_waits(&self) {
        self.broken.word().store(0, Ordering::SeqCst);
    }

    /// Where a kernel finds whether the team is broken.
    pub fn broken(&self) -> Address {
        self.broken.address()
    }

    /// How long a kernel waits for another rank.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Waits until all ranks of this process are here.
    ///
    /// # Errors
    ///
    /// [`Error::RankLost`] if one has failed, or does not come.
    pub fn meet(&self) -> Result<()> {
        match self.barrier.wait(self.patience.max(MEETING)) {
            true => Ok(()),
            false => {
                self.break_up();
                Err(Error::RankLost)
            }
        }
    }

    /// Keeps a thread that ends once the team is broken.
    pub fn keep(&self, watch: JoinHandle<()>) {
        self.watches.lock().push(watch);
    }

    /// Waits a bounded time for the threads that were [kept](Self::keep).
    pub fn end_watches(&self) {
        let deadline = Instant::now() + ENDING;
        for watch in self.watches.lock().drain(..) {
            while !watch.is_finished() && Instant::now() < deadline {
                sleep(Duration::from_millis(1));
            }
            // A thread that hangs in the library keeps what it uses.
            if watch.is_finished() {
                let _ = watch.join();
            }
        }
    }
}

/// Where the threads of all ranks wait for each other.
struct Barrier {
    ranks: usize,
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    round: u64,
    arrived: usize,
    is_broken: bool,
}

impl Barrier {
    fn new(ranks: usize) -> Barrier {
        Barrier { ranks, state: Mutex::default(), changed: Condvar::new() }
    }

    /// `false` if the barrier is broken, or another rank does not come within `patience`.
    fn wait(&self, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let mut state = self.state.lock();
        if state.is_broken {
            return false;
        }
        let round = state.round;
        state.arrived += 1;
        if state.arrived == self.ranks {
            (state.arrived, state.round) = (0, round + 1);
            self.changed.notify_all();
        }
        // A round that is complete stands, even if a rank has failed since.
        while state.round == round {
            if state.is_broken {
                return false;
            }
            let (next, is_late) = self.changed.wait_until(state, deadline);
            state = next;
            if is_late && state.round == round {
                return false;
            }
        }
        true
    }

    fn break_up(&self) {
        self.state.lock().is_broken = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn threads_meet_until_the_barrier_is_broken_or_one_does_not_come() {
        let barrier = Barrier::new(3);
        thread::scope(|scope| {
            for rank in 0..3 {
                let barrier = &barrier;
                scope.spawn(move || {
                    for _ in 0..200 {
                        assert!(barrier.wait(MEETING));
                    }
                    match rank {
                        0 => barrier.break_up(),
                        _ => assert!(!barrier.wait(MEETING)),
                    }
                });
            }
        });
        assert!(!barrier.wait(MEETING));
        assert!(!Barrier::new(2).wait(Duration::from_millis(5)));
    }
}
