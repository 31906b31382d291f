//! Adds to the residual stream and normalizes it: `residual = add.stream_scale * (residual + add.scale * add.post(delta));
//! next.out = next.norm(residual)`.
//!
//! One launch in every case. A norm that is `None` is the identity; without a `next` norm only the stream is written, which the
//! next sublayer then reads itself.

use crate::{AddNorm, Backend, NextNorm, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `residual`        | `[tokens, hidden]` |
/// | `delta`           | `[tokens, hidden]` |
/// | `next.out`        | `[tokens, hidden]` |
/// | weight of a norm  | `[hidden]`, or `[2 * hidden]` with biases |
///
/// Neither `post(delta)` nor the sum is rounded before it is multiplied by `stream_scale`; `next.norm` takes the stream as it was rounded to its type.
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn add_norm<B: Backend>(
    backend: &mut B,
    residual: &mut Tensor<B::Storage>,
    delta: &Tensor<B::Storage>,
    add: AddNorm<B::Vector>,
    next: Option<NextNorm<Tensor<B::Storage>, B::Vector>>,
) {
    assert_eq!((residual.rows(), residual.cols()), (delta.rows(), delta.cols()));
    assert!(add.post.is_none_or(|norm| B::vector_len(norm.weight) == norm.kind.weights(delta.cols())));
    if let Some(NextNorm { out, norm }) = &next {
        assert_eq!((out.rows(), out.cols()), (delta.rows(), delta.cols()));
        assert_eq!(B::vector_len(norm.weight), norm.kind.weights(delta.cols()));
    }
    backend.add_norm(residual, delta, add, next);
}
