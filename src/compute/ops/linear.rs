//! A linear layer: `out[t, n] = sum_k x[t, k] * weight[n, k] + bias[n]` for `n` in `columns`; other columns of `out` are left alone.

use crate::{Backend, Tensor};
use std::ops::Range;

/// | tensor | shape |
/// |--------|-------|
/// | `out`    | `[tokens, n]` |
/// | `x`      | `[tokens, k]` |
/// | `weight` | `[n, k]`      |
/// | `bias`   | `[n]`         |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn linear<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    x: &Tensor<B::Storage>,
    weight: &B::Matrix,
    bias: Option<&B::Vector>,
    columns: Range<usize>,
) {
    let (n, k) = B::matrix_shape(weight);
    assert_eq!(x.cols(), k);
    assert_eq!((out.rows(), out.cols()), (x.rows(), n));
    assert!(bias.is_none_or(|b| B::vector_len(b) == n));
    assert!(columns.start <= columns.end && columns.end <= n);
    backend.linear(out, x, weight, bias, columns);
}
