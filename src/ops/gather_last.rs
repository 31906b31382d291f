//! Picks the last new token of each row that asks for a token: `out[s, ..] = x[last token of sampled_rows[s], ..]`.

use crate::backend::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out` | `[samples, hidden]` |
/// | `x`   | `[tokens, hidden]`  |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn gather_last<B: Backend>(backend: &mut B, out: &mut Tensor<B::Storage>, x: &Tensor<B::Storage>, step: &B::Step) {
    let batch = B::batch(step);
    assert_eq!((x.rows(), out.rows()), (batch.tokens(), batch.samples()));
    assert_eq!(out.cols(), x.cols());
    backend.gather_last(out, x, step);
}
