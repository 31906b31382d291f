//! Rows that begin, continue, fork and save recurrent states, for the ops that compute with these.

use super::{Random, uploaded};
use compute::batch::{Batch, NO_STATE, StateCopy, StateSlot};
use compute::cpu::reference;
use compute::{Backend, ConvForm, DeltaHeads, GateOrder, ScanHeads, ShortConv, StateShape, ValueOrder};

/// Slots of the pool.
pub const SLOTS: usize = 9;

/// Some tokens of a sequence.
pub struct Row {
    pub tokens: usize,
    pub source: StateSlot,
    pub slot: StateSlot,
    /// After which token of the row a slot gets the state besides.
    pub saves: &'static [(usize, StateSlot)],
}

/// One of each kind: at the beginning, in place, from a checkpoint, and long enough that the old state is not needed at its end.
pub const ROWS: &[Row] = &[
    Row { tokens: 1, source: NO_STATE, slot: 0, saves: &[] },
    Row { tokens: 1, source: 8, slot: 8, saves: &[(0, 5)] },
    Row { tokens: 5, source: 1, slot: 1, saves: &[(1, 4)] },
    Row { tokens: 2, source: 6, slot: 2, saves: &[] },
    Row { tokens: 9, source: NO_STATE, slot: 3, saves: &[(0, 7)] },
];

/// A batch of `rows`.
pub fn batch(rows: &[Row]) -> Batch {
    let mut batch = Batch { row_starts: vec![0], ..Batch::default() };
    for row in rows {
        let first = batch.tokens();
        batch.token_ids.resize(first + row.tokens, 0);
        batch.positions.extend(0..row.tokens as u32);
        batch.slots.resize(first + row.tokens, 0);
        batch.row_starts.push(batch.tokens() as u32);
        batch.context_lens.push(row.tokens as u32);
        batch.state_sources.push(row.source);
        batch.state_slots.push(row.slot);
        batch.state_saves.resize(batch.tokens(), NO_STATE);
        for &(token, slot) in row.saves {
            batch.state_saves[first + token] = slot;
        }
    }
    batch
}

/// A pool of states with these contents. `[slots, numbers]`
pub fn states<B: Backend>(backend: &mut B, contents: &[f32], numbers: usize) -> B::States {
    let slots = contents.len() / numbers;
    let mut states = backend.states(&StateShape { numbers, slots }).unwrap();
    for (slot, content) in (0..).zip(contents.chunks_exact(numbers)) {
        let bytes: Vec<u8> = content.iter().flat_map(|v| v.to_le_bytes()).collect();
        backend.write_state(&mut states, slot, &bytes).unwrap();
    }
    states
}

/// What a pool holds. `[slots, numbers]`
pub fn contents<B: Backend>(backend: &mut B, states: &B::States) -> Vec<f32> {
    let StateShape { numbers, slots } = B::state_shape(states);
    let mut bytes = vec![0; numbers * 4];
    let mut all = Vec::new();
    for slot in 0..slots as StateSlot {
        backend.read_state(states, slot, &mut bytes).unwrap();
        all.extend(bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)));
    }
    all
}

/// Runs `step(row, tokens before it, its state)` token by token over all rows, as the batch says which states they have, and returns the pool afterwards.
/// `[slots, numbers]`
pub fn each_token(
    batch: &Batch,
    contents: &[f32],
    (numbers, at, len): (usize, usize, usize),
    mut step: impl FnMut(usize, &mut Vec<f32>),
) -> Vec<f32> {
    let mut after = contents.to_vec();
    for row in 0..batch.rows() {
        let place = |slot: StateSlot| slot as usize * numbers + at..slot as usize * numbers + at + len;
        let mut state = match batch.state_sources[row] {
            NO_STATE => vec![0.0; len],
            source => contents[place(source)].to_vec(),
        };
        for token in batch.row(row) {
            step(token, &mut state);
            if batch.state_saves[token] != NO_STATE {
                after[place(batch.state_saves[token])].copy_from_slice(&state);
            }
        }
        after[place(batch.state_slots[row])].copy_from_slice(&state);
    }
    after
}

