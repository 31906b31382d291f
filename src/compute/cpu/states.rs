//! The recurrent states of sequences: slot after slot, each with all layers.

use super::Pages;
use super::disjoint::Disjoint;
use crate::StateShape;
use crate::batch::{NO_STATE, StateCopy, StateSlot};
use base::error::Result;
use std::ops::Range;

/// A pool of states. `[slots, numbers]`
pub struct States {
    shape: StateShape,
    numbers: Pages<f32>,
}

impl States {
    /// Room for `shape.slots` states. Slots that are not used take no memory.
    pub fn new(shape: &StateShape) -> Result<States> {
        let numbers = Pages::zeroed(shape.numbers * shape.slots, "recurrent states", "max_num_seqs")?;
        Ok(States { shape: *shape, numbers })
    }

    /// Its shape.
    pub fn shape(&self) -> StateShape {
        self.shape
    }

    /// The state in a slot.
    pub fn slot(&self, slot: StateSlot) -> &[f32] {
        &self.numbers[self.range(slot)]
    }

    /// The state in a slot, to be written.
    pub fn slot_mut(&mut self, slot: StateSlot) -> &mut [f32] {
        let range = self.range(slot);
        &mut self.numbers[range]
    }

    /// Makes the state in `to` that in `from`.
    pub fn copy(&mut self, StateCopy { from, to }: StateCopy) {
        let (from, to) = (self.range(from), self.range(to));
        self.numbers.copy_within(from, to.start);
    }

    /// One region of every slot, for several threads.
    pub fn region(&mut self, at: usize, len: usize) -> Region<'_> {
        let StateShape { numbers: stride, .. } = self.shape;
        assert!(at + len <= stride);
        Region { all: Disjoint::new(&mut self.numbers), stride, at, len }
    }

    fn range(&self, slot: StateSlot) -> Range<usize> {
        let start = slot as usize * self.shape.numbers;
        start..start + self.shape.numbers
    }
}

/// What a layer keeps of each sequence.
pub struct Region<'a> {
    all: Disjoint<'a, f32>,
    stride: usize,
    at: usize,
    len: usize,
}

impl Region<'_> {
    /// A part of the region of a slot; `None` for [`NO_STATE`].
    ///
    /// # Safety
    ///
    /// No other part that overlaps it may be alive, unless both are only read.
    #[allow(unsafe_code, clippy::mut_from_ref)]
    pub unsafe fn part(&self, slot: StateSlot, part: Range<usize>) -> Option<&mut [f32]> {
        assert!(part.end <= self.len);
        let start = slot as usize * self.stride + self.at;
        // SAFETY: the caller's promise.
        (slot != NO_STATE).then(|| unsafe { self.all.part(start + part.start..start + part.end) })
    }
}
