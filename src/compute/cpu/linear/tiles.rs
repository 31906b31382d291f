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
use super::choice::Route;
use super::dequantize::{Dequantizer, RowPart};
use super::kernels::{Kernel, Kernels, STEP, Sums, TILE_COLUMNS, TILE_ROWS, Tile, WIDE};
use super::pack::Packed;
use crate::cpu::matrix::Segment;
use std::ops::Range;

/// With at most this many rows of `x`, the weights come from memory no faster than they are used. Panels are then narrow, so that what is
/// fetched ahead is still in the cache when its turn comes. With more rows they are wide, because each panel reads all of `x`.
const FEW_ROWS: usize = 16;

/// With more rows than this, a slice of `x` has no room in the second-level cache. It is read from the next one for each panel, so that panels are as
/// wide as that cache holds, and each tile of rows asks for the next one. Weights are then a small part of what is read.
const MANY_ROWS: usize = 128;

/// Numbers of 32 bits in which a thread dequantizes a slice of a panel.
pub const DEQUANTIZED_NUMBERS: usize = TILE_COLUMNS * WIDE * COLUMN_BYTES / 4;

/// Bytes of a dequantized column of a slice: with a line of the cache more than a page, columns do not compete for the same places of a cache.
const COLUMN_BYTES: usize = 4096 + 64;

/// How far ahead of their use weights are asked for, at least. A thread on Zen 4 that alone would read 25 GB/s decodes at 15
/// with 12 KiB, 21 to 23 with 32 KiB and less again with 128 KiB.
const AHEAD_BYTES: usize = 32 << 10;

/// Bytes of a line of the caches.
const LINE_BYTES: usize = 64;

/// Bytes of weights that a thread takes at a time: long enough to stream, short enough that threads end together.
const CHUNK_BYTES: usize = 128 << 10;

/// How threads share the columns of a product.
pub fn shares(call: &Call, route: Route, columns: usize, threads: usize) -> Shares {
    let Kernels { panel, wide_panel, .. } = *route.kernels;
    match has_many_rows(call, route) {
        true => Shares::level(columns, wide_panel.min(shared(columns, threads, panel)), threads, panel),
        false => Shares::of(columns, chunk_columns(call.row_bytes, columns, threads, panel)),
    }
}

/// Whether panels are the widest. Dequantized weights have room for others alone.
fn has_many_rows(call: &Call, route: Route) -> bool {
    call.tokens > MANY_ROWS && route.dequantizer.is_none()
}

/// Columns that a thread takes at a time, whole panels of `panel` columns.
pub fn chunk_columns(row_bytes: usize, columns: usize, threads: usize, panel: usize) -> usize {
    let streams = CHUNK_BYTES.div_ceil(row_bytes.max(1)).next_multiple_of(panel * WIDE);
    streams.min(shared(columns, threads, panel))
}

/// As many columns as leave each thread some chunks, so that threads end together.
fn shared(columns: usize, threads: usize, panel: usize) -> usize {
    columns.div_ceil(threads * 4).next_multiple_of(panel * WIDE)
}

/// Computes the columns of `range` for all rows of `x`. This thread will probably take the columns of `later` next.
///
/// `dequantized` has room for [`DEQUANTIZED_NUMBERS`].
pub fn run(call: &Call, route: Route, x: Packed, dequantized: &mut [f32], range: Range<usize>, later: Range<usize>) {
    let inputs = call.weight.cols();
    // A matrix without inputs has one empty slice, so that the bias is written.
    let slices = inputs.div_ceil(route.kernels.slice).max(1);
    for (segment, following) in call.segments(range, later) {
        let walk = Walk { call, route, x, segment: &segment, following, inputs, slices };
        let width = walk.panel_columns();
        for start in (0..segment.rows.len()).step_by(width) {
            let panel = start..segment.rows.len().min(start + width);
            for slice in 0..slices {
                let weights = match route.dequantizer {
                    Some(dequantizer) => {
                        walk.dequantized(dequantizer, &panel, slice, bytemuck::cast_slice_mut(dequantized))
                    }
                    None => walk.in_place(panel.start, slice),
                };
                walk.panel_slice(panel.clone(), slice, weights);
            }
        }
    }
}

/// A segment of weights, and what it is multiplied with.
struct Walk<'a> {
    call: &'a Call<'a>,
    route: Route,
    x: Packed<'a>,
    segment: &'a Segment<'a>,
    /// Weights that are probably read after the segment's.
    following: &'a [u8],
    inputs: usize,
    /// Slices of `inputs`, at least one.
    slices: usize,
}

