//! The gated delta rule along the tokens of each row (Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024). For each value head, with the key head that
//! it shares by its [`ValueOrder`](crate::ValueOrder):
//!
//! `q = q / sqrt(|q|^2 + 1e-6) / sqrt(key_dim)`, `k = k / sqrt(|k|^2 + 1e-6)`, `beta = sigmoid(b)`, `decay = exp(-rate * softplus(a + dt_bias))` with `rate = exp(A_log)`;
//! `S = decay * S`, `S += k (beta * (v - S^T k))^T`, `out = S^T q`. All in f32, and `S` is 0 at the beginning of a sequence.

use crate::{Backend, DeltaHeads, DeltaInputs, Tensor};

/// | operand  | shape |
/// |----------|-------|
/// | `out`    | `[tokens, value heads * value_dim]` |
/// | `states` | at `at`: `[value heads, key_dim, value_dim]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn gated_delta<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    inputs: DeltaInputs<Tensor<B::Storage>, B::Vector>,
    heads: DeltaHeads,
    (states, at): (&mut B::States, usize),
    device_batch: &B::DeviceBatch,
) {
    let (batch, shape) = (B::batch(device_batch), B::state_shape(states));
    let DeltaInputs { qkv, gates, first_gate, decays } = &inputs;
    assert!([out.rows(), qkv.rows(), gates.rows()].iter().all(|&rows| rows == batch.tokens()));
    assert_eq!((out.cols(), qkv.cols()), (heads.value_width(), heads.width()));
    assert!(first_gate + 2 * heads.values <= gates.cols() && B::vector_len(decays) == 2 * heads.values);
    assert!(DeltaHeads::KEY_DIMS.contains(&heads.key_dim) && heads.values.is_multiple_of(heads.keys));
    assert!(heads.value_dim.is_multiple_of(16) && heads.value_dim <= 256);
    assert!(at + heads.state_numbers() <= shape.numbers);
    assert_eq!(batch.state_slots.len(), batch.rows());
    backend.gated_delta(out, inputs, heads, (states, at), device_batch);
}
