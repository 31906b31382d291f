//! The activation functions of gated MLPs.

/// The activation of a gate `v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `v / (1 + exp(-v))`
    Silu,
    /// `v / 2 * (1 + tanh(sqrt(2 / pi) * (v + 0.044715 v^3)))`
    GeluTanh,
}
