//! Inputs of the cases: batches over a shuffled cache.

pub use crate::inputs::{Random, uploaded};
use compute::batch::{Batch, Sampling};

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
