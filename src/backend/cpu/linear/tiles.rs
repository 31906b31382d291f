//! Walks a thread's columns, tile by tile.
//!
//! ```text
//! for each panel of columns                 stays in the second-level cache
//!   for each slice of k
//!     for each tile of x rows               stays in the first-level cache
//!       for each tile of columns            sums in registers
//! ```
//!
//! While the kernels compute, they ask for weights that come later, in the order of memory and evenly spread: a processor that
//! reads several rows at once does not see by itself that memory is read from end to end.
#![allow(unsafe_code)]

use super::Call;
use super::kernels::{Kernels, STEP, Sums, TILE_COLUMNS, TILE_ROWS, Tile};
use super::pack::Packed;
use crate::backend::cpu::matrix::Segment;
use std::ops::Range;

/// With at most this many rows of `x`, the weights come from memory no faster than they are used. Panels are then narrow, so that what is
/// fetched ahead is still in the cache when its turn comes. With more rows they are wide, because each panel reads all of `x`.
const FEW_ROWS: usize = 16;

/// How many narrow panels make a wide one.
const WIDE: usize = 4;

/// How far ahead of their use weights are asked for, at least. A thread on Zen 4 that alone would read 25 GB/s decodes at 15
/// with 12 KiB, 21 to 23 with 32 KiB and less again with 128 KiB.
const AHEAD_BYTES: usize = 32 << 10;

/// Bytes of weights that a thread takes at a time: long enough to stream, short enough that threads end together.
const CHUNK_BYTES: usize = 128 << 10;

/// Columns that a thread takes at a time, whole panels of `panel` columns.
pub fn chunk_columns(row_bytes: usize, columns: usize, threads: usize, panel: usize) -> usize {
    let streams = CHUNK_BYTES.div_ceil(row_bytes.max(1)).next_multiple_of(panel * WIDE);
    let shared = columns.div_ceil(threads * 4).next_multiple_of(panel * WIDE);
    streams.min(shared)
}

/// Computes the columns of `range` for all rows of `x`. This thread will probably take the columns of `later` next.
pub fn run(call: &Call, kernels: &Kernels, x: Packed, range: Range<usize>, later: Range<usize>) {
    for (segment, following) in call.segments(range, later) {
        let walk = Walk { call, kernels, x, segment: &segment, following, inputs: call.weight.cols() };
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
    /// Weights that are probably read after the segment's.
    following: &'a [u8],
    inputs: usize,
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
        let offset = self.call.coding.row_bytes(slice * self.kernels.slice);
        self.segment.bytes[column * self.call.row_bytes + offset..].as_ptr()
    }

    /// Where the weights lie that are asked for during slice `slice` of `panel`; `None` where nothing follows.
    ///
    /// All slices of a panel together ask for as much as a panel is, in the order of memory.
    fn ahead(&self, panel: &Range<usize>, slice: usize) -> Option<*const u8> {
        let Call { coding, row_bytes, .. } = self.call;
        let panel_bytes = (self.panel_columns() * row_bytes).max(1);
        let slice_bytes = coding.row_bytes(self.kernels.slice);
        let at =
            panel.start * row_bytes + AHEAD_BYTES.next_multiple_of(panel_bytes) + panel.len() * slice * slice_bytes;
        let following = || self.following.get(at - self.segment.bytes.len()..);
        let ahead = self.segment.bytes.get(at..).filter(|rest| !rest.is_empty()).or_else(following)?;
        Some(ahead.as_ptr())
    }

    /// Adds slice `slice` of `k` to the columns of `panel`, for all rows.
    fn panel_slice(&self, panel: Range<usize>, slice: usize) {
        let mut ahead = self.ahead(&panel, slice);
        let tokens = self.call.tokens;
        for first in (0..tokens).step_by(TILE_ROWS) {
            let rows = TILE_ROWS.min(tokens - first);
            let (wide, kernel) = self.kernels.wide[rows - 1];
            let mut column = panel.start;
            while column < panel.end {
                let (columns, kernel) =
                    if panel.end - column >= wide { (wide, kernel) } else { (1, self.kernels.narrow[rows - 1]) };
                let mut tile = self.tile(first, rows, column, slice);
                if let Some(start) = ahead {
                    // Each tile asks for its share of what it takes.
                    let share = tile.steps * tile.ahead_step * columns / tokens.div_ceil(TILE_ROWS);
                    tile.ahead = start;
                    tile.ahead_step = share.div_ceil(tile.steps.max(1));
                    tile.ahead_stride = tile.ahead_step.div_ceil(columns);
                    ahead = Some(start.wrapping_add(share));
                }
                let mut sums: Sums = [0.0; TILE_ROWS * TILE_COLUMNS];
                // SAFETY: `Isa` is one that the machine has. `tile` found the rows in `x`; the segment holds whole rows of
                // the matrix, of which the panel has at least `columns` from `column` on.
                unsafe { kernel(&tile, &mut sums) };
                self.store(&sums, first..first + rows, column..column + columns, slice);
                column += columns;
            }
        }
    }

    /// The tile of `rows` rows from `row` on and the columns from `column` on; it fetches nothing ahead.
    fn tile(&self, row: usize, rows: usize, column: usize, slice: usize) -> Tile {
        let inputs = (self.inputs - slice * self.kernels.slice).min(self.kernels.slice);
        let weight = self.weight(column, slice);
        let row_bytes = self.call.row_bytes;
        Tile {
            x: self.x.tile(row, rows, slice * self.kernels.slice / STEP, inputs.div_ceil(STEP)).as_ptr(),
            weight,
            row_bytes,
            steps: inputs / STEP,
            tail: inputs % STEP,
            // What is read anyway costs nothing to fetch.
            ahead: weight,
            ahead_stride: row_bytes,
            ahead_step: self.call.coding.row_bytes(STEP),
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
