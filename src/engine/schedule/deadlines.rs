//! Which requests have waited for longer than their `max_wait`?
//!
//! A request that runs, or that has run and was preempted, cannot expire. Its entry stays until its time comes, when the caller
//! finds that it has run: removing entries earlier would need a search.

use crate::schedule::sequence::SequenceKey;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::{Duration, Instant};

/// The times by which waiting requests have to run.
#[derive(Debug, Default)]
pub struct Deadlines {
    soonest_first: BinaryHeap<Reverse<(Instant, SequenceKey)>>,
    /// How far the time here is ahead of the system's clock: not at all, except in tests.
    ahead: Duration,
}

impl Deadlines {
    /// Adds a deadline by which the request with `key` has to run.
    pub fn add(&mut self, deadline: Instant, key: SequenceKey) {
        self.soonest_first.push(Reverse((deadline, key)));
    }

    /// Lets time pass without waiting for it.
    pub fn advance(&mut self, time: Duration) {
        self.ahead += time;
    }

    /// Removes an entry whose deadline has passed, the earliest first. Reads the clock only if there are entries.
    pub fn pop_missed(&mut self) -> Option<SequenceKey> {
        let Reverse((deadline, key)) = *self.soonest_first.peek()?;
        if deadline > Instant::now() + self.ahead {
            return None;
        }
        self.soonest_first.pop();
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_missed_comes_soonest_first_and_what_lies_ahead_stays() {
        let mut deadlines = Deadlines::default();
        let now = Instant::now();
        deadlines.add(now, SequenceKey::new(0, 2));
        deadlines.add(now + Duration::from_secs(3600), SequenceKey::new(0, 3));
        deadlines.add(now - Duration::from_millis(1), SequenceKey::new(0, 1));
        let missed = |deadlines: &mut Deadlines| -> Vec<u64> {
            std::iter::from_fn(|| deadlines.pop_missed()).map(SequenceKey::id).collect()
        };
        assert_eq!(missed(&mut deadlines), [1, 2]);
        deadlines.advance(Duration::from_secs(3600));
        assert_eq!(missed(&mut deadlines), [3]);
    }
}
