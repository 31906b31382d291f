//! The activation functions of MLPs.

use crate::Part;

/// The activation of a gate `v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `v / (1 + exp(-v))`
    Silu,
    /// `v / 2 * (1 + tanh(sqrt(2 / pi) * (v + 0.044715 v^3)))`
    GeluTanh,
}

/// What [`activate`](crate::ops::activate) makes of a number `v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// The activation of a gate.
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