/// Weights of a slice of a panel.
#[derive(Clone, Copy)]
struct Weights {
    /// Those of the first column.
    at: *const u8,
    /// Bytes from one column's to the next one's.
    row_bytes: usize,
}

impl Walk<'_> {
    fn kernels(&self) -> &'static Kernels {
        self.route.kernels
    }

    fn panel_columns(&self) -> usize {
        match self.call.tokens {
            ..=FEW_ROWS => self.kernels().panel,
            _ if has_many_rows(self.call, self.route) => self.kernels().wide_panel,
            _ => self.kernels().panel * WIDE,
        }
    }

    /// Which inputs slice `slice` has.
    fn inputs_of(&self, slice: usize) -> Range<usize> {
        let first = slice * self.kernels().slice;
        first..self.inputs.min(first + self.kernels().slice)
    }

    /// The weights of slice `slice` from `column` of the segment on, where they lie.
    fn in_place(&self, column: usize, slice: usize) -> Weights {
        let (Call { coding, row_bytes, .. }, first) = (self.call, self.inputs_of(slice).start);
        let at = self.segment.bytes[column * row_bytes + coding.row_bytes(first)..].as_ptr();
        Weights { at, row_bytes: *row_bytes }
    }

    /// The weights of slice `slice` of `panel`, dequantized into `room`. Those that come later are asked for meanwhile.
    fn dequantized(&self, dequantizer: Dequantizer, panel: &Range<usize>, slice: usize, room: &mut [u8]) -> Weights {
        let (coding, inputs) = (self.call.coding, self.inputs_of(slice));
        let (len, slice_bytes) = (inputs.len() * self.kernels().order.bytes(), coding.row_bytes(inputs.len()));
        let ahead = self.ahead(panel, slice);
        for (i, to) in (0..panel.len()).zip(room.as_chunks_mut::<COLUMN_BYTES>().0) {
            if let Some(ahead) = ahead {
                prefetch(ahead.wrapping_add(i * slice_bytes), slice_bytes);
            }
            let row = self.segment.row(panel.start + i);
            // SAFETY: `Isa`, by which the dequantizer was chosen, is one that the machine has.
            unsafe {
                dequantizer(RowPart {
                    coding,
                    row,
                    first: inputs.start,
                    order: self.kernels().order,
                    to: &mut to[..len],
                })
            };
        }
        Weights { at: room.as_ptr(), row_bytes: COLUMN_BYTES }
    }

    /// Where the weights lie that are asked for during slice `slice` of `panel`; `None` where nothing follows.
    ///
    /// All slices of a panel together ask for as much as a panel is, in the order of memory.
    fn ahead(&self, panel: &Range<usize>, slice: usize) -> Option<*const u8> {
        let Call { coding, row_bytes, .. } = self.call;
        let panel_bytes = (self.panel_columns() * row_bytes).max(1);
        let slice_bytes = coding.row_bytes(self.kernels().slice);
        let distance = match self.kernels().row_ahead {
            Some(bytes) if self.call.tokens == 1 => bytes,
            _ => AHEAD_BYTES.next_multiple_of(panel_bytes),
        };
        let at = panel.start * row_bytes + distance + panel.len() * slice * slice_bytes;
        let following = || self.following.get(at - self.segment.bytes.len()..);
        let ahead = self.segment.bytes.get(at..).filter(|rest| !rest.is_empty()).or_else(following)?;
        Some(ahead.as_ptr())
    }

    /// Adds slice `slice` of `k` to the columns of `panel`, for all rows.
    fn panel_slice(&self, panel: Range<usize>, slice: usize, weights: Weights) {
        let mut ahead = match self.route.dequantizer {
            Some(_) => None,
            None => self.ahead(&panel, slice),
        };
        let tokens = self.call.tokens;
        if has_many_rows(self.call, self.route) {
            return self.panel_slice_of_many_rows(panel, slice, weights, ahead);
        }
        for first in (0..tokens).step_by(TILE_ROWS) {
            let rows = TILE_ROWS.min(tokens - first);
            let (wide, kernel) = self.kernels().wide[rows - 1];
            let mut column = panel.start;
            while column < panel.end {
                let (columns, kernel) =
                    if panel.end - column >= wide { (wide, kernel) } else { (1, self.kernels().narrow[rows - 1]) };
                let at = weights.at.wrapping_add((column - panel.start) * weights.row_bytes);
                let mut tile = self.tile(first, rows, slice, Weights { at, ..weights });
                if let Some(start) = ahead {
                    // Each tile asks for its share of what it takes.
                    let share = tile.steps * tile.ahead_step * columns / tokens.div_ceil(TILE_ROWS);
                    tile.ahead = start;
                    tile.ahead_step = share.div_ceil(tile.steps.max(1));
                    tile.ahead_stride = tile.ahead_step.div_ceil(columns);
                    ahead = Some(start.wrapping_add(share));
                }
                self.compute(kernel, &tile, first..first + rows, column..column + columns, slice);
                column += columns;
            }
        }
    }

    /// The same for many rows. A tile's share of the weights that are asked for is less than a line per step, so that the kernel does not ask in each.
    fn panel_slice_of_many_rows(
        &self,
        panel: Range<usize>,
        slice: usize,
        weights: Weights,
        mut ahead: Option<*const u8>,
    ) {
        let tokens = self.call.tokens;
        let slice_bytes = self.call.coding.row_bytes(self.inputs_of(slice).len());
        let share = (panel.len() * slice_bytes).div_ceil(tokens.div_ceil(TILE_ROWS));
        for first in (0..tokens).step_by(TILE_ROWS) {
            let rows = TILE_ROWS.min(tokens - first);
            let (wide, kernel) = self.kernels().wide[rows - 1];
            let tiles = panel.len() / wide + panel.len() % wide;
            let next_rows = self.rows_after(first + rows, slice);
            let mut next_rows = next_rows.chunks(next_rows.len().div_ceil(tiles).max(1));
            let share = share.div_ceil(tiles);
            let mut tile = Tile { fetches: false, ..self.tile(first, rows, slice, weights) };
            let mut column = panel.start;
            while column < panel.end {
                let (columns, kernel) =
                    if panel.end - column >= wide { (wide, kernel) } else { (1, self.kernels().narrow[rows - 1]) };
                if let Some(start) = ahead {
                    prefetch(start, share);
                    ahead = Some(start.wrapping_add(share));
                }
                next_rows.next().unwrap_or(&[]).chunks(LINE_BYTES).for_each(|line| prefetch_next(line.as_ptr()));
                self.compute(kernel, &tile, first..first + rows, column..column + columns, slice);
                tile.weight = tile.weight.wrapping_add(columns * weights.row_bytes);
                column += columns;
            }
        }
    }

    /// Slice `slice` of the tile of rows that begins at `row`, if there is one.
    fn rows_after(&self, row: usize, slice: usize) -> &[u8] {
        let (inputs, rows) = (self.inputs_of(slice), TILE_ROWS.min(self.call.tokens - row));
        if rows == 0 { &[] } else { self.x.tile(row, rows, inputs.start / STEP, inputs.len().div_ceil(STEP)) }
    }

    /// The tile of `rows` rows from `row` on and columns whose weights are `weights`; it fetches nothing ahead.
    fn tile(&self, row: usize, rows: usize, slice: usize, weights: Weights) -> Tile {
        let inputs = self.inputs_of(slice);
        Tile {
            x: self.x.tile(row, rows, inputs.start / STEP, inputs.len().div_ceil(STEP)).as_ptr(),
            weight: weights.at,
            row_bytes: weights.row_bytes,
            steps: inputs.len() / STEP,
            tail: inputs.len() % STEP,
            // What is read anyway costs nothing to fetch.
            ahead: weights.at,
            ahead_stride: weights.row_bytes,
            ahead_step: self.call.coding.row_bytes(inputs.len() / STEP * STEP).div_ceil((inputs.len() / STEP).max(1)),
            fetches: true,
            is_only_row: self.call.tokens == 1,
        }
    }

    /// Computes a tile, and adds its sums to `out`.
    fn compute(&self, kernel: Kernel, tile: &Tile, rows: Range<usize>, columns: Range<usize>, slice: usize) {
        let mut sums: Sums = [0.0; TILE_ROWS * TILE_COLUMNS];
        // SAFETY: `Isa` is one that the machine has. `tile` found the rows in `x`; the segment holds whole rows of
        // the matrix, of which the panel has at least these columns.
        unsafe { kernel(tile, &mut sums) };
        let store = match columns.len() {
            1 => Self::store::<1>,
            2 => Self::store::<2>,
            3 => Self::store::<3>,
            4 => Self::store::<4>,
            6 => Self::store::<6>,
            8 => Self::store::<8>,
            columns => unreachable!("no table has tiles of {columns} columns"),
        };
        store(self, &sums, rows, columns.start, slice);
    }

    /// Adds the sums of a slice to `C` columns of `out`, and the bias after the last one.
    fn store<const C: usize>(&self, sums: &Sums, rows: Range<usize>, column: usize, slice: usize) {
        let Call { out, weight, bias, .. } = self.call;
        let first = self.segment.rows.start + column;
        let bias = bias.filter(|_| slice + 1 == self.slices);
        let bias: Option<&[f32; C]> = bias.and_then(|bias| bias[first..].first_chunk());
        for (row, sums) in rows.zip(sums.as_chunks::<C>().0) {
            let start = row * weight.rows() + first;
            // SAFETY: the threads' columns do not overlap by `Pool::for_each`, and this thread holds one part at a time.
            let out: &mut [f32; C] = unsafe { out.part(start..start + C) }.try_into().expect("a part of C numbers");
            let mut sums = *sums;
            if slice > 0 {
                sums.iter_mut().zip(&*out).for_each(|(sum, out)| *sum += out);
            }
            if let Some(bias) = bias {
                sums.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
            }
            *out = sums;
        }
    }
}

