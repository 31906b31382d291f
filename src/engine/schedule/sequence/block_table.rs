//! Which KV blocks hold the keys and values of a sequence, and which slot its recurrent state?
//!
//! Invariants: `computed` tokens fit into `blocks`; the first `cached.blocks` blocks hold `cached.prefix` and are shared where
//! another sequence has cached the same prefix. A table without blocks has computed nothing. The first `released` entries are not
//! held: they repeat the first block that is, so that a kernel that reads a whole tile finds computed numbers behind every entry.

use super::WindowBlocks;
use crate::api::prompt::Content;
use crate::schedule::blocks::{BlockManager, PrefixId, SharedPrefix, WindowEntries};
use compute::batch::{BlockCopy, BlockId, NO_STATE, StateCopy, StateSlot};

/// The KV blocks of one sequence, in the order of its tokens.
pub struct BlockTable {
    blocks: Vec<BlockId>,
    /// Entries at the start whose blocks were released, because no later token attends to them.
    released: usize,
    /// Those of layers whose window gives blocks back.
    window: WindowBlocks,
    /// Tokens whose keys and values lie in `blocks`.
    computed: usize,
    /// The first blocks, which are full, and the prefix that they hold.
    cached: SharedPrefix,
    /// Free blocks, besides the spare ones, that the last allocation lacked: fewer are not worth another try.
    min_free_blocks: usize,
    /// Separates prefixes that must not be shared.
    salt: u64,
    /// Where the recurrent state after the computed tokens lies; [`NO_STATE`] without blocks, or where the model keeps none.
    state: StateSlot,
    /// The checkpoint that the next pass continues instead, locked; or [`NO_STATE`].
    source: StateSlot,
}

/// Which blocks an allocation may share.
#[derive(Clone, Copy, Debug)]
pub enum Reuse<'a> {
    /// None, because all tokens have to be computed.
    Nothing,
    /// Those of the longest cached prefix. Without a prefix cache, those that a sequence with the same prompt holds.
    Prefix {
        /// Full blocks of the other sequence.
        held: &'a [BlockId],
        /// Its blocks in window tables.
        held_window: WindowEntries<'a>,
    },
}

impl BlockTable {
    /// A table without blocks, for prefixes with `salt`.
    pub fn new(salt: u64) -> BlockTable {
        BlockTable {
            blocks: Vec::new(),
            window: WindowBlocks::default(),
            released: 0,
            computed: 0,
            cached: nothing_cached(salt),
            min_free_blocks: 0,
            salt,
            state: NO_STATE,
            source: NO_STATE,
        }
    }

    /// Tokens whose keys and values lie in the blocks.
    pub fn computed(&self) -> usize {
        self.computed
    }

    /// The blocks in the order of the tokens.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Entries at the start whose blocks were [released](Self::release_before).
    pub fn released(&self) -> usize {
        self.released
    }

    /// Whether it has no blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The blocks in window tables.
    pub fn window(&self) -> &WindowBlocks {
        &self.window
    }

    /// Blocks that it lacks for `tokens`.
    pub fn missing(&self, tokens: usize, pool: &BlockManager) -> usize {
        let wanted = tokens.div_ceil(pool.block_size());
        let entries = wanted.saturating_sub(self.window.capacity(pool) / pool.block_size());
        wanted.saturating_sub(self.blocks.len()) + entries * pool.window_tables()
    }

    /// Takes the blocks that it lacks for `tokens`, or none where too few are free.
    pub fn grow(&mut self, tokens: usize, pool: &mut BlockManager) -> bool {
        if self.missing(tokens, pool) > pool.free_blocks() {
            return false;
        }
        while self.blocks.len() * pool.block_size() < tokens {
            self.blocks.push(pool.take().expect("enough blocks are free"));
        }
        self.extend_window(tokens, pool) >= tokens
    }

    /// Takes blocks of the window tables until they have room for `tokens`, as far as enough are free. Returns the tokens that they have room for.
    pub fn extend_window(&mut self, tokens: usize, pool: &mut BlockManager) -> usize {
        self.window.extend(tokens, pool);
        self.window.capacity(pool)
    }

