use super::*;

const EMPTY: PrefixId = PrefixId::Empty { salt: 0 };

/// Allocates `tokens` and caches all of its full blocks, as a sequence does that ran.
fn computed(pool: &mut BlockManager, tokens: &[TokenId]) -> Vec<BlockId> {
    let mut table = Vec::new();
    let shared =
        pool.try_allocate(EMPTY, tokens, 0, &mut table, &mut WindowBlocks::default()).expect("blocks are free");
    cache_from(pool, shared, tokens, &mut table);
    table
}

fn cache_from(pool: &mut BlockManager, shared: SharedPrefix, tokens: &[TokenId], table: &mut [BlockId]) {
    let mut prefix = shared.prefix;
    for (content, block) in tokens.chunks_exact(pool.block_size).zip(table).skip(shared.blocks) {
        prefix = pool.cache_block(prefix, content, block);
    }
}

fn allocate(pool: &mut BlockManager, tokens: &[TokenId]) -> (Vec<BlockId>, usize) {
    let mut table = Vec::new();
    let shared =
        pool.try_allocate(EMPTY, tokens, 0, &mut table, &mut WindowBlocks::default()).expect("blocks are free");
    (table, shared.blocks)
}

#[test]
fn a_refused_allocation_leaves_the_pool_untouched() {
    let mut pool = BlockManager::new(3, 4, PrefixCache::On).unwrap();
    let mut held = computed(&mut pool, &[7; 5]);
    pool.release(&mut held);
    let mut table = Vec::new();
    let refusal = pool.try_allocate(EMPTY, &[7; 13], 0, &mut table, &mut WindowBlocks::default());
    assert_eq!(refusal, Err(Lacking { free_blocks: 4 }), "13 tokens need 4 blocks of 4");
    assert_eq!((pool.free_blocks(), table.len()), (3, 0));
    assert_eq!(allocate(&mut pool, &[7; 5]).1, 1, "and what was cached still is");
}

#[test]
fn spare_blocks_are_left_free() {
    let mut pool = BlockManager::new(3, 4, PrefixCache::On).unwrap();
    assert_eq!(
        pool.try_allocate(EMPTY, &[1; 8], 2, &mut Vec::new(), &mut WindowBlocks::default()),
        Err(Lacking { free_blocks: 2 })
    );
    assert!(pool.try_allocate(EMPTY, &[1; 8], 1, &mut Vec::new(), &mut WindowBlocks::default()).is_ok());
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
        let mut pool = BlockManager::new(8, 4, PrefixCache::On).unwrap();
        let first = computed(&mut pool, &[1, 2, 3, 4, 5, 6, 7, 8]);
        let (table, shared) = allocate(&mut pool, case.tokens);
        assert_eq!(shared, case.shared, "{}", case.name);
        assert_eq!(table[..shared], first[..shared], "{}", case.name);
        assert!(table[shared..].iter().all(|block| !first.contains(block)), "{}", case.name);
        assert_eq!(table.len(), case.tokens.len().div_ceil(4), "{}", case.name);
    }
}

#[test]
fn a_block_is_not_found_before_it_is_cached() {
    let mut pool = BlockManager::new(8, 2, PrefixCache::On).unwrap();
    let (mut table, _) = allocate(&mut pool, &[1, 2, 3, 4, 5]);
    assert_eq!(allocate(&mut pool, &[1, 2, 3, 4, 5]).1, 0);
    pool.cache_block(EMPTY, &[1, 2], &mut table[0]);
    assert_eq!(allocate(&mut pool, &[1, 2, 3, 4, 5]).1, 1);
}

