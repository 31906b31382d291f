//! Messages for the host's log callback: a bounded queue, silent unless somebody listens.
//!
//! Any code may log. A message waits here until a thread that is inside a call of the C API hands it to the callback, so
//! the host is never called from a thread it does not know.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// How much a message matters. The numbers are those of `NVLLM_LOG_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// Something failed.
    Error = 1,
    /// Something is odd but work goes on.
    Warn = 2,
    /// A milestone, such as a model that was loaded.
    Info = 3,
    /// Detail for whoever debugs the library.
    Debug = 4,
}

/// Messages that may wait; a further one is counted and dropped.
const QUEUE_MESSAGES: usize = 256;

static MAX_LEVEL: AtomicU8 = AtomicU8::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
static QUEUE: Mutex<VecDeque<(Level, String)>> = Mutex::new(VecDeque::new());

/// Lets messages up to `level` through; `None` silences the log and forgets what waits.
pub fn set_max_level(level: Option<Level>) {
    MAX_LEVEL.store(level.map_or(0, |l| l as u8), Ordering::Relaxed);
    if level.is_none() {
        QUEUE.lock().clear();
    }
}

/// Queues a message. Formats nothing when nobody listens at this level.
pub fn log(level: Level, message: fmt::Arguments) {
    if level as u8 > MAX_LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let mut queue = QUEUE.lock();
    if queue.len() == QUEUE_MESSAGES {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    } else {
        queue.push_back((level, message.to_string()));
    }
}

/// Whether a message waits. Takes no lock while the log is silent.
pub fn is_waiting() -> bool {
    MAX_LEVEL.load(Ordering::Relaxed) > 0 && !QUEUE.lock().is_empty()
}

/// The oldest message that waits.
pub fn pop() -> Option<(Level, String)> {
    QUEUE.lock().pop_front()
}

/// Messages lost to a full queue since the process began.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}
