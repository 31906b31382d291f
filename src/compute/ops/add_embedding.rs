//! Adds the row of a table that the place of each token names: `out[t, ..] += table[row(t), ..]`, with the rows of a [`TableRows`].

use crate::{Backend, TableRows, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`   | `[tokens, hidden]` |
/// | `table` | `[rows, hidden]`, in plain numbers |
///
/// # Panics
///
/// If the shapes disagree, or a row is not there: only a wrong model can cause it, never a user's input.
pub fn add_embedding<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    table: &B::Matrix,
    rows: TableRows,
    device_batch: &B::DeviceBatch,
) {
    let batch = B::batch(device_batch);
    let (len, hidden) = B::matrix_shape(table);
    assert_eq!((out.rows(), out.cols()), (batch.tokens(), hidden));
    assert!((0..batch.tokens()).all(|token| rows.of(batch, token) < len));
    backend.add_embedding(out, table, rows, device_batch);
}
