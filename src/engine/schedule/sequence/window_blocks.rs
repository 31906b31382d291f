//! Which blocks hold the keys and values of a sequence in layers whose window gives blocks back?
//!
//! There is one entry per block of tokens, and in each entry a block for every [window table](Windowed). A pass gets the entries that it writes when it is
//! scheduled, not when the sequence starts: a prompt that is much longer than the window never holds all its blocks.
//!
//! Invariant: the first `released` entries are not held. They repeat the first one that is, so that a kernel that reads a whole tile finds computed numbers
//! behind every entry.

use crate::schedule::blocks::{BlockManager, WindowEntries};
use compute::batch::{BlockCopy, BlockId};

/// The blocks of one sequence in all window tables, in the order of its tokens. Always empty where the model has no such tables.
#[derive(Default)]
pub struct WindowBlocks {
    /// `[entries, tables]`
    blocks: Vec<BlockId>,
    released: usize,
}

impl WindowBlocks {
    /// The blocks, those of an entry side by side, and how many entries at the start are not held.
    pub fn entries(&self) -> WindowEntries<'_> {
        WindowEntries { blocks: &self.blocks, released: self.released }
    }

    /// Reserves memory for the blocks of `tokens` tokens.
    pub fn reserve(&mut self, tokens: usize, pool: &BlockManager) {
        self.blocks.reserve(tokens.div_ceil(pool.block_size()) * pool.window_tables());
    }

    /// Tokens that its blocks have room for; as many as there are where the model has no window tables.
    pub fn capacity(&self, pool: &BlockManager) -> usize {
        match pool.window_tables() {
            0 => usize::MAX,
            tables => self.blocks.len() / tables * pool.block_size(),
        }
    }

    /// The KV slot of the token at `position` in layers of window table `table`, from 0.
    pub fn slot(&self, table: usize, tables: usize, position: usize, block_size: usize) -> u32 {
        (self.blocks[position / block_size * tables + table] as usize * block_size + position % block_size) as u32
    }

    /// The first `entries` blocks of window table `table`, from 0.
    pub fn table(&self, table: usize, tables: usize, entries: usize) -> impl Iterator<Item = BlockId> {
        self.blocks[..entries * tables].iter().skip(table).step_by(tables).copied()
    }

    /// The blocks that it holds, or is about to.
    pub fn held(&self, tables: usize) -> &[BlockId] {
        &self.blocks[self.released * tables..]
    }

    /// Names what hangs on the cached blocks of `table`, from the window before its end on, without holding it.
    pub fn find(&mut self, table: &[BlockId], pool: &BlockManager) {
        if pool.window_tables() > 0 && !table.is_empty() {
            self.released = pool.first_in_window(table.len());
            for index in 0..table.len() {
                self.blocks.extend_from_slice(pool.hanging_on(table[index.max(self.released)]));
            }
        }
    }

    /// Names the first `blocks` entries of another sequence, from the window before their end on, without holding them.
    pub fn share(&mut self, other: WindowEntries, blocks: usize, pool: &BlockManager) {
        let tables = pool.window_tables();
        if tables > 0 && blocks > 0 {
            self.blocks.extend_from_slice(&other.blocks[..blocks * tables]);
            self.released = pool.first_in_window(blocks);
            self.fill_released(tables);
        }
    }

    /// Names nothing.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.released = 0;
    }

    /// Takes blocks until there is room for `tokens`, as far as enough are free.
    pub fn extend(&mut self, tokens: usize, pool: &mut BlockManager) {
        while self.capacity(pool) < tokens {
            if !pool.take_window_entry(&mut self.blocks) {
                break;
            }
        }
    }

    /// Hangs the blocks of entry `index`, which are full of computed keys and values, on the cached block `cached`, or becomes those that hang there.
    pub fn hang(&mut self, index: usize, cached: BlockId, pool: &mut BlockManager) {
        if index >= self.released {
            let tables = pool.window_tables();
            pool.hang_window_entry(cached, &mut self.blocks[index * tables..(index + 1) * tables]);
            self.fill_released(tables);
        }
    }

    /// Releases the entries before `first`.
    pub fn release_before(&mut self, first: usize, pool: &mut BlockManager) {
        let tables = pool.window_tables();
        if first > self.released {
            pool.release_some(&self.blocks[self.released * tables..first * tables]);
            self.released = first;
            self.fill_released(tables);
        }
    }

    /// Makes the released entries repeat the first held one, which has changed.
    fn fill_released(&mut self, tables: usize) {
        if self.released == 0 {
            return;
        }
        let (released, held) = self.blocks.split_at_mut(self.released * tables);
        released.chunks_exact_mut(tables).for_each(|entry| entry.copy_from_slice(&held[..tables]));
    }

    /// Takes over the first `full` entries of `parent`, which it shares, and orders a copy of the next one, if there is one: enough blocks are free for it.
    pub fn fork_from(
        &mut self,
        parent: &WindowBlocks,
        full: usize,
        pool: &mut BlockManager,
        copies: &mut Vec<BlockCopy>,
    ) {
        let tables = pool.window_tables();
        if tables == 0 {
            return;
        }
        self.blocks.extend_from_slice(&parent.blocks[..full * tables]);
        self.released = parent.released;
        pool.keep(&self.blocks[self.released * tables..]);
        if let Some(partial) = parent.blocks.get(full * tables..(full + 1) * tables) {
            let is_there = pool.take_window_entry(&mut self.blocks);
            assert!(is_there, "enough blocks were free");
            let pairs = partial.iter().zip(&self.blocks[full * tables..]);
            copies.extend(pairs.map(|(&from, &to)| BlockCopy { from, to }));
        }
        self.fill_released(tables);
    }

    /// Returns all blocks to the pool, and keeps the memory of the table.
    pub fn release(&mut self, pool: &mut BlockManager) {
        self.blocks.drain(..self.released * pool.window_tables());
        self.released = 0;
        pool.release(&mut self.blocks);
    }
}
