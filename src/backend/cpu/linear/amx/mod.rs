//! A linear layer by AMX, for bf16 weights.
//!
//! It computes `out^T = W x^T`, sixteen columns by sixteen tokens at a time: then the weights are the left operand as they
//! lie in the file, and only `x` is rewritten, rounded to bf16, into pairs of numbers along `k`. One token takes the same
//! way as many, so that the sum over `k` is the same; partial sums that leave the tiles come back exactly.
//!
//! ```text
//! for each panel of 64 columns              stays in the second-level cache
//!   for each 256 tokens
//!     for each slice of k
//!       for each 32 tokens                  their slice of x stays in the first-level cache
//!         for each 32 columns               sums in four tiles
//! ```
#![allow(unsafe_code)]

mod tile;

use super::Call;
use super::pack::{Scratch, round_to_bf16};
use super::tiles::chunk_columns;
use crate::backend::cpu::Pool;
use crate::backend::cpu::disjoint::Disjoint;
use crate::backend::cpu::matrix::Segment;
use std::ops::Range;
use tile::{Configured, EDGE, Products, STEP, Start, TILE_BYTES, TILE_NUMBERS};

/// Groups of [`EDGE`] columns in a panel.
const PANEL_GROUPS: usize = 4;
/// Blocks of [`EDGE`] tokens whose sums are in the making at a time.
const PANEL_BLOCKS: usize = 16;
/// Steps of a slice: that of 32 tokens takes 32 KiB.
const SLICE_STEPS: usize = 16;
/// Up to so many blocks of tokens, a call waits for memory: it reads each row of weights from end to end, in one slice.
const STREAMED_BLOCKS: usize = 2;

/// Numbers of [`Scratch::sums`] for each thread.
pub const SUMS: usize = PANEL_GROUPS * PANEL_BLOCKS * TILE_NUMBERS;

/// Computes the columns of `out` in `columns`, by AMX.
pub fn run(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let inputs = call.weight.cols();
    let (steps, blocks) = (inputs.div_ceil(STEP), call.tokens.div_ceil(EDGE));
    let packed = pack(pool, &mut scratch.x, x, call.tokens, inputs);
    assert!(scratch.sums.len() >= pool.threads() * SUMS);
    let sums = Disjoint::new(&mut scratch.sums);
    let chunk = chunk_columns(call.weight.row_bytes(), columns.len(), pool.threads(), EDGE);
    pool.for_each(columns.len(), chunk, &|thread, range| {
        // SAFETY: no two calls with the same thread overlap.
        let sums = unsafe { sums.part(thread * SUMS..(thread + 1) * SUMS) };
        let _configured = Configured::new();
        let range = columns.start + range.start..columns.start + range.end;
        for segment in call.weight.segments(range) {
            let walk = Walk { call, x: packed, segment: &segment, steps, blocks };
            for first in (0..segment.rows.len()).step_by(PANEL_GROUPS * EDGE) {
                for block in (0..blocks).step_by(PANEL_BLOCKS) {
                    walk.panel(sums, first, block);
                }
            }
        }
    });
}

/// Rewrites `x`: `[block of tokens][step][pair of k][token]`, two bf16 numbers each.
fn pack<'a>(pool: &Pool, scratch: &'a mut [f32], x: &[f32], tokens: usize, inputs: usize) -> &'a [u32] {
    const CHUNK_NUMBERS: usize = 16 << 10;
    let (steps, blocks) = (inputs.div_ceil(STEP), tokens.div_ceil(EDGE));
    let numbers = steps * blocks * TILE_NUMBERS;
    assert!(numbers <= scratch.len(), "scratch for {} numbers, x has {numbers}", scratch.len());
    // SAFETY: any bits are a valid u32, of the same size and alignment.
    let packed = unsafe { std::slice::from_raw_parts_mut(scratch.as_mut_ptr().cast::<u32>(), numbers) };
    let parts = Disjoint::new(packed);
    // Steps are handed out, not blocks, so that all threads pack even one block.
    let chunk = CHUNK_NUMBERS / (STEP * EDGE);
    pool.for_each(steps * blocks, chunk, &|_, range| {
        for part in range {
            let (block, step) = (part / steps, part % steps);
            // SAFETY: parts do not overlap, and the ranges of `for_each` do not either.
            let tile = unsafe { parts.part(part * TILE_NUMBERS..(part + 1) * TILE_NUMBERS) };
            let mut pairs = [[0; EDGE]; EDGE];
            let rows = EDGE.min(tokens - block * EDGE);
            let width = STEP.min(inputs - step * STEP);
            for (row, pairs) in pairs.iter_mut().enumerate().take(rows) {
                let x = &x[(block * EDGE + row) * inputs + step * STEP..][..width];
                *pairs = round_pairs(x);
            }
            tile.copy_from_slice(tile::transposed(&pairs).as_flattened());
        }
    });
    packed
}