#[test]
fn two_copies_of_a_prefix_become_one_when_cached() {
    let mut pool = BlockManager::new(6, 2, PrefixCache::On).unwrap();
    let tokens = [1, 2, 3, 4, 5];
    let ((mut first, none), (mut second, _)) = (allocate(&mut pool, &tokens), allocate(&mut pool, &tokens));
    assert_eq!((none, pool.free_blocks()), (0, 0));
    let nothing_shared = SharedPrefix { blocks: 0, prefix: EMPTY, state: NO_STATE };
    cache_from(&mut pool, nothing_shared, &tokens, &mut first);
    cache_from(&mut pool, nothing_shared, &tokens, &mut second);
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
    let mut pool = BlockManager::new(4, 2, PrefixCache::On).unwrap();
    let mut old = computed(&mut pool, &[1, 2, 3, 4]);
    let mut young = computed(&mut pool, &[5, 6, 7, 8]);
    let expected = [old[1], old[0], young[1], young[0]];
    pool.release(&mut old);
    pool.release(&mut young);
    assert_eq!([(); 4].map(|()| pool.take().unwrap()), expected);
    assert_eq!(pool.take(), None);
}

#[test]
fn blocks_without_cached_content_are_reused_before_others() {
    let mut pool = BlockManager::new(3, 2, PrefixCache::On).unwrap();
    let mut table = computed(&mut pool, &[1, 2, 3]);
    let (cached, partial) = (table[0], table[1]);
    let untouched = 3 - cached - partial;
    pool.release(&mut table);
    assert_eq!([(); 3].map(|()| pool.take().unwrap()), [partial, untouched, cached]);
}

#[test]
fn a_reused_block_is_not_found_any_more() {
    let mut pool = BlockManager::new(2, 2, PrefixCache::On).unwrap();
    let mut table = computed(&mut pool, &[1, 2, 3, 4]);
    pool.release(&mut table);
    pool.take().unwrap();
    let (_, shared) = allocate(&mut pool, &[1, 2]);
    assert_eq!(shared, 0, "a prompt's last token is computed");
    assert_eq!(pool.free_blocks(), 0);
}

#[test]
fn a_prefix_that_was_lost_and_computed_again_does_not_revive_what_followed_it() {
    let mut pool = BlockManager::new(6, 1, PrefixCache::On).unwrap();
    let mut first = computed(&mut pool, &[1, 2]);
    let child = first[1];
    pool.let_go(first.remove(0));
    for _ in 0..5 {
        pool.take().unwrap();
    }
    assert_eq!(first, [child]);
    let parent = pool.cache_block(EMPTY, &[1], &mut 0);
    assert_eq!(pool.find(parent, &[2]), None);
}

#[test]
fn blocks_of_one_bucket_are_found_and_forgotten_one_by_one() {
    let mut pool = BlockManager::new(64, 1, PrefixCache::On).unwrap();
    pool.buckets.truncate(1);
    let mut tables: Vec<_> = (0..64).map(|token| computed(&mut pool, &[token])).collect();
    assert!((0..64).all(|token| pool.find(EMPTY, &[token]).is_some()));
    for table in &mut tables[16..48] {
        pool.release(table);
    }
    while pool.take().is_some() {}
    for token in 0..64 {
        assert_eq!(pool.find(EMPTY, &[token]).is_some(), !(16..48).contains(&token), "{token}");
    }
}

#[test]
fn without_prefix_cache_nothing_is_shared() {
    let mut pool = BlockManager::new(8, 2, PrefixCache::Off).unwrap();
    computed(&mut pool, &[1, 2, 3]);
    assert_eq!(allocate(&mut pool, &[1, 2, 3]).1, 0);
    assert_eq!(pool.free_blocks(), 4);
}

#[test]
#[should_panic(expected = "released twice")]
fn a_block_given_back_twice_is_a_bug() {
    let mut pool = BlockManager::new(2, 2, PrefixCache::On).unwrap();
    let block = pool.take().unwrap();
    pool.release(&mut vec![block, block]);
}

