//! The work of one pass: the seam between engine and runner.
use crate::cpu::philox;
use base::TokenId;
use base::error::{Result, room};
use bytemuck::NoUninit;

/// An index into the pool of KV blocks.
pub type BlockId = u32;

/// An index into the pool of recurrent states.
pub type StateSlot = u32;

/// Stands for a state where there is none.
pub const NO_STATE: StateSlot = StateSlot::MAX;

/// Marks an entry of [`Batch::token_ids`] that the host does not know yet: the rest of it is an index into the tokens that
/// the pass submitted before this one samples.
pub const FROM_PREVIOUS: TokenId = 1 << 31;

/// Stands for a token where there is none.
pub const NO_TOKEN: TokenId = TokenId::MAX;
/// Stands for a mask where there is none.
pub const NO_MASK: u32 = u32::MAX;
/// See [`BatchLimits::pooled_rows`].
pub const MAX_POOLED_ROWS: usize = 256;
/// The most tokens whose log-probabilities one sample can ask for, the chosen one not counted.
pub const MAX_LOGPROBS: usize = 64;

/// The work of one pass: `rows` sequences, each bringing some new tokens.
///
/// There is no prefill flag. Prefill is a row that brings many tokens, decode a row that brings one, and a chunked
/// prefill or a verified draft lies in between. A row asks for a token where its last new token is the last one known of
/// its sequence; the places are listed in `sampled_tokens`.
#[derive(Debug, Default)]
pub struct Batch {
    /// New tokens, row after row; some may be [`FROM_PREVIOUS`]. `[tokens]`
    pub token_ids: Vec<TokenId>,
    /// Position of each new token in its sequence, from 0. `[tokens]`
    pub positions: Vec<u32>,
    /// Which text of a pair each new token belongs to, for models that tell them apart. `[tokens]`, or empty: all are of the first
    pub token_types: Vec<u32>,
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
    /// The blocks of layers whose window gives blocks back, for each table of [`KvGroups`](crate::KvGroups) after the first; in all of them `table_width` is the
    /// same. `[BatchLimits::window_tables]`
    pub window_tables: Vec<WindowTable>,
    /// New tokens after which a token is asked for, as ascending indices into the token arrays. `[samples]`
    pub sampled_tokens: Vec<u32>,
    /// How each of them is sampled. `[samples]`
    pub sampling: Vec<Sampling>,
    /// Tokens whose logits are changed before one is chosen; each `Sampling` names its range.
    pub adjustments: Vec<LogitBias>,
    /// Bit sets of the tokens that may be chosen, bit `t % 32` of word `t / 32` for token `t`; each `Sampling` names where its
    /// own begins.
    pub masks: Vec<u32>,
    /// New tokens whose final hidden states the host wants to read, ascending as above; at most [`BatchLimits::pooled_rows`].
    /// `[pooled_rows]`
    pub pooled_tokens: Vec<u32>,
    /// Of rows that bring all of their tokens: the new tokens whose final states become one that the host wants to read. A batch has these or
    /// `sampled_tokens` and `pooled_tokens`. `[pooled_rows]`
    pub pooled_ranges: Vec<PooledRange>,
    /// Blocks to copy before anything else, over all layers. No block is a source and a target at once.
    pub copies: Vec<BlockCopy>,
    /// The slot whose recurrent state each row continues, or [`NO_STATE`] for a row that begins at position 0. No row writes the slot that another one
    /// reads. `[rows]`, or empty where the model keeps no such state
    pub state_sources: Vec<StateSlot>,
    /// The slot that has the state of each row afterwards. `[rows]`, or empty
    pub state_slots: Vec<StateSlot>,
    /// A slot that gets the state after a new token besides, or [`NO_STATE`]. `[tokens]`, or empty
    pub state_saves: Vec<StateSlot>,
    /// States to copy before anything else, one after another.
    pub state_copies: Vec<StateCopy>,
}

/// Where the layers of one group with a sliding window store keys and values, and find those of the tokens before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WindowTable {
    /// As [`Batch::slots`]. `[tokens]`
    pub slots: Vec<u32>,
    /// As [`Batch::block_tables`]: entries before the window of a row repeat the first block that the row holds. `[rows, table_width]`
    pub block_tables: Vec<BlockId>,
}

