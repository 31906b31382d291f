//! Few tokens and coded weights: `out^T = W x^T`, bound by the decoding.
//!
//! Weights are decoded to bf16 into one buffer while tiles are loaded from another: a column of the next piece, then a step of this
//! one. The tile unit works beside the vector unit, and a tile that was stored long ago is read at the full rate.
#![allow(unsafe_code)]

use super::super::decode::{Decoder, Job};
use super::super::kernels::Order;
use super::super::pack::Scratch;
use super::super::tiles::{chunk_columns, prefetch};
use super::super::{Call, for_columns};
use super::pack::{Side, pack};
use super::store::store;
use crate::backend::cpu::Pool;
use crate::backend::cpu::amx::{
    Ahead, Configured, EDGE, LINE_BYTES, Operand, Products, STEP, TILE_BYTES, TILE_NUMBERS, store_sums, zero_sums,
};
use crate::backend::cpu::matrix::Segment;
use std::ops::Range;

/// Numbers of a column that are decoded together: as many steps as there are columns in a tile.
pub const PIECE: usize = EDGE * STEP;

/// How far ahead of their use weights are asked for, at least.
const AHEAD_BYTES: usize = 32 << 10;

/// Sixteen columns of a piece, decoded. A line of the cache between them keeps them from competing for the same places of the cache.
#[repr(align(64))]
pub struct Buffer(pub [[u8; PIECE * 2 + LINE_BYTES]; EDGE]);

impl Buffer {
    pub fn new() -> Buffer {
        Buffer([[0; PIECE * 2 + LINE_BYTES]; EDGE])
    }
}

/// Two tiles of sums: of blocks 0, 1. `[column][token]`
#[repr(align(64))]
struct Sums([[[f32; EDGE]; EDGE]; 2]);

/// Computes the columns of `out` in `columns`, for up to two blocks of tokens.
pub fn run(pool: &Pool, scratch: &mut Scratch, call: &Call, decoder: Decoder, x: &[f32], columns: Range<usize>) {
    let inputs = call.weight.cols();
    let (steps, blocks) = (inputs.div_ceil(STEP), call.tokens.div_ceil(EDGE));
    let packed = pack(pool, &mut scratch.x, x, call.tokens, inputs, Side::Right);
    let chunk = chunk_columns(call.row_bytes, columns.len(), pool.threads(), EDGE);
    for_columns(pool, columns, chunk, &|_, range, later| {
        let _configured = Configured::new();
        let mut buffers = [Buffer::new(), Buffer::new()];
        for (segment, following) in call.segments(range, later) {
            Walk { call, decoder, x: packed, segment: &segment, following, steps, blocks }.run(&mut buffers);
        }
    });
}

/// A segment of weights, and what it is multiplied with.
struct Walk<'a> {
    call: &'a Call<'a>,
    decoder: Decoder,
    /// `[block][step][pair of k][token]`
    x: &'a [u32],
    segment: &'a Segment<'a>,
    /// Weights that are probably read after the segment's.
    following: &'a [u8],
    steps: usize,
    /// Blocks of tokens.
    blocks: usize,
}

