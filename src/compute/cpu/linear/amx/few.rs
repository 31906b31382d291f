//! Few tokens: `out^T = W x^T`, bound by the reading of the weights.
//!
//! The weights are the left operand as they lie in the file, 16 rows of them side by side, each read once. They are asked for in
//! the order of memory, which the processor does not see by itself: with AVX-512 alone, that has made decoding 1.6 times as fast.
#![allow(unsafe_code)]

use super::super::pack::Scratch;
use super::super::tiles::chunk_columns;
use super::super::{Call, for_columns};
use super::pack::{Side, pack, right_operand};
use super::store::store;
use crate::cpu::Pool;
use crate::cpu::amx::{Ahead, Configured, EDGE, Operand, Products, STEP, Start, TILE_BYTES};
use crate::cpu::matrix::Segment;
use std::ops::Range;

/// How far ahead of their use weights are asked for, at least: more than the 16 rows that are read side by side.
const AHEAD_BYTES: usize = 64 << 10;

/// Computes the columns of `out` in `columns`, for up to two blocks of tokens.
pub fn run(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let inputs = call.weight.cols();
    let (steps, blocks) = (inputs.div_ceil(STEP), call.tokens.div_ceil(EDGE));
    let side = Side::right(call.tokens);
    let packed = pack(pool, &mut scratch.x, x, call.tokens, inputs, side);
    let chunk = chunk_columns(call.row_bytes, columns.len(), pool.threads(), EDGE);
    for_columns(pool, columns, chunk, &|_, range, later| {
        let _configured = Configured::with_right(call.tokens.min(EDGE));
        for (segment, following) in call.segments(range, later) {
            let walk = Walk { call, x: packed, side, segment: &segment, following, steps, blocks };
            for first in (0..segment.rows.len()).step_by(EDGE) {
                walk.group(first);
            }
        }
    });
}

/// A segment of weights, and what it is multiplied with.
struct Walk<'a> {
    call: &'a Call<'a>,
    /// `[block][step][pair of k][token]`
    x: &'a [u32],
    side: Side,
    segment: &'a Segment<'a>,
    /// Weights that are probably read after the segment's.
    following: &'a [u8],
    steps: usize,
    /// Blocks of tokens.
    blocks: usize,
}

/// Two tiles of sums: of blocks 0, 1. `[column][token]`
#[repr(align(64))]
struct Sums([[[f32; EDGE]; EDGE]; 2]);

impl Walk<'_> {
    /// Computes [`EDGE`] columns, or those that are left, from `first` on.
    fn group(&self, first: usize) {
        let columns = EDGE.min(self.segment.rows.len() - first);
        let mut sums = Sums([[[0.0; EDGE]; EDGE]; 2]);
        self.multiply(&mut sums, first, columns);
        for (block, sums) in sums.0[..self.blocks].iter().enumerate() {
            let first = self.segment.rows.start + first;
            store(self.call, sums, first..first + columns, block);
        }
    }

    /// Sums the products of `columns` columns from `first` on with all tokens.
    fn multiply(&self, sums: &mut Sums, first: usize, columns: usize) {
        let row_bytes = self.call.row_bytes;
        // Whole tiles are read where they lie.
        let direct = if columns == EDGE { self.call.weight.cols() / STEP } else { 0 };
        if direct > 0 {
            let weight = &self.segment.bytes[first * row_bytes..][..EDGE * row_bytes];
            let left = Operand { at: weight.as_ptr(), row_bytes, step_bytes: STEP * 2, next_bytes: 0 };
            self.products(sums, 0..direct, left, self.ahead(first));
        }
        for step in direct..self.steps {
            let tile = self.staged_tile(first, columns, step);
            let left = Operand { at: tile.as_ptr(), row_bytes: STEP * 2, step_bytes: 0, next_bytes: 0 };
            self.products(sums, step..step + 1, left, Ahead::NOTHING);
        }
    }

    /// What to ask for during the group of columns from `first` on: as much as it reads.
    fn ahead(&self, first: usize) -> Ahead {
        let row_bytes = self.call.row_bytes;
        let at = first * row_bytes + AHEAD_BYTES.next_multiple_of(EDGE * row_bytes);
        let following = || self.following.get(at - self.segment.bytes.len()..);
        let ahead = self.segment.bytes.get(at..).filter(|rest| !rest.is_empty()).or_else(following);
        ahead.map_or(Ahead::NOTHING, |ahead| Ahead::in_order(ahead.as_ptr(), EDGE))
    }

    /// Adds the products of some steps, of which `left` and `ahead` have those weights and the next.
    fn products(&self, sums: &mut Sums, steps: Range<usize>, left: Operand, ahead: Ahead) {
        let right = right_operand(self.x, self.side, self.steps, self.blocks, &steps);
        let start = if steps.start == 0 { Start::Zero } else { Start::Sums };
        let products = Products { left, right, steps: steps.len(), ahead };
        // SAFETY: this thread is `Configured`. The lines above and `multiply` checked the lengths.
        unsafe { products.add(1, self.blocks, sums.0.as_mut_ptr().cast(), start) };
    }

    /// One step of up to [`EDGE`] columns from `first` on, of which `columns` are there, with zeros where the matrix ends.
    fn staged_tile(&self, first: usize, columns: usize, step: usize) -> [u8; TILE_BYTES] {
        let row_bytes = self.call.row_bytes;
        let mut tile = [0; TILE_BYTES];
        let bytes = step * STEP * 2..row_bytes.min((step + 1) * STEP * 2);
        let rows = self.segment.bytes[first * row_bytes..].chunks_exact(row_bytes).take(columns);
        for (staged, row) in tile.as_chunks_mut::<{ STEP * 2 }>().0.iter_mut().zip(rows) {
            staged[..bytes.len()].copy_from_slice(&row[bytes.clone()]);
        }
        tile
    }
}
