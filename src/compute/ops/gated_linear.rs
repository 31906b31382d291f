//! [`linear`](super::linear), then [`activate_mul`](super::activate_mul): in one launch where the device has one for the layer, which then
//! never stores the product.
//!
//! `out` has the bits of the ops one by one, where the product has the same sums: a GPU may add up more than 256 tokens in another order, except with
//! `batch_invariant`. Whether `gate_up` holds the product afterwards is not defined.

use super::linear::check;
use crate::{Activation, Backend, LayerInput, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`     | `[tokens, width]`                    |
/// | `gate_up` | `[tokens, 2 * width]`                |
/// | `layer`   | as that of [`linear`](super::linear), with `2 * width` outputs, of gate, then of up |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn gated_linear<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    gate_up: &mut Tensor<B::Storage>,
    layer: LayerInput<Tensor<B::Storage>, B::Matrix, B::Vector>,
    activation: Activation,
) {
    check::<B>(layer);
    let (n, _) = B::matrix_shape(layer.weight);
    assert_eq!((gate_up.rows(), gate_up.cols()), (layer.x.rows(), n));
    assert_eq!((out.rows(), 2 * out.cols()), (gate_up.rows(), gate_up.cols()));
    backend.gated_linear(out, gate_up, layer, activation);
}
