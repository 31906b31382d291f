//! Allocates KV blocks, and finds those that already hold the prefix of a prompt.
//!
//! A block is held by the sequences that its `references` count. A block that no sequence holds is free, but stays cached
//! until it is reused: free blocks form a queue, the least recently used first, and the last blocks of a sequence stand
//! before its first ones. So a prefix is always cached from its beginning on.
//!
//! A full block whose keys and values are computed is *cached*: it gets a [`PrefixId`], which stands for all tokens
//! from the start of the sequence to the end of the block. It is looked up by the id of the prefix before it and by its own
//! tokens, and both are compared, so that two different prefixes are never confused, whatever their hashes. A salt at the
//! beginning of each prefix separates requests that must not share blocks.
//!
//! A free block may be *withdrawn*: its memory went back to the system. It is neither cached nor taken before
//! [`grow`](BlockManager::grow) got memory for it again.
//!
//! A model with recurrent state can continue a prefix only where the state after it was kept: a cached block may have a *checkpoint*, and
//! what is shared ends with the last block that has one.
//!
//! A model whose layers form [groups](compute::KvGroups) has blocks of several tables. Those of the first table are found as above. A cached block may have
//! *window blocks* that hang on it: one for each other table, with the same tokens. A prefix can be continued where those of the last tokens before its end,
//! as many as a window has, are still there.
//!
//! Everything is sized when the manager is created; nothing allocates after that.

mod state_slots;
mod windows;

use crate::api::prompt::Content;
use crate::options::PrefixCache;
use crate::schedule::sequence::WindowBlocks;
use base::TokenId;
use base::error::{self, filled, room};
use compute::Windowed;
use compute::batch::{BlockId, NO_STATE, StateSlot};
use state_slots::StateSlots;
use std::cmp::Reverse;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
pub use windows::WindowEntries;

/// Stands for "no block" in the links, so that a link takes four bytes.
const NONE: u32 = u32::MAX;

/// The tokens from the start of a sequence to the end of a cached block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrefixId {
    /// The prefix without tokens. Prefixes that begin with different salts are different ones, whatever their tokens.
    Empty {
        /// Separates prefixes that must not be shared.
        salt: u64,
    },
    /// A cached prefix, by its number.
    Cached(u64),
    /// A prefix and the embeddings in the block behind it, by a hash of both.
    Embedded(u64),
}

/// What [`BlockManager::try_allocate`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPrefix {
    /// Blocks at the start of the table that already hold the first tokens.
    pub blocks: usize,
    /// The prefix that they hold.
    pub prefix: PrefixId,
    /// The recurrent state after them, [`NO_STATE`] where the model has none or they are none.
    pub state: StateSlot,
}

/// What the prefix cache has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Tokens that were looked up.
    pub queries: u64,
    /// Tokens that were found.
    pub hits: u64,
    /// Tokens that were found and are computed again, because no recurrent state was kept after them.
    pub recomputed: u64,
    /// Blocks that were cached and were reused for something else.
    pub evictions: u64,
}

/// Too few blocks are free for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// Blocks that have to be free, besides the spare ones.
    pub free_blocks: usize,
}

/// Gets memory for blocks that were withdrawn, or changes nothing and says why not.
pub type GetMemory<'a> = dyn FnMut(&[BlockId]) -> error::Result<()> + 'a;

/// The fraction 1 / `GROWTH_SHARE` of all blocks gets memory at once, where there is enough.
const GROWTH_SHARE: usize = 64;

/// The pool of KV blocks.
pub struct BlockManager {
    block_size: usize,
    cache: PrefixCache,
    blocks: Vec<Block>,
    /// Tokens of the cached blocks. `[blocks, block_size]`
    tokens: Vec<TokenId>,
    free: FreeQueue,
    states: StateSlots,
    windowed: Option<Windowed>,
    /// The blocks of the other tables that hang on each cached block, or [`NONE`]. `[blocks, tables]`
    hanging: Vec<u32>,
    /// Free blocks without memory, in descending order.
    withdrawn: Vec<BlockId>,
    /// First cached block of each hash value. `[power of two]`
    buckets: Vec<u32>,
    hasher: RandomState,
    prefixes_made: u64,
    counts: CacheCounts,
}

/// One block of the pool.
#[derive(Clone, Copy)]
struct Block {
    /// Sequences that hold it.
    references: u32,
    /// Neighbours in the queue of free blocks.
    before: u32,
    after: u32,
    /// What it holds, once it is cached.
    cached: Option<CachedBlock>,
    /// The recurrent state after a cached block, or [`NO_STATE`].
    checkpoint: StateSlot,
    /// The cached block that it hangs on as a window block, or [`NONE`].
    hangs_on: u32,
}

