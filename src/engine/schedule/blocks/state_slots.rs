//! Which slots of the pool of recurrent states are in use, and which states are kept as checkpoints of prefixes?
//!
//! A slot is *held* by a sequence or by a pass that is about to write a checkpoint to it, or it is the *checkpoint* of a cached block: the state after the
//! last token of the block. Whoever needs a slot where none is free takes the checkpoint that was used least recently.
//!
//! A slot that a pass reads, but that its owner may give up before, is *locked*: nobody takes it before it is unlocked as often.
//!
//! Everything is sized when the pool is created; nothing allocates after that.

use super::NONE;
use base::error::{Result, filled, room};
use compute::batch::{BlockId, StateSlot};

/// The pool of recurrent states.
pub struct StateSlots {
    slots: Vec<Slot>,
    free: Vec<StateSlot>,
    /// Counts uses of checkpoints: the least recently used one has the lowest number.
    clock: u64,
    /// Checkpoints that are pinned.
    pinned: usize,
    /// How many may be.
    pin_limit: usize,
}

#[derive(Clone, Copy)]
struct Slot {
    owner: Owner,
    locks: u32,
    pins: u32,
    used_at: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// Nobody. In `free` unless it is locked.
    Nobody,
    /// A sequence, or a pass.
    Held,
    Checkpoint(BlockId),
}

impl StateSlots {
    /// A pool of `slots` free slots, of which sequences that run may need `running`.
    pub fn new(slots: usize, running: usize) -> Result<StateSlots> {
        let (what, knob) = ("the table of recurrent states", "kv_cache_bytes");
        let mut free = room(slots, what, knob)?;
        free.extend((0..slots as StateSlot).rev());
        let slot = Slot { owner: Owner::Nobody, locks: 0, pins: 0, used_at: 0 };
        let pin_limit = slots.saturating_sub(running);
        Ok(StateSlots { slots: filled(slot, slots, what, knob)?, free, clock: 0, pinned: 0, pin_limit })
    }

    /// Whether the model keeps recurrent state.
    pub fn is_used(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Takes a slot, whose content is not defined. Where a checkpoint gave way for it, the block that has none any more comes with it.
    pub fn take(&mut self) -> Option<(StateSlot, Option<BlockId>)> {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize].owner = Owner::Held;
            return Some((slot, None));
        }
        let candidates = self.slots.iter().enumerate().filter_map(|(slot, state)| match state.owner {
            Owner::Checkpoint(block) if state.locks == 0 && state.pins == 0 => Some((state.used_at, slot, block)),
            _ => None,
        });
        let (_, slot, block) = candidates.min()?;
        self.slots[slot].owner = Owner::Held;
        Some((slot as StateSlot, Some(block)))
    }

    /// Gives a slot up, whoever owns it.
    pub fn give_up(&mut self, slot: StateSlot) {
        let state = &mut self.slots[slot as usize];
        assert!(state.owner != Owner::Nobody, "state {slot} was given up twice");
        self.pinned -= usize::from(state.pins > 0);
        (state.owner, state.pins) = (Owner::Nobody, 0);
        if state.locks == 0 {
            self.free.push(slot);
        }
    }

    /// Makes a slot that is held the checkpoint of `block`.
    pub fn become_checkpoint(&mut self, slot: StateSlot, block: BlockId) {
        let state = &mut self.slots[slot as usize];
        debug_assert!(state.owner == Owner::Held && block != NONE);
        state.owner = Owner::Checkpoint(block);
        self.note_use(slot);
    }

    /// Makes a checkpoint, which nobody else has locked, a slot that is held.
    pub fn become_held(&mut self, slot: StateSlot) -> bool {
        let state = &mut self.slots[slot as usize];
        let may = state.locks == 0 && state.pins == 0;
        if may {
            state.owner = Owner::Held;
        }
        may
    }

    /// Records that a checkpoint was used.
    pub fn note_use(&mut self, slot: StateSlot) {
        self.clock += 1;
        self.slots[slot as usize].used_at = self.clock;
    }

    /// Keeps the content of a slot until it is [unlocked](Self::unlock), even if its owner gives it up.
    pub fn lock(&mut self, slot: StateSlot) {
        self.slots[slot as usize].locks += 1;
    }

    /// Ends one lock.
    pub fn unlock(&mut self, slot: StateSlot) {
        let state = &mut self.slots[slot as usize];
        state.locks -= 1;
        if state.locks == 0 && state.owner == Owner::Nobody {
            self.free.push(slot);
        }
    }

    /// Keeps a checkpoint until it is [unpinned](Self::unpin) as often. `false` where as many are pinned as may be.
    pub fn pin(&mut self, slot: StateSlot) -> bool {
        let state = &mut self.slots[slot as usize];
        if state.pins == 0 {
            if self.pinned >= self.pin_limit {
                return false;
            }
            self.pinned += 1;
        }
        state.pins += 1;
        true
    }

    /// Ends one pin.
    pub fn unpin(&mut self, slot: StateSlot) {
        let state = &mut self.slots[slot as usize];
        state.pins -= 1;
        self.pinned -= usize::from(state.pins == 0);
    }

    /// Slots that nobody owns or locks.
    pub fn free_slots(&self) -> usize {
        self.free.len()
    }

    /// Slots that are checkpoints.
    pub fn checkpoints(&self) -> usize {
        self.slots.iter().filter(|state| matches!(state.owner, Owner::Checkpoint(_))).count()
    }

    /// All slots.
    pub fn total(&self) -> usize {
        self.slots.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(slots: &mut StateSlots) -> (StateSlot, Option<BlockId>) {
        slots.take().expect("a slot can be taken")
    }

    #[test]
    fn the_checkpoint_used_least_recently_gives_way() {
        let mut slots = StateSlots::new(3, 1).unwrap();
        let all = [(); 3].map(|()| taken(&mut slots).0);
        assert_eq!((all, slots.take()), ([0, 1, 2], None));
        for (slot, block) in all.into_iter().zip([10, 11, 12]) {
            slots.become_checkpoint(slot, block);
        }
        slots.note_use(0);
        assert_eq!(taken(&mut slots), (1, Some(11)));
        assert!(slots.pin(2));
        assert_eq!(taken(&mut slots), (0, Some(10)));
        assert_eq!(slots.take(), None, "a pinned checkpoint stays");
        slots.unpin(2);
        assert_eq!(taken(&mut slots), (2, Some(12)));
    }

    #[test]
    fn a_locked_slot_is_not_taken_before_it_is_unlocked() {
        let mut slots = StateSlots::new(1, 1).unwrap();
        let (slot, _) = taken(&mut slots);
        slots.lock(slot);
        slots.give_up(slot);
        assert_eq!(slots.take(), None);
        slots.unlock(slot);
        assert_eq!(taken(&mut slots), (slot, None));
        slots.become_checkpoint(slot, 5);
        slots.lock(slot);
        assert_eq!(slots.take(), None);
        assert!(!slots.become_held(slot));
    }

    #[test]
    fn pins_leave_as_many_slots_as_sequences_may_run() {
        let mut slots = StateSlots::new(3, 2).unwrap();
        for block in 0..2 {
            let (slot, _) = taken(&mut slots);
            slots.become_checkpoint(slot, block);
        }
        assert!(slots.pin(0) && slots.pin(0));
        assert!(!slots.pin(1), "one of three may be pinned");
        slots.unpin(0);
        assert!(!slots.pin(1));
        slots.unpin(0);
        assert!(slots.pin(1));
    }
}