/// A recurrent state that becomes that of another slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, NoUninit)]
#[repr(C)]
pub struct StateCopy {
    /// Is read.
    pub from: StateSlot,
    /// Is written.
    pub to: StateSlot,
}

/// A change of one token's logit: `l' = p(l) - presence * (uses > 0) - frequency * uses + bias`, where `p` divides a positive
/// logit by the repetition penalty and multiplies another one. The three penalties are those of the [`Sampling`] that it
/// belongs to.
#[derive(Clone, Copy, Debug, PartialEq, NoUninit)]
#[repr(C)]
pub struct LogitBias {
    /// Which token; each at most once per sample.
    pub token: TokenId,
    /// How often it was generated; 0 where it stands in the prompt alone. [`UNUSED`](LogitBias::UNUSED) where it has come
    /// nowhere yet: no penalty applies then.
    pub uses: u32,
    /// Added at the end. Minus infinity makes it a token that is never chosen.
    pub bias: f32,
}

impl LogitBias {
    /// The `uses` of a token that neither the prompt nor the answer has.
    pub const UNUSED: u32 = u32::MAX;

    /// A token that is never chosen.
    pub fn ban(token: TokenId) -> LogitBias {
        LogitBias { token, uses: LogitBias::UNUSED, bias: f32::NEG_INFINITY }
    }
}

/// A block whose keys and values become those of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, NoUninit)]
#[repr(C)]
pub struct BlockCopy {
    /// Is read.
    pub from: BlockId,
    /// Is written.
    pub to: BlockId,
}

/// What a pass brings back. Empty where the batch did not ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampled<'a> {
    /// The tokens that were chosen. `[samples]`
    pub tokens: &'a [TokenId],
    /// Natural logarithm of the probability of each, by the softmax of the model's logits as they were before adjustments,
    /// temperature and filters; not defined where the sample did not ask. `[samples]`
    pub logprobs: &'a [f32],
    /// The most probable tokens, in descending order, the lowest id first among equals; as many as the sample asked for are defined.
    /// [`NO_TOKEN`] where no more have a logit above minus infinity. `[samples, MAX_LOGPROBS]`
    pub top_tokens: &'a [TokenId],
    /// Their log-probabilities. `[samples, MAX_LOGPROBS]`
    pub top_logprobs: &'a [f32],
    /// Final hidden states, normalized. `[pooled_rows, hidden]`
    pub hidden_states: &'a [f32],
}

/// One token of a pass, and its log-probabilities where its sample asked for them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Chosen<'a> {
    /// The token.
    pub token: TokenId,
    /// As in [`Sampled`]; 0 where the sample did not ask.
    pub logprob: f32,
    /// As many of the most probable tokens as the sample asked for, in descending order. `[top_logprobs]`
    pub top_tokens: &'a [TokenId],
    /// Their log-probabilities. `[top_logprobs]`
    pub top_logprobs: &'a [f32],
}

impl<'a> Sampled<'a> {
    /// The answer to sample `index`, whose [`Sampling::logprobs`] is `logprobs`.
    pub fn chosen(&self, index: usize, logprobs: u32) -> Chosen<'a> {
        let token = self.tokens[index];
        if logprobs == 0 {
            return Chosen { token, ..Chosen::default() };
        }
        let top = index * MAX_LOGPROBS..index * MAX_LOGPROBS + logprobs as usize - 1;
        Chosen {
            token,
            logprob: self.logprobs[index],
            top_tokens: &self.top_tokens[top.clone()],
            top_logprobs: &self.top_logprobs[top],
        }
    }
}

/// New tokens whose final states become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, NoUninit)]
#[repr(C)]
pub struct PooledRange {
    /// The first of them.
    pub first: u32,
    /// One past the last, above `first`.
    pub end: u32,
    /// What becomes of their states.
    pub kind: PoolKind,
}

/// What becomes of `n` states `x[0], x[1], ...`, number by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, NoUninit)]
#[repr(u32)]
pub enum PoolKind {
    /// `sum of x[i] / n`
    Mean = 0,
    /// `sum of x[i] / sqrt(n)`
    MeanSqrtLen = 1,
    /// `sum of (i + 1) x[i] / sum of (i + 1)`
    WeightedMean = 2,
    /// The greatest.
    Max = 3,
}

