//! Looks up the row of each token: `out[t, ..] = scale * table[token_ids[t], ..]`.

use crate::{Backend, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`   | `[tokens, hidden]` |
/// | `table` | `[vocab, hidden]`  |
///
/// With a `scale` of 1 the numbers are those of the table, to the bit.
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn embedding<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    table: &B::Matrix,
    scale: f32,
    device_batch: &B::DeviceBatch,
) {
    let batch = B::batch(device_batch);
    let (_, hidden) = B::matrix_shape(table);
    assert_eq!((out.rows(), out.cols()), (batch.tokens(), hidden));
    backend.embedding(out, table, scale, device_batch);
}
