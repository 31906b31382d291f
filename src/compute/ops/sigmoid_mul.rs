//! The gate of what attention computed: `x[t, i] *= sigmoid(gate[t, i])`, with `sigmoid(v) = 1 / (1 + exp(-v))`.

use crate::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `x`    | `[tokens, width]` |
/// | `gate` | `[tokens, width]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn sigmoid_mul<B: Backend>(backend: &mut B, x: &mut Tensor<B::Storage>, gate: &Tensor<B::Storage>) {
    assert_eq!((x.rows(), x.cols()), (gate.rows(), gate.cols()));
    backend.sigmoid_mul(x, gate);
}