impl Walk<'_> {
    /// A matrix without inputs has one empty piece, so that the bias is written.
    fn pieces(&self) -> usize {
        self.steps.div_ceil(EDGE).max(1)
    }

    /// Steps of piece `piece` of a row.
    fn steps_of(&self, piece: usize) -> Range<usize> {
        piece * EDGE..self.steps.min((piece + 1) * EDGE)
    }

    /// Computes all columns of the segment, one piece of [`EDGE`] columns after the other.
    fn run(&self, buffers: &mut [Buffer; 2]) {
        let (pieces, groups) = (self.pieces(), self.segment.rows.len().div_ceil(EDGE));
        let [now, next] = buffers;
        let (mut now, mut next) = (now, next);
        (0..EDGE).for_each(|column| self.decode(0, column, now));
        let mut sums = Sums([[[0.0; EDGE]; EDGE]; 2]);
        for item in 0..groups * pieces {
            let (group, piece) = (item / pieces, item % pieces);
            if piece == 0 {
                // SAFETY: this thread is `Configured`.
                unsafe { zero_sums() };
            }
            let steps = self.steps_of(piece);
            for i in 0..EDGE {
                if item + 1 < groups * pieces {
                    self.decode(item + 1, i, next);
                }
                if i < steps.len() {
                    self.add(now, i, steps.start + i);
                }
            }
            if piece + 1 == pieces {
                // SAFETY: this thread is `Configured`, and there is room for two tiles.
                unsafe { store_sums::<1, 2>(sums.0.as_mut_ptr().cast()) };
                let first = self.segment.rows.start + group * EDGE;
                let columns = first..self.segment.rows.end.min(first + EDGE);
                for (block, sums) in sums.0[..self.blocks].iter().enumerate() {
                    store(self.call, sums, columns.clone(), block);
                }
            }
            std::mem::swap(&mut now, &mut next);
        }
    }

    /// Decodes a column of a piece into its place. A column beyond the last one keeps what was there, and nobody reads its sums.
    fn decode(&self, item: usize, column: usize, buffer: &mut Buffer) {
        let (group, piece) = (item / self.pieces(), item % self.pieces());
        let (place, column, steps) = (column, group * EDGE + column, self.steps_of(piece));
        if column >= self.segment.rows.len() {
            return;
        }
        let (coding, row) = (self.call.coding, self.segment.row(column));
        self.ask_for_later(column, steps.start * STEP..steps.end * STEP);
        let to = &mut buffer.0[place][..steps.len() * STEP * 2];
        let job = Job { coding, row, first: steps.start * STEP, order: Order::Bf16, to };
        // SAFETY: this file serves `Isa::Amx`, which includes the instruction sets of decoders to bf16.
        unsafe { (self.decoder)(job) };
    }

    /// Asks for as many codes as `numbers` of `column` have, in the order of memory.
    fn ask_for_later(&self, column: usize, numbers: Range<usize>) {
        let (coding, row_bytes) = (self.call.coding, self.call.row_bytes);
        let bytes = coding.row_bytes(numbers.len());
        // The columns of a group are read side by side, in pieces.
        let (group, place) = (column / EDGE, column % EDGE);
        let at = group * EDGE * row_bytes + coding.row_bytes(numbers.start) * EDGE + place * bytes;
        let at = at + AHEAD_BYTES.next_multiple_of((EDGE * row_bytes).max(1));
        let following = || self.following.get(at - self.segment.bytes.len()..);
        let ahead = self.segment.bytes.get(at..).filter(|rest| !rest.is_empty()).or_else(following);
        if let Some(ahead) = ahead {
            prefetch(ahead.as_ptr(), bytes);
        }
    }

    /// Adds step `step` of the columns, the `i`-th of `buffer`, for all tokens.
    fn add(&self, buffer: &Buffer, i: usize, step: usize) {
        let block_numbers = self.steps * TILE_NUMBERS;
        let x = &self.x[step * TILE_NUMBERS..];
        assert!(x.len() >= (self.blocks - 1) * block_numbers + TILE_NUMBERS);
        let row_bytes = size_of_val(&buffer.0[0]);
        let left = Operand {
            at: buffer.0.as_ptr().cast::<u8>().wrapping_add(i * STEP * 2),
            row_bytes,
            step_bytes: 0,
            next_bytes: 0,
        };
        let right = Operand {
            at: x.as_ptr().cast(),
            row_bytes: LINE_BYTES,
            step_bytes: TILE_BYTES,
            next_bytes: block_numbers * 4,
        };
        let products = Products { left, right, steps: 1, ahead: Ahead::NOTHING };
        // SAFETY: this thread is `Configured`, and `run` began the sums. The line above checked the length of `x`; `i` is a step of the buffer.
        unsafe { products.add_in_tiles(self.blocks) };
    }
}
