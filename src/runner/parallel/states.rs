//! How is a recurrent state divided among ranks?
//!
//! The state of the whole model is that of one rank. Each rank has [runs](StateRun) of it, which may overlap where ranks share a group of heads:
//! these have equal numbers.

use super::{Order, Other, ParallelRunner, buffer};
use crate::Runner;
use base::error::Result;
use compute::Backend;
use compute::batch::StateSlot;
use model::decoder::StateRun;
use std::ops::Range;
use std::sync::mpsc::{Receiver, sync_channel};

impl<B: Backend + 'static> ParallelRunner<B> {
    /// Bytes of a state over `ranks`.
    pub(super) fn state_bytes(&self, ranks: Range<usize>) -> usize {
        let runs = self.first.state_runs();
        if runs.is_empty() { 0 } else { runs[ranks].iter().map(|runs| bytes_of_rank(runs)).sum() }
    }

    /// Reads what the ranks of this process have of a state, rank after rank.
    pub(super) fn read_own_state(&mut self, slot: StateSlot, mut to: &mut [u8]) -> Result<()> {
        let read = |other: &Other| -> Receiver<Vec<u8>> {
            let (answer, read) = sync_channel(1);
            other.orders.give(Order::ReadState { slot, answer });
            read
        };
        let others: Vec<_> = self.others.iter().map(read).collect();
        let own = self.first.state_shape().slot_bytes();
        self.first.read_state(slot, to.split_off_mut(..own).expect("room for each rank"))?;
        for read in &others {
            let bytes = self.answer(read)?;
            to.split_off_mut(..bytes.len()).expect("room for each rank").copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Writes a state to the ranks of this process, rank after rank.
    pub(super) fn write_own_state(&mut self, slot: StateSlot, from: &[u8]) -> Result<()> {
        let (own, mut rest) = from.split_at(self.first.state_shape().slot_bytes());
        for (runs, other) in self.first.state_runs()[self.own()][1..].iter().zip(&self.others) {
            let (theirs, after) = rest.split_at(bytes_of_rank(runs));
            let mut bytes = buffer(theirs.len())?;
            bytes.copy_from_slice(theirs);
            other.orders.give(Order::WriteState { slot, from: bytes });
            rest = after;
        }
        self.first.write_state(slot, own)
    }

    /// Copies what `ranks` read, rank after rank, to its place in the whole state.
    pub(super) fn place_state(&self, ranks: Range<usize>, mut bytes: &[u8], to: &mut [u8]) {
        for runs in &self.first.state_runs()[ranks] {
            let (own, after) = bytes.split_at(bytes_of_rank(runs));
            for (all, at) in runs.iter().map(bytes_of) {
                to[all].copy_from_slice(&own[at]);
            }
            bytes = after;
        }
    }

    /// What `ranks` have of a whole state, rank after rank.
    pub(super) fn parts_of_state(&self, ranks: Range<usize>, from: &[u8]) -> Result<Vec<u8>> {
        let mut bytes = buffer(self.state_bytes(ranks.clone()))?;
        let mut rest = &mut bytes[..];
        for runs in &self.first.state_runs()[ranks] {
            let own = rest.split_off_mut(..bytes_of_rank(runs)).expect("room for each rank");
            for (all, at) in runs.iter().map(bytes_of) {
                own[at].copy_from_slice(&from[all]);
            }
        }
        Ok(bytes)
    }
}

fn bytes_of_rank(runs: &[StateRun]) -> usize {
    runs.iter().map(|run| run.len).sum::<usize>() * size_of::<f32>()
}

/// The bytes of a run, in the state of the whole model and in that of its rank.
fn bytes_of(run: &StateRun) -> (Range<usize>, Range<usize>) {
    let bytes = |first: usize| first * size_of::<f32>()..(first + run.len) * size_of::<f32>();
    (bytes(run.all), bytes(run.own))
}