impl PoolKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [PoolKind; 4] = [PoolKind::Mean, PoolKind::MeanSqrtLen, PoolKind::WeightedMean, PoolKind::Max];

    /// What a sum over `n` states is divided by.
    pub fn divisor(self, n: usize) -> f64 {
        match self {
            PoolKind::Mean => n as f64,
            PoolKind::MeanSqrtLen => (n as f64).sqrt(),
            PoolKind::WeightedMean => n as f64 * (n + 1) as f64 / 2.0,
            PoolKind::Max => 1.0,
        }
    }
}

/// How one next token is chosen from its logits.
///
/// The filters apply in this order: temperature, top-n-sigma, top-k, top-p over what these left, min-p, XTC over what all left. Ties
/// at a threshold stay. The choice is the argmax of `logit / temperature + gumbel`, where the Gumbel noise of token `i` comes from Philox
/// with key `(seed)` and counter `(i / 4, position, stream)`: it depends on nothing else in the batch.
#[derive(Clone, Copy, Debug, PartialEq, NoUninit)]
#[repr(C)]
pub struct Sampling {
    /// 0 chooses the greatest logit, the lowest token id among equals.
    pub temperature: f32,
    /// Keep the smallest set of most probable tokens with at least this much probability; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this share of the most probable one; 0 keeps all.
    pub min_p: f32,
    /// Keep the k most probable tokens; 0 keeps all.
    pub top_k: u32,
    /// Philox key.
    pub seed: u64,
    /// Which random stream of that seed: 0 where the request brought its own seed, else its id, and the index of its
    /// completion in the upper 16 bits.
    pub stream: u64,
    /// Position of the token to be chosen, counted from the start of the sequence.
    pub position: u32,
    /// First entry of this sample in `adjustments`.
    pub adjusted_start: u32,
    /// One past its last entry.
    pub adjusted_end: u32,
    /// See [`LogitBias`]; 1 is none.
    pub repetition_penalty: f32,
    /// See [`LogitBias`]; 0 is none.
    pub presence_penalty: f32,
    /// See [`LogitBias`]; 0 is none.
    pub frequency_penalty: f32,
    /// A [`FROM_PREVIOUS`] token that the adjustments do not count yet: it has one more use, or its first. Or [`NO_TOKEN`].
    pub awaited: TokenId,
    /// Where in `masks` the tokens are that may be chosen, or [`NO_MASK`].
    pub mask: u32,
    /// The token that is chosen in any case, for its log-probability, or [`NO_TOKEN`].
    pub forced: TokenId,
    /// 0 asks for no log-probabilities; `n` for those of the chosen token and the `n - 1` most probable ones, at most
    /// [`MAX_LOGPROBS`] of these.
    pub logprobs: u32,
    /// Top-n-sigma: drop tokens whose logit is more than this many standard deviations below the greatest. Over the tokens that may be chosen and
    /// are above minus infinity, from logits after adjustments and before temperature. 0 or less keeps all.
    pub top_n_sigma: f32,
    /// XTC: of the tokens with at least this share of the probability that the filters left, drop all that are more probable than the least
    /// probable of them. From above 0 to 0.5; 0 where this sample drops none, see [`Sampling::draws`].
    pub xtc_threshold: f32,
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
        adjusted_start: 0,
        adjusted_end: 0,
        repetition_penalty: 1.0,
        presence_penalty: 0.0,
        frequency_penalty: 0.0,
        awaited: NO_TOKEN,
        mask: NO_MASK,
        forced: NO_TOKEN,
        logprobs: 0,
        top_n_sigma: 0.0,
        xtc_threshold: 0.0,
    };

    /// Whether an event of this probability happens to this sample. A function of seed, stream and position: its Philox counter begins with
    /// 2^32 - 1, which is that of no token.
    pub fn draws(&self, probability: f32) -> bool {
        let counter = [u32::MAX, self.position, self.stream as u32, (self.stream >> 32) as u32];
        let [word, ..] = philox::block(counter, [self.seed as u32, (self.seed >> 32) as u32]);
        u64::from(word) < (f64::from(probability) * 4_294_967_296.0) as u64
    }

    /// Its entries in [`Batch::adjustments`].
    pub fn adjusted(&self) -> std::ops::Range<usize> {
        self.adjusted_start as usize..self.adjusted_end as usize
    }

    /// How many top tokens it asks for besides the chosen one.
    pub fn top_logprobs(&self) -> usize {
        self.logprobs.saturating_sub(1) as usize
    }
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
    /// Tokens that may be asked for besides one per row: those of prompts whose log-probabilities are wanted.
    pub extra_samples: usize,
    /// Block tables besides the first: see [`KvGroups`](crate::KvGroups).
    pub window_tables: usize,
    /// Whether each row brings all of its tokens, as those of an encoder do.
    pub whole_rows: bool,
    /// Whether such a row may ask for the state of each of its tokens, instead of one for all.
    pub token_states: bool,
}

