//! A linear layer: `out[t, n] = sum_k x[t, k] * weight[n, k] + bias[n]` for `n` in `columns`; other columns of `out` are left alone.
//!
//! With an adapter, `scale * sum_r projected[t, r] * up[r, n]` is added.

use crate::{Adapter, Backend, LayerInput, Tensor};
use std::ops::Range;

/// | tensor | shape |
/// |--------|-------|
/// | `out`    | `[tokens, n]` |
/// | `layer.x`      | `[tokens, k]` |
/// | `layer.weight` | `[n, k]`      |
/// | `layer.bias`   | `[n]`         |
/// | `layer.adapter.projected` | `[tokens, rank]` |
/// | `layer.adapter.up`        | `[rank, n]`      |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn linear<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    layer: LayerInput<Tensor<B::Storage>, B::Matrix, B::Vector>,
    columns: Range<usize>,
) {
    check::<B>(layer);
    let (n, _) = B::matrix_shape(layer.weight);
    assert_eq!((out.rows(), out.cols()), (layer.x.rows(), n));
    assert!(columns.start <= columns.end && columns.end <= n);
    backend.linear(out, layer, columns);
}

/// Asserts that the parts of a layer fit each other.
pub fn check<B: Backend>(layer: LayerInput<Tensor<B::Storage>, B::Matrix, B::Vector>) {
    let (n, k) = B::matrix_shape(layer.weight);
    assert_eq!(layer.x.cols(), k);
    assert!(layer.bias.is_none_or(|bias| B::vector_len(bias) == n));
    if let Some(Adapter { projected, up, .. }) = layer.adapter {
        assert_eq!((projected.rows(), projected.cols() * n), (layer.x.rows(), B::vector_len(up)));
    }
}