/// Ranges of columns, of which a thread takes one after the other.
pub struct Shares {
    columns: usize,
    /// Columns of each range but the last ones.
    chunk: usize,
    /// How many ranges have that many.
    chunks: usize,
    /// Columns of the last ones.
    last: usize,
}

impl Shares {
    /// Ranges of `chunk` columns.
    pub fn of(columns: usize, chunk: usize) -> Shares {
        Shares { columns, chunk, chunks: columns / chunk.max(1), last: chunk.max(1) }
    }

    /// The same number for each thread; what is left over is shared in multiples of `multiple`.
    fn level(columns: usize, chunk: usize, threads: usize, multiple: usize) -> Shares {
        let chunks = columns / (chunk * threads) * threads;
        let last = (columns - chunks * chunk).div_ceil(threads).next_multiple_of(multiple).max(1);
        Shares { columns, chunk, chunks, last }
    }

    /// How many ranges there are.
    pub fn count(&self) -> usize {
        self.chunks + (self.columns - self.chunks * self.chunk).div_ceil(self.last)
    }

    /// The range `i`, which is empty beyond the last one.
    pub fn range(&self, i: usize) -> Range<usize> {
        let at =
            |i: usize| self.columns.min(i.min(self.chunks) * self.chunk + i.saturating_sub(self.chunks) * self.last);
        at(i)..at(i + 1)
    }
}

