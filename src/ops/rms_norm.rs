//! RMS normalization of each row: `out[t, h] = x[t, h] / rms(x[t, ..]) * weight[h]`, `rms(v) = sqrt(mean(v^2) + eps)`.

use crate::backend::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`    | `[tokens, hidden]` |
/// | `x`      | `[tokens, hidden]` |
/// | `weight` | `[hidden]`         |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn rms_norm<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    x: &Tensor<B::Storage>,
    weight: &B::Vector,
    eps: f32,
) {
    assert_eq!((out.rows(), out.cols()), (x.rows(), x.cols()));
    assert_eq!(B::vector_len(weight), x.cols());
    backend.rms_norm(out, x, weight, eps);
}
