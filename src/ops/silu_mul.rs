//! The gate of SwiGLU: `out[t, i] = silu(gate_up[t, i]) * gate_up[t, width + i]`, `silu(v) = v / (1 + exp(-v))`.

use crate::backend::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`     | `[tokens, width]`     |
/// | `gate_up` | `[tokens, 2 * width]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn silu_mul<B: Backend>(backend: &mut B, out: &mut Tensor<B::Storage>, gate_up: &Tensor<B::Storage>) {
    assert_eq!((out.rows(), 2 * out.cols()), (gate_up.rows(), gate_up.cols()));
    backend.silu_mul(out, gate_up);
}
