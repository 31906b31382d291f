//! Copies the final hidden states of the pooled tokens to the host: rows `samples..` of `gathered`.

use crate::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `gathered` | `[samples + pooled_rows, hidden]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn keep_hidden_states<B: Backend>(
    backend: &mut B,
    device_batch: &mut B::DeviceBatch,
    gathered: &Tensor<B::Storage>,
) {
    let batch = B::batch(device_batch);
    assert_eq!(gathered.rows(), batch.samples() + batch.pooled_rows());
    if batch.pooled_rows() > 0 {
        backend.keep_hidden_states(device_batch, gathered);
    }
}
