//! Log-probabilities of the chosen and of the most probable tokens, where a sample asks for them.
//!
//! `log_softmax(logits)[t] = logits[t] - ln(sum over u of exp(logits[u]))`, by the logits as the model computed them.

use crate::{Backend, Tensor};

/// Called after [`sample`](crate::ops::sample).
///
/// | tensor | shape |
/// |--------|-------|
/// | `logits` | `[samples, vocab]`, in which what [`process_logits`](crate::ops::process_logits) changed in rows that ask is put back |
///
/// A logit that is NaN or minus infinity has no probability, and where one is infinite the infinite ones share all of it.
/// The sum is over whole fractions of 2^40 of the greatest term: it is exact in any order.
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn logprobs<B: Backend>(backend: &mut B, device_batch: &mut B::DeviceBatch, logits: &mut Tensor<B::Storage>) {
    assert_eq!(logits.rows(), B::batch(device_batch).samples());
    backend.logprobs(device_batch, logits);
}