impl BatchLimits {
    /// No work at all: what limits that name some fields have in the others.
    pub const NONE: BatchLimits = BatchLimits {
        tokens: 0,
        rows: 0,
        model_len: 0,
        block_size: 0,
        extra_samples: 0,
        window_tables: 0,
        whole_rows: false,
        token_states: false,
    };

    /// Tokens that are asked for.
    pub fn samples(&self) -> usize {
        self.rows + self.extra_samples
    }

    /// Blocks that the longest sequence needs.
    pub fn table_width(&self) -> usize {
        self.model_len.div_ceil(self.block_size)
    }

    /// Most ranges of tokens whose states are pooled on the device.
    pub fn pooled_ranges(&self) -> usize {
        if self.whole_rows { self.pooled_rows() } else { 0 }
    }

    /// Most final hidden states that one pass returns: one for each row that brings all of its tokens, or for each of these tokens. Else there are enough that
    /// a mean over a long prompt reads the weights rarely, and few enough that the memory for them does not matter.
    pub fn pooled_rows(&self) -> usize {
        match (self.whole_rows, self.token_states) {
            (true, false) => self.rows,
            (true, true) => self.tokens,
            (false, _) => self.tokens.min(MAX_POOLED_ROWS),
        }
    }
}

impl Batch {
    /// An empty batch that grows to `limits` without allocating.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory).
    pub fn within(limits: &BatchLimits) -> Result<Batch> {
        fn of<T>(len: usize) -> Result<Vec<T>> {
            room(len, "a batch", "max_batched_tokens or max_num_seqs")
        }
        Ok(Batch {
            token_ids: of(limits.tokens)?,
            positions: of(limits.tokens)?,
            token_types: of(limits.tokens)?,
            slots: of(limits.tokens)?,
            row_starts: {
                let mut starts = of(limits.rows + 1)?;
                starts.push(0);
                starts
            },
            context_lens: of(limits.rows)?,
            block_tables: room(limits.rows * limits.table_width(), "block tables", "max_num_seqs or max_model_len")?,
            table_width: limits.table_width(),
            window_tables: {
                let mut tables = of(limits.window_tables)?;
                for _ in 0..limits.window_tables {
                    let what = "max_num_seqs or max_model_len";
                    let block_tables = room(limits.rows * limits.table_width(), "block tables", what)?;
                    tables.push(WindowTable { slots: of(limits.tokens)?, block_tables });
                }
                tables
            },
            sampled_tokens: of(limits.samples())?,
            sampling: of(limits.samples())?,
            adjustments: Vec::new(),
            masks: Vec::new(),
            pooled_tokens: of(limits.pooled_rows())?,
            pooled_ranges: of(limits.pooled_ranges())?,
            copies: of(limits.rows * (1 + limits.window_tables))?,
            state_sources: of(limits.rows)?,
            state_slots: of(limits.rows)?,
            state_saves: of(limits.tokens)?,
            state_copies: of(limits.rows)?,
        })
    }

    /// [`Batch::within`] for tests and benches.
    ///
    /// # Panics
    ///
    /// If there is no memory.
    pub fn with_limits(limits: &BatchLimits) -> Batch {
        Batch::within(limits).expect("there is memory for a batch")
    }

