//! Normalization of each row: `out[t, ..] = norm(x[t, ..])`, with the formula of a [`NormKind`](crate::NormKind).

use crate::{Backend, NormWeights, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`         | `[tokens, hidden]` |
/// | `x`           | `[tokens, hidden]` |
/// | `norm.weight` | `[hidden]`, or `[2 * hidden]` with biases |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn norm<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    x: &Tensor<B::Storage>,
    norm: NormWeights<B::Vector>,
) {
    assert_eq!((out.rows(), out.cols()), (x.rows(), x.cols()));
    assert_eq!(B::vector_len(norm.weight), norm.kind.weights(x.cols()));
    backend.norm(out, x, norm);
}