    /// The KV slot of the token at `position`.
    pub fn slot(&self, position: usize, block_size: usize) -> u32 {
        (self.blocks[position / block_size] as usize * block_size + position % block_size) as u32
    }

    /// Reserves memory for the blocks of `tokens` tokens.
    pub fn reserve(&mut self, tokens: usize, pool: &BlockManager) {
        self.blocks.reserve(tokens.div_ceil(pool.block_size()));
        self.window.reserve(tokens, pool);
    }

    /// Whether [`try_allocate`](Self::try_allocate) may succeed, as far as is known without a lookup. A long prompt whose
    /// prefix is cached would otherwise be hashed in every step in which it waits.
    pub fn may_fit(&self, pool: &BlockManager, spare: usize) -> bool {
        pool.free_blocks() >= self.min_free_blocks + spare
    }

    /// Free blocks that the last [`try_allocate`](Self::try_allocate) lacked, at most.
    pub fn lacking(&self, pool: &BlockManager, spare: usize) -> usize {
        (self.min_free_blocks + spare).saturating_sub(pool.free_blocks())
    }

    /// Finds blocks for the tokens of `content` and leaves at least `spare` blocks free. Returns `None` while too few blocks are free.
    pub fn try_allocate(
        &mut self,
        content: Content,
        reuse: Reuse,
        spare: usize,
        pool: &mut BlockManager,
    ) -> Option<()> {
        let empty = PrefixId::Empty { salt: self.salt };
        let found = match reuse {
            Reuse::Nothing => {
                pool.try_allocate_all(empty, content.tokens.len(), spare, &mut self.blocks, &mut self.window)
            }
            Reuse::Prefix { held, held_window } => {
                pool.try_share(empty, content, (held, held_window), spare, &mut self.blocks, &mut self.window)
            }
        };
        match found {
            Ok(shared) => {
                self.cached = shared;
                self.computed = shared.blocks * pool.block_size();
                let has_state = !pool.keeps_states() || self.take_state(shared.state, pool);
                if !has_state {
                    self.release(pool);
                }
                has_state.then_some(())
            }
            Err(lacking) => {
                self.min_free_blocks = lacking.free_blocks;
                None
            }
        }
    }

    /// Takes a slot for a state that continues the one in `source`, or begins. `false` where there is none now.
    fn take_state(&mut self, source: StateSlot, pool: &mut BlockManager) -> bool {
        let slot = match self.blocks.get(self.cached.blocks.wrapping_sub(1)) {
            Some(&last) if source != NO_STATE => pool.take_state_after(source, last),
            _ => pool.take_state(),
        };
        let Some(slot) = slot else { return false };
        self.state = slot;
        self.source = if slot == source { NO_STATE } else { source };
        true
    }

    /// Where the next pass of the sequence finds the state that it continues, and where it leaves the one after it; the former is [`NO_STATE`] at
    /// the beginning of the sequence, and locked if it is not the latter.
    pub fn next_state(&mut self, start: usize) -> (StateSlot, StateSlot) {
        let source = std::mem::replace(&mut self.source, NO_STATE);
        match (start, source) {
            (0, _) => (NO_STATE, self.state),
            (_, NO_STATE) => (self.state, self.state),
            _ => (source, self.state),
        }
    }

    /// Makes the state in `slot` the checkpoint of the prefix of `position` tokens, which are computed and whole blocks.
    pub fn hang_checkpoint(&self, position: usize, slot: StateSlot, pool: &mut BlockManager) {
        let index = position / pool.block_size() - 1;
        match index >= self.released && index < self.cached.blocks {
            true => pool.hang_checkpoint(self.blocks[index], slot),
            false => pool.states().give_up(slot),
        }
    }

