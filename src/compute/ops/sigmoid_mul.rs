//! The gate of what attention computed: `x[t, i] *= sigmoid(gate[t, i / span])`, with `sigmoid(v) = 1 / (1 + exp(-v))` and `span = width / gates`: one gate
//! per number, or one per head.

use crate::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `x`    | `[tokens, width]` |
/// | `gate` | `[tokens, gates]`, where `gates` divides `width` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn sigmoid_mul<B: Backend>(backend: &mut B, x: &mut Tensor<B::Storage>, gate: &Tensor<B::Storage>) {
    assert!(x.rows() == gate.rows() && x.cols().is_multiple_of(gate.cols()));
    backend.sigmoid_mul(x, gate);
}
