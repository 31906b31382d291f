//! Brings the final hidden states that the batch asks for to the host: rows `samples..` of `gathered`.

use crate::backend::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `gathered` | `[samples + hiddens, hidden]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn keep_hidden<B: Backend>(backend: &mut B, step: &mut B::Step, gathered: &Tensor<B::Storage>) {
    let batch = B::batch(step);
    assert_eq!(gathered.rows(), batch.samples() + batch.hiddens());
    if batch.hiddens() > 0 {
        backend.keep_hidden(step, gathered);
    }
}
