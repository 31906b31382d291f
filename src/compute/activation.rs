//! The activation functions of MLPs.

use crate::Part;

/// What a gated MLP makes of a gate `v` and its up `u`: most activate the gate and multiply by the up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `v / (1 + exp(-v)) * u`
    Silu,
    /// `v / 2 * (1 + tanh(sqrt(2 / pi) * (v + 0.044715 v^3))) * u`
    GeluTanh,
    /// `w / (1 + exp(-1.702 w)) * (c + 1)` with `w = min(v, 7)` and `c` between -7 and 7: that of gpt-oss.
    ClampedSwiglu,
}

/// What [`activate`](crate::ops::activate) makes of a number `v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// The activation of a gate, without its up: one that leaves the up as it is.
    Gate(Activation),
    /// `max(v, 0)^2`
    ReluSquared,
    /// `v / 2 * (1 + erf(v / sqrt(2)))`
    Gelu,
    /// `tanh(v)`
    Tanh,
}

/// Columns of a tensor through a [`Curve`], times those of another.
#[derive(Debug)]
pub struct Activated<'a, T> {
    /// What goes through the curve.
    pub of: Part<'a, T>,
    /// Its factor before.
    pub scale: f32,
    /// The function.
    pub curve: Curve,
    /// Its factors behind. `None`: ones.
    pub times: Option<Part<'a, T>>,
}

impl<T> Clone for Activated<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Activated<'_, T> {}
