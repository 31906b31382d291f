//! One state of those of some tokens: `out[i, ..]` is what the kind of range `i` of `pooled_ranges` makes of `x[t, ..]`, where `t` runs over the tokens of the range.

use crate::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out` | `[pooled_rows, hidden]` |
/// | `x`   | `[tokens, hidden]`  |
///
/// A range of one token gives its state, to the bit. [`PoolKind`](crate::batch::PoolKind) has the formulas.
///
/// # Panics
///
/// If the shapes disagree, or the batch asks for anything else: only a wrong model can cause it, never a user's input.
pub fn pool_states<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    x: &Tensor<B::Storage>,
    device_batch: &B::DeviceBatch,
) {
    let batch = B::batch(device_batch);
    assert_eq!((x.rows(), out.rows()), (batch.tokens(), batch.pooled_ranges.len()));
    assert!(out.cols() == x.cols() && batch.samples() == 0 && batch.pooled_tokens.is_empty());
    backend.pool_states(out, x, device_batch);
}
