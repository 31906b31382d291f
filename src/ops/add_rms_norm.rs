//! Adds to the residual stream and normalizes it: `residual += x; out = rms_norm(residual)`.

use crate::backend::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`      | `[tokens, hidden]` |
/// | `residual` | `[tokens, hidden]` |
/// | `x`        | `[tokens, hidden]` |
/// | `weight`   | `[hidden]`         |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn add_rms_norm<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    residual: &mut Tensor<B::Storage>,
    x: &Tensor<B::Storage>,
    weight: &B::Vector,
    eps: f32,
) {
    assert_eq!((out.rows(), out.cols()), (x.rows(), x.cols()));
    assert_eq!((residual.rows(), residual.cols()), (x.rows(), x.cols()));
    assert_eq!(B::vector_len(weight), x.cols());
    backend.add_rms_norm(out, residual, x, weight, eps);
}
