//! The recurrent states of sequences on the device: slot after slot, each with all layers.

use super::driver::{Address, Context, Memory};
use crate::StateShape;
use crate::batch::StateSlot;
use base::error::Result;
use std::sync::Arc;

/// A pool of states in f32. `[slots, numbers]`
pub struct States {
    shape: StateShape,
    /// `None` where the model keeps none.
    memory: Option<Memory>,
}

impl States {
    /// Room for `shape.slots` states.
    pub fn new(context: &Arc<Context>, shape: &StateShape) -> Result<States> {
        let bytes = shape.slot_bytes() * shape.slots;
        let memory = (bytes > 0).then(|| Memory::new(context, bytes, "recurrent states", "max_num_seqs"));
        Ok(States { shape: *shape, memory: memory.transpose()? })
    }

    /// Its shape.
    pub fn shape(&self) -> StateShape {
        self.shape
    }

    /// Where the number `at` of slot 0 lies.
    pub fn region(&self, at: usize) -> Address {
        self.memory.as_ref().expect("the model keeps recurrent states").address() + 4 * at as u64
    }

    /// Where a slot begins.
    pub fn slot(&self, slot: StateSlot) -> Address {
        self.region(slot as usize * self.shape.numbers)
    }

    /// Copies a state out, once all that was launched has ended.
    pub fn read(&self, slot: StateSlot, to: &mut [u8]) -> Result<()> {
        self.memory.as_ref().map_or(Ok(()), |memory| memory.read(slot as usize * self.shape.slot_bytes(), to))
    }

    /// Copies a state in, after all that was launched.
    pub fn write(&mut self, slot: StateSlot, from: &[u8]) -> Result<()> {
        self.memory.as_ref().map_or(Ok(()), |memory| memory.write(slot as usize * self.shape.slot_bytes(), from))
    }
}
