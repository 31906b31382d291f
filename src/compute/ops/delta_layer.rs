//! What a layer of the gated delta rule computes between its projections: [`causal_conv`](super::causal_conv) of queries, keys and values,
//! [`gated_delta`](super::gated_delta), and [`gated_norm`](super::gated_norm) with the gate behind the norm. Has the bits of these three.

use crate::{Backend, DeltaLayer, Tensor};

/// | operand  | shape |
/// |----------|-------|
/// | `out`    | `[tokens, value heads * value_dim]` |
/// | `mixed`  | `[tokens, heads.width()]`; what it holds afterwards is not defined |
/// | `states` | at `at`: those of the convolution, then those of the rule |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn delta_layer<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    mixed: &mut Tensor<B::Storage>,
    layer: DeltaLayer<Tensor<B::Storage>, B::Vector>,
    (states, at): (&mut B::States, usize),
    device_batch: &B::DeviceBatch,
) {
    let (batch, shape, heads) = (B::batch(device_batch), B::state_shape(states), layer.heads);
    assert!([out.rows(), mixed.rows(), layer.projected.rows()].iter().all(|&rows| rows == batch.tokens()));
    assert_eq!((out.cols(), mixed.cols()), (heads.value_width(), heads.width()));
    assert!(layer.first_gate() + 2 * heads.values <= layer.projected.cols());
    assert_eq!(B::vector_len(layer.conv_weight), layer.conv.weight_numbers(heads.width()));
    assert_eq!((B::vector_len(layer.decays), B::vector_len(layer.norm)), (2 * heads.values, heads.value_dim));
    assert!(layer.rule_at(at) + heads.state_numbers() <= shape.numbers);
    assert_eq!(batch.state_slots.len(), batch.rows());
    backend.delta_layer(out, mixed, layer, (states, at), device_batch);
}
