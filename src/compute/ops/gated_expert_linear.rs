//! The way into the MLPs of the experts: `out[slot] = activation(gate) * up`, where `gate` and `up` are the halves of `weight[e] x[t] + bias[e]` for the
//! expert `e` and the token `t` of the slot.
//!
//! Of slots whose expert is none of those in `weight`, what `out` holds afterwards is not defined.
//!
//! A row of the result has the bits of [`gated_linear`](super::gated_linear) with the matrix of its expert on the CPU, and depends on that row alone on
//! every device. Whether `gate_up` holds the product afterwards is not defined. It is there where the backend
//! [stores gates](crate::Ops::STORES_GATES).

use crate::{Activation, Backend, ExpertsShape, LayerInput, Tensor};

/// | tensor    | shape |
/// |-----------|-------|
/// | `out`     | `[slots, width]`, in an order that the backend chooses |
/// | `gate_up` | `[slots, 2 * width]` |
/// | `x`       | `[tokens, k]` |
/// | `weight`  | `[experts, 2 * width, k]`, of gate, then of up; of all experts or of some that follow each other |
/// | `bias`    | `[experts * 2 * width]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn gated_expert_linear<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    gate_up: Option<&mut Tensor<B::Storage>>,
    layer: LayerInput<Tensor<B::Storage>, B::Experts, B::Vector>,
    activation: Activation,
    routes: &B::Routes,
) {
    let LayerInput { x, weight, bias, adapter } = layer;
    assert!(adapter.is_none(), "experts take no adapter");
    let (held @ ExpertsShape { experts, outputs, inputs, .. }, routed) =
        (B::experts_shape(weight), B::routes_shape(routes));
    assert!(held.range().end <= routed.experts);
    assert_eq!((x.rows(), x.cols()), (routed.tokens, inputs));
    assert!(gate_up.as_ref().map_or(!B::STORES_GATES, |all| (all.rows(), all.cols()) == (routed.slots(), outputs)));
    assert_eq!((out.rows(), 2 * out.cols()), (routed.slots(), outputs));
    assert!(bias.is_none_or(|bias| B::vector_len(bias) == experts * outputs));
    backend.gated_expert_linear(out, gate_up, layer, activation, routes);
}
