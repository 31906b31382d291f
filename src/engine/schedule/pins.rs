//! Which prompts stay in the prefix cache until they are released, and how many blocks may they take?
//!
//! [`PinBudget`] belongs to the inbox: it promises blocks to each pinned prompt when the request is added. [`Pins`] belongs to
//! the scheduler: it holds the blocks once they are computed.
//!
//! Invariant: the promised blocks leave room for the longest possible sequence. A sequence that runs alone therefore finds all
//! blocks that it needs, and no sequence waits for ever for pinned blocks.

use crate::schedule::blocks::BlockManager;
use crate::schedule::sequence::SequenceKey;
use base::error::{Error, Result};
use compute::Windowed;
use compute::batch::{BatchLimits, BlockId, NO_STATE, StateSlot};
use runner::blocks_of;
use std::collections::HashMap;

/// The pinned blocks, by the request whose prompt they hold.
#[derive(Default)]
pub struct Pins {
    prompts: HashMap<u64, Pinned>,
}

struct Pinned {
    blocks: Vec<BlockId>,
    /// The recurrent state that the prompt is continued from, or [`NO_STATE`].
    state: StateSlot,
}

impl Pins {
    /// Holds the blocks of the prompt of request `id`, which its sequence holds as well.
    pub fn add(&mut self, id: u64, blocks: &[BlockId], pool: &mut BlockManager) {
        pool.keep(blocks);
        let mut kept = blocks.to_vec();
        // Those of the last window, as far as they are there.
        for &block in &blocks[pool.first_kept(blocks.len())..] {
            kept.extend_from_slice(pool.hanging_on(block));
        }
        pool.hold_again(&kept[blocks.len()..]);
        let states = blocks.iter().rev().map(|&block| pool.checkpoint(block));
        let last = states.into_iter().find(|&state| state != NO_STATE);
        // Where too many are pinned already, the state may be evicted and is then computed again.
        let state = last.filter(|&state| pool.states().pin(state)).unwrap_or(NO_STATE);
        let before = self.prompts.insert(id, Pinned { blocks: kept, state });
        debug_assert!(before.is_none(), "a prompt is pinned once");
    }

    /// Releases the blocks of a prompt; returns whether it was pinned.
    pub fn release(&mut self, id: u64, pool: &mut BlockManager) -> bool {
        let Some(Pinned { mut blocks, state }) = self.prompts.remove(&id) else { return false };
        if state != NO_STATE {
            pool.states().unpin(state);
        }
        pool.release(&mut blocks);
        true
    }
}

/// How many blocks are promised to pinned prompts.
pub struct PinBudget {
    block_size: usize,
    windowed: Option<Windowed>,
    /// Blocks that may be promised.
    limit: usize,
    /// Blocks that are promised.
    promised: usize,
    prompts: HashMap<u64, Promise>,
}

/// The promise to one request.
struct Promise {
    key: SequenceKey,
    blocks: usize,
}

impl PinBudget {
    /// A budget over all blocks except those that the longest sequence needs.
    pub fn new(blocks: usize, limits: &BatchLimits, windowed: Option<Windowed>) -> PinBudget {
        let block_size = limits.block_size;
        let limit = blocks.saturating_sub(blocks_of(limits.model_len, block_size, windowed));
        PinBudget { block_size, windowed, limit, promised: 0, prompts: HashMap::new() }
    }

    /// The full blocks of a prompt, in all tables.
    fn blocks_of(&self, prompt_tokens: usize) -> usize {
        blocks_of(prompt_tokens / self.block_size * self.block_size, self.block_size, self.windowed)
    }

    /// Blocks that are promised. A block that several prompts share counts once per prompt.
    pub fn promised(&self) -> usize {
        self.promised
    }

    /// Refuses a prompt of `prompt_tokens` tokens if its blocks exceed the budget.
    ///
    /// # Errors
    ///
    /// [`Error::PinsFull`].
    pub fn check(&self, prompt_tokens: usize) -> Result<()> {
        let blocks = self.blocks_of(prompt_tokens);
        match self.promised + blocks <= self.limit {
            true => Ok(()),
            false => Err(Error::PinsFull { blocks, pinned: self.promised, limit: self.limit }),
        }
    }

    /// Promises the request with `key` the full blocks of its prompt, which [`check`](Self::check) accepted.
    pub fn promise(&mut self, key: SequenceKey, prompt_tokens: usize) {
        let blocks = self.blocks_of(prompt_tokens);
        self.promised += blocks;
        self.prompts.insert(key.id(), Promise { key, blocks });
    }

    /// Withdraws a promise; returns the key of the request, or `None` when nothing was promised to it.
    pub fn release(&mut self, id: u64) -> Option<SequenceKey> {
        let Promise { key, blocks } = self.prompts.remove(&id)?;
        self.promised -= blocks;
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: BatchLimits = BatchLimits { tokens: 8, rows: 4, model_len: 10, block_size: 4, ..BatchLimits::NONE };

    #[test]
    fn pins_leave_room_for_the_longest_sequence() {
        // 8 blocks, of which 10 tokens need 3.
        let mut budget = PinBudget::new(8, &LIMITS, None);
        budget.check(23).expect("5 full blocks fit");
        match budget.check(24) {
            Err(Error::PinsFull { blocks, pinned, limit }) => assert_eq!((blocks, pinned, limit), (6, 0, 5)),
            other => panic!("{other:?}"),
        }
        budget.promise(SequenceKey::new(0, 1), 13);
        assert_eq!(budget.promised(), 3);
        assert!(budget.check(11).is_ok() && budget.check(12).is_err());
        assert_eq!(budget.release(1), Some(SequenceKey::new(0, 1)));
        assert_eq!((budget.release(1), budget.promised()), (None, 0));
    }

    #[test]
    fn a_pool_that_holds_the_longest_sequence_at_most_has_nothing_to_pin() {
        for blocks in [2, 3] {
            let budget = PinBudget::new(blocks, &LIMITS, None);
            assert!(budget.check(3).is_ok(), "no full block");
            assert!(budget.check(4).is_err(), "{blocks} blocks");
        }
    }
}
