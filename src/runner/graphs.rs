//! Decode passes as graphs, one for each of a few batch sizes, where the device records graphs.
//!
//! A graph replays the launches of a pass up to the logits in one call. What differs from pass to pass lies in the batch's memory; the
//! number of rows does not, so a batch is padded up to the next size. Tokens are chosen outside of it, kernel by
//! kernel: what samples ask for has no largest size, and rows that only pad ask for nothing. A pass whose rows share keys has an op that no
//! graph has, so it is launched kernel by kernel as a whole.
//!
//! Small sizes are captured when the runner opens, the others with the first pass of that size, which is launched kernel by kernel over the padded
//! batch: its results are those of the graph. Ranks that compute together capture all sizes when they open, and so does a backend that asks for it.

use base::error::{Result, room};
use base::log::{Level, log};
use compute::batch::{Batch, BatchLimits, NO_STATE, PoolKind, PooledRange, Sampling};
use compute::{Backend, Recording};
use model::decoder::{Decoder, SequenceMemory};

/// Rows of the largest size that is always captured when the runner opens: programs that decode few sequences step to a deadline.
const AT_OPENING: usize = 8;

/// Graphs by the number of their rows, ascending.
pub struct Graphs<B: Backend> {
    by_rows: Vec<Size<B>>,
}

/// A number of rows, and the graph of passes that are padded to it.
pub struct Size<B: Backend> {
    rows: usize,
    graph: State<B::Graph>,
}

enum State<G> {
    Captured(G),
    /// It will be with the next pass of this size. `failures`: attempts that failed.
    Awaited {
        failures: u32,
    },
    /// It could not be captured: passes of this size are launched kernel by kernel.
    GivenUp,
}

/// Attempts to capture a graph on demand. What made one fail may pass: another thread that waits for the whole device, or memory that is short.
const ATTEMPTS: u32 = 3;

/// When graphs are captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capture {
    /// All at once.
    Now,
    /// The small ones at once, the others when they are needed.
    OnDemand,
}

impl<B: Backend> Graphs<B> {
    /// Captures a graph for each of `sizes` that `when` names, or none where the device records no graphs.
    pub fn new(
        sizes: &[usize],
        when: Capture,
        backend: &mut B,
        decoder: &mut Decoder<B>,
        memory: &mut SequenceMemory<B>,
        device_batch: &mut B::DeviceBatch,
        limits: &BatchLimits,
    ) -> Result<Graphs<B>> {
        let batch = with_states::<B>(one_token(limits)?, memory);
        let mut by_rows = room(sizes.len(), "graphs", "max_num_seqs")?;
        for &rows in sizes {
            if when == Capture::OnDemand && rows > AT_OPENING {
                by_rows.push(Size { rows, graph: State::Awaited { failures: 0 } });
                continue;
            }
            match capture(backend, decoder, memory, device_batch, &batch, rows)? {
                Recording::Graph(graph) => by_rows.push(Size { rows, graph: State::Captured(graph) }),
                Recording::Refused(error) => return Err(error),
                Recording::Nothing => break,
            }
        }
        Ok(Graphs { by_rows })
    }

    /// The smallest size that serves a batch. `None` for a batch that is not all decode.
    pub fn serving(&mut self, batch: &Batch) -> Option<&mut Size<B>> {
        let rows = batch.rows();
        let is_decode = batch.tokens() == rows && batch.samples() == rows && batch.pooled_rows() == 0;
        let fitting = self.by_rows.iter_mut().find(|size| rows <= size.rows);
        fitting.filter(|_| is_decode && rows > 0)
    }

    /// How many are still to be captured.
    pub fn awaited(&self) -> usize {
        self.by_rows.iter().filter(|size| matches!(size.graph, State::Awaited { .. })).count()
    }

    /// The graph of one row.
    #[cfg(feature = "cuda")]
    pub fn smallest(&self) -> Option<&B::Graph> {
        match self.by_rows.first() {
            Some(Size { graph: State::Captured(graph), .. }) => Some(graph),
            _ => None,
        }
    }
}

