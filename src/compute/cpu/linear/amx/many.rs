//! Many tokens: `out = x W^T`, bound by the products themselves.
//!
//! The weights of a panel of columns are rewritten once into tiles, which then are read for each pair of blocks of tokens: a tile
//! of the file has its rows some KiB apart, at any address, and costs several times as much to load. Meanwhile the next panel
//! is asked for. Quantized weights are dequantized on the way.
//!
//! ```text
//! for each panel of columns                 its tiles stay in the second-level cache
//!   for each 32 tokens
//!     for each 32 columns                   sums over all of k in four tiles
//! ```
#![allow(unsafe_code)]

use super::super::dequantize::{Dequantizer, RowPart};
use super::super::kernels::Order;
use super::super::pack::Scratch;
use super::super::{Call, for_columns};
use super::pack::{Side, pack};
use crate::cpu::Pool;
use crate::cpu::amx::{
    Ahead, Configured, EDGE, LINE_BYTES, Operand, Products, STEP, Start, TILE_BYTES, TILE_NUMBERS, transpose,
};
use crate::cpu::disjoint::Disjoint;
use crate::cpu::matrix::Segment;
use std::ops::Range;

/// Tiles of a panel: 768 KiB, so that a second-level cache of 2 MiB also holds what streams by.
const PANEL_TILES: usize = 768;
/// Groups of [`EDGE`] columns in a panel, at most.
const PANEL_GROUPS: usize = 8;
/// Approximate number of ranges of columns per thread and call: enough for all threads to finish together.
const RANGES: usize = 4;

/// Numbers of a column that are dequantized together: as many steps as there are columns in a tile.
const PIECE: usize = EDGE * STEP;

/// Sixteen columns of a piece, dequantized. A line of the cache between them keeps them from competing for the same places of the cache.
#[repr(align(64))]
struct Buffer([[u8; PIECE * 2 + LINE_BYTES]; EDGE]);

impl Buffer {
    fn new() -> Buffer {
        Buffer([[0; PIECE * 2 + LINE_BYTES]; EDGE])
    }
}

/// Numbers of 32 bits that a thread needs for weights of `inputs` columns.
pub fn staged_numbers(inputs: usize) -> usize {
    let steps = inputs.div_ceil(STEP);
    panel_groups(steps) * steps * TILE_NUMBERS
}

/// Groups of columns in a panel, an even number.
fn panel_groups(steps: usize) -> usize {
    (PANEL_TILES / steps.max(1)).clamp(2, PANEL_GROUPS) & !1
}

/// Computes the columns of `out` in `columns`.
pub fn run(
    pool: &Pool,
    scratch: &mut Scratch,
    call: &Call,
    dequantizer: Option<Dequantizer>,
    x: &[f32],
    columns: Range<usize>,
) {
    let inputs = call.weight.cols();
    let (steps, blocks) = (inputs.div_ceil(STEP), call.tokens.div_ceil(EDGE));
    let packed = pack(pool, &mut scratch.x, x, call.tokens, inputs, Side::Left);
    let (groups, numbers) = (panel_groups(steps), staged_numbers(inputs));
    let staged = Disjoint::new(&mut scratch.staged);
    let shared = columns.len().div_ceil(pool.threads() * RANGES).next_multiple_of(2 * EDGE);
    let chunk = shared.min(groups * EDGE);
    for_columns(pool, columns, chunk, &|thread, range, later| {
        // SAFETY: no two calls with the same thread overlap.
        let staged = unsafe { staged.part(thread * numbers..(thread + 1) * numbers) };
        let _configured = Configured::new();
        // A range is a panel, or several where matrices meet.
        for (segment, following) in call.segments(range, later) {
            let panel = Panel { call, x: packed, segment: &segment, steps, blocks };
            match dequantizer {
                Some(dequantizer) => panel.stage_dequantized(dequantizer, staged),
                None => panel.stage(staged),
            }
            panel.multiply(staged, following);
        }
    });
}

/// Columns that are computed together, for all tokens.
struct Panel<'a> {
    call: &'a Call<'a>,
    /// `[block][step][token][pair of k]`
    x: &'a [u32],
    segment: &'a Segment<'a>,
    steps: usize,
    /// Blocks of tokens.
    blocks: usize,
}