/// How a cached block is found.
#[derive(Clone, Copy)]
struct CachedBlock {
    /// The prefix that ends with this block.
    prefix: PrefixId,
    /// The prefix that ends before it.
    parent: PrefixId,
    bucket: u32,
    /// Next block of the same bucket.
    next: u32,
}

/// The queue of free blocks, linked through the blocks themselves.
struct FreeQueue {
    first: u32,
    last: u32,
    len: usize,
}

impl BlockManager {
    /// A pool of `blocks` free blocks of `block_size` tokens.
    pub fn new(blocks: usize, block_size: usize, cache: PrefixCache) -> error::Result<BlockManager> {
        assert!(blocks < NONE as usize && block_size > 0, "{blocks} blocks of {block_size} tokens");
        let remembered = match cache {
            PrefixCache::On => blocks,
            PrefixCache::Off => 0,
        };
        let (what, knob) = ("the table of KV blocks", "kv_cache_bytes");
        let free =
            Block { references: 0, before: NONE, after: NONE, cached: None, checkpoint: NO_STATE, hangs_on: NONE };
        let mut manager = BlockManager {
            block_size,
            cache,
            blocks: filled(free, blocks, what, knob)?,
            tokens: filled(0, remembered * block_size, what, knob)?,
            free: FreeQueue { first: NONE, last: NONE, len: 0 },
            states: StateSlots::new(0, 0)?,
            windowed: None,
            hanging: Vec::new(),
            withdrawn: room(blocks, what, knob)?,
            buckets: filled(NONE, remembered.next_power_of_two(), what, knob)?,
            hasher: RandomState::new(),
            prefixes_made: 0,
            counts: CacheCounts::default(),
        };
        for block in 0..blocks as u32 {
            manager.free.push_back(&mut manager.blocks, block);
        }
        Ok(manager)
    }

    /// The same with `states` recurrent states, of which sequences that run may need `running`.
    pub fn with_states(self, states: usize, running: usize) -> error::Result<BlockManager> {
        Ok(BlockManager { states: StateSlots::new(states, running)?, ..self })
    }

    /// Whether prefixes are cached.
    pub fn cache(&self) -> PrefixCache {
        self.cache
    }

    /// Tokens per block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Number of blocks in the pool.
    pub fn total_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Number of blocks that no sequence holds and that have memory.
    pub fn free_blocks(&self) -> usize {
        self.free.len
    }

    /// Number of blocks that sequences hold, or that are pinned.
    pub fn used_blocks(&self) -> usize {
        self.blocks.len() - self.free.len - self.withdrawn.len()
    }

