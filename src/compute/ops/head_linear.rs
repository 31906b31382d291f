//! A linear layer for each head: `out[t, to(h) + n] = sum_k x[t, from(h) + k] * weight[h, n, k]` for each head `h`, with `column(h) = first + h * step`.
//!
//! A row of a head has the bits of [`linear`](super::linear) with its matrix on the CPU, and depends on that row alone on every device. Columns of `out` that
//! belong to no head are left alone.

use crate::{Backend, HeadColumns, Tensor};

/// | tensor   | shape |
/// |----------|-------|
/// | `out`    | `[tokens, cols]` |
/// | `x`      | `[tokens, cols of its own]` |
/// | `weight` | `[heads, n, k]`, of [`Device::heads`](crate::Device::heads) |
///
/// `n`, `k`, first columns and steps are multiples of 8.
///
/// # Panics
///
/// If the shapes disagree, or heads of `out` overlap: only a wrong model can cause it, never a user's input.
pub fn head_linear<B: Backend>(
    backend: &mut B,
    (out, to): (&mut Tensor<B::Storage>, HeadColumns),
    (x, from): (&Tensor<B::Storage>, HeadColumns),
    weight: &B::Heads,
) {
    let [heads, outputs, inputs] = B::heads_shape(weight);
    let is_whole = |number: usize| number.is_multiple_of(8);
    assert!([outputs, inputs, to.first, to.step, from.first, from.step].into_iter().all(is_whole));
    assert_eq!(x.rows(), out.rows());
    assert!(from.is_within(heads, inputs, x.cols()) && to.is_within(heads, outputs, out.cols()));
    assert!(heads == 1 || to.step >= outputs);
    backend.head_linear((out, to), (x, from), weight);
}
