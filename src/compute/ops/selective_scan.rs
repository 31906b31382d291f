//! The selective scan of Mamba-2 along the tokens of each row (Dao and Gu, "Transformers are SSMs", 2024). For each head, with `B` and `C` of the group that
//! it shares:
//!
//! `step = softplus(step_scale * dt + dt_bias)`, `S = exp(-rate * step) * S + B (step * x)^T` with `rate = exp(A_log)`, `out = S^T C + D * x`. All in f32, and `S` is 0 at
//! the beginning of a sequence.

use crate::{Backend, ScanHeads, ScanInputs, Tensor};

/// | operand  | shape |
/// |----------|-------|
/// | `out`    | `[tokens, heads * head_dim]` |
/// | `states` | at `at`: `[heads, state_dim, head_dim]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn selective_scan<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    inputs: ScanInputs<Tensor<B::Storage>, B::Vector>,
    heads: ScanHeads,
    (states, at): (&mut B::States, usize),
    device_batch: &B::DeviceBatch,
) {
    let (batch, shape) = (B::batch(device_batch), B::state_shape(states));
    let ScanInputs { xbc, steps, first_step, rates, .. } = &inputs;
    assert!([out.rows(), xbc.rows(), steps.rows()].iter().all(|&rows| rows == batch.tokens()));
    assert_eq!((out.cols(), xbc.cols()), (heads.head_width(), heads.width()));
    assert!(first_step + heads.heads <= steps.cols() && B::vector_len(rates) == 3 * heads.heads);
    assert!(ScanHeads::STATE_DIMS.contains(&heads.state_dim) && heads.heads.is_multiple_of(heads.groups));
    assert!(heads.head_dim.is_multiple_of(16) && heads.head_dim <= 256);
    assert!(at + heads.state_numbers() <= shape.numbers);
    assert_eq!(batch.state_slots.len(), batch.rows());
    backend.selective_scan(out, inputs, heads, (states, at), device_batch);
}
