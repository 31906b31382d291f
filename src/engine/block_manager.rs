//! Hands out KV blocks, and finds those that already hold the prefix of a prompt.
//!
//! A block is held by the sequences that count in its `references`. A block that nobody holds is free, but stays findable
//! until it is reused: free blocks form a line, the least recently used in front, and of one sequence the tail stands
//! before the head. So a prefix is always findable from its beginning on.
//!
//! A full block whose keys and values are computed is *published*: it gets a [`PrefixId`], which stands for all tokens
//! from the start of the sequence to the end of the block. It is looked up by the id of the prefix before it and its own
//! tokens, and both are compared, so that two different prefixes are never taken for one another, whatever their hashes.
//!
//! Everything is sized when the manager is made; nothing allocates after that.

use super::options::PrefixCache;
use crate::batch::{BlockId, TokenId};
use std::hash::{BuildHasher, RandomState};

/// Stands for "no block" in the links, so that a link takes four bytes.
const NONE: u32 = u32::MAX;

/// The tokens from the start of a sequence to the end of a published block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PrefixId(u64);

impl PrefixId {
    /// The prefix without tokens.
    pub const EMPTY: PrefixId = PrefixId(0);
}

/// What [`BlockManager::try_allocate`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPrefix {
    /// Blocks at the start of the table that already hold the first tokens.
    pub blocks: usize,
    /// The prefix that they hold.
    pub prefix: PrefixId,
}

/// The answer "not now".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lacking {
    /// So many blocks would have to be free, besides those to be spared.
    pub free_blocks: usize,
}

/// The pool of KV blocks.
pub struct BlockManager {
    block_size: usize,
    cache: PrefixCache,
    blocks: Vec<Block>,
    /// Tokens of the published blocks. `[blocks, block_size]`
    tokens: Vec<TokenId>,
    free: Line,
    /// First published block of each hash value. `[power of two]`
    buckets: Vec<u32>,
    hasher: RandomState,
    prefixes_made: u64,
}

/// One block of the pool.
#[derive(Clone, Copy)]
struct Block {
    /// Sequences that hold it.
    references: u32,
    /// Neighbours in the line of free blocks.
    before: u32,
    after: u32,
    /// What it holds, once it is published.
    published: Option<Published>,
}

/// How a published block is found.
#[derive(Clone, Copy)]
struct Published {
    /// The prefix that ends with this block.
    prefix: PrefixId,
    /// The prefix that ends before it.
    parent: PrefixId,
    bucket: u32,
    /// Next block of the same bucket.
    next: u32,
}

/// The line of free blocks, linked through the blocks themselves.
struct Line {
    first: u32,
    last: u32,
    len: usize,
}

impl BlockManager {
    /// A pool of `blocks` free blocks of `block_size` tokens.
    pub fn new(blocks: usize, block_size: usize, cache: PrefixCache) -> BlockManager {
        assert!(blocks < NONE as usize && block_size > 0, "{blocks} blocks of {block_size} tokens");
        let remembered = match cache {
            PrefixCache::On => blocks,
            PrefixCache::Off => 0,
        };
        let mut manager = BlockManager {
            block_size,
            cache,
            blocks: vec![Block { references: 0, before: NONE, after: NONE, published: None }; blocks],
            tokens: vec![0; remembered * block_size],
            free: Line { first: NONE, last: NONE, len: 0 },
            buckets: vec![NONE; remembered.next_power_of_two()],
            hasher: RandomState::new(),
            prefixes_made: 0,
        };
        for block in 0..blocks as u32 {
            manager.free.push_back(&mut manager.blocks, block);
        }
        manager
    }

    /// Blocks of the pool.
    pub fn total_blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that no sequence holds.
    pub fn free_blocks(&self) -> usize {
        self.free.len
    }

