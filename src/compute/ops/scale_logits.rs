//! Scales logits and caps them, in place: `logits[s, v] = cap(scale * logits[s, v])`, `cap(x) = softcap * tanh(x / softcap)`.

use crate::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `logits` | `[samples, vocab]` |
///
/// Without a `softcap`, which is positive, logits are scaled only.
pub fn scale_logits<B: Backend>(backend: &mut B, logits: &mut Tensor<B::Storage>, scale: f32, softcap: Option<f32>) {
    backend.scale_logits(logits, scale, softcap);
}