impl Panel<'_> {
    fn groups(&self) -> usize {
        self.segment.rows.len().div_ceil(EDGE)
    }

    /// Rewrites the weights: `[group][step][pair of k][column]`, zeros beyond the last column and input.
    fn stage(&self, staged: &mut [f32]) {
        let row_bytes = self.call.row_bytes;
        let tiles = &mut staged.as_chunks_mut::<TILE_NUMBERS>().0[..self.groups() * self.steps];
        for (at, tile) in tiles.iter_mut().enumerate() {
            let (group, step) = (at / self.steps, at % self.steps);
            let columns = EDGE.min(self.segment.rows.len() - group * EDGE);
            let bytes = step * STEP * 2..row_bytes.min((step + 1) * STEP * 2);
            let rows = &self.segment.bytes[group * EDGE * row_bytes..][..columns * row_bytes];
            // SAFETY: this file serves `Isa::Amx`, which includes AVX-512. Whole tiles lie in `rows` by the condition, others
            // in a copy of their size. Any bits are a valid f32.
            unsafe {
                if columns == EDGE && bytes.len() == STEP * 2 {
                    transpose(rows[bytes.start..].as_ptr(), row_bytes, tile.as_mut_ptr().cast());
                } else {
                    let mut copy = [0u8; TILE_BYTES];
                    let copies = copy.as_chunks_mut::<{ STEP * 2 }>().0;
                    for (copy, row) in copies.iter_mut().zip(rows.chunks_exact(row_bytes)) {
                        copy[..bytes.len()].copy_from_slice(&row[bytes.clone()]);
                    }
                    transpose(copy.as_ptr(), STEP * 2, tile.as_mut_ptr().cast());
                }
            }
        }
    }

    /// The same from quantized weights, of which rows have whole steps.
    fn stage_dequantized(&self, dequantizer: Dequantizer, staged: &mut [f32]) {
        let Call { coding, weight, .. } = self.call;
        let tiles = &mut staged.as_chunks_mut::<TILE_NUMBERS>().0[..self.groups() * self.steps];
        let mut buffer = Buffer::new();
        for (group, tiles) in tiles.chunks_exact_mut(self.steps.max(1)).enumerate() {
            let columns = group * EDGE..self.segment.rows.len().min((group + 1) * EDGE);
            if columns.len() < EDGE {
                buffer = Buffer::new();
            }
            for (piece, tiles) in tiles.chunks_mut(PIECE / STEP).enumerate() {
                for (to, column) in buffer.0.iter_mut().zip(columns.clone()) {
                    let (row, to) = (self.segment.row(column), &mut to[..tiles.len() * STEP * 2]);
                    debug_assert!(piece * PIECE + tiles.len() * STEP <= weight.cols());
                    // SAFETY: this file serves `Isa::Amx`, which includes the instruction sets of dequantizers to bf16.
                    unsafe {
                        dequantizer(RowPart { coding: *coding, row, first: piece * PIECE, order: Order::Bf16, to })
                    };
                }
                for (step, tile) in tiles.iter_mut().enumerate() {
                    // SAFETY: this file serves `Isa::Amx`, which includes AVX-512. The buffer has 16 rows, each with this step.
                    unsafe {
                        let from = buffer.0.as_ptr().cast::<u8>().add(step * STEP * 2);
                        transpose(from, size_of_val(&buffer.0[0]), tile.as_mut_ptr().cast());
                    }
                }
            }
        }
    }

    /// Computes all tokens, asking for `following` meanwhile.
    fn multiply(&self, staged: &[f32], following: &[u8]) {
        let (groups, numbers) = (self.groups(), self.steps * TILE_NUMBERS);
        let products = groups.div_ceil(2) * self.blocks.div_ceil(2);
        let lines = following.len().div_ceil(LINE_BYTES * (products * self.steps).max(1));
        let mut ahead = following.as_ptr();
        let mut sums = Sums([[[0.0; EDGE]; EDGE]; 4]);
        for block in (0..self.blocks).step_by(2) {
            let blocks = 2.min(self.blocks - block);
            let x = &self.x[block * numbers..][..blocks * numbers];
            for group in (0..groups).step_by(2) {
                let columns = 2.min(groups - group);
                let weights = &staged[group * numbers..][..columns * numbers];
                let operand = |at: *const u8| Operand {
                    at,
                    row_bytes: LINE_BYTES,
                    step_bytes: TILE_BYTES,
                    next_bytes: numbers * 4,
                };
                let products = Products {
                    left: operand(x.as_ptr().cast()),
                    right: operand(weights.as_ptr().cast()),
                    steps: self.steps,
                    ahead: Ahead::in_order(ahead, lines),
                };
                ahead = ahead.wrapping_add(self.steps * lines * LINE_BYTES);
                // SAFETY: this thread is `Configured`. The lines above cut `x` and `weights` to what is read; four tiles of
                // sums are room enough.
                unsafe { products.add(blocks, columns, sums.0.as_mut_ptr().cast(), Start::Zero) };
                for (tile, sums) in sums.0.iter().enumerate() {
                    let (block, group) = (block + tile / 2, group + tile % 2);
                    if block < self.blocks && group < groups {
                        self.store(sums, block, group);
                    }
                }
            }
        }
    }

    /// Writes a tile of sums to `out` and adds the bias. `[token][column]`
    fn store(&self, sums: &[[f32; EDGE]; EDGE], block: usize, group: usize) {
        let Call { out, weight, bias, tokens, .. } = self.call;
        let columns = EDGE.min(self.segment.rows.len() - group * EDGE);
        let first = self.segment.rows.start + group * EDGE;
        for (token, sums) in (block * EDGE..*tokens).zip(sums) {
            let start = token * weight.rows() + first;
            // SAFETY: the threads' columns do not overlap by `Pool::for_each`, and this thread holds one part at a time.
            let out = unsafe { out.part(start..start + columns) };
            match out.first_chunk_mut() {
                Some(out) => *out = *sums,
                None => out.copy_from_slice(&sums[..columns]),
            }
            if let Some(bias) = bias {
                for (out, bias) in out.iter_mut().zip(&bias[first..]) {
                    *out += bias;
                }
            }
        }
    }
}

/// Four tiles of sums: of block 0 and groups 0, 1; of block 1 and groups 0, 1.
#[repr(align(64))]
struct Sums([[[f32; EDGE]; EDGE]; 4]);