/// A convolution and its inputs.
pub struct Conv {
    pub conv: ShortConv,
    pub cols: usize,
    /// Columns of the tensor that it reads.
    pub width: usize,
}

/// Sizes that differ in what kernels choose by.
pub const CONVS: &[Conv] = &[
    Conv { conv: conv(4, ConvForm::Silu), cols: 96, width: 160 },
    Conv { conv: conv(4, ConvForm::Silu), cols: 8192, width: 12_352 },
    Conv { conv: conv(3, ConvForm::Plain), cols: 1024, width: 1024 },
    Conv { conv: conv(2, ConvForm::Plain), cols: 20, width: 24 },
    Conv { conv: conv(7, ConvForm::Silu), cols: 260, width: 264 },
    Conv { conv: conv(3, ConvForm::Gated), cols: 1024, width: 3072 },
    Conv { conv: conv(7, ConvForm::Gated), cols: 2048, width: 6144 },
    Conv { conv: ShortConv { has_bias: true, ..conv(3, ConvForm::Gated) }, cols: 20, width: 68 },
    Conv { conv: ShortConv { has_bias: true, ..conv(4, ConvForm::Silu) }, cols: 132, width: 132 },
];

const fn conv(taps: usize, form: ConvForm) -> ShortConv {
    ShortConv { taps, form, has_bias: false }
}

/// Numbers of a state, and where the region of the tested layer begins: other layers have some before and after it.
pub fn place(len: usize) -> (usize, usize, usize) {
    (len + 12, 8, len)
}

/// Output and states of a convolution by its specification.
pub fn convolved(case: &Conv, batch: &Batch, [x, weight, contents]: [&[f32]; 3]) -> (Vec<f32>, Vec<f32>) {
    let mut out = vec![0.0; batch.tokens() * case.cols];
    let states = each_token(batch, contents, place(case.conv.state_numbers(case.cols)), |token, state| {
        let x = &x[token * case.width..][..case.conv.input_cols(case.cols)];
        reference::causal_conv(&mut out[token * case.cols..][..case.cols], x, weight, case.conv, state);
    });
    (out, states)
}

/// A delta rule. Its gates begin at column 3.
pub const FIRST_GATE: usize = 3;

/// Sizes of heads.
pub const DELTAS: &[DeltaHeads] = &[
    DeltaHeads { keys: 2, values: 4, order: ValueOrder::Grouped, key_dim: 16, value_dim: 16 },
    DeltaHeads { keys: 3, values: 6, order: ValueOrder::Tiled, key_dim: 32, value_dim: 48 },
    DeltaHeads { keys: 2, values: 2, order: ValueOrder::Grouped, key_dim: 64, value_dim: 256 },
    DeltaHeads { keys: 4, values: 8, order: ValueOrder::Grouped, key_dim: 128, value_dim: 128 },
];

/// Output and states of a delta rule by its specification.
pub fn delta(heads: DeltaHeads, batch: &Batch, [qkv, gates, decays, contents]: [&[f32]; 4]) -> (Vec<f32>, Vec<f32>) {
    let mut out = vec![0.0; batch.tokens() * heads.value_width()];
    let (width, gate_width) = (heads.width(), gates.len() / batch.tokens());
    let states = each_token(batch, contents, place(heads.state_numbers()), |token, state| {
        let gate = |index: usize| &gates[token * gate_width + FIRST_GATE + index * heads.values..][..heads.values];
        let out = &mut out[token * heads.value_width()..][..heads.value_width()];
        reference::gated_delta(out, &qkv[token * width..][..width], [gate(0), gate(1)], decays, heads, state);
    });
    (out, states)
}

/// `exp(A_log)`, then `dt_bias`, as models have them.
pub fn decays(random: &mut Random, heads: usize) -> Vec<f32> {
    let mut decays: Vec<f32> = (0..heads).map(|i| (1.0 + i as f32).sqrt()).collect();
    decays.extend(random.numbers(heads, 1.0));
    decays
}

