//! How do the ranks of an engine exchange numbers while they open?
//!
//! The last rank of a process to arrive at the barrier exchanges the values of all of them with the other processes, if there are any.
//! Invariant: a rank that fails breaks the barrier, and every other rank learns it at its next call, so that no rank waits for one that
//! will not come.

use super::peers::{Group, Peers, World};
use base::error::{Error, Result};
use os::lock::{Condvar, Mutex};
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// Where ranks wait for each other.
pub struct RankBarrier {
    /// The ranks of this process.
    own: Range<usize>,
    /// The other processes, if there are any.
    group: Option<Group>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    round: usize,
    arrived: usize,
    /// What the ranks of this process said in this round. `[own]`
    values: Vec<u64>,
    /// What all ranks said in the last complete round. `[ranks]`
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

/// A rank, with the barrier that it shares with the others.
#[derive(Clone)]
pub struct Rank {
    /// From 0 on, over all processes.
    pub index: usize,
    /// How many there are.
    pub ranks: usize,
    barrier: Arc<RankBarrier>,
}

impl Rank {
    /// The ranks of a new barrier, in the order of ranks.
    pub fn of(ranks: usize) -> Vec<Rank> {
        Rank::with_group(ranks, 0..ranks, None)
    }

    /// The ranks of this process, in the order of ranks. The group is closed when the last of them is dropped.
    pub fn spanning(group: Group) -> Vec<Rank> {
        let world = group.peers().world();
        Rank::with_group(world.ranks, world.ranks_of(world.process), Some(group))
    }

    fn with_group(ranks: usize, own: Range<usize>, group: Option<Group>) -> Vec<Rank> {
        let state = State { values: vec![0; own.len()], ..State::default() };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let barrier = Arc::new(RankBarrier { own: own.clone(), group, state, changed });
        own.map(|index| Rank { index, ranks, barrier: barrier.clone() }).collect()
    }

    /// This process.
    pub fn process(&self) -> usize {
        self.peers().map_or(0, |peers| peers.world().process)
    }

    /// The other processes, if there are any.
    pub fn group(&self) -> Option<&Group> {
        self.barrier.group.as_ref()
    }

    fn peers(&self) -> Option<&Arc<Peers>> {
        self.group().map(Group::peers)
    }

    /// The ranks of this process.
    pub fn own(&self) -> Range<usize> {
        self.barrier.own.clone()
    }

    /// Whether this rank is the first of its process.
    pub fn is_first(&self) -> bool {
        self.index == self.barrier.own.start
    }

    /// A rank that computes alone.
    pub fn alone() -> Rank {
        Rank::of(1).remove(0)
    }

    /// Waits for all ranks. Returns the value of each, in the order of ranks.
    ///
    /// # Errors
    ///
    /// [`Error::RankLost`] if a rank has failed, [`Error::Peer`] if a process has.
    pub fn all_gather(&self, value: u64) -> Result<Vec<u64>> {
        let RankBarrier { own, state: held, changed, .. } = &*self.barrier;
        let mut state = held.lock();
        // Ranks that waited have left, so that no round is complete any more.
        if state.is_broken {
            return Err(Error::RankLost);
        }
        let round = state.round;
        state.values[self.index - own.start] = value;
        state.arrived += 1;
        if state.arrived == own.len() {
            let values = state.values.clone();
            let agreed = match self.peers() {
                None => values,
                Some(peers) => {
                    drop(state);
                    let agreed = peers.all_gather(round as u64, &values);
                    let agreed = agreed.inspect_err(|_| self.fail(Failure::Error(Error::RankLost)))?;
                    state = held.lock();
                    agreed
                }
            };
            state.agreed = agreed;
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

    /// Says that this rank has failed. The first failure is kept, and told to other processes.
    pub fn fail(&self, failure: Failure) {
        let RankBarrier { state, changed, .. } = &*self.barrier;
        // That another rank or process is lost says nothing about the reason.
        let is_own = !matches!(failure, Failure::Error(Error::RankLost | Error::Peer { .. }));
        let reason = match &failure {
            Failure::Error(error) => error.to_string(),
            Failure::Panic(_) => "a bug in the library stopped it".to_owned(),
        };
        let mut state = state.lock();
        state.is_broken = true;
        if state.failure.is_none() && is_own {
            state.failure = Some(failure);
        }
        changed.notify_all();
        drop(state);
        if let Some(peers) = self.peers().filter(|_| is_own) {
            peers.fail(peers.world().process, &reason);
        }
    }

    /// What became of a rank that is lost for no [failure](Self::take_failure) that is known here: GPUs of several processes wait for each
    /// other, and do not know for which one.
    pub fn lost(&self) -> Error {
        let Some(peers) = self.peers() else { return Error::RankLost };
        let World { process, .. } = peers.world();
        peers.fail(process, "its ranks waited in vain for those of another process (peer_timeout_ms)");
        peers.error().unwrap_or(Error::RankLost)
    }

    /// Whether a rank or a process has failed.
    pub fn is_broken(&self) -> bool {
        self.barrier.state.lock().is_broken || self.peers().is_some_and(|peers| peers.error().is_some())
    }

    /// The first failure of a rank of this process, unless it was taken before; else that of a process, if there are several.
    pub fn take_failure(&self) -> Option<Failure> {
        let own = self.barrier.state.lock().failure.take();
        own.or_else(|| self.peers()?.loss().map(Failure::Error))
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
                for rank in Rank::of(ranks) {
                    scope.spawn(move || {
                        for round in 0..200 {
                            let wanted: Vec<u64> = (0..ranks as u64).map(|rank| 1000 * round + rank).collect();
                            assert_eq!(rank.all_gather(1000 * round + rank.index as u64).unwrap(), wanted);
                        }
                    });
                }
            });
        }
    }

    #[test]
    fn a_rank_that_fails_ends_the_wait_of_the_others_and_the_first_reason_is_kept() {
        let ranks = Rank::of(3);
        thread::scope(|scope| {
            for rank in &ranks[..2] {
                scope.spawn(move || assert!(matches!(rank.all_gather(0), Err(Error::RankLost))));
            }
            ranks[2].fail(Failure::Error(Error::Cancelled));
            ranks[1].fail(Failure::Error(Error::PromptEmpty));
        });
        assert!(ranks[0].is_broken());
        assert!(matches!(ranks[0].take_failure(), Some(Failure::Error(Error::Cancelled))));
        assert!(matches!(ranks[2].all_gather(0), Err(Error::RankLost)));
    }
}
