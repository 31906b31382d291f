//! What the experts of each token computed, added up: `out[t] = sum over its slots, the best first: weight[slot] * x[slot]`, and then
//! `+ sigmoid(gate[t]) * shared[t]` where an expert computes all tokens. Only slots with one of `experts` are added, and only their rows are read.

use crate::{Backend, SharedExpert, Tensor};
use std::ops::Range;

/// | tensor   | shape |
/// |----------|-------|
/// | `out`    | `[tokens, cols]` |
/// | `x`      | `[slots, cols]`, as [`expert_linear`](super::expert_linear) writes it |
/// | `shared` | `[tokens, cols]`, and its gate `[tokens, 1]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn combine<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    x: &Tensor<B::Storage>,
    shared: Option<SharedExpert<Tensor<B::Storage>>>,
    routes: &B::Routes,
    experts: Range<usize>,
) {
    let routed = B::routes_shape(routes);
    assert!(experts.start < experts.end && experts.end <= routed.experts);
    assert_eq!((x.rows(), x.cols()), (routed.slots(), out.cols()));
    assert_eq!(out.rows(), routed.tokens);
    if let Some(SharedExpert { x, gate }) = &shared {
        assert_eq!((x.rows(), x.cols()), (out.rows(), out.cols()));
        assert!(gate.is_none_or(|gate| (gate.rows(), gate.cols()) == (out.rows(), 1)));
    }
    backend.combine(out, x, shared, routes, experts);
}
