//! The choice of experts. For each token, with `s = softmax(logits)` or `sigmoid(logits)`:
//!
//! `chosen = top_k(s + bias)` among the experts of the best groups, where there are groups; of equal ones the expert with the lower index. The weight of a
//! chosen expert is `s`, without the bias, divided by the sum of the weights of the token plus [`norm`](Router::norm), where there is one, and times
//! [`scale`](Router::scale), and times the factor of its expert, where there are any.
//!
//! Choice and weights of a token depend on its logits alone. A NaN is worse than every number.

use crate::{Backend, Router, RouterVectors, Tensor};

/// | operand  | shape |
/// |----------|-------|
/// | `routes` | `[tokens, chosen]` experts and weights, the best first; has as many tokens afterwards |
/// | `logits` | `[tokens, experts]`, not defined afterwards |
/// | `vectors` | `[experts]` each |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn route<'a, B: Backend>(
    backend: &mut B,
    routes: &mut B::Routes,
    logits: &mut Tensor<B::Storage>,
    vectors: impl Into<RouterVectors<'a, B::Vector>>,
    router: &Router,
) where
    B::Vector: 'a,
{
    let vectors @ RouterVectors { bias, scales } = vectors.into();
    let shape = B::routes_shape(routes);
    assert!(router.is_valid(), "{router:?}");
    assert_eq!((shape.experts, shape.chosen), (router.experts, router.chosen));
    assert_eq!(logits.cols(), router.experts);
    assert!([bias, scales].into_iter().flatten().all(|vector| B::vector_len(vector) == router.experts));
    backend.route(routes, logits, vectors, router);
}
