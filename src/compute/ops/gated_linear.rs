//! [`linear`](super::linear), then [`activate_mul`](super::activate_mul): in one launch where the device has one for the layer, which then
//! never stores the product.
//!
//! `out` has the bits of the ops one by one, where the product has the same sums: a GPU may add up more than 256 tokens in another order, except with
//! `batch_invariant`. Whether `gate_up` holds the product afterwards is not defined.

use crate::{Activation, Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`     | `[tokens, width]`                    |
/// | `gate_up` | `[tokens, 2 * width]`                |
/// | `x`       | `[tokens, k]`                        |
/// | `weight`  | `[2 * width, k]`, of gate, then of up |
/// | `bias`    | `[2 * width]`                        |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn gated_linear<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    gate_up: &mut Tensor<B::Storage>,
    x: &Tensor<B::Storage>,
    weight: &B::Matrix,
    bias: Option<&B::Vector>,
    activation: Activation,
) {
    let (n, k) = B::matrix_shape(weight);
    assert_eq!(x.cols(), k);
    assert_eq!((gate_up.rows(), gate_up.cols()), (x.rows(), n));
    assert_eq!((out.rows(), 2 * out.cols()), (gate_up.rows(), gate_up.cols()));
    assert!(bias.is_none_or(|b| B::vector_len(b) == n));
    backend.gated_linear(out, gate_up, x, weight, bias, activation);
}
