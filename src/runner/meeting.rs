//! Where do the ranks of an engine agree on something while they open?
//!
//! Invariant: a rank that fails breaks the meeting, and every other rank learns it at its next call, so that no rank waits for one that
//! will not come.

use crate::backend::lock::{Condvar, Mutex};
use crate::error::{Error, Result};
use std::any::Any;
use std::sync::Arc;

/// Where ranks meet.
pub struct Meeting {
    ranks: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    round: usize,
    arrived: usize,
    /// What the ranks of this round said. `[ranks]`
    values: Vec<u64>,
    /// What the ranks of the last complete round said. `[ranks]`
    agreed: Vec<u64>,
    is_broken: bool,
    failure: Option<Failure>,
}

/// Why a rank computes no further pass.
pub enum Failure {
    /// It had an error.
    Error(Error),
    /// It panicked.
    Panic(Box<dyn Any + Send>),
}

/// A rank's place in a meeting.
#[derive(Clone)]
pub struct Seat {
    /// This rank.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    meeting: Arc<Meeting>,
}

impl Seat {
    /// The seats of a new meeting, in the order of ranks.
    pub fn of(ranks: usize) -> Vec<Seat> {
        let state = State { values: vec![0; ranks], agreed: vec![0; ranks], ..State::default() };
        let meeting = Arc::new(Meeting { ranks, state: Mutex::new(state), changed: Condvar::new() });
        (0..ranks).map(|rank| Seat { rank, ranks, meeting: meeting.clone() }).collect()
    }

    /// The seat of a rank that computes alone.
    pub fn alone() -> Seat {
        Seat::of(1).remove(0)
    }

    /// Waits for all ranks. Returns what each of them said, in the order of ranks.
    ///
    /// # Errors
    ///
    /// [`Error::RankLost`] if a rank has failed.
    pub fn agree(&self, value: u64) -> Result<Vec<u64>> {
        let Meeting { ranks, state, changed } = &*self.meeting;
        let mut state = state.lock();
        // Ranks that waited have left, so that no round is complete any more.
        if state.is_broken {
            return Err(Error::RankLost);
        }
        let round = state.round;
        state.values[self.rank] = value;
        state.arrived += 1;
        if state.arrived == *ranks {
            state.agreed = state.values.clone();
            (state.arrived, state.round) = (0, round + 1);
            changed.notify_all();
        }
        // A round that is complete stands, even if a rank has failed since.
        while state.round == round {
            if state.is_broken {
                return Err(Error::RankLost);
            }
            state = changed.wait(state);
        }
        Ok(state.agreed.clone())
    }

    /// Says that this rank has failed. The first failure is kept.
    pub fn fail(&self, failure: Failure) {
        let Meeting { state, changed, .. } = &*self.meeting;
        let mut state = state.lock();
        state.is_broken = true;
        // That another rank is lost says nothing about the reason.
        if state.failure.is_none() && !matches!(failure, Failure::Error(Error::RankLost)) {
            state.failure = Some(failure);
        }
        changed.notify_all();
    }

    /// Whether a rank has failed.
    pub fn is_broken(&self) -> bool {
        self.meeting.state.lock().is_broken
    }

    /// The first failure, unless it was taken before.
    pub fn take_failure(&self) -> Option<Failure> {
        self.meeting.state.lock().failure.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn every_rank_learns_what_all_said() {
        for ranks in [1, 2, 5] {
            thread::scope(|scope| {
                for seat in Seat::of(ranks) {
                    scope.spawn(move || {
                        for round in 0..200 {
                            let wanted: Vec<u64> = (0..ranks as u64).map(|rank| 1000 * round + rank).collect();
                            assert_eq!(seat.agree(1000 * round + seat.rank as u64).unwrap(), wanted);
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_rank_that_fails_ends_the_wait_of_the_others_and_the_first_reason_is_kept() {
        let seats = Seat::of(3);
        thread::scope(|scope| {
            for seat in &seats[..2] {
                scope.spawn(move || assert!(matches!(seat.agree(0), Err(Error::RankLost))));
            }
            seats[2].fail(Failure::Error(Error::Cancelled));
            seats[1].fail(Failure::Error(Error::PromptEmpty));
        });
        assert!(seats[0].is_broken());
        assert!(matches!(seats[0].take_failure(), Some(Failure::Error(Error::Cancelled))));
        assert!(matches!(seats[2].agree(0), Err(Error::RankLost)));
    }
}