/// Asks for `len` bytes at `at`, which may lead anywhere.
pub fn prefetch(at: *const u8, len: usize) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    for line in (0..len).step_by(LINE_BYTES) {
        prefetch_line(at.wrapping_add(line));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (at, len);
}

/// Asks for the line of the first-level cache at `at`, which is read next.
#[inline(always)]
fn prefetch_next(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch may lead anywhere, and every x86-64 has it.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a prefetch never faults and changes nothing that a program sees; every ARM64 processor has it.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = at;
}

/// Asks for the line of the second-level cache at `at`, which may lead anywhere.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn prefetch_line(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
    // SAFETY: a prefetch may lead anywhere, and every x86-64 has it.
    unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
}

/// Asks for the line of the second-level cache at `at`, which may lead anywhere.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn prefetch_line(at: *const u8) {
    // SAFETY: a prefetch never faults and changes nothing that a program sees; every ARM64 processor has it.
    unsafe { std::arch::asm!("prfm pldl2keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags)) }
}

#[cfg(test)]
mod tests {
    use super::Shares;

    #[test]
    fn ranges_cover_all_columns_once() {
        for columns in [0, 1, 5, 6, 95, 96, 97, 439, 1024, 4096] {
            for (chunk, threads) in [(24, 1), (48, 2), (96, 2), (96, 3), (96, 64)] {
                for shares in [Shares::of(columns, chunk), Shares::level(columns, chunk, threads, 6)] {
                    let ranges = (0..shares.count()).map(|i| shares.range(i));
                    assert!(ranges.clone().all(|range| !range.is_empty()), "{columns} columns, {chunk} at a time");
                    assert_eq!(ranges.flatten().collect::<Vec<_>>(), (0..columns).collect::<Vec<_>>());
                    assert!(shares.range(shares.count()).is_empty());
                }
            }
        }
    }

    #[test]
    fn threads_have_the_same_number_of_whole_ranges_and_share_the_rest() {
        let shares = Shares::level(1024, 96, 2, 6);
        let lengths: Vec<usize> = (0..shares.count()).map(|i| shares.range(i).len()).collect();
        assert_eq!(lengths, [96, 96, 96, 96, 96, 96, 96, 96, 96, 96, 36, 28]);
    }
}
