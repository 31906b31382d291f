//! Rows that begin, continue, fork and save recurrent states, for the ops that compute with these.

use super::{Random, uploaded};
use compute::batch::{Batch, NO_STATE, StateCopy, StateSlot};
use compute::cpu::reference;
use compute::{Backend, DeltaHeads, ShortConv, StateShape};

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
    Conv { conv: ShortConv { taps: 4, has_silu: true }, cols: 96, width: 160 },
    Conv { conv: ShortConv { taps: 4, has_silu: true }, cols: 8192, width: 12_352 },
    Conv { conv: ShortConv { taps: 3, has_silu: false }, cols: 1024, width: 1024 },
    Conv { conv: ShortConv { taps: 2, has_silu: false }, cols: 20, width: 24 },
    Conv { conv: ShortConv { taps: 7, has_silu: true }, cols: 260, width: 264 },
];

/// Numbers of a state, and where the region of the tested layer begins: other layers have some before and after it.
pub fn place(len: usize) -> (usize, usize, usize) {
    (len + 12, 8, len)
}

/// Output and states of a convolution by its specification.
pub fn convolved(case: &Conv, batch: &Batch, [x, weight, contents]: [&[f32]; 3]) -> (Vec<f32>, Vec<f32>) {
    let mut out = vec![0.0; batch.tokens() * case.cols];
    let states = each_token(batch, contents, place(case.conv.state_numbers(case.cols)), |token, state| {
        let x = &x[token * case.width..][..case.cols];
        reference::causal_conv(&mut out[token * case.cols..][..case.cols], x, weight, case.conv, state);
    });
    (out, states)
}

/// A delta rule. Its gates begin at column 3.
pub const FIRST_GATE: usize = 3;

/// Sizes of heads.
pub const DELTAS: &[DeltaHeads] = &[
    DeltaHeads { keys: 2, values: 4, key_dim: 16, value_dim: 16 },
    DeltaHeads { keys: 1, values: 3, key_dim: 32, value_dim: 48 },
    DeltaHeads { keys: 2, values: 2, key_dim: 64, value_dim: 256 },
    DeltaHeads { keys: 4, values: 8, key_dim: 128, value_dim: 128 },
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

/// `A_log`, then `dt_bias`, as models have them.
pub fn decays(random: &mut Random, heads: DeltaHeads) -> Vec<f32> {
    let mut decays: Vec<f32> = (0..heads.values).map(|i| (1.0 + i as f32).ln() * 0.5).collect();
    decays.extend(random.numbers(heads.values, 1.0));
    decays
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
