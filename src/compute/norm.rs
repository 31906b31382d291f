//! What does a normalization compute, and what is added to the residual stream?
//!
//! Invariant: a norm has as many weights as [`NormKind::weights`] says of the rows that it normalizes; the ops check it.

/// The formula of a normalization of a row `x` with weights `w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormKind {
    /// `x / sqrt(mean(x^2) + eps) * w`
    Rms,
    /// `(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * w`
    Layer,
    /// The same plus `b`, whose numbers stand behind those of `w`.
    LayerBiased,
}

impl NormKind {
    /// Weights of a norm of rows of `len` numbers, its biases included.
    pub fn weights(self, len: usize) -> usize {
        match self {
            NormKind::Rms | NormKind::Layer => len,
            NormKind::LayerBiased => 2 * len,
        }
    }
}

/// A normalization with its weights.
#[derive(Debug)]
pub struct NormWeights<'a, V> {
    /// Factor of each number of a row, then its bias where the formula has one. `[hidden]` or `[2 * hidden]`
    pub weight: &'a V,
    /// Added to the mean of squares, or to the variance.
    pub eps: f32,
    /// The formula.
    pub kind: NormKind,
}

impl<V> Clone for NormWeights<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for NormWeights<'_, V> {}

/// How a sublayer's output is added to the residual stream: `residual = stream_scale * (residual + scale * post(delta))`.
#[derive(Debug)]
pub struct AddNorm<'a, V> {
    /// The norm of the output. `None` is the identity.
    pub post: Option<NormWeights<'a, V>>,
    /// Factor of what is added.
    pub scale: f32,
    /// Factor of the sum.
    pub stream_scale: f32,
}

impl<V> AddNorm<'_, V> {
    /// The output as it is: `residual += delta`.
    pub const PLAIN: Self = AddNorm { post: None, scale: 1.0, stream_scale: 1.0 };
}

impl<V> Clone for AddNorm<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for AddNorm<'_, V> {}

/// The norm of the next sublayer's input, and where it goes.
#[derive(Debug)]
pub struct NextNorm<'a, T: ?Sized, V> {
    /// Receives the normalized stream. `[tokens, hidden]`
    pub out: &'a mut T,
    /// The norm.
    pub norm: NormWeights<'a, V>,
}
