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
    /// What is computed around it.
    pub form: ConvForm,
    /// Whether each column has a bias.
    pub has_bias: bool,
}

/// What a convolution reads and what becomes of its sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConvForm {
    /// `x`, and nothing else.
    Plain,
    /// `x`, and SiLU follows.
    Silu,
    /// `b * x`, and the sum is multiplied by `c`. The columns of `b` come first, then those of `x`, then those of `c`.
    Gated,
}

/// Taps that kernels keep in registers.
pub const MAX_TAPS: usize = 8;

impl ShortConv {
    /// Numbers of its state: what it read of the last `taps - 1` tokens. `[taps - 1, cols]`, the oldest first
    pub fn state_numbers(&self, cols: usize) -> usize {
        (self.taps - 1) * cols
    }

    /// Numbers of its weights. `[taps, cols]`, then the biases
    pub fn weight_numbers(&self, cols: usize) -> usize {
        (self.taps + usize::from(self.has_bias)) * cols
    }

    /// Columns of what it reads.
    pub fn input_cols(&self, cols: usize) -> usize {
        match self.form {
            ConvForm::Plain | ConvForm::Silu => cols,
            ConvForm::Gated => 3 * cols,
        }
    }
}

/// The sizes of a gated delta rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaHeads {
    /// Heads of queries and keys.
    pub keys: usize,
    /// Heads of values, of which `keys` is a divisor.
    pub values: usize,
    /// Which value heads share a key head.
    pub order: ValueOrder,
    /// Numbers of a query and of a key: one of [`DeltaHeads::KEY_DIMS`].
    pub key_dim: usize,
    /// Numbers of a value: a multiple of 16, at most 256.
    pub value_dim: usize,
}

/// Which value heads share a key head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueOrder {
    /// Consecutive ones.
    Grouped,
    /// Each `keys`-th.
    Tiled,
}

impl DeltaHeads {
    /// Sizes of keys that there are kernels for.
    pub const KEY_DIMS: [usize; 4] = [16, 32, 64, 128];

    /// The key head of a value head.
    pub fn key_head(&self, value_head: usize) -> usize {
        match self.order {
            ValueOrder::Grouped => value_head / (self.values / self.keys),
            ValueOrder::Tiled => value_head % self.keys,
        }
    }

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

/// The sizes of a selective scan. Consecutive heads share a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanHeads {
    /// Heads, of which `groups` is a divisor.
    pub heads: usize,
    /// Groups of `B` and `C`.
    pub groups: usize,
    /// Numbers of a head: a multiple of 16, at most 256.
    pub head_dim: usize,
    /// Numbers of `B` and of `C`: one of [`ScanHeads::STATE_DIMS`].
    pub state_dim: usize,
}

impl ScanHeads {
    /// Sizes of the state that there are kernels for.
    pub const STATE_DIMS: [usize; 5] = [16, 32, 64, 128, 256];

    /// Numbers of all heads.
    pub fn head_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Numbers of `x`, `B` and `C`.
    pub fn width(&self) -> usize {
        self.head_width() + 2 * self.groups * self.state_dim
    }

    /// Numbers of the state. `[heads, state_dim, head_dim]`
    pub fn state_numbers(&self) -> usize {
        self.heads * self.state_dim * self.head_dim
    }
}

/// What a selective scan reads of each token, besides the batch.
#[derive(Debug)]
pub struct ScanInputs<'a, T, V> {
    /// `x` of each head, then `B` of each group, then `C`. `[tokens, heads * head_dim + 2 groups * state_dim]`
    pub xbc: &'a T,
    /// A tensor with the steps at columns `first_step..`, one per head. `[tokens, any]`
    pub steps: &'a T,
    /// Where they begin.
    pub first_step: usize,
    /// Their factor.
    pub step_scale: f32,
    /// `exp(A_log)`, then `dt_bias`, then `D`. `[3, heads]`
    pub rates: &'a V,
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
    /// `exp(A_log)`, then `dt_bias`. `[2, values]`
    pub decays: &'a V,
}

/// What a layer of the gated delta rule computes between its projections.
#[derive(Debug)]
pub struct DeltaLayer<'a, T, V> {
    /// Queries, keys and values before the convolution, then the gate of the norm, then `b` and `a`. `[tokens, any]`
    pub projected: &'a T,
    /// `[taps, heads.width()]`, then the biases
    pub conv_weight: &'a V,
    /// The convolution of queries, keys and values.
    pub conv: ShortConv,
    /// `exp(A_log)`, then `dt_bias`. `[2, values]`
    pub decays: &'a V,
    /// The sizes of the rule.
    pub heads: DeltaHeads,
    /// Of each head, behind the rule. `[value_dim]`
    pub norm: &'a V,
    /// Added to the mean of squares.
    pub eps: f32,
}