    /// Fills the empty `table` with blocks for `tokens`, sharing those that already hold its prefix, and leaves at least
    /// `spare` blocks free.
    ///
    /// The last token is never shared, because it has to be computed for the token after it to be known. Changes nothing
    /// while too few blocks are free. That is ordinary: the sequence keeps waiting.
    pub fn try_allocate(
        &mut self,
        tokens: &[TokenId],
        spare: usize,
        table: &mut Vec<BlockId>,
    ) -> Result<SharedPrefix, Lacking> {
        debug_assert!(table.is_empty(), "the sequence holds blocks already");
        let mut shared = SharedPrefix { blocks: 0, prefix: PrefixId::EMPTY };
        for content in tokens[..tokens.len().saturating_sub(1)].chunks_exact(self.block_size) {
            let Some((block, prefix)) = self.find(shared.prefix, content) else { break };
            table.push(block);
            shared = SharedPrefix { blocks: shared.blocks + 1, prefix };
        }
        self.complete(tokens.len(), spare, table)?;
        Ok(shared)
    }

    /// Like [`try_allocate`](Self::try_allocate), for a sequence that begins like another one which runs: `held` are blocks
    /// of that one, full of computed keys and values for the first of `tokens`. They are shared without a prefix cache, too.
    pub fn try_share(
        &mut self,
        tokens: &[TokenId],
        held: &[BlockId],
        spare: usize,
        table: &mut Vec<BlockId>,
    ) -> Result<SharedPrefix, Lacking> {
        if self.cache == PrefixCache::On {
            // They are published, so that they are found, and with them the prefix that they hold.
            return self.try_allocate(tokens, spare, table);
        }
        let shareable = tokens.len().saturating_sub(1) / self.block_size;
        table.extend_from_slice(&held[..held.len().min(shareable)]);
        let shared = SharedPrefix { blocks: table.len(), prefix: PrefixId::EMPTY };
        self.complete(tokens.len(), spare, table)?;
        Ok(shared)
    }

    /// Like [`try_allocate`](Self::try_allocate), but shares nothing: each of so many tokens is to be computed.
    pub fn try_allocate_unshared(
        &mut self,
        tokens: usize,
        spare: usize,
        table: &mut Vec<BlockId>,
    ) -> Result<SharedPrefix, Lacking> {
        debug_assert!(table.is_empty(), "the sequence holds blocks already");
        self.complete(tokens, spare, table)?;
        Ok(SharedPrefix { blocks: 0, prefix: PrefixId::EMPTY })
    }

    /// Holds the blocks in `table` once more, and adds free ones until it has room for `tokens`; or clears it, where that
    /// would leave fewer than `spare` blocks free.
    fn complete(&mut self, tokens: usize, spare: usize, table: &mut Vec<BlockId>) -> Result<(), Lacking> {
        let wanted = tokens.div_ceil(self.block_size);
        let held_by_others = table.iter().filter(|&&block| self.blocks[block as usize].references > 0).count();
        let lacking = Lacking { free_blocks: wanted - held_by_others };
        if lacking.free_blocks + spare > self.free.len {
            table.clear();
            return Err(lacking);
        }
        for &block in table.iter() {
            self.hold(block);
        }
        while table.len() < wanted {
            let block = self.take().expect("enough blocks were free");
            table.push(block);
        }
        Ok(())
    }

    /// The free block that was used least recently, now held once; what it held can no longer be found.
    pub fn take(&mut self) -> Option<BlockId> {
        let block = self.free.first;
        if block == NONE {
            return None;
        }
        self.hold(block);
        self.forget(block);
        Some(block)
    }

    /// Gives a sequence's blocks back, the tail first, so that it is reused before the head.
    pub fn release(&mut self, table: &mut Vec<BlockId>) {
        while let Some(block) = table.pop() {
            self.let_go(block);
        }
    }

    /// Makes a full block findable, whose keys and values are computed. Returns the prefix that ends with it.
    ///
    /// `parent` is the prefix before the block. When the same prefix has been published by another sequence, `block`
    /// becomes that sequence's block and the own copy is given back: one copy of a prefix is enough, and a chain of
    /// published blocks never has a foreign link that somebody else could lose.
    pub fn publish(&mut self, parent: PrefixId, content: &[TokenId], block: &mut BlockId) -> PrefixId {
        debug_assert_eq!(content.len(), self.block_size);
        if self.cache == PrefixCache::Off {
            return PrefixId::EMPTY;
        }
        if let Some((twin, prefix)) = self.find(parent, content) {
            debug_assert_ne!(twin, *block, "a block is published once");
            self.hold(twin);
            self.let_go(*block);
            *block = twin;
            return prefix;
        }
        self.prefixes_made += 1;
        let prefix = PrefixId(self.prefixes_made);
        let bucket = self.bucket(parent, content);
        let start = *block as usize * self.block_size;
        self.tokens[start..start + self.block_size].copy_from_slice(content);
        let next = self.buckets[bucket as usize];
        self.blocks[*block as usize].published = Some(Published { prefix, parent, bucket, next });
        self.buckets[bucket as usize] = *block;
        prefix
    }

