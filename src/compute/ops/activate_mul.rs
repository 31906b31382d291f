//! The gate of a gated MLP: `out[t, i] = activation(gate_up[t, i]) * gate_up[t, width + i]`.

use crate::{Activation, Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`     | `[tokens, width]`     |
/// | `gate_up` | `[tokens, 2 * width]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn activate_mul<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    gate_up: &Tensor<B::Storage>,
    activation: Activation,
) {
    assert_eq!((out.rows(), 2 * out.cols()), (gate_up.rows(), gate_up.cols()));
    backend.activate_mul(out, gate_up, activation);
}
