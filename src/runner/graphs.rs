//! Decode passes as graphs, one for each of a few batch sizes, where the device records graphs.
//!
//! A graph replays the launches of a pass up to the logits in one call. What differs from pass to pass lies in the batch's memory; the
//! number of rows does not, so a batch is padded up to the next size that was captured. Tokens are chosen outside of it, kernel by
//! kernel: what samples ask for has no largest size, and rows that only pad ask for nothing. A pass whose rows share keys has an op that no
//! graph has, so it is launched kernel by kernel as a whole.

use crate::backend::Backend;
use crate::batch::{Batch, BatchLimits, Sampling};
use crate::error::Result;
use crate::model::decoder::Decoder;

/// Graphs by the number of their rows, ascending.
pub struct Graphs<B: Backend> {
    pub(super) by_rows: Vec<(usize, B::Graph)>,
}

impl<B: Backend> Graphs<B> {
    /// Captures a graph for each of `sizes`, or none where the device records no graphs.
    pub fn capture(
        sizes: &[usize],
        backend: &mut B,
        decoder: &mut Decoder<B>,
        cache: &mut B::KvCache,
        device_batch: &mut B::DeviceBatch,
        limits: &BatchLimits,
    ) -> Result<Graphs<B>> {
        let batch = one_token(limits)?;
        let mut by_rows = Vec::new();
        for &rows in sizes {
            let graph = backend.capture_pass(device_batch, &batch, rows, &mut |backend, batch| {
                // The batch copies no blocks: this launches nothing.
                decoder.begin(backend, cache, batch);
                decoder.run_to_logits(backend, cache, batch);
            })?;
            let Some(graph) = graph else { break };
            by_rows.push((rows, graph));
        }
        Ok(Graphs { by_rows })
    }

    /// The smallest graph that serves a batch. `None` for a batch that is not all decode.
    pub fn serving(&self, batch: &Batch) -> Option<&B::Graph> {
        let rows = batch.rows();
        let is_decode = batch.tokens() == rows && batch.samples() == rows && batch.pooled_rows() == 0;
        let fitting = self.by_rows.iter().find(|(size, _)| rows <= *size);
        fitting.filter(|_| is_decode && rows > 0).map(|(_, graph)| graph)
    }
}

/// Batch sizes to capture: at least eight between a power of two and the next, so that little is computed for nothing.
pub fn sizes(max_rows: usize) -> Vec<usize> {
    let mut sizes = vec![1];
    while let Some(&last) = sizes.last().filter(|&&last| last < max_rows) {
        let next = if last < 8 { 2 * last } else { last + (1 << last.ilog2() >> 3).max(8) };
        sizes.push(next.min(max_rows));
    }
    sizes
}

/// One row that brings one token: what a pass needs to launch every kernel of decoding.
fn one_token(limits: &BatchLimits) -> Result<Batch> {
    let mut batch = Batch::within(limits)?;
    batch.table_width = 1;
    batch.token_ids.push(0);
    batch.positions.push(0);
    batch.slots.push(0);
    batch.row_starts.push(1);
    batch.context_lens.push(1);
    batch.block_tables.push(0);
    batch.sampled_tokens.push(0);
    batch.sampling.push(Sampling::GREEDY);
    Ok(batch)
}

/// The largest batch there can be, over one block: for a pass whose results nobody reads.
pub fn largest_batch(limits: &BatchLimits) -> Result<Batch> {
    let mut batch = Batch::within(limits)?;
    let mut left = limits.tokens;
    batch.table_width = left.min(limits.model_len).div_ceil(limits.block_size);
    while left > 0 && batch.rows() < limits.rows {
        let tokens = left.min(limits.model_len);
        left -= tokens;
        batch.token_ids.resize(batch.tokens() + tokens, 0);
        batch.positions.extend(0..tokens as u32);
        batch.slots.extend((0..tokens).map(|position| (position % limits.block_size) as u32));
        batch.row_starts.push(batch.tokens() as u32);
        batch.context_lens.push(tokens as u32);
        batch.block_tables.resize(batch.rows() * batch.table_width, 0);
        batch.sampled_tokens.push(batch.tokens() as u32 - 1);
        batch.sampling.push(Sampling::GREEDY);
    }
    Ok(batch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_batch_finds_a_size_that_is_little_larger() {
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(3), [1, 2, 3]);
        assert_eq!(sizes(24), [1, 2, 4, 8, 16, 24]);
        for max_rows in [1, 2, 7, 9, 100, 256, 1000] {
            let sizes = sizes(max_rows);
            assert_eq!(*sizes.last().unwrap(), max_rows);
            for rows in 1..=max_rows {
                let size = *sizes.iter().find(|&&size| rows <= size).unwrap();
                assert!(size - rows < (rows / 8).max(8), "{rows} rows in {size} of {max_rows}");
            }
        }
    }

    #[test]
    fn the_largest_batch_keeps_within_the_limits() {
        for limits in [
            BatchLimits { tokens: 100, rows: 4, model_len: 30, block_size: 16 },
            BatchLimits { tokens: 100, rows: 2, model_len: 30, block_size: 16 },
            BatchLimits { tokens: 8, rows: 4, model_len: 4096, block_size: 16 },
        ] {
            let batch = largest_batch(&limits).unwrap();
            assert_eq!(batch.tokens(), limits.tokens.min(limits.rows * limits.model_len));
            assert!(batch.rows() <= limits.rows && batch.table_width <= limits.table_width());
            assert_eq!(batch.block_tables.len(), batch.rows() * batch.table_width);
            assert_eq!(*batch.row_starts.last().unwrap() as usize, batch.tokens());
        }
    }
}