impl<T, V> Clone for DeltaLayer<'_, T, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, V> Copy for DeltaLayer<'_, T, V> {}

impl<'a, T, V> DeltaLayer<'a, T, V> {
    /// Where the gate of the norm begins.
    pub fn first_norm_gate(&self) -> usize {
        self.heads.width()
    }

    /// Where `b` begins.
    pub fn first_gate(&self) -> usize {
        self.heads.width() + self.heads.value_width()
    }

    /// The state of the rule, where that of the convolution is at `at`.
    pub fn rule_at(&self, at: usize) -> usize {
        at + self.conv.state_numbers(self.heads.width())
    }

    /// The norm behind the rule.
    pub fn gate(&self) -> HeadGate<'a, T, V> {
        HeadGate {
            gate: self.projected,
            first: self.first_norm_gate(),
            scale: 1.0,
            order: GateOrder::AfterNorm,
            head_dim: self.heads.value_dim,
            weight: self.norm,
            eps: self.eps,
        }
    }
}

/// What a layer of Mamba-2 computes between its projections.
#[derive(Debug)]
pub struct ScanLayer<'a, T, V> {
    /// `x`, `B` and `C` before the convolution, then the gates, then the steps. `[tokens, heads.width() + heads.head_width() + heads.heads]`
    pub projected: &'a T,
    /// `[taps, heads.width()]`, then the biases
    pub conv_weight: &'a V,
    /// The convolution of `x`, `B` and `C`.
    pub conv: ShortConv,
    /// `exp(A_log)`, then `dt_bias`, then `D`. `[3, heads]`
    pub rates: &'a V,
    /// The factor of the steps.
    pub step_scale: f32,
    /// The sizes of the scan.
    pub heads: ScanHeads,
    /// What follows.
    pub gate: ScanGate<'a, T, V>,
}

/// What follows a selective scan.
#[derive(Debug)]
pub enum ScanGate<'a, T, V> {
    /// Nothing yet: ranks that share a group exchange what was read first.
    Nothing,
    /// `silu(scale * gate)` is a factor of what was read.
    Silu {
        /// The factor of the gates.
        scale: f32,
    },
    /// A norm of each group with a gate.
    Norm(HeadGate<'a, T, V>),
}

impl<T, V> Clone for ScanGate<'_, T, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, V> Copy for ScanGate<'_, T, V> {}

impl<T, V> Clone for ScanLayer<'_, T, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, V> Copy for ScanLayer<'_, T, V> {}

impl<T, V> ScanLayer<'_, T, V> {
    /// Where the gates begin.
    pub fn first_gate(&self) -> usize {
        self.heads.width()
    }

    /// Where the steps begin.
    pub fn first_step(&self) -> usize {
        self.heads.width() + self.heads.head_width()
    }

    /// The state of the scan, where that of the convolution is at `at`.
    pub fn scan_at(&self, at: usize) -> usize {
        at + self.conv.state_numbers(self.heads.width())
    }
}

/// Tensors that a layer of Mamba-2 may use. What they hold afterwards is not defined.
#[derive(Debug)]
pub struct ScanRows<'a, T> {
    /// `[tokens, heads.width()]`
    pub mixed: &'a mut T,
    /// With [`ScanGate::Silu`]. `[tokens, heads.head_width()]`
    pub read: Option<&'a mut T>,
}

/// A gated RMS norm of heads.
#[derive(Debug)]
pub struct HeadGate<'a, T, V> {
    /// A tensor with the gates at columns `first..`, as many as the normalized one has. `[tokens, any]`
    pub gate: &'a T,
    /// Where they begin.
    pub first: usize,
    /// Their factor.
    pub scale: f32,
    /// Whether the gate comes before the norm.
    pub order: GateOrder,
    /// Numbers of a head.
    pub head_dim: usize,
    /// Of each head, or of all heads that share none. `[head_dim]` or `[heads * head_dim]`
    pub weight: &'a V,
    /// Added to the mean of squares.
    pub eps: f32,
}

impl<T, V> Clone for HeadGate<'_, T, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, V> Copy for HeadGate<'_, T, V> {}

/// Whether a gate comes before or after a norm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateOrder {
    /// `norm(x) * silu(gate)`
    AfterNorm,
    /// `norm(x * silu(gate))`
    BeforeNorm,
}