    /// The published block that continues `parent` with `content`.
    fn find(&self, parent: PrefixId, content: &[TokenId]) -> Option<(BlockId, PrefixId)> {
        if self.cache == PrefixCache::Off {
            return None;
        }
        let mut block = self.buckets[self.bucket(parent, content) as usize];
        while block != NONE {
            let published = self.blocks[block as usize].published.expect("only published blocks are in a bucket");
            if published.parent == parent && self.content(block) == content {
                return Some((block, published.prefix));
            }
            block = published.next;
        }
        None
    }

    fn bucket(&self, parent: PrefixId, content: &[TokenId]) -> u32 {
        (self.hasher.hash_one((parent, content)) & (self.buckets.len() as u64 - 1)) as u32
    }

    fn content(&self, block: BlockId) -> &[TokenId] {
        let start = block as usize * self.block_size;
        &self.tokens[start..start + self.block_size]
    }

    /// Takes a block out of its bucket.
    fn forget(&mut self, block: BlockId) {
        let Some(published) = self.blocks[block as usize].published.take() else { return };
        let mut at = self.buckets[published.bucket as usize];
        if at == block {
            self.buckets[published.bucket as usize] = published.next;
            return;
        }
        loop {
            let link = self.blocks[at as usize].published.as_mut().expect("only published blocks are in a bucket");
            if link.next == block {
                link.next = published.next;
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
        assert!(*references > 0, "block {block} was given back twice");
        *references -= 1;
        if *references > 0 {
            return;
        }
        match self.blocks[block as usize].published {
            // Worth keeping: reused last.
            Some(_) => self.free.push_back(&mut self.blocks, block),
            // Nobody can find what it holds: reused first.
            None => self.free.push_front(&mut self.blocks, block),
        }
    }
}

impl Line {
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
mod tests {
    use super::*;

    /// Allocates `tokens` and publishes all of its full blocks, as a sequence does that ran.
    fn computed(pool: &mut BlockManager, tokens: &[TokenId]) -> Vec<BlockId> {
        let mut table = Vec::new();
        let shared = pool.try_allocate(tokens, 0, &mut table).expect("blocks are free");
        publish_from(pool, shared, tokens, &mut table);
        table
    }

    fn publish_from(pool: &mut BlockManager, shared: SharedPrefix, tokens: &[TokenId], table: &mut [BlockId]) {
        let mut prefix = shared.prefix;
        for (content, block) in tokens.chunks_exact(pool.block_size).zip(table).skip(shared.blocks) {
            prefix = pool.publish(prefix, content, block);
        }
    }

    fn allocate(pool: &mut BlockManager, tokens: &[TokenId]) -> (Vec<BlockId>, usize) {
        let mut table = Vec::new();
        let shared = pool.try_allocate(tokens, 0, &mut table).expect("blocks are free");
        (table, shared.blocks)
    }

    #[test]
    fn a_refused_allocation_leaves_the_pool_untouched() {
        let mut pool = BlockManager::new(3, 4, PrefixCache::On);
        let mut held = computed(&mut pool, &[7; 5]);
        pool.release(&mut held);
        let mut table = Vec::new();
        let refusal = pool.try_allocate(&[7; 13], 0, &mut table);
        assert_eq!(refusal, Err(Lacking { free_blocks: 4 }), "13 tokens need 4 blocks of 4");
        assert_eq!((pool.free_blocks(), table.len()), (3, 0));
        assert_eq!(allocate(&mut pool, &[7; 5]).1, 1, "and what was findable still is");
    }

    #[test]
    fn spare_blocks_are_left_free() {
        let mut pool = BlockManager::new(3, 4, PrefixCache::On);
        assert_eq!(pool.try_allocate(&[1; 8], 2, &mut Vec::new()), Err(Lacking { free_blocks: 2 }));
        assert!(pool.try_allocate(&[1; 8], 1, &mut Vec::new()).is_ok());
    }

    #[test]
    fn a_prefix_is_shared_block_by_block_but_never_the_last_token() {
        struct Case {
            name: &'static str,
            tokens: &'static [TokenId],
            shared: usize,
        }
        const CASES: &[Case] = &[
            Case { name: "the same prompt", tokens: &[1, 2, 3, 4, 5, 6, 7, 8], shared: 1 },
            Case { name: "one token more", tokens: &[1, 2, 3, 4, 5, 6, 7, 8, 9], shared: 2 },
            Case { name: "another second block", tokens: &[1, 2, 3, 4, 5, 6, 7, 0, 9], shared: 1 },
            Case { name: "another first block", tokens: &[0, 2, 3, 4, 5, 6, 7, 8, 9], shared: 0 },
            Case { name: "shorter than a block", tokens: &[1, 2, 3], shared: 0 },
            Case { name: "the second block alone", tokens: &[5, 6, 7, 8, 9], shared: 0 },
        ];
        for case in CASES {
            let mut pool = BlockManager::new(8, 4, PrefixCache::On);
            let first = computed(&mut pool, &[1, 2, 3, 4, 5, 6, 7, 8]);
            let (table, shared) = allocate(&mut pool, case.tokens);
            assert_eq!(shared, case.shared, "{}", case.name);
            assert_eq!(table[..shared], first[..shared], "{}", case.name);
            assert!(table[shared..].iter().all(|block| !first.contains(block)), "{}", case.name);
            assert_eq!(table.len(), case.tokens.len().div_ceil(4), "{}", case.name);
        }
    }

    #[test]
    fn a_block_is_not_findable_before_it_is_published() {
        let mut pool = BlockManager::new(8, 2, PrefixCache::On);
        let (mut table, _) = allocate(&mut pool, &[1, 2, 3, 4, 5]);
        assert_eq!(allocate(&mut pool, &[1, 2, 3, 4, 5]).1, 0);
        pool.publish(PrefixId::EMPTY, &[1, 2], &mut table[0]);
        assert_eq!(allocate(&mut pool, &[1, 2, 3, 4, 5]).1, 1);
    }

    #[test]
    fn two_copies_of_a_prefix_become_one_when_published() {
        let mut pool = BlockManager::new(6, 2, PrefixCache::On);
        let tokens = [1, 2, 3, 4, 5];
        let ((mut first, none), (mut second, _)) = (allocate(&mut pool, &tokens), allocate(&mut pool, &tokens));
        assert_eq!((none, pool.free_blocks()), (0, 0));
        let nothing_shared = SharedPrefix { blocks: 0, prefix: PrefixId::EMPTY };
        publish_from(&mut pool, nothing_shared, &tokens, &mut first);
        publish_from(&mut pool, nothing_shared, &tokens, &mut second);
        assert_eq!(first[..2], second[..2]);
        assert_ne!(first[2], second[2], "a block that is not full stays private");
        assert_eq!(pool.free_blocks(), 2);
        pool.release(&mut first);
        assert_eq!(pool.free_blocks(), 3, "what the other sequence holds is not free");
        pool.release(&mut second);
        assert_eq!(pool.free_blocks(), 6);
    }

    #[test]
    fn released_blocks_are_reused_oldest_first_and_tail_before_head() {
        let mut pool = BlockManager::new(4, 2, PrefixCache::On);
        let mut old = computed(&mut pool, &[1, 2, 3, 4]);
        let mut young = computed(&mut pool, &[5, 6, 7, 8]);
        let expected = [old[1], old[0], young[1], young[0]];
        pool.release(&mut old);
        pool.release(&mut young);
        assert_eq!([(); 4].map(|()| pool.take().unwrap()), expected);
        assert_eq!(pool.take(), None);
    }

    #[test]
    fn blocks_without_findable_content_are_reused_before_others() {
        let mut pool = BlockManager::new(3, 2, PrefixCache::On);
        let mut table = computed(&mut pool, &[1, 2, 3]);
        let (findable, partial) = (table[0], table[1]);
        let untouched = 3 - findable - partial;
        pool.release(&mut table);
        assert_eq!([(); 3].map(|()| pool.take().unwrap()), [partial, untouched, findable]);
    }

    #[test]
    fn a_reused_block_is_not_found_any_more() {
        let mut pool = BlockManager::new(2, 2, PrefixCache::On);
        let mut table = computed(&mut pool, &[1, 2, 3, 4]);
        pool.release(&mut table);
        pool.take().unwrap();
        let (_, shared) = allocate(&mut pool, &[1, 2]);
        assert_eq!(shared, 0, "a prompt's last token is computed");
        assert_eq!(pool.free_blocks(), 0);
    }

    #[test]
    fn a_prefix_that_was_lost_and_computed_again_does_not_revive_what_followed_it() {
        let mut pool = BlockManager::new(6, 1, PrefixCache::On);
        let mut first = computed(&mut pool, &[1, 2]);
        let child = first[1];
        pool.let_go(first.remove(0));
        for _ in 0..5 {
            pool.take().unwrap();
        }
        assert_eq!(first, [child]);
        let parent = pool.publish(PrefixId::EMPTY, &[1], &mut 0);
        assert_eq!(pool.find(parent, &[2]), None);
    }

    #[test]
    fn blocks_of_one_bucket_are_found_and_forgotten_one_by_one() {
        let mut pool = BlockManager::new(64, 1, PrefixCache::On);
        pool.buckets.truncate(1);
        let mut tables: Vec<_> = (0..64).map(|token| computed(&mut pool, &[token])).collect();
        assert!((0..64).all(|token| pool.find(PrefixId::EMPTY, &[token]).is_some()));
        for table in &mut tables[16..48] {
            pool.release(table);
        }
        while pool.take().is_some() {}
        for token in 0..64 {
            assert_eq!(pool.find(PrefixId::EMPTY, &[token]).is_some(), !(16..48).contains(&token), "{token}");
        }
    }

    #[test]
    fn without_prefix_cache_nothing_is_shared() {
        let mut pool = BlockManager::new(8, 2, PrefixCache::Off);
        computed(&mut pool, &[1, 2, 3]);
        assert_eq!(allocate(&mut pool, &[1, 2, 3]).1, 0);
        assert_eq!(pool.free_blocks(), 4);
    }

    #[test]
    #[should_panic(expected = "given back twice")]
    fn a_block_given_back_twice_is_a_bug() {
        let mut pool = BlockManager::new(2, 2, PrefixCache::On);
        let block = pool.take().unwrap();
        pool.release(&mut vec![block, block]);
    }

    #[test]
    fn blocks_of_a_running_sequence_are_shared_with_and_without_a_cache() {
        for cache in [PrefixCache::On, PrefixCache::Off] {
            let mut pool = BlockManager::new(6, 4, cache);
            let (mut first, mut second) = (Vec::new(), Vec::new());
            pool.try_allocate(&[7; 8], 0, &mut first).expect("blocks are free");
            let mut prefix = PrefixId::EMPTY;
            for block in &mut first {
                prefix = pool.publish(prefix, &[7; 4], block);
            }
            let refusal = pool.try_share(&[7; 8], &first, 4, &mut second);
            assert_eq!((refusal, second.len()), (Err(Lacking { free_blocks: 1 }), 0), "{cache:?}: nothing changes");
            let shared = pool.try_share(&[7; 8], &first, 3, &mut second).expect("one free block is enough");
            assert_eq!(shared.blocks, 1, "{cache:?}: the last token is computed, so its block is an own one");
            assert!(second[0] == first[0] && second[1] != first[1] && pool.free_blocks() == 3, "{cache:?}");
            pool.release(&mut first);
            assert_eq!(pool.free_blocks(), 4, "{cache:?}: the shared block is still held");
            pool.release(&mut second);
            assert_eq!(pool.free_blocks(), 6, "{cache:?}");
        }
    }
}
