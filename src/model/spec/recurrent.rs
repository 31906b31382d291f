//! Layers with a recurrent state, as data.

use super::Bias;
use base::error::{Error, Result};
use compute::{ConvForm, DeltaHeads, GateOrder, ScanHeads, ShortConv};

/// A layer with a recurrent state.
#[derive(Clone, Debug, PartialEq)]
pub enum Recurrent {
    /// A gated delta rule.
    GatedDelta(GatedDelta),
    /// A gated short convolution.
    ShortConv(GatedShortConv),
    /// A selective scan.
    StateSpace(StateSpace),
}

/// Linear attention by a gated delta rule: see [`gated_delta`](compute::ops::gated_delta). Queries, keys and values go through a short convolution with
/// SiLU before, and what is read through a gated RMS norm of each head after.
#[derive(Clone, Debug, PartialEq)]
pub struct GatedDelta {
    /// Sizes of heads.
    pub heads: DeltaHeads,
    /// Tokens that the convolution combines.
    pub taps: usize,
    /// Added to the mean of squares of a head.
    pub norm_eps: f32,
}

/// `out(c * conv(b * x))`, with `b`, `c` and `x` as wide as the stream: see [`causal_conv`](compute::ops::causal_conv).
#[derive(Clone, Debug, PartialEq)]
pub struct GatedShortConv {
    /// Tokens that the convolution combines.
    pub taps: usize,
    /// Of the projections and of the convolution.
    pub bias: Bias,
}

/// Mamba-2: see [`selective_scan`](compute::ops::selective_scan). `x`, `B` and `C` go through a short convolution with SiLU before, and what is read through
/// a gate and an RMS norm of each group after, where it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct StateSpace {
    /// Sizes of heads.
    pub heads: ScanHeads,
    /// Tokens that the convolution combines.
    pub taps: usize,
    /// Of the convolution.
    pub conv_bias: Bias,
    /// Of the projections.
    pub bias: Bias,
    /// Factors of what the projection makes.
    pub scales: ScanScales,
    /// Of each group, around the gate. `None`: the gate alone.
    pub norm: Option<GroupNorm>,
}

/// Factors of what the projection into a selective scan makes, without a bias.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScanScales {
    /// Of the gates.
    pub gate: f32,
    /// Of `x`.
    pub x: f32,
    /// Of `B`.
    pub b: f32,
    /// Of `C`.
    pub c: f32,
    /// Of the steps.
    pub step: f32,
}

/// The norm of each group of a selective scan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    /// Added to the mean of squares.
    pub eps: f32,
    /// Whether the gate comes before.
    pub order: GateOrder,
}

impl ScanScales {
    /// None.
    pub const ONE: ScanScales = ScanScales { gate: 1.0, x: 1.0, b: 1.0, c: 1.0, step: 1.0 };

    /// In the order of the projection.
    pub fn all(&self) -> [f32; 5] {
        [self.gate, self.x, self.b, self.c, self.step]
    }
}

impl Recurrent {
    /// The selective scan, if that is what it is.
    pub fn state_space(&self) -> Option<&StateSpace> {
        match self {
            Recurrent::StateSpace(scan) => Some(scan),
            Recurrent::GatedDelta(_) | Recurrent::ShortConv(_) => None,
        }
    }

    /// What its norm adds to the mean of squares, if it has one.
    pub(super) fn norm_eps(&self) -> Option<f32> {
        match self {
            Recurrent::GatedDelta(delta) => Some(delta.norm_eps),
            Recurrent::ShortConv(_) => None,
            Recurrent::StateSpace(scan) => scan.norm.map(|norm| norm.eps),
        }
    }

    /// Rows of its projections in and columns of the one back, where the stream is `hidden` wide.
    pub(super) fn rows(&self, hidden: usize) -> usize {
        match self {
            Recurrent::GatedDelta(GatedDelta { heads, .. }) => {
                heads.width() + 2 * heads.value_width() + 2 * heads.values
            }
            Recurrent::ShortConv(_) => 4 * hidden,
            Recurrent::StateSpace(StateSpace { heads, .. }) => heads.width() + 2 * heads.head_width() + heads.heads,
        }
    }

    /// Heads that can be dealt to ranks.
    pub(super) fn divisible_heads(&self) -> usize {
        match self {
            Recurrent::GatedDelta(delta) => delta.heads.keys,
            // Its columns are dealt as those of the feed-forward part.
            Recurrent::ShortConv(_) => usize::MAX,
            Recurrent::StateSpace(scan) => scan.heads.heads,
        }
    }

    /// Refuses sizes that no kernel has.
    pub(super) fn check(&self) -> Result<()> {
        match self {
            Recurrent::GatedDelta(delta) => delta.check(),
            Recurrent::ShortConv(conv) => conv.check(),
            Recurrent::StateSpace(scan) => scan.check(),
        }
    }
}

impl GatedDelta {
    /// The convolution.
    pub fn conv(&self) -> ShortConv {
        ShortConv { taps: self.taps, form: ConvForm::Silu, has_bias: false }
    }

    fn check(&self) -> Result<()> {
        let DeltaHeads { keys, values, key_dim, value_dim, .. } = self.heads;
        match () {
            () if !values.is_multiple_of(keys) => {
                refuse("linear_num_value_heads", values, "a multiple of linear_num_key_heads")
            }
            () if !DeltaHeads::KEY_DIMS.contains(&key_dim) => {
                refuse("linear_key_head_dim", key_dim, "16, 32, 64 or 128")
            }
            () if !value_dim.is_multiple_of(16) || value_dim > 256 => {
                refuse("linear_value_head_dim", value_dim, "a multiple of 16 up to 256")
            }
            () => check_taps("linear_conv_kernel_dim", self.taps),
        }
    }
}

impl GatedShortConv {
    /// The convolution.
    pub fn conv(&self) -> ShortConv {
        ShortConv { taps: self.taps, form: ConvForm::Gated, has_bias: self.bias == Bias::Added }
    }

    fn check(&self) -> Result<()> {
        let is_supported = [2, 3, 4, 7].contains(&self.taps);
        if is_supported { Ok(()) } else { refuse("conv_L_cache", self.taps, "2, 3, 4 or 7") }
    }
}

impl StateSpace {
    /// The convolution.
    pub fn conv(&self) -> ShortConv {
        ShortConv { taps: self.taps, form: ConvForm::Silu, has_bias: self.conv_bias == Bias::Added }
    }

    fn check(&self) -> Result<()> {
        let ScanHeads { heads, groups, head_dim, state_dim } = self.heads;
        match () {
            () if !heads.is_multiple_of(groups) => refuse("mamba_n_heads", heads, "a multiple of mamba_n_groups"),
            () if !ScanHeads::STATE_DIMS.contains(&state_dim) => {
                refuse("mamba_d_state", state_dim, "16, 32, 64, 128 or 256")
            }
            () if !head_dim.is_multiple_of(16) || head_dim > 256 => {
                refuse("mamba_d_head", head_dim, "a multiple of 16 up to 256")
            }
            () => check_taps("mamba_d_conv", self.taps),
        }
    }
}

fn check_taps(setting: &'static str, taps: usize) -> Result<()> {
    if (2..=4).contains(&taps) { Ok(()) } else { refuse(setting, taps, "2, 3 or 4") }
}

fn refuse(setting: &'static str, value: usize, supported: &'static str) -> Result<()> {
    Err(Error::UnsupportedModel { setting, value: value.to_string(), supported })
}
