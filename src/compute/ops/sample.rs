//! Chooses the next token of each row that asks for one. The rule is that of [`Sampling`](crate::batch::Sampling).

use crate::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `logits` | `[samples, vocab]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn sample<B: Backend>(backend: &mut B, device_batch: &mut B::DeviceBatch, logits: &Tensor<B::Storage>) {
    assert_eq!(logits.rows(), B::batch(device_batch).samples());
    backend.sample(device_batch, logits);
}