    /// New tokens of all rows.
    pub fn tokens(&self) -> usize {
        self.token_ids.len()
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.context_lens.len()
    }

    /// Tokens that are asked for.
    pub fn samples(&self) -> usize {
        self.sampled_tokens.len()
    }

    /// Whether logits of any sample are changed before a token is chosen.
    pub fn processes_logits(&self) -> bool {
        !self.adjustments.is_empty() || self.sampling.iter().any(|sampling| sampling.awaited != NO_TOKEN)
    }

    /// Whether any sample asks for log-probabilities.
    pub fn wants_logprobs(&self) -> bool {
        self.sampling.iter().any(|sampling| sampling.logprobs > 0)
    }

    /// Final hidden states that are asked for.
    pub fn pooled_rows(&self) -> usize {
        self.pooled_tokens.len() + self.pooled_ranges.len()
    }

    /// The new tokens of row `row`, as indices into the token arrays.
    pub fn row(&self, row: usize) -> std::ops::Range<usize> {
        self.row_starts[row] as usize..self.row_starts[row + 1] as usize
    }

    /// The first block table of row `row`. `[table_width]`
    pub fn block_table(&self, row: usize) -> &[BlockId] {
        self.block_table_of(0, row)
    }

    /// Block table `table` of row `row`. `[table_width]`
    ///
    /// # Panics
    ///
    /// If the batch has no such table.
    pub fn block_table_of(&self, table: usize, row: usize) -> &[BlockId] {
        let tables = match table {
            0 => &self.block_tables,
            _ => &self.window_tables[table - 1].block_tables,
        };
        &tables[row * self.table_width..(row + 1) * self.table_width]
    }

    /// Where the key and value of each new token are stored in layers of block table `table`. `[tokens]`
    ///
    /// # Panics
    ///
    /// If the batch has no such table.
    pub fn slots_of(&self, table: usize) -> &[u32] {
        match table {
            0 => &self.slots,
            _ => &self.window_tables[table - 1].slots,
        }
    }

    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        let Batch {
            token_ids,
            positions,
            token_types,
            slots,
            row_starts,
            context_lens,
            block_tables,
            table_width: _,
            window_tables,
            sampled_tokens,
            sampling,
            adjustments,
            masks,
            pooled_tokens,
            pooled_ranges,
            copies,
            state_sources,
            state_slots,
            state_saves,
            state_copies,
        } = self;
        token_ids.clear();
        positions.clear();
        token_types.clear();
        slots.clear();
        row_starts.truncate(1);
        context_lens.clear();
        block_tables.clear();
        for table in window_tables {
            table.slots.clear();
            table.block_tables.clear();
        }
        sampled_tokens.clear();
        sampling.clear();
        adjustments.clear();
        masks.clear();
        pooled_tokens.clear();
        pooled_ranges.clear();
        copies.clear();
        state_sources.clear();
        state_slots.clear();
        state_saves.clear();
        state_copies.clear();
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
        self.token_types.clone_from(&source.token_types);
        self.slots.clone_from(&source.slots);
        self.row_starts.clone_from(&source.row_starts);
        self.context_lens.clone_from(&source.context_lens);
        self.block_tables.clone_from(&source.block_tables);
        self.table_width = source.table_width;
        self.window_tables.resize_with(source.window_tables.len(), WindowTable::default);
        for (to, from) in self.window_tables.iter_mut().zip(&source.window_tables) {
            to.slots.clone_from(&from.slots);
            to.block_tables.clone_from(&from.block_tables);
        }
        self.sampled_tokens.clone_from(&source.sampled_tokens);
        self.sampling.clone_from(&source.sampling);
        self.adjustments.clone_from(&source.adjustments);
        self.masks.clone_from(&source.masks);
        self.pooled_tokens.clone_from(&source.pooled_tokens);
        self.pooled_ranges.clone_from(&source.pooled_ranges);
        self.copies.clone_from(&source.copies);
        self.state_sources.clone_from(&source.state_sources);
        self.state_slots.clone_from(&source.state_slots);
        self.state_saves.clone_from(&source.state_saves);
        self.state_copies.clone_from(&source.state_copies);
    }
}
