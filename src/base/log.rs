//! Messages for the host's log callback: a bounded queue, silent unless a callback is set.
//!
//! Any code may log. A message waits here until a thread that is inside a call of the C API hands it to the callback, so
//! the host is never called from a thread it does not know.
//!
//! A fork begins silent and with a queue of its own: that of its parent may be locked for ever.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// Processes that may listen: the first one, forks of it, forks of those, and so on. Later ones are silent.
pub const PROCESSES: usize = 64;

type Queue = VecDeque<(Level, String)>;

static MAX_LEVEL: AtomicU8 = AtomicU8::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// A queue for each process, by its number.
static QUEUES: [Mutex<Queue>; PROCESSES] = [const { Mutex::new(Queue::new()) }; PROCESSES];
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Silences the log and gives it the queue of process `number`. Takes no lock.
pub fn begin_process(number: u32) {
    MAX_LEVEL.store(0, Ordering::Relaxed);
    PROCESS.store(number, Ordering::Relaxed);
}

/// The queue of this process.
fn queue() -> Option<MutexGuard<'static, Queue>> {
    let queue = QUEUES.get(PROCESS.load(Ordering::Relaxed) as usize)?;
    Some(queue.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Lets messages up to `level` through; `None` silences the log and forgets what waits.
pub fn set_max_level(level: Option<Level>) {
    MAX_LEVEL.store(level.map_or(0, |l| l as u8), Ordering::Relaxed);
    if level.is_none()
        && let Some(mut queue) = queue()
    {
        queue.clear();
    }
}

/// Queues a message. Formats nothing when nobody listens at this level.
pub fn log(level: Level, message: fmt::Arguments) {
    if level as u8 > MAX_LEVEL.load(Ordering::Relaxed) {
        return;
    }
    let message = message.to_string();
    let Some(mut queue) = queue() else { return };
    if queue.len() == QUEUE_MESSAGES {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    } else {
        queue.push_back((level, message));
    }
}

/// Whether a message waits. Takes no lock while the log is silent.
pub fn is_waiting() -> bool {
    MAX_LEVEL.load(Ordering::Relaxed) > 0 && queue().is_some_and(|queue| !queue.is_empty())
}

/// The oldest message that waits.
pub fn pop() -> Option<(Level, String)> {
    queue()?.pop_front()
}

/// Messages lost to a full queue since the process began.
pub fn dropped() -> u64 {
    DROPPED.load(Ordering::Relaxed)
}
