//! Inputs of the cases: random numbers, and batches over a shuffled cache.

use nanovllm::batch::{Batch, BatchLimits, Sampling};

/// Numbers that look random and are the same in every run (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number from 0 to `end`, exclusive.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Numbers from -`size` to `size`.
    pub fn numbers(&mut self, len: usize, size: f32) -> Vec<f32> {
        (0..len).map(|_| ((self.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0) * size).collect()
    }

    /// `0..len` in any order.
    pub fn permutation(&mut self, len: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..len as u32).collect();
        for i in (1..len).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

/// Sequences that own blocks of a cache.
pub struct Sequences {
    /// Tokens of a block.
    pub block_size: usize,
    /// Blocks of the cache.
    pub blocks: usize,
    tables: Vec<Vec<u32>>,
    table_width: usize,
}

/// Some new tokens of a sequence: `new` of them after `before` others.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Which sequence.
    pub sequence: usize,
    /// Tokens that are in the cache already.
    pub before: usize,
    /// New tokens.
    pub new: usize,
}

impl Sequences {
    /// Sequences of at most `lens` tokens, each with blocks from all over a cache that has some to spare.
    pub fn new(random: &mut Random, lens: &[usize], block_size: usize) -> Sequences {
        let needed = |len: &usize| len.div_ceil(block_size);
        let blocks = lens.iter().map(needed).sum::<usize>() + 3;
        let mut free = random.permutation(blocks);
        let tables: Vec<Vec<u32>> = lens.iter().map(|len| free.split_off(free.len() - needed(len))).collect();
        let table_width = tables.iter().map(Vec::len).max().unwrap_or(0) + 1;
        Sequences { block_size, blocks, tables, table_width }
    }

    /// A batch of `rows`, each of which asks for a token.
    pub fn batch(&self, rows: &[Row]) -> Batch {
        let mut batch = Batch { row_starts: vec![0], table_width: self.table_width, ..Batch::default() };
        for row in rows {
            let table = &self.tables[row.sequence];
            for position in row.before..row.before + row.new {
                let slot = table[position / self.block_size] as usize * self.block_size + position % self.block_size;
                batch.token_ids.push(0);
                batch.positions.push(position as u32);
                batch.slots.push(slot as u32);
            }
            batch.row_starts.push(batch.token_ids.len() as u32);
            batch.context_lens.push((row.before + row.new) as u32);
            batch.block_tables.extend(table.iter().copied().chain(std::iter::repeat(0)).take(self.table_width));
            batch.sampled_tokens.push(batch.tokens() as u32 - 1);
            batch.sampling.push(Sampling::GREEDY);
        }
        batch
    }
}

/// Limits that hold `batch`.
pub fn limits(batch: &Batch) -> BatchLimits {
    BatchLimits {
        tokens: batch.tokens().max(1),
        rows: batch.rows().max(batch.samples() + batch.hiddens()).max(1),
        model_len: batch.table_width.max(1),
        block_size: 1,
    }
}