    /// Records that the next `new` tokens of `content` were computed, and caches the blocks that they filled.
    pub fn advance(&mut self, new: usize, content: Content, pool: &mut BlockManager) {
        let block_size = pool.block_size();
        self.computed += new;
        while (self.cached.blocks + 1) * block_size <= self.computed {
            let index = self.cached.blocks;
            let tokens = &content.tokens[index * block_size..(index + 1) * block_size];
            let parent = pool.continued(self.cached.prefix, content, index);
            let prefix = pool.cache_block(parent, tokens, &mut self.blocks[index]);
            self.cached = SharedPrefix { blocks: index + 1, prefix, state: NO_STATE };
            if pool.window_tables() > 0 {
                self.window.hang(index, self.blocks[index], pool);
            }
            if index == self.released {
                // Another sequence's copy may have taken the place of this one.
                self.fill_released();
            }
        }
    }

    /// Releases the blocks of which every token lies before `position`. The last computed block stays.
    pub fn release_before(&mut self, position: usize, pool: &mut BlockManager) {
        let block_size = pool.block_size();
        let first = (position / block_size).min(self.computed.saturating_sub(1) / block_size);
        if first > self.released {
            pool.release_some(&self.blocks[self.released..first]);
            self.released = first;
            self.fill_released();
        }
    }

    /// Releases the blocks of window tables of which every token lies before `position`. The last computed block stays.
    pub fn release_window_before(&mut self, position: usize, pool: &mut BlockManager) {
        let block_size = pool.block_size();
        let first = (position / block_size).min(self.computed.saturating_sub(1) / block_size);
        self.window.release_before(first, pool);
    }

    /// Makes the released entries repeat the first held block, which has changed.
    fn fill_released(&mut self) {
        if self.released > 0 {
            let held = self.blocks[self.released];
            self.blocks[..self.released].fill(held);
        }
    }

    /// Takes over the contents of `parent`, while it has no blocks itself: shares the full blocks, and orders copies of the
    /// last one, if it is not full, and of the recurrent state. Stays without blocks where no block or slot is free for the copy.
    pub fn fork_from(
        &mut self,
        parent: &BlockTable,
        pool: &mut BlockManager,
        copies: &mut Vec<BlockCopy>,
        states: &mut Vec<StateCopy>,
    ) {
        debug_assert!(self.is_empty());
        let full = parent.computed / pool.block_size();
        let is_partial = parent.blocks.len() > full;
        if is_partial && pool.free_blocks() <= pool.window_tables() {
            return;
        }
        if parent.state != NO_STATE {
            let Some(slot) = pool.take_state() else { return };
            self.state = slot;
        }
        self.blocks.extend_from_slice(&parent.blocks[..full]);
        self.released = parent.released;
        pool.keep(&self.blocks[self.released..]);
        if let Some(&from) = parent.blocks.get(full) {
            let to = pool.take().expect("enough blocks were free");
            copies.push(BlockCopy { from, to });
            self.blocks.push(to);
        }
        self.fill_released();
        self.window.fork_from(&parent.window, full, pool, copies);
        self.computed = parent.computed;
        self.cached = parent.cached;
        if self.state != NO_STATE {
            pool.states().lock(parent.state);
            states.push(StateCopy { from: parent.state, to: self.state });
        }
    }

    /// Where the recurrent state lies, or [`NO_STATE`].
    pub fn state(&self) -> StateSlot {
        self.state
    }

    /// Returns all blocks and the slot of the state to the pool, and keeps the memory of the table.
    pub fn release(&mut self, pool: &mut BlockManager) {
        let (state, source) = (self.state, self.source);
        (self.state, self.source) = (NO_STATE, NO_STATE);
        if state != NO_STATE {
            pool.states().give_up(state);
        }
        if source != NO_STATE {
            pool.states().unlock(source);
        }
        self.blocks.drain(..self.released);
        self.released = 0;
        pool.release(&mut self.blocks);
        // Those of the last window are what the next turn of a conversation needs most.
        self.window.release(pool);
        self.computed = 0;
        self.cached = nothing_cached(self.salt);
        self.min_free_blocks = 0;
    }
}

fn nothing_cached(salt: u64) -> SharedPrefix {
    SharedPrefix { blocks: 0, prefix: PrefixId::Empty { salt }, state: NO_STATE }
}
