//! Processes logits before a token is chosen: penalties, logit bias and bans, each of some tokens. The formula is that of
//! [`LogitBias`](crate::batch::LogitBias).

use crate::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `logits` | `[samples, vocab]`, changed in place |
///
/// Computed in f32, each operation rounded by itself, then rounded to the number type of `logits`; a bias of minus infinity
/// leaves NaN. What was there before is kept with the batch until [`logprobs`](crate::ops::logprobs) puts it back. A token that a
/// sample awaits is counted without being listed, too.
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn process_logits<B: Backend>(backend: &mut B, device_batch: &mut B::DeviceBatch, logits: &mut Tensor<B::Storage>) {
    assert_eq!(logits.rows(), B::batch(device_batch).samples());
    backend.process_logits(device_batch, logits);
}
