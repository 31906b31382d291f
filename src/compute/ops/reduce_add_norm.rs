//! As [`add_norm`](super::add_norm), of a sum over ranks: `delta = share_0 + share_1 + ..`, where rank `r` passes `share_r`.
//!
//! Every rank calls it, in the same order, with as many rows and the same norms. The shares are added in f32 in the order of ranks,
//! each as it was rounded to the type of the stream, and the sum is not rounded: all ranks get the same bits.

use crate::{AddNorm, Backend, NextNorm, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `residual`        | `[tokens, hidden]` |
/// | `share`           | `[tokens, hidden]` |
/// | `next.out`        | `[tokens, hidden]` |
/// | weight of a norm  | `[hidden]`         |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn reduce_add_norm<B: Backend>(
    backend: &mut B,
    residual: &mut Tensor<B::Storage>,
    share: &Tensor<B::Storage>,
    add: AddNorm<B::Vector>,
    next: Option<NextNorm<Tensor<B::Storage>, B::Vector>>,
) {
    assert_eq!((residual.rows(), residual.cols()), (share.rows(), share.cols()));
    assert!(add.post.is_none_or(|norm| B::vector_len(norm.weight) == norm.kind.weights(share.cols())));
    if let Some(NextNorm { out, norm }) = &next {
        assert_eq!((out.rows(), out.cols()), (share.rows(), share.cols()));
        assert_eq!(B::vector_len(norm.weight), norm.kind.weights(share.cols()));
    }
    backend.reduce_add_norm(residual, share, add, next);
}
