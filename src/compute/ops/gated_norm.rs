//! An RMS norm of each head, with a gate before or after it: `x[h] = norm(x[h]) * weight * silu(scale * gate[h])` or `x[h] = norm(x[h] * silu(scale * gate[h])) * weight`,
//! with `norm(v) = v / sqrt(mean(v^2) + eps)` and `silu(v) = v / (1 + exp(-v))`.

use crate::{Backend, HeadGate, Tensor};

/// | operand | shape |
/// |---------|-------|
/// | `x`     | `[tokens, heads * head_dim]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn gated_norm<B: Backend>(
    backend: &mut B,
    x: &mut Tensor<B::Storage>,
    gate: HeadGate<Tensor<B::Storage>, B::Vector>,
) {
    assert_eq!(x.rows(), gate.gate.rows());
    assert!(gate.first + x.cols() <= gate.gate.cols());
    assert!(x.cols().is_multiple_of(gate.head_dim));
    assert!([gate.head_dim, x.cols()].contains(&B::vector_len(gate.weight)));
    backend.gated_norm(x, gate);
}
