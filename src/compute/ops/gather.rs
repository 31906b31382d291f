//! Gathers the rows of the tokens that are sampled or pooled: `out[i, ..] = x[t, ..]`, where `t` runs over `sampled_tokens` and then
//! over `pooled_tokens`.

use crate::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out` | `[samples + pooled_rows, hidden]` |
/// | `x`   | `[tokens, hidden]`  |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn gather<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    x: &Tensor<B::Storage>,
    device_batch: &B::DeviceBatch,
) {
    let batch = B::batch(device_batch);
    assert_eq!((x.rows(), out.rows()), (batch.tokens(), batch.samples() + batch.pooled_rows()));
    assert_eq!(out.cols(), x.cols());
    backend.gather(out, x, device_batch);
}
