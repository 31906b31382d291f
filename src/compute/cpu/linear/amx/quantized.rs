//! Few tokens and quantized weights: `out^T = W x^T`, bound by the dequantizing.
//!
//! Weights are dequantized to bf16 into one buffer while tiles are loaded from another: two columns of the next piece, then a step of this
//! one. Both buffers together are a third of a first-level cache, which a core may share with another thread.
//!
//! The loop is compiled for each dequantizer: a piece of a column is 256 numbers, which are dequantized in the time of a few calls.
#![allow(unsafe_code)]

use super::super::dequantize::avx512::Avx512;
use super::super::dequantize::vectors::{Dequantize, PIECE_STEPS, Places, Planes, by_codes, dequantize, scaled};
use super::super::pack::Scratch;
use super::super::tiles::{chunk_columns, prefetch};
use super::super::{Call, for_columns};
use super::pack::{Side, pack, right_operand};
use super::store::store;
use crate::cpu::Pool;
use crate::cpu::amx::{Ahead, Configured, EDGE, LINE_BYTES, Operand, Products, STEP, store_sums, zero_sums};
use crate::cpu::matrix::Segment;
use std::ops::Range;

/// How far ahead of their use weights are asked for, at least.
const AHEAD_BYTES: usize = 32 << 10;

/// A piece of [`EDGE`] columns, dequantized, and a line of the cache, so that two buffers do not have the same places in a page.
#[repr(align(64))]
struct Buffer {
    /// `[step][column][STEP]`
    steps: [[[u8; LINE_BYTES]; EDGE]; PIECE_STEPS],
    _line: [u8; LINE_BYTES],
}

impl Buffer {
    fn new() -> Buffer {
        const { assert!(STEP * 2 == LINE_BYTES && EDGE.is_multiple_of(PIECE_STEPS)) };
        Buffer { steps: [[[0; LINE_BYTES]; EDGE]; PIECE_STEPS], _line: [0; LINE_BYTES] }
    }
}

/// Two tiles of sums: of blocks 0, 1. `[column][token]`
#[repr(align(64))]
struct Sums([[[f32; EDGE]; EDGE]; 2]);