    /// Whether nobody holds each block. `[blocks]`
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](error::Error::OutOfMemory).
    pub fn unused(&self) -> error::Result<Vec<bool>> {
        let mut unused = filled(false, self.blocks.len(), "the list of free KV blocks", "kv_cache_bytes")?;
        unused.iter_mut().zip(&self.blocks).for_each(|(unused, block)| *unused = block.references == 0);
        Ok(unused)
    }

    /// Withdraws the free blocks that `unused` names: their memory went back. `[blocks]`
    pub fn withdraw(&mut self, unused: &[bool]) {
        let mut block = self.free.first;
        while block != NONE {
            let after = self.blocks[block as usize].after;
            if unused[block as usize] {
                self.free.remove(&mut self.blocks, block);
                self.counts.evictions += u64::from(self.blocks[block as usize].cached.is_some());
                self.forget(block);
                self.withdrawn.push(block);
            }
            block = after;
        }
        self.withdrawn.sort_unstable_by_key(|&block| Reverse(block));
    }

    /// Makes at least `blocks` withdrawn blocks free again, the first of the cache first, for which `memory` gets memory. Asks for some
    /// more at once, so that a sequence that grows does not ask each time. Returns `false` where fewer are withdrawn.
    ///
    /// # Errors
    ///
    /// Those of `memory`. Nothing has changed then.
    pub fn grow(&mut self, blocks: usize, memory: &mut GetMemory) -> error::Result<bool> {
        if blocks == 0 || blocks > self.withdrawn.len() {
            return Ok(false);
        }
        let wished = blocks.max(self.blocks.len() / GROWTH_SHARE).min(self.withdrawn.len());
        let first = self.withdrawn.len() - wished;
        let first = match memory(&self.withdrawn[first..]) {
            Ok(()) => first,
            Err(error::Error::OutOfMemory { .. }) if wished > blocks => {
                let first = self.withdrawn.len() - blocks;
                memory(&self.withdrawn[first..])?;
                first
            }
            Err(error) => return Err(error),
        };
        for block in self.withdrawn.drain(first..) {
            self.free.push_front(&mut self.blocks, block);
        }
        Ok(true)
    }

    /// What the prefix cache has done so far; all zeros without one.
    pub fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// Fills the empty `table` with blocks for `tokens`, sharing those that already hold its prefix after `empty`, and leaves
    /// at least `spare` blocks free.
    ///
    /// The last token is never shared, because it has to be computed for the token after it to be known. Changes nothing
    /// while too few blocks are free. That is ordinary: the sequence keeps waiting.
    pub fn try_allocate<'a>(
        &mut self,
        empty: PrefixId,
        content: impl Into<Content<'a>>,
        spare: usize,
        table: &mut Vec<BlockId>,
        window: &mut WindowBlocks,
    ) -> Result<SharedPrefix, Lacking> {
        debug_assert!(table.is_empty(), "the sequence holds blocks already");
        let content = content.into();
        let tokens = content.tokens;
        let computed = Content { tokens: &tokens[..tokens.len().saturating_sub(1)], ..content };
        let found = self.find_prefix(empty, computed, table);
        let shared = self.resumable(empty, found, table, |blocks| self.first_in_window(blocks));
        window.find(table, self);
        self.complete(tokens.len(), spare, table, window)?;
        if shared.state != NO_STATE {
            self.states.note_use(shared.state);
        }
        if self.cache == PrefixCache::On {
            self.counts.queries += tokens.len() as u64;
            self.counts.hits += (shared.blocks * self.block_size) as u64;
            self.counts.recomputed += ((found.blocks - shared.blocks) * self.block_size) as u64;
        }
        Ok(shared)
    }

    /// Adds the blocks of the longest cached prefix of `tokens` to the empty `table`, without holding them.
    pub fn find_prefix(&self, empty: PrefixId, content: Content, table: &mut Vec<BlockId>) -> SharedPrefix {
        let mut shared = SharedPrefix { blocks: 0, prefix: empty, state: NO_STATE };
        for tokens in content.tokens.chunks_exact(self.block_size) {
            let parent = self.continued(shared.prefix, content, shared.blocks);
            let Some((block, prefix)) = self.find(parent, tokens) else { break };
            table.push(block);
            let state = self.blocks[block as usize].checkpoint;
            shared = SharedPrefix { blocks: shared.blocks + 1, prefix, state };
        }
        shared
    }

    /// What the block `index` of `content` continues, where `prefix` is before it: also the embeddings that it has rows of.
    pub fn continued(&self, prefix: PrefixId, content: Content, index: usize) -> PrefixId {
        if content.embeddings.is_empty() {
            return prefix;
        }
        let mut hasher = self.hasher.build_hasher();
        prefix.hash(&mut hasher);
        match content.hash_embeddings(index * self.block_size, self.block_size, &mut hasher) {
            true => PrefixId::Embedded(hasher.finish()),
            false => prefix,
        }
    }

    /// As [`find_prefix`](Self::find_prefix), the longest prefix that a sequence can continue: where the model keeps recurrent state, the one that ends
    /// with a checkpoint, and where it has window tables, one behind which their blocks are there.
    pub fn find_to_keep(&self, empty: PrefixId, tokens: &[TokenId], table: &mut Vec<BlockId>) -> SharedPrefix {
        let found = self.find_prefix(empty, tokens.into(), table);
        self.resumable(empty, found, table, |blocks| self.first_kept(blocks))
    }

    /// The part of the prefix `found`, whose blocks `table` has, that a sequence can continue, given the `first` entry that it needs behind some blocks.
    /// `table` keeps its blocks.
    fn resumable(
        &self,
        empty: PrefixId,
        found: SharedPrefix,
        table: &mut Vec<BlockId>,
        first: impl Fn(usize) -> usize,
    ) -> SharedPrefix {
        if !self.keeps_states() && self.windowed.is_none() {
            return found;
        }
        let has_state = |block: BlockId| !self.keeps_states() || self.blocks[block as usize].checkpoint != NO_STATE;
        let (mut blocks, mut entries) = (0, 0);
        for (before, &block) in table.iter().enumerate() {
            entries = if self.hanging_on(block).is_empty() { 0 } else { entries + 1 };
            let end = before + 1;
            if has_state(block) && entries >= end - first(end) {
                blocks = end;
            }
        }
        table.truncate(blocks);
        let Some(&last) = table.last() else { return SharedPrefix { blocks: 0, prefix: empty, state: NO_STATE } };
        let Block { cached, checkpoint, .. } = self.blocks[last as usize];
        SharedPrefix { blocks, prefix: cached.expect("it was found").prefix, state: checkpoint }
    }

    /// Fills the empty `table` with blocks for all of `tokens`, which are whole blocks, sharing those that hold its prefix: for
    /// keys and values that come from elsewhere. The caller writes those that are not shared, then caches them.
    pub fn try_adopt(
        &mut self,
        empty: PrefixId,
        tokens: &[TokenId],
        table: &mut Vec<BlockId>,
    ) -> Result<SharedPrefix, Lacking> {
        debug_assert!(table.is_empty() && tokens.len().is_multiple_of(self.block_size));
        let shared = self.find_prefix(empty, tokens.into(), table);
        let wanted = tokens.len() / self.block_size;
        let window = (wanted - self.first_kept(wanted)) * self.window_tables();
        self.hold_or_clear(wanted, [window, 0], table, &mut WindowBlocks::default())?;
        Ok(shared)
    }

    /// Like [`try_allocate`](Self::try_allocate), for a sequence all of whose tokens have to be computed: it shares nothing.
    pub fn try_allocate_all(
        &mut self,
        empty: PrefixId,
        tokens: usize,
        spare: usize,
        table: &mut Vec<BlockId>,
        window: &mut WindowBlocks,
    ) -> Result<SharedPrefix, Lacking> {
        debug_assert!(table.is_empty(), "the sequence holds blocks already");
        self.complete(tokens, spare, table, window)?;
        Ok(SharedPrefix { blocks: 0, prefix: empty, state: NO_STATE })
    }

    /// Like [`try_allocate`](Self::try_allocate), for a sequence with the same prompt as a running one: `held` are blocks of
    /// the running sequence, full of computed keys and values for the first of `tokens`. They are shared without a prefix
    /// cache, too.
    pub fn try_share<'a>(
        &mut self,
        empty: PrefixId,
        content: impl Into<Content<'a>>,
        (held, held_window): (&[BlockId], WindowEntries),
        spare: usize,
        table: &mut Vec<BlockId>,
        window: &mut WindowBlocks,
    ) -> Result<SharedPrefix, Lacking> {
        let content = content.into();
        if self.cache == PrefixCache::On {
            // They are cached, so the lookup finds them, and with them the prefix that they hold.
            return self.try_allocate(empty, content, spare, table, window);
        }
        let shareable = match self.keeps_states() {
            // No state is kept of them.
            true => 0,
            false => content.tokens.len().saturating_sub(1) / self.block_size,
        };
        let shareable = held.len().min(shareable);
        if self.windowed.is_none() || self.first_in_window(shareable) >= held_window.released {
            table.extend_from_slice(&held[..shareable]);
            window.share(held_window, shareable, self);
        }
        let shared = SharedPrefix { blocks: table.len(), prefix: empty, state: NO_STATE };
        self.complete(content.tokens.len(), spare, table, window)?;
        Ok(shared)
    }

    /// Holds the blocks in `table` once more, and adds free ones until it has room for `tokens`. Clears `table` instead where
    /// that would leave fewer than `spare` blocks free.
    ///
    /// The same for `window`, of whose blocks no more are taken: a pass takes those that it needs. But as many are free as the sequence may need at once.
    fn complete(
        &mut self,
        tokens: usize,
        spare: usize,
        table: &mut Vec<BlockId>,
        window: &mut WindowBlocks,
    ) -> Result<(), Lacking> {
        let wanted = tokens.div_ceil(self.block_size);
        let entries = window.held(self.window_tables()).len() / self.window_tables().max(1);
        let to_come = (wanted - table.len()).min(self.window_entries_max().saturating_sub(entries));
        self.hold_or_clear(wanted, [to_come * self.window_tables(), spare], table, window)
    }

    /// The same for `wanted` blocks, of which `beside` and then `spare` more stay free.
    fn hold_or_clear(
        &mut self,
        wanted: usize,
        [beside, spare]: [usize; 2],
        table: &mut Vec<BlockId>,
        window: &mut WindowBlocks,
    ) -> Result<(), Lacking> {
        let tables = self.window_tables();
        let found = || table.iter().chain(window.held(tables));
        let held_by_others = found().filter(|&&block| self.blocks[block as usize].references > 0).count();
        let lacking = Lacking { free_blocks: wanted + window.held(tables).len() + beside - held_by_others };
        if lacking.free_blocks + spare > self.free.len {
            table.clear();
            window.clear();
            return Err(lacking);
        }
        for &block in table.iter().chain(window.held(tables)) {
            self.hold(block);
        }
        while table.len() < wanted {
            let block = self.take().expect("enough blocks were free");
            table.push(block);
        }
        Ok(())
    }

    /// Takes the free block that was used least recently, and holds it once; what it held is not cached any more.
    pub fn take(&mut self) -> Option<BlockId> {
        let block = self.free.first;
        if block == NONE {
            return None;
        }
        self.hold(block);
        self.counts.evictions += u64::from(self.blocks[block as usize].cached.is_some());
        self.forget(block);
        Some(block)
    }

    /// Holds blocks once more that are held already: they stay until they are [released](Self::release) once more.
    pub fn keep(&mut self, blocks: &[BlockId]) {
        for &block in blocks {
            assert!(self.blocks[block as usize].references > 0, "block {block} is not held yet");
            self.hold(block);
        }
    }

    /// Holds blocks that hang on cached ones, whether anybody holds them or not.
    pub fn hold_again(&mut self, blocks: &[BlockId]) {
        blocks.iter().for_each(|&block| self.hold(block));
    }

    /// Removes all free blocks from the cache.
    pub fn reset(&mut self) {
        let mut block = self.free.first;
        while block != NONE {
            self.forget(block);
            block = self.blocks[block as usize].after;
        }
    }

    /// Releases the blocks of a sequence, the last one first, so that it is reused before the first one.
    pub fn release(&mut self, table: &mut Vec<BlockId>) {
        self.release_some(table);
        table.clear();
    }

    /// Releases some blocks of a sequence, the last one first.
    pub fn release_some(&mut self, blocks: &[BlockId]) {
        blocks.iter().rev().for_each(|&block| self.let_go(block));
    }

    /// Caches a full block whose keys and values are computed. Returns the prefix that ends with it.
    ///
    /// `parent` is the prefix before the block. When another sequence has cached the same prefix, `block` becomes that
    /// sequence's block and the copy is released: one copy of a prefix is enough, and each block in a chain of cached blocks
    /// is held by all sequences that hold the next one.
    pub fn cache_block(&mut self, parent: PrefixId, content: &[TokenId], block: &mut BlockId) -> PrefixId {
        debug_assert_eq!(content.len(), self.block_size);
        if self.cache == PrefixCache::Off {
            return parent;
        }
        if let Some((twin, prefix)) = self.find(parent, content) {
            debug_assert_ne!(twin, *block, "a block is cached once");
            self.hold(twin);
            self.let_go(*block);
            *block = twin;
            return prefix;
        }
        self.prefixes_made += 1;
        let prefix = PrefixId::Cached(self.prefixes_made);
        let bucket = self.bucket(parent, content);
        let start = *block as usize * self.block_size;
        self.tokens[start..start + self.block_size].copy_from_slice(content);
        let next = self.buckets[bucket as usize];
        self.blocks[*block as usize].cached = Some(CachedBlock { prefix, parent, bucket, next });
        self.buckets[bucket as usize] = *block;
        prefix
    }

    /// The cached block that continues `parent` with `content`.
    fn find(&self, parent: PrefixId, content: &[TokenId]) -> Option<(BlockId, PrefixId)> {
        if self.cache == PrefixCache::Off {
            return None;
        }
        let mut block = self.buckets[self.bucket(parent, content) as usize];
        while block != NONE {
            let cached = self.blocks[block as usize].cached.expect("only cached blocks are in a bucket");
            if cached.parent == parent && self.content(block) == content {
                return Some((block, cached.prefix));
            }
            block = cached.next;
        }
        None
    }

    /// Whether the model keeps recurrent state.
    pub fn keeps_states(&self) -> bool {
        self.states.is_used()
    }

    /// The recurrent states.
    pub fn states(&mut self) -> &mut StateSlots {
        &mut self.states
    }

    /// Takes a slot for a recurrent state, of which `None` may be had while sequences and passes hold all. The checkpoint that was used least recently
    /// may give way.
    pub fn take_state(&mut self) -> Option<StateSlot> {
        let (slot, block) = self.states.take()?;
        if let Some(block) = block {
            self.blocks[block as usize].checkpoint = NO_STATE;
        }
        Some(slot)
    }

    /// Takes a slot for a sequence that continues the state in `source`, and locks this one until the sequence has read it. Where there is no other
    /// slot, the sequence gets `source` itself, which is a checkpoint no more.
    pub fn take_state_after(&mut self, source: StateSlot, last: BlockId) -> Option<StateSlot> {
        self.states.lock(source);
        if let Some(slot) = self.take_state() {
            return Some(slot);
        }
        self.states.unlock(source);
        let block = &mut self.blocks[last as usize];
        debug_assert_eq!(block.checkpoint, source);
        if !self.states.become_held(source) {
            return None;
        }
        block.checkpoint = NO_STATE;
        Some(source)
    }

    /// Makes the state in `slot`, which the caller holds, the checkpoint of a block, or gives the slot up where the block has one or is not cached.
    pub fn hang_checkpoint(&mut self, block: BlockId, slot: StateSlot) {
        let at = &mut self.blocks[block as usize];
        if at.cached.is_none() || at.checkpoint != NO_STATE {
            self.states.give_up(slot);
            return;
        }
        at.checkpoint = slot;
        self.states.become_checkpoint(slot, block);
    }

    /// The recurrent state after a cached block, or [`NO_STATE`].
    pub fn checkpoint(&self, block: BlockId) -> StateSlot {
        self.blocks[block as usize].checkpoint
    }

    fn bucket(&self, parent: PrefixId, content: &[TokenId]) -> u32 {
        (self.hasher.hash_one((parent, content)) & (self.buckets.len() as u64 - 1)) as u32
    }

    fn content(&self, block: BlockId) -> &[TokenId] {
        let start = block as usize * self.block_size;
        &self.tokens[start..start + self.block_size]
    }

    /// Removes a block from its bucket, and takes apart what hangs on it, or what it is a part of.
    fn forget(&mut self, block: BlockId) {
        let hangs_on = self.blocks[block as usize].hangs_on;
        if hangs_on != NONE {
            self.drop_window_entry(hangs_on);
        }
        self.drop_window_entry(block);
        let checkpoint = std::mem::replace(&mut self.blocks[block as usize].checkpoint, NO_STATE);
        if checkpoint != NO_STATE {
            self.states.give_up(checkpoint);
        }
        let Some(cached) = self.blocks[block as usize].cached.take() else { return };
        let mut at = self.buckets[cached.bucket as usize];
        if at == block {
            self.buckets[cached.bucket as usize] = cached.next;
            return;
        }
        loop {
            let link = self.blocks[at as usize].cached.as_mut().expect("only cached blocks are in a bucket");
            if link.next == block {
                link.next = cached.next;
                return;
            }
            at = link.next;
        }
    }

    fn hold(&mut self, block: BlockId) {
        if self.blocks[block as usize].references == 0 {
            self.free.remove(&mut self.blocks, block);
        }
        self.blocks[block as usize].references += 1;
    }

    fn let_go(&mut self, block: BlockId) {
        let references = &mut self.blocks[block as usize].references;
        assert!(*references > 0, "block {block} was released twice");
        *references -= 1;
        if *references > 0 {
            return;
        }
        let Block { cached, hangs_on, .. } = self.blocks[block as usize];
        match cached.is_some() || hangs_on != NONE {
            // Worth keeping: reused last.
            true => self.free.push_back(&mut self.blocks, block),
            // It holds nothing that a lookup can find: reused first.
            false => self.free.push_front(&mut self.blocks, block),
        }
    }
}

impl FreeQueue {
    fn push_back(&mut self, blocks: &mut [Block], block: BlockId) {
        (blocks[block as usize].before, blocks[block as usize].after) = (self.last, NONE);
        match self.last {
            NONE => self.first = block,
            last => blocks[last as usize].after = block,
        }
        self.last = block;
        self.len += 1;
    }

    fn push_front(&mut self, blocks: &mut [Block], block: BlockId) {
        (blocks[block as usize].before, blocks[block as usize].after) = (NONE, self.first);
        match self.first {
            NONE => self.last = block,
            first => blocks[first as usize].before = block,
        }
        self.first = block;
        self.len += 1;
    }

    fn remove(&mut self, blocks: &mut [Block], block: BlockId) {
        let Block { before, after, .. } = blocks[block as usize];
        match before {
            NONE => self.first = after,
            before => blocks[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            after => blocks[after as usize].before = before,
        }
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests;
