//! The choice of experts. For each token, with `s = softmax(logits)` or `sigmoid(logits)`:
//!
//! `chosen = top_k(s + bias)` among the experts of the best groups, where there are groups; of equal ones the expert with the lower index. The weight of a
//! chosen expert is `s`, without the bias, divided by the sum of the weights of the token plus [`norm`](Router::norm), where there is one, and times
//! [`scale`](Router::scale).
//!
//! Choice and weights of a token depend on its logits alone. A NaN is worse than every number.

use crate::{Backend, Router, Tensor};

/// | operand  | shape |
/// |----------|-------|
/// | `routes` | `[tokens, chosen]` experts and weights, the best first; has as many tokens afterwards |
/// | `logits` | `[tokens, experts]`, not defined afterwards |
/// | `bias`   | `[experts]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn route<B: Backend>(
    backend: &mut B,
    routes: &mut B::Routes,
    logits: &mut Tensor<B::Storage>,
    bias: Option<&B::Vector>,
    router: &Router,
) {
    let shape = B::routes_shape(routes);
    assert!(router.is_valid(), "{router:?}");
    assert_eq!((shape.experts, shape.chosen), (router.experts, router.chosen));
    assert_eq!(logits.cols(), router.experts);
    assert!(bias.is_none_or(|bias| B::vector_len(bias) == router.experts));
    backend.route(routes, logits, bias, router);
}
