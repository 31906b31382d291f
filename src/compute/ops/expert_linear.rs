//! A linear layer for each expert: `out[slot, n] = sum_k x[slot, k] * weight[e, n, k] + bias[e, n]`, where `e` is the expert of the slot. With
//! [`ExpertRows::Tokens`], `x[t]` of the token of the slot in the place of `x[slot]`.
//!
//! Where `weight` has some of the experts alone, `weight[e]` and `bias[e]` are found from the first of these on, and the rows of slots with other
//! experts are left alone.
//!
//! A row of the result has the bits of [`linear`](super::linear) with the matrix of its expert on the CPU, and depends on that row alone on every device.

use crate::{Backend, ExpertRows, ExpertsShape, LayerInput, Tensor};

/// | tensor   | shape |
/// |----------|-------|
/// | `out`    | `[slots, n]`, in the order of `x`, or of [`gated_expert_linear`](super::gated_expert_linear) if that has rows of tokens |
/// | `x`      | `[slots, k]`, as [`gated_expert_linear`](super::gated_expert_linear) writes it, or `[tokens, k]` |
/// | `weight` | `[experts, n, k]`, of all experts or of some that follow each other |
/// | `bias`   | `[experts * n]`   |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn expert_linear<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    layer: LayerInput<Tensor<B::Storage>, B::Experts, B::Vector>,
    rows: ExpertRows,
    routes: &B::Routes,
) {
    let LayerInput { x, weight, bias, adapter } = layer;
    assert!(adapter.is_none(), "experts take no adapter");
    let (held @ ExpertsShape { experts, outputs, inputs, .. }, routed) =
        (B::experts_shape(weight), B::routes_shape(routes));
    assert!(held.range().end <= routed.experts);
    let of_x = match rows {
        ExpertRows::Slots => routed.slots(),
        ExpertRows::Tokens => routed.tokens,
    };
    assert_eq!((x.rows(), x.cols()), (of_x, inputs));
    assert_eq!((out.rows(), out.cols()), (routed.slots(), outputs));
    assert!(bias.is_none_or(|bias| B::vector_len(bias) == experts * outputs));
    backend.expert_linear(out, layer, rows, routes);
}