#[test]
fn blocks_of_a_running_sequence_are_shared_with_and_without_a_cache() {
    for cache in [PrefixCache::On, PrefixCache::Off] {
        let mut pool = BlockManager::new(6, 4, cache).unwrap();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        pool.try_allocate(EMPTY, &[7; 8], 0, &mut first, &mut WindowBlocks::default()).expect("blocks are free");
        let mut prefix = EMPTY;
        for block in &mut first {
            prefix = pool.cache_block(prefix, &[7; 4], block);
        }
        let refusal = pool.try_share(
            EMPTY,
            &[7; 8],
            (&first, WindowEntries::default()),
            4,
            &mut second,
            &mut WindowBlocks::default(),
        );
        assert_eq!((refusal, second.len()), (Err(Lacking { free_blocks: 1 }), 0), "{cache:?}: nothing changes");
        let shared = pool
            .try_share(EMPTY, &[7; 8], (&first, WindowEntries::default()), 3, &mut second, &mut WindowBlocks::default())
            .expect("one free block is enough");
        assert_eq!(shared.blocks, 1, "{cache:?}: the last token is computed, so its block is an own one");
        assert!(second[0] == first[0] && second[1] != first[1] && pool.free_blocks() == 3, "{cache:?}");
        pool.release(&mut first);
        assert_eq!(pool.free_blocks(), 4, "{cache:?}: the shared block is still held");
        pool.release(&mut second);
        assert_eq!(pool.free_blocks(), 6, "{cache:?}");
    }
}

/// Gets memory for at most `left` blocks at once; notes what it was asked for.
fn memory(left: usize, asked: &mut Vec<Vec<BlockId>>) -> impl FnMut(&[BlockId]) -> error::Result<()> {
    move |blocks| {
        asked.push(blocks.to_vec());
        let bytes = blocks.len() as u64;
        let refused = error::Error::OutOfMemory { what: "the KV cache", bytes, knob: "kv_cache_bytes" };
        if blocks.len() <= left { Ok(()) } else { Err(refused) }
    }
}

#[test]
fn withdrawn_blocks_are_neither_found_nor_taken_until_they_have_memory_again() {
    let mut pool = BlockManager::new(256, 1, PrefixCache::On).unwrap();
    let held = computed(&mut pool, &[1, 2]);
    let mut gone = computed(&mut pool, &[3, 4]);
    pool.release(&mut gone);
    let mut unused = pool.unused().unwrap();
    assert_eq!(unused.iter().filter(|&&unused| !unused).count(), 2);
    // This one is needed besides.
    unused[100] = false;
    pool.withdraw(&unused);
    assert_eq!((pool.free_blocks(), pool.used_blocks(), pool.counts().evictions), (1, 2, 2));
    assert!(pool.find(EMPTY, &[3]).is_none() && pool.find(EMPTY, &[1]).is_some());
    assert_eq!((pool.take(), pool.take()), (Some(100), None));
    pool.withdraw(&unused);
    assert_eq!(pool.used_blocks(), 3, "twice changes nothing");

    let first: Vec<BlockId> = (0..256).filter(|block| !held.contains(block) && *block != 100).collect();
    let mut asked = Vec::new();
    assert!(pool.grow(1, &mut memory(9, &mut asked)).unwrap());
    assert_eq!(
        asked,
        [first[..4].iter().rev().copied().collect::<Vec<_>>()],
        "some more than one, the first of the cache"
    );
    assert_eq!(pool.take(), Some(first[0]));
    asked.clear();
    assert!(pool.grow(2, &mut memory(3, &mut asked)).unwrap(), "no more than needed where there is not more");
    assert_eq!((asked.len(), asked[1].len(), pool.free_blocks()), (2, 2, 5));
    asked.clear();
    assert!(matches!(pool.grow(5, &mut memory(4, &mut asked)), Err(error::Error::OutOfMemory { .. })));
    assert_eq!((asked.len(), pool.free_blocks()), (1, 5), "nothing has changed");
    assert!(!pool.grow(300, &mut memory(300, &mut asked)).unwrap(), "more than were withdrawn");
    assert!(pool.grow(247, &mut memory(300, &mut asked)).unwrap());
    assert_eq!((pool.free_blocks(), pool.used_blocks()), (252, 4));
}