/// Computes the columns of `out` in `columns`, for up to two blocks of tokens.
pub fn run(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let inputs = call.weight.cols();
    let (steps, blocks) = (inputs.div_ceil(STEP), call.tokens.div_ceil(EDGE));
    let side = Side::right(call.tokens);
    let packed = pack(pool, &mut scratch.x, x, call.tokens, inputs, side);
    let chunk = chunk_columns(call.row_bytes, columns.len(), pool.threads(), EDGE);
    let segment_by: unsafe fn(&Walk, &mut [Buffer; 2]) = by_codes!(scaled(call.coding).codes, multiply);
    for_columns(pool, columns, chunk, &|_, range, later| {
        let _configured = Configured::with_right(call.tokens.min(EDGE));
        let mut buffers = [Buffer::new(), Buffer::new()];
        for (segment, following) in call.segments(range, later) {
            let walk = Walk { call, x: packed, side, segment: &segment, following, steps, blocks };
            // SAFETY: this thread is `Configured`, and this file serves `Isa::Amx`, which includes the instruction sets of dequantizers.
            unsafe { segment_by(&walk, &mut buffers) };
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

/// Computes all columns of the segment, one piece of [`EDGE`] columns after the other.
///
/// # Safety
///
/// The machine has AVX512-BF16 and F16C, and this thread is [`Configured`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn multiply<D: Dequantize>(walk: &Walk, buffers: &mut [Buffer; 2]) {
    const AT_ONCE: usize = EDGE / PIECE_STEPS;
    let (pieces, groups) = (walk.pieces(), walk.segment.rows.len().div_ceil(EDGE));
    let [now, next] = buffers;
    let (mut now, mut next) = (now, next);
    let mut sums = Sums([[[0.0; EDGE]; EDGE]; 2]);
    // SAFETY: the caller says so.
    unsafe { walk.item(0).dequantize::<D>(0..EDGE, now) };
    for item in 0..groups * pieces {
        let (this, later) = (walk.item(item), walk.item(item + 1));
        let has_later = item + 1 < groups * pieces;
        // SAFETY: the caller says that this thread is `Configured` and what the machine has; there is room for two tiles.
        unsafe {
            if this.piece == 0 {
                zero_sums();
            }
            for i in 0..PIECE_STEPS {
                if has_later {
                    later.dequantize::<D>(i * AT_ONCE..(i + 1) * AT_ONCE, next);
                }
                if i < this.steps.len() {
                    walk.add(now, i, this.steps.start + i);
                }
            }
            if this.piece + 1 == pieces {
                store_sums::<1, 2>(sums.0.as_mut_ptr().cast());
                walk.store(&sums, this.group);
            }
        }
        std::mem::swap(&mut now, &mut next);
    }
}

impl<'a> Walk<'a> {
    /// A matrix without inputs has one empty piece, so that the bias is written.
    fn pieces(&self) -> usize {
        self.steps.div_ceil(PIECE_STEPS).max(1)
    }

    /// The `item`-th piece of columns.
    #[inline(always)]
    fn item(&self, item: usize) -> Item<'_, 'a> {
        let Walk { call: Call { coding, row_bytes, .. }, segment, .. } = self;
        let (group, piece) = (item / self.pieces(), item % self.pieces());
        let steps = piece * PIECE_STEPS..self.steps.min((piece + 1) * PIECE_STEPS);
        let (before, code_bytes) = (coding.row_bytes(steps.start * STEP), coding.row_bytes(steps.len() * STEP));
        // The columns of a group are read side by side, in pieces; they are asked for in the order of memory.
        let at = group * EDGE * row_bytes + before * EDGE + AHEAD_BYTES.max(EDGE * row_bytes);
        let rest = match segment.bytes.get(at..).filter(|rest| !rest.is_empty()) {
            Some(rest) => rest,
            None => self.following.get(at.saturating_sub(segment.bytes.len())..).unwrap_or(segment.bytes),
        };
        let columns = EDGE.min(segment.rows.len().saturating_sub(group * EDGE));
        Item { walk: self, group, piece, columns, steps, code_bytes, ahead: rest.as_ptr() }
    }

    /// Adds step `step` of the columns, the `i`-th of `buffer`, for all tokens.
    ///
    /// # Safety
    ///
    /// This thread is [`Configured`], and the sums began with [`zero_sums`].
    #[inline(always)]
    unsafe fn add(&self, buffer: &Buffer, i: usize, step: usize) {
        let left = Operand { at: buffer.steps[i].as_ptr().cast(), row_bytes: LINE_BYTES, step_bytes: 0, next_bytes: 0 };
        let right = right_operand(self.x, self.side, self.steps, self.blocks, &(step..step + 1));
        let products = Products { left, right, steps: 1, ahead: Ahead::NOTHING };
        // SAFETY: the caller says so; `right_operand` checked the length of `x`, and a step of the buffer is a tile.
        unsafe { products.add_in_tiles(self.blocks) };
    }

    /// Writes the sums of the columns of group `group`.
    fn store(&self, sums: &Sums, group: usize) {
        let first = self.segment.rows.start + group * EDGE;
        for (block, sums) in sums.0[..self.blocks].iter().enumerate() {
            store(self.call, sums, first..self.segment.rows.end.min(first + EDGE), block);
        }
    }
}

/// A piece of some columns.
struct Item<'w, 'a> {
    walk: &'w Walk<'a>,
    /// Which [`EDGE`] columns of the segment.
    group: usize,
    /// Which piece of `k`.
    piece: usize,
    /// How many of the columns there are.
    columns: usize,
    /// Which steps of a row.
    steps: Range<usize>,
    /// Bytes of the codes of a column.
    code_bytes: usize,
    /// What is asked for meanwhile: as many bytes as the columns have.
    ahead: *const u8,
}

impl Item<'_, '_> {
    /// Dequantizes columns of the group into their places. A column beyond the last one keeps what was there, and nobody reads its sums.
    ///
    /// # Safety
    ///
    /// The machine has AVX512-BF16 and F16C.
    #[inline(always)]
    unsafe fn dequantize<D: Dequantize>(&self, columns: Range<usize>, buffer: &mut Buffer) {
        let Walk { call, segment, .. } = self.walk;
        let [code_bytes, scale_bytes, zero_bytes] = segment.row_bytes;
        let (first, count) = (self.steps.start * STEP, self.steps.len());
        for column in columns.start..columns.end.min(self.columns) {
            prefetch(self.ahead.wrapping_add(column * self.code_bytes), self.code_bytes);
            let row = self.group * EDGE + column;
            let row = Planes {
                codes: segment.bytes.as_ptr().wrapping_add(row * code_bytes),
                scales: segment.scales.as_ptr().wrapping_add(row * scale_bytes),
                zeros: segment.zeros.as_ptr().wrapping_add(row * zero_bytes),
            };
            let to = Places {
                at: buffer.steps.as_mut_ptr().cast::<u8>().wrapping_add(column * LINE_BYTES),
                stride: size_of_val(&buffer.steps[0]),
            };
            // SAFETY: the caller says what the machine has. The segment has this row of `self.steps`, and the buffer `PIECE_STEPS` places
            // for each column.
            unsafe { dequantize::<D, Avx512<true>>(call.coding, row, first, count, to) };
        }
    }
}
