//! Walks a thread's columns, tile by tile.
//!
//! ```text
//! for each panel of columns                 stays in the second-level cache
//!   for each slice of k
//!     for each tile of x rows               stays in the first-level cache
//!       for each tile of columns            sums in registers
//! ```
//!
//! While the kernels compute on one slice of a panel, they bring the next one into the cache, spread over the tiles.
#![allow(unsafe_code)]

use super::Call;
use super::kernels::{Kernels, STEP, Sums, TILE_COLUMNS, TILE_ROWS, Tile};
use super::pack::Packed;
use crate::backend::cpu::matrix::Segment;
use std::ops::Range;

/// Up to so many rows of `x`, the weights come from memory no faster than they are used: panels are narrow, so that what is
/// fetched ahead is still in the cache when its turn comes. Beyond, they are wide, because each panel reads all of `x`.
const FEW_ROWS: usize = 16;

/// How many narrow panels make a wide one.
const WIDE: usize = 4;

/// Bytes of weights that a thread takes at a time: long enough to stream, short enough that threads end together.
const CHUNK_BYTES: usize = 128 << 10;

/// Columns that a thread takes at a time, whole panels of `panel` columns.
pub fn chunk_columns(row_bytes: usize, columns: usize, threads: usize, panel: usize) -> usize {
    let streams = CHUNK_BYTES.div_ceil(row_bytes.max(1)).next_multiple_of(panel * WIDE);
    let shared = columns.div_ceil(threads * 4).next_multiple_of(panel * WIDE);
    streams.min(shared)
}

/// Computes the columns of `range` for all rows of `x`.
pub fn run(call: &Call, kernels: &Kernels, x: Packed, range: Range<usize>) {
    for segment in call.weight.segments(range) {
        let walk = Walk { call, kernels, x, segment: &segment, inputs: call.weight.cols() };
        let width = walk.panel_columns();
        for start in (0..segment.rows.len()).step_by(width) {
            let panel = start..segment.rows.len().min(start + width);
            // A matrix without inputs has one empty slice, so that the bias is written.
            for slice in 0..walk.slices() {
                walk.panel_slice(panel.clone(), slice);
            }
        }
    }
}

/// A segment of weights, and what it is multiplied with.
struct Walk<'a> {
    call: &'a Call<'a>,
    kernels: &'a Kernels,
    x: Packed<'a>,
    segment: &'a Segment<'a>,
    inputs: usize,
}

/// Weights that come next: where the first column's lie, and how many columns they are.
#[derive(Clone, Copy)]
struct Next {
    weight: *const u8,
    columns: usize,
}

impl Walk<'_> {
    fn panel_columns(&self) -> usize {
        if self.call.tokens <= FEW_ROWS { self.kernels.panel } else { self.kernels.panel * WIDE }
    }

    fn slices(&self) -> usize {
        self.inputs.div_ceil(self.kernels.slice).max(1)
    }

    /// The weights of `column` of the segment from slice `slice` on.
    fn weight(&self, column: usize, slice: usize) -> *const u8 {
        let offset = slice * self.kernels.slice * self.call.weight.dtype().bytes();
        self.segment.bytes[column * self.call.weight.row_bytes() + offset..].as_ptr()
    }

    /// What follows slice `slice` of `panel`.
    fn next(&self, panel: &Range<usize>, slice: usize) -> Option<Next> {
        if slice + 1 < self.slices() {
            return Some(Next { weight: self.weight(panel.start, slice + 1), columns: panel.len() });
        }
        let columns = self.panel_columns().min(self.segment.rows.len() - panel.end);
        (columns > 0).then(|| Next { weight: self.weight(panel.end, 0), columns })
    }

    /// Adds slice `slice` of `k` to the columns of `panel`, for all rows.
    fn panel_slice(&self, panel: Range<usize>, slice: usize) {
        let next = self.next(&panel, slice);
        let row_bytes = self.call.weight.row_bytes();
        let tokens = self.call.tokens;
        let mut made = 0;
        for first in (0..tokens).step_by(TILE_ROWS) {
            let rows = TILE_ROWS.min(tokens - first);
            let (wide, kernel) = self.kernels.wide[rows - 1];
            let spread = tokens.div_ceil(TILE_ROWS) * (panel.len() / wide) >= panel.len();
            let mut column = panel.start;
            while column < panel.end {
                let (columns, kernel) =
                    if panel.end - column >= wide { (wide, kernel) } else { (1, self.kernels.narrow[rows - 1]) };
                let mut tile = self.tile(first, rows, column, slice);
                if let Some(next) = next {
                    let place = column - panel.start;
                    if spread && made < next.columns {
                        tile.ahead = next.weight.wrapping_add(made * row_bytes);
                        tile.ahead_stride = 0;
                    } else if !spread && first == 0 && place + columns <= next.columns {
                        tile.ahead = next.weight.wrapping_add(place * row_bytes);
                        if self.slices() == 1 {
                            // One row of weights follows the other: memory likes best to be read in its order.
                            tile.ahead_stride = tile.ahead_step;
                            tile.ahead_step *= columns;
                        }
                    }
                }
                let mut sums: Sums = [0.0; TILE_ROWS * TILE_COLUMNS];
                // SAFETY: `Isa` is one that the machine has. `tile` found the rows in `x`; the segment holds whole rows of
                // the matrix, of which the panel has at least `columns` from `column` on.
                unsafe { kernel(&tile, &mut sums) };
                self.store(&sums, first..first + rows, column..column + columns, slice);
                made += 1;
                column += columns;
            }
        }
    }

    /// The tile of `rows` rows from `row` on and the columns from `column` on; it fetches nothing ahead.
    fn tile(&self, row: usize, rows: usize, column: usize, slice: usize) -> Tile {
        let inputs = (self.inputs - slice * self.kernels.slice).min(self.kernels.slice);
        let weight = self.weight(column, slice);
        let row_bytes = self.call.weight.row_bytes();
        Tile {
            x: self.x.tile(row, rows, slice * self.kernels.slice / STEP, inputs.div_ceil(STEP)).as_ptr(),
            weight,
            row_bytes,
            steps: inputs / STEP,
            tail: inputs % STEP,
            // What is read anyway costs nothing to fetch.
            ahead: weight,
            ahead_stride: row_bytes,
            ahead_step: STEP * self.call.weight.dtype().bytes(),
        }
    }

    /// Adds the sums of a slice to `out`, and the bias after the last one.
    fn store(&self, sums: &Sums, rows: Range<usize>, columns: Range<usize>, slice: usize) {
        let Call { out, weight, bias, .. } = self.call;
        let (width, first) = (columns.len(), self.segment.rows.start + columns.start);
        let last = slice + 1 == self.slices();
        for (row, sums) in rows.zip(sums.chunks_exact(width)) {
            let start = row * weight.rows() + first;
            // SAFETY: the threads' columns do not overlap by `Pool::for_each`, and this thread holds one part at a time.
            let out = unsafe { out.part(start..start + width) };
            for (column, (out, &sum)) in out.iter_mut().zip(sums).enumerate() {
                *out = if slice == 0 { sum } else { *out + sum };
                if let (true, Some(bias)) = (last, bias) {
                    *out += bias[first + column];
                }
            }
        }
    }
}