/// Sizes of selective scans, whose steps begin at column [`FIRST_GATE`].
pub const SCANS: &[ScanHeads] = &[
    ScanHeads { heads: 4, groups: 2, head_dim: 16, state_dim: 16 },
    ScanHeads { heads: 3, groups: 1, head_dim: 48, state_dim: 32 },
    ScanHeads { heads: 2, groups: 2, head_dim: 256, state_dim: 64 },
    ScanHeads { heads: 8, groups: 2, head_dim: 64, state_dim: 128 },
    ScanHeads { heads: 2, groups: 1, head_dim: 32, state_dim: 256 },
];

/// The factor of the steps: that of most models, or one of a model that has another.
pub fn step_scale(sizes: ScanHeads) -> f32 {
    if sizes.groups == 1 { 0.6 } else { 1.0 }
}

/// Output and states of a selective scan by its specification.
pub fn scan(sizes: ScanHeads, batch: &Batch, [xbc, steps, rates, contents]: [&[f32]; 4]) -> (Vec<f32>, Vec<f32>) {
    let mut out = vec![0.0; batch.tokens() * sizes.head_width()];
    let (width, step_width) = (sizes.width(), steps.len() / batch.tokens());
    let states = each_token(batch, contents, place(sizes.state_numbers()), |token, state| {
        let steps = &steps[token * step_width + FIRST_GATE..][..sizes.heads];
        let out = &mut out[token * sizes.head_width()..][..sizes.head_width()];
        let steps = (steps, step_scale(sizes));
        reference::selective_scan(out, &xbc[token * width..][..width], steps, rates, sizes, state);
    });
    (out, states)
}

/// `exp(A_log)`, `dt_bias`, and `D`.
pub fn rates(random: &mut Random, sizes: ScanHeads) -> Vec<f32> {
    let mut rates = decays(random, sizes.heads);
    rates.extend(random.numbers(sizes.heads, 1.0));
    rates
}

/// A gated norm.
pub struct Gate {
    pub tokens: usize,
    pub heads: usize,
    pub head_dim: usize,
    /// The first column of the gates.
    pub first: usize,
    pub order: GateOrder,
    /// Whether all heads share the weights of one.
    pub shares_weights: bool,
}

impl Gate {
    /// Numbers of the weights.
    pub fn weights(&self) -> usize {
        self.head_dim * if self.shares_weights { 1 } else { self.heads }
    }

    /// The factor of the gates: that of most models, or one of a model that has another.
    pub fn scale(&self) -> f32 {
        if self.shares_weights { 1.0 } else { 0.7 }
    }

    /// What is left of `x`, whose gates are rows of `width` numbers.
    pub fn expected(&self, x: &[f32], gates: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
        let (mut x, width) = (x.to_vec(), gates.len() / self.tokens);
        let cols = self.heads * self.head_dim;
        for (x, gates) in x.chunks_exact_mut(cols).zip(gates.chunks_exact(width)) {
            let gates = (&gates[self.first..][..cols], self.scale());
            reference::gated_norm(x, gates, weight, (self.head_dim, eps), self.order);
        }
        x
    }
}

/// Copies of states: the last reads what the first has written.
pub const COPIES: &[StateCopy] =
    &[StateCopy { from: 1, to: 4 }, StateCopy { from: 8, to: 1 }, StateCopy { from: 4, to: 8 }];

/// What [`COPIES`] leave of `contents`, as a backend computes it and as it is said.
pub fn copied<B: Backend>(backend: &mut B, contents: &[f32], numbers: usize) -> [Vec<f32>; 2] {
    let mut states = self::states(backend, contents, numbers);
    let device_batch = uploaded(backend, &Batch { state_copies: COPIES.to_vec(), ..Batch::default() });
    compute::ops::copy_states(backend, &mut states, &device_batch);
    let mut expected = contents.to_vec();
    for copy in COPIES {
        let from = copy.from as usize * numbers;
        expected.copy_within(from..from + numbers, copy.to as usize * numbers);
    }
    [self::contents(backend, &states), expected]
}