/// Two bf16 numbers in each 32 bits, the first one in the lower half; zeros beyond the end of `x`.
fn round_pairs(x: &[f32]) -> [u32; EDGE] {
    let mut numbers = [0.0; STEP];
    numbers[..x.len()].copy_from_slice(x);
    let rounded = numbers.map(round_to_bf16);
    std::array::from_fn(|i| u32::from(rounded[2 * i]) | u32::from(rounded[2 * i + 1]) << 16)
}

/// A segment of weights, and what it is multiplied with.
struct Walk<'a> {
    call: &'a Call<'a>,
    x: &'a [u32],
    segment: &'a Segment<'a>,
    steps: usize,
    /// Blocks of tokens.
    blocks: usize,
}

impl Walk<'_> {
    /// Computes the panel whose first column is `first`, for up to [`PANEL_BLOCKS`] blocks of tokens from `block` on.
    fn panel(&self, sums: &mut [f32], first: usize, block: usize) {
        let columns = (PANEL_GROUPS * EDGE).min(self.segment.rows.len() - first);
        let blocks = PANEL_BLOCKS.min(self.blocks - block);
        let slice = if self.blocks <= STREAMED_BLOCKS { self.steps.max(1) } else { SLICE_STEPS };
        if self.steps == 0 {
            sums.fill(0.0);
        }
        for start in (0..self.steps).step_by(slice) {
            let steps = start..self.steps.min(start + slice);
            for pair in (0..blocks).step_by(2) {
                for group in (0..columns.div_ceil(EDGE)).step_by(2) {
                    let tiles = Tiles {
                        first: first + group * EDGE,
                        columns: (2 * EDGE).min(columns - group * EDGE),
                        block: block + pair,
                        blocks: 2.min(blocks - pair),
                        steps: steps.clone(),
                    };
                    // Sums of a panel: `[group][block][column][token]`
                    self.multiply(&mut sums[(group * PANEL_BLOCKS + pair) * TILE_NUMBERS..], &tiles);
                }
            }
        }
        for group in 0..columns.div_ceil(EDGE) {
            for pair in 0..blocks {
                let tile = &sums[(group * PANEL_BLOCKS + pair) * TILE_NUMBERS..][..TILE_NUMBERS];
                let width = EDGE.min(columns - group * EDGE);
                self.store(tile, first + group * EDGE, width, block + pair);
            }
        }
    }

    /// Adds the products of up to two groups of columns and two blocks of tokens to `sums`, or begins them.
    fn multiply(&self, sums: &mut [f32], tiles: &Tiles) {
        let row_bytes = self.call.weight.row_bytes();
        let whole_steps = self.call.weight.cols() / STEP;
        let direct = tiles.steps.start..tiles.steps.end.min(whole_steps);
        if tiles.columns.is_multiple_of(EDGE) && !direct.is_empty() {
            let streamed = self.blocks <= STREAMED_BLOCKS;
            let left = self.segment.rows.len() - tiles.first - tiles.columns;
            let weight = &self.segment.bytes[tiles.first * row_bytes + direct.start * STEP * 2..];
            assert!(weight.len() >= (tiles.columns - 1) * row_bytes + direct.len() * STEP * 2);
            let products = Products {
                weight: weight.as_ptr(),
                row_bytes,
                groups: tiles.columns / EDGE,
                ahead_rows: if streamed { left.min(2 * EDGE) } else { 0 },
                steps: direct.len(),
            };
            self.products(sums, &products, tiles, direct.start);
        }
        let staged = if tiles.columns.is_multiple_of(EDGE) { direct.end..tiles.steps.end } else { tiles.steps.clone() };
        for step in staged {
            for group in 0..tiles.columns.div_ceil(EDGE) {
                let tile = self.staged_tile(tiles.first + group * EDGE, tiles.columns - group * EDGE, step);
                let products =
                    Products { weight: tile.as_ptr(), row_bytes: STEP * 2, groups: 1, ahead_rows: 0, steps: 1 };
                self.products(&mut sums[group * PANEL_BLOCKS * TILE_NUMBERS..], &products, tiles, step);
            }
        }
    }

    fn products(&self, sums: &mut [f32], products: &Products, tiles: &Tiles, step: usize) {
        let block_numbers = self.steps * TILE_NUMBERS;
        let x = &self.x[tiles.block * block_numbers + step * TILE_NUMBERS..];
        assert!(x.len() >= (tiles.blocks - 1) * block_numbers + products.steps * TILE_NUMBERS);
        let group_numbers = PANEL_BLOCKS * TILE_NUMBERS;
        assert!(sums.len() >= (products.groups - 1) * group_numbers + tiles.blocks * TILE_NUMBERS);
        let start = if step == 0 { Start::Zero } else { Start::Sums };
        // SAFETY: this thread is `Configured`. The lines above and `multiply` checked the lengths.
        unsafe {
            let (x, sums) = (x.as_ptr(), sums.as_mut_ptr());
            match (products.groups, tiles.blocks) {
                (1, 1) => products.add::<1, 1>(x, block_numbers, sums, group_numbers, start),
                (1, _) => products.add::<1, 2>(x, block_numbers, sums, group_numbers, start),
                (_, 1) => products.add::<2, 1>(x, block_numbers, sums, group_numbers, start),
                _ => products.add::<2, 2>(x, block_numbers, sums, group_numbers, start),
            }
        }
    }

    /// One step of up to [`EDGE`] columns from `first` on, of which `columns` are there, with zeros where the matrix ends.
    fn staged_tile(&self, first: usize, columns: usize, step: usize) -> [u8; TILE_BYTES] {
        let row_bytes = self.call.weight.row_bytes();
        let mut tile = [0; TILE_BYTES];
        let bytes = step * STEP * 2..row_bytes.min((step + 1) * STEP * 2);
        let rows = self.segment.bytes[first * row_bytes..].chunks_exact(row_bytes).take(columns);
        for (staged, row) in tile.as_chunks_mut::<{ STEP * 2 }>().0.iter_mut().zip(rows) {
            staged[..bytes.len()].copy_from_slice(&row[bytes.clone()]);
        }
        tile
    }

    /// Writes a tile of sums to `out` and adds the bias.
    fn store(&self, sums: &[f32], first: usize, columns: usize, block: usize) {
        let Call { out, weight, bias, tokens } = self.call;
        let sums: &[[f32; EDGE]; EDGE] = sums.as_chunks().0.try_into().expect("a tile is square");
        let by_token = tile::transposed(&sums.map(|row| row.map(f32::to_bits)));
        let first = self.segment.rows.start + first;
        for (token, sums) in (block * EDGE..*tokens).zip(by_token) {
            let start = token * weight.rows() + first;
            // SAFETY: the threads' columns do not overlap by `Pool::for_each`, and this thread holds one part at a time.
            let out = unsafe { out.part(start..start + columns) };
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = f32::from_bits(sum);
            }
            if let Some(bias) = bias {
                for (out, bias) in out.iter_mut().zip(&bias[first..]) {
                    *out += bias;
                }
            }
        }
    }
}

/// Up to two groups of columns and two blocks of tokens, over a slice of `k`.
struct Tiles {
    /// First column within the segment.
    first: usize,
    columns: usize,
    /// First block of tokens.
    block: usize,
    blocks: usize,
    steps: Range<usize>,
}
