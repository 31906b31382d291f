//! A step of work: the seam between engine and runner.

/// An index into the model's vocabulary.
pub type TokenId = u32;
/// An index into the pool of KV blocks.
pub type BlockId = u32;

/// Marks an entry of [`Batch::token_ids`] that the host does not know yet: the rest of it is an index into the tokens that
/// the pass submitted before this one samples.
pub const FROM_PREVIOUS: TokenId = 1 << 31;

/// A step of work: `rows` sequences, each bringing some new tokens.
///
/// There is no prefill flag. Prefill is a row that brings many tokens, decode a row that brings one, and a chunked
/// prefill or a verified draft lies in between. A row asks for a token only when its last new token is the last one
/// known of its sequence; such rows are listed in `sampled_rows`.
#[derive(Debug, Default)]
pub struct Batch {
    /// New tokens, row after row; some may be [`FROM_PREVIOUS`]. `[tokens]`
    pub token_ids: Vec<TokenId>,
    /// Position of each new token in its sequence, from 0. `[tokens]`
    pub positions: Vec<u32>,
    /// Where the key and value of each new token are stored: `block * block_size + offset`. `[tokens]`
    pub slots: Vec<u32>,
    /// Row `r` owns tokens `row_starts[r]..row_starts[r + 1]`. `[rows + 1]`
    pub row_starts: Vec<u32>,
    /// Tokens each row attends to, its new ones included. `[rows]`
    pub context_lens: Vec<u32>,
    /// KV blocks of each row in the order of its tokens, zero beyond the last one in use. `[rows, table_width]`
    pub block_tables: Vec<BlockId>,
    /// Entries of a row in `block_tables`: as many as the longest row of this batch needs, so at most
    /// [`BatchLimits::table_width`].
    pub table_width: usize,
    /// Rows that ask for a next token, ascending. `[samples]`
    pub sampled_rows: Vec<u32>,
    /// How each of them is sampled. `[samples]`
    pub sampling: Vec<Sampling>,
    /// Tokens that may not be chosen; each `Sampling` names its range.
    pub banned_tokens: Vec<TokenId>,
}

/// How one next token is chosen from its logits.
///
/// The filters apply in this order: temperature, top-k, top-p over what top-k left, min-p. Ties at a threshold stay.
/// The choice is the argmax of `logit / temperature + gumbel`, where the Gumbel noise of token `i` comes from Philox
/// with key `(seed)` and counter `(i / 4, position, stream)`: it depends on nothing else in the batch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
pub struct Sampling {
    /// 0 chooses the greatest logit, the lowest token id among equals.
    pub temperature: f32,
    /// Keep the smallest set of likeliest tokens with at least this much probability; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the likeliest one; 0 keeps all.
    pub min_p: f32,
    /// Keep the k likeliest tokens; 0 keeps all.
    pub top_k: u32,
    /// Philox key.
    pub seed: u64,
    /// Which random stream of that seed: 0 where the request brought its own seed, else its id, and the index of its
    /// completion in the upper 16 bits.
    pub stream: u64,
    /// Position of the token to be chosen, counted from the start of the sequence.
    pub position: u32,
    /// First entry of this sample in `banned_tokens`.
    pub banned_start: u32,
    /// One past its last entry.
    pub banned_end: u32,
}

impl Sampling {
    /// The greatest logit, whatever its position.
    pub const GREEDY: Sampling = Sampling {
        temperature: 0.0,
        top_p: 1.0,
        min_p: 0.0,
        top_k: 0,
        seed: 0,
        stream: 0,
        position: 0,
        banned_start: 0,
        banned_end: 0,
    };
}

/// The largest batch that will ever be formed: what every buffer is sized from when an engine opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimits {
    /// New tokens of all rows together.
    pub tokens: usize,
    /// Rows.
    pub rows: usize,
    /// Tokens of one sequence, prompt and completion.
    pub model_len: usize,
    /// Tokens of a KV block.
    pub block_size: usize,
}

impl BatchLimits {
    /// Blocks that the longest sequence needs.
    pub fn table_width(&self) -> usize {
        self.model_len.div_ceil(self.block_size)
    }
}

impl Batch {
    /// An empty batch that grows to `limits` without allocating.
    pub fn with_limits(limits: &BatchLimits) -> Batch {
        Batch {
            token_ids: Vec::with_capacity(limits.tokens),
            positions: Vec::with_capacity(limits.tokens),
            slots: Vec::with_capacity(limits.tokens),
            row_starts: {
                let mut starts = Vec::with_capacity(limits.rows + 1);
                starts.push(0);
                starts
            },
            context_lens: Vec::with_capacity(limits.rows),
            block_tables: Vec::with_capacity(limits.rows * limits.table_width()),
            table_width: limits.table_width(),
            sampled_rows: Vec::with_capacity(limits.rows),
            sampling: Vec::with_capacity(limits.rows),
            banned_tokens: Vec::new(),
        }
    }

    /// New tokens of all rows.
    pub fn tokens(&self) -> usize {
        self.token_ids.len()
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.context_lens.len()
    }

    /// Rows that ask for a token.
    pub fn samples(&self) -> usize {
        self.sampled_rows.len()
    }

    /// The new tokens of row `row`, as indices into the token arrays.
    pub fn row(&self, row: usize) -> std::ops::Range<usize> {
        self.row_starts[row] as usize..self.row_starts[row + 1] as usize
    }

    /// The block table of row `row`. `[table_width]`
    pub fn block_table(&self, row: usize) -> &[BlockId] {
        &self.block_tables[row * self.table_width..(row + 1) * self.table_width]
    }

    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        let Batch {
            token_ids,
            positions,
            slots,
            row_starts,
            context_lens,
            block_tables,
            table_width: _,
            sampled_rows,
            sampling,
            banned_tokens,
        } = self;
        token_ids.clear();
        positions.clear();
        slots.clear();
        row_starts.truncate(1);
        context_lens.clear();
        block_tables.clear();
        sampled_rows.clear();
        sampling.clear();
        banned_tokens.clear();
    }
}

impl Clone for Batch {
    fn clone(&self) -> Batch {
        let mut copy = Batch::default();
        copy.clone_from(self);
        copy
    }

    /// Copies into the memory this batch already has.
    fn clone_from(&mut self, source: &Batch) {
        self.token_ids.clone_from(&source.token_ids);
        self.positions.clone_from(&source.positions);
        self.slots.clone_from(&source.slots);
        self.row_starts.clone_from(&source.row_starts);
        self.context_lens.clone_from(&source.context_lens);
        self.block_tables.clone_from(&source.block_tables);
        self.table_width = source.table_width;
        self.sampled_rows.clone_from(&source.sampled_rows);
        self.sampling.clone_from(&source.sampling);
        self.banned_tokens.clone_from(&source.banned_tokens);
    }
}
