//! What a layer of Mamba-2 computes between its projections: [`causal_conv`](super::causal_conv) of `x`, `B` and `C`, [`selective_scan`](super::selective_scan), and a gate
//! or [`gated_norm`](super::gated_norm). Has the bits of these.

use crate::{Backend, ScanGate, ScanHeads, ScanLayer, ScanRows, Tensor};

/// | operand  | shape |
/// |----------|-------|
/// | `out`    | `[tokens, heads * head_dim]` |
/// | `states` | at `at`: those of the convolution, then those of the scan |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn scan_layer<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    rows: ScanRows<Tensor<B::Storage>>,
    layer: ScanLayer<Tensor<B::Storage>, B::Vector>,
    (states, at): (&mut B::States, usize),
    device_batch: &B::DeviceBatch,
) {
    let (batch, shape, heads) = (B::batch(device_batch), B::state_shape(states), layer.heads);
    let read = rows.read.as_deref();
    assert!([&*out, rows.mixed, layer.projected].into_iter().chain(read).all(|rows| rows.rows() == batch.tokens()));
    assert_eq!((out.cols(), rows.mixed.cols()), (heads.head_width(), heads.width()));
    match layer.gate {
        ScanGate::Silu { .. } => assert_eq!(read.map(Tensor::cols), Some(heads.head_width())),
        ScanGate::Nothing => {}
        ScanGate::Norm(gate) => {
            assert!(gate.gate.rows() == out.rows() && gate.first + out.cols() <= gate.gate.cols());
            assert!(out.cols().is_multiple_of(gate.head_dim));
            assert!([gate.head_dim, out.cols()].contains(&B::vector_len(gate.weight)));
        }
    }
    assert!(layer.first_step() + heads.heads <= layer.projected.cols());
    assert_eq!(B::vector_len(layer.conv_weight), layer.conv.weight_numbers(heads.width()));
    assert_eq!(B::vector_len(layer.rates), 3 * heads.heads);
    assert!(ScanHeads::STATE_DIMS.contains(&heads.state_dim) && heads.heads.is_multiple_of(heads.groups));
    assert!(heads.head_dim.is_multiple_of(16) && heads.head_dim <= 256);
    assert!(layer.scan_at(at) + heads.state_numbers() <= shape.numbers);
    assert_eq!(batch.state_slots.len(), batch.rows());
    backend.scan_layer(out, rows, layer, (states, at), device_batch);
}
