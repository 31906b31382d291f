//! What do layers keep between passes besides keys and values, and what do they compute of it?
//!
//! The recurrent state of a sequence is an array of f32: each layer that has one takes a region of it. A slot of the pool holds the state of one
//! sequence, all layers together, so that a checkpoint is one copy.

/// The pool of recurrent states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateShape {
    /// Numbers of a slot; 0 where the model keeps no such state.
    pub numbers: usize,
    /// Slots.
    pub slots: usize,
}

impl StateShape {
    /// Bytes of a slot.
    pub fn slot_bytes(&self) -> usize {
        self.numbers * size_of::<f32>()
    }
}

/// A depthwise causal convolution: each column of a token with the same column of the `taps - 1` tokens before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortConv {
    /// Tokens that are combined, from 2 to [`MAX_TAPS`].
    pub taps: usize,
    /// Whether SiLU follows.
    pub has_silu: bool,
}

/// Taps that kernels keep in registers.
pub const MAX_TAPS: usize = 8;

impl ShortConv {
    /// Numbers of its state: the inputs of the last `taps - 1` tokens. `[taps - 1, cols]`, the oldest first
    pub fn state_numbers(&self, cols: usize) -> usize {
        (self.taps - 1) * cols
    }
}

/// The sizes of a gated delta rule. Consecutive value heads share a key head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaHeads {
    /// Heads of queries and keys.
    pub keys: usize,
    /// Heads of values, of which `keys` is a divisor.
    pub values: usize,
    /// Numbers of a query and of a key: one of [`DeltaHeads::KEY_DIMS`].
    pub key_dim: usize,
    /// Numbers of a value: a multiple of 16, at most 256.
    pub value_dim: usize,
}

impl DeltaHeads {
    /// Sizes of keys that there are kernels for.
    pub const KEY_DIMS: [usize; 4] = [16, 32, 64, 128];

    /// Numbers of all queries, and of all keys.
    pub fn key_width(&self) -> usize {
        self.keys * self.key_dim
    }

    /// Numbers of all values.
    pub fn value_width(&self) -> usize {
        self.values * self.value_dim
    }

    /// Numbers of queries, keys and values.
    pub fn width(&self) -> usize {
        2 * self.key_width() + self.value_width()
    }

    /// Numbers of the state. `[value heads, key_dim, value_dim]`
    pub fn state_numbers(&self) -> usize {
        self.values * self.key_dim * self.value_dim
    }
}

/// What a gated delta rule reads of each token, besides the batch.
#[derive(Debug)]
pub struct DeltaInputs<'a, T, V> {
    /// Queries, keys and values. `[tokens, 2 keys * key_dim + values * value_dim]`
    pub qkv: &'a T,
    /// A tensor with the inputs of the gates: `b` at columns `first_gate..`, then `a`, one each per value head. `[tokens, any]`
    pub gates: &'a T,
    /// Where they begin.
    pub first_gate: usize,
    /// `A_log`, then `dt_bias`. `[2, values]`
    pub decays: &'a V,
}

/// A gated RMS norm of heads.
#[derive(Clone, Copy, Debug)]
pub struct HeadGate<'a, T, V> {
    /// A tensor with the gates at columns `first..`, as many as the normalized one has. `[tokens, any]`
    pub gate: &'a T,
    /// Where they begin.
    pub first: usize,
    /// Of each head. `[head_dim]`
    pub weight: &'a V,
    /// Added to the mean of squares.
    pub eps: f32,
}