impl<B: Backend> Size<B> {
    /// Uploads a batch and launches its pass up to the logits. `false`: only the upload is done, since the ops of this pass are not those of others of its size.
    pub fn launch(
        &mut self,
        backend: &mut B,
        decoder: &mut Decoder<B>,
        memory: &mut SequenceMemory<B>,
        device_batch: &mut B::DeviceBatch,
        batch: &Batch,
    ) -> Result<bool> {
        match &self.graph {
            State::Captured(graph) => {
                let is_padded = backend.upload_padded(graph, device_batch, batch)?;
                decoder.begin(backend, memory, device_batch);
                if is_padded {
                    backend.launch_graph(graph)?;
                }
                Ok(is_padded)
            }
            &State::Awaited { failures } => match capture(backend, decoder, memory, device_batch, batch, self.rows)? {
                Recording::Graph(graph) => {
                    self.graph = State::Captured(graph);
                    Ok(true)
                }
                Recording::Refused(error) => {
                    log(
                        Level::Warn,
                        format_args!("no graph was captured of decode of up to {} rows: {error}", self.rows),
                    );
                    self.graph = match failures + 1 {
                        ATTEMPTS => State::GivenUp,
                        failures => State::Awaited { failures },
                    };
                    Ok(true)
                }
                Recording::Nothing => {
                    decoder.begin(backend, memory, device_batch);
                    Ok(false)
                }
            },
            State::GivenUp => {
                backend.upload(device_batch, batch)?;
                decoder.begin(backend, memory, device_batch);
                Ok(false)
            }
        }
    }
}

/// Runs the ops of a decode pass over `batch`, padded to `rows`, up to its logits, and records them.
fn capture<B: Backend>(
    backend: &mut B,
    decoder: &mut Decoder<B>,
    memory: &mut SequenceMemory<B>,
    device_batch: &mut B::DeviceBatch,
    batch: &Batch,
    rows: usize,
) -> Result<Recording<B::Graph>> {
    let mut has_begun = false;
    backend.capture_pass(device_batch, batch, rows, &mut |backend, device_batch| {
        // Copies of blocks belong to this batch, not to the graph.
        if !has_begun {
            decoder.begin(backend, memory, device_batch);
        }
        has_begun = true;
        decoder.run_to_logits(backend, memory, device_batch);
    })
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

/// The same batch for a model with recurrent states, of which it reads and writes none.
pub fn with_states<B: Backend>(mut batch: Batch, memory: &SequenceMemory<B>) -> Batch {
    if B::state_shape(&memory.states).slots > 0 {
        batch.state_sources.resize(batch.rows(), NO_STATE);
        batch.state_slots.resize(batch.rows(), NO_STATE);
        batch.state_saves.resize(batch.tokens(), NO_STATE);
    }
    batch
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
    Ok(with_window_tables(batch))
}

/// The same batch with other block tables like the first.
fn with_window_tables(mut batch: Batch) -> Batch {
    let Batch { slots, block_tables, window_tables, .. } = &mut batch;
    for table in window_tables {
        table.slots.clone_from(slots);
        table.block_tables.clone_from(block_tables);
    }
    batch
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
        let end = batch.tokens() as u32;
        match limits.whole_rows {
            true => {
                let range = PooledRange { first: end - tokens as u32, end, kind: PoolKind::Mean };
                batch.pooled_ranges.push(range);
            }
            false => {
                batch.sampled_tokens.push(end - 1);
                batch.sampling.push(Sampling::GREEDY);
            }
        }
    }
    Ok(with_window_tables(batch))
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
            BatchLimits { tokens: 100, rows: 4, model_len: 30, block_size: 16, ..BatchLimits::NONE },
            BatchLimits { tokens: 100, rows: 2, model_len: 30, block_size: 16, ..BatchLimits::NONE },
            BatchLimits { tokens: 8, rows: 4, model_len: 4096, block_size: 16, ..BatchLimits::NONE },
        ] {
            let batch = largest_batch(&limits).unwrap();
            assert_eq!(batch.tokens(), limits.tokens.min(limits.rows * limits.model_len));
            assert!(batch.rows() <= limits.rows && batch.table_width <= limits.table_width());
            assert_eq!(batch.block_tables.len(), batch.rows() * batch.table_width);
            assert_eq!(*batch.row_starts.last().unwrap() as usize, batch.tokens());
        }
    }
}
