//! The experts of a layer whose weights stay in the host's memory, computed there: what [`gated_expert_linear`](super::gated_expert_linear) or
//! [`expert_linear`](super::expert_linear) and the activation, a second [`expert_linear`](super::expert_linear) and [`combine`](super::combine) make of `x`.
//!
//! The host computes what its own backend computes of the same rows, bit for bit, in f32. Rows come to the host and go back in the device's number type.
//! A row depends on that row alone. Rows that only pad the batch are not computed: what `out` has there is not defined.

use crate::{Backend, ExpertsShape, SharedExpert, Tensor};

/// | tensor   | shape |
/// |----------|-------|
/// | `out`    | `[tokens, hidden]` |
/// | `x`      | `[tokens, hidden]` |
/// | `shared` | `[tokens, hidden]`, and its gate `[tokens, 1]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn host_experts<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    x: &Tensor<B::Storage>,
    experts: &B::HostExperts,
    shared: Option<SharedExpert<Tensor<B::Storage>>>,
    routes: &B::Routes,
    device_batch: &B::DeviceBatch,
) {
    let (ExpertsShape { experts: count, outputs, inputs, .. }, routed) =
        (B::host_experts_shape(experts), B::routes_shape(routes));
    assert_eq!((count, x.rows()), (routed.experts, routed.tokens));
    assert_eq!((x.cols(), out.cols(), out.rows()), (inputs, outputs, x.rows()));
    if let Some(SharedExpert { x, gate }) = &shared {
        assert_eq!((x.rows(), x.cols()), (out.rows(), out.cols()));
        assert!(gate.is_none_or(|gate| (gate.rows(), gate.cols()) == (out.rows(), 1)));
    }
    backend.host_experts(out, x, experts, shared, routes, device_batch);
}
