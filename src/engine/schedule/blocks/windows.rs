//! Window blocks: which blocks of the other tables hang on a cached block, and which of them does a sequence need?
//!
//! Those of one cached block hang and fall together: an *entry* has one block per window table. A window block that hangs somewhere and is not held is free, and
//! is reused when it is the least recently used one; its entry is lost then.

use super::{BlockManager, NONE};
use crate::options::PrefixCache;
use base::error::{Result, filled};
use compute::Windowed;
use compute::batch::BlockId;

/// Entries of a sequence.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowEntries<'a> {
    /// `[entries, tables]`
    pub blocks: &'a [BlockId],
    /// Entries at the start that are not held.
    pub released: usize,
}

impl BlockManager {
    /// The same with window tables, where there are some.
    pub fn with_windows(self, windowed: Option<Windowed>) -> Result<BlockManager> {
        let hanging = match self.cache {
            PrefixCache::On => self.blocks.len() * windowed.map_or(0, |windowed| windowed.tables),
            PrefixCache::Off => 0,
        };
        let hanging = filled(NONE, hanging, "the table of KV blocks", "kv_cache_bytes")?;
        Ok(BlockManager { windowed, hanging, ..self })
    }

    /// How many tables besides the first one.
    pub fn window_tables(&self) -> usize {
        self.windowed.map_or(0, |windowed| windowed.tables)
    }

    /// The most entries that a sequence needs at once for a pass of one token.
    pub fn window_entries_max(&self) -> usize {
        self.windowed.map_or(0, |windowed| windowed.blocks(1, self.block_size))
    }

    /// The first entry that the token after `blocks` full blocks, of which there are some, attends to.
    pub fn first_in_window(&self, blocks: usize) -> usize {
        self.windowed.map_or(blocks, |windowed| windowed.first_before(blocks, self.block_size))
    }

    /// The first entry that is kept of a prefix of `blocks` full blocks: see [`Windowed::first_kept`].
    pub fn first_kept(&self, blocks: usize) -> usize {
        self.windowed.map_or(blocks, |windowed| windowed.first_kept(blocks, self.block_size))
    }

    /// The blocks that hang on a cached block; none where it has lost them.
    pub fn hanging_on(&self, block: BlockId) -> &[BlockId] {
        let tables = self.window_tables();
        let at = block as usize * tables;
        match self.hanging.get(at..at + tables) {
            Some(entry) if entry.first().is_some_and(|&first| first != NONE) => entry,
            _ => &[],
        }
    }

    /// Takes a block for each window table, where enough are free.
    pub fn take_window_entry(&mut self, entries: &mut Vec<BlockId>) -> bool {
        let tables = self.window_tables();
        if self.free.len < tables {
            return false;
        }
        entries.extend((0..tables).map(|_| self.take().expect("enough blocks were free")));
        true
    }

    /// Hangs `entry`, whose blocks are full of computed keys and values, on a cached block with the same tokens. Where an entry hangs there already, `entry`
    /// becomes that one, and its own blocks are released.
    pub fn hang_window_entry(&mut self, block: BlockId, entry: &mut [BlockId]) {
        if self.blocks[block as usize].cached.is_none() {
            return;
        }
        let at = block as usize * entry.len();
        if self.hanging[at] == entry[0] {
            return;
        }
        for (index, own) in entry.iter_mut().enumerate() {
            let there = self.hanging[at + index];
            if there == NONE {
                debug_assert_eq!(self.blocks[*own as usize].hangs_on, NONE);
                self.hanging[at + index] = *own;
                self.blocks[*own as usize].hangs_on = block;
            } else {
                self.hold(there);
                self.let_go(*own);
                *own = there;
            }
        }
    }

    /// Lets the entry that hangs on a block fall.
    pub(super) fn drop_window_entry(&mut self, block: BlockId) {
        let tables = self.window_tables();
        let at = block as usize * tables;
        for index in at..(at + tables).min(self.hanging.len()) {
            let window_block = std::mem::replace(&mut self.hanging[index], NONE);
            if window_block != NONE {
                self.blocks[window_block as usize].hangs_on = NONE;
            }
        }
    }
}
