//! Kernels of the bf16 extension: BFMMLA multiplies two rows of four bf16 numbers by two columns of them.
//!
//! `x` is rounded to bf16, as a GPU has it. The instruction takes denormal numbers for zero, and rounds to odd.
//!
//! Each number of the result is two sums over `k`: numbers 0 to 3 of each eight, and numbers 4 to 7, added at the end. With several rows
//! these are two registers; a single row multiplies its own two halves by those of a column, and the sums lie on the diagonal. An element
//! of a product depends on its own row and column alone, so that both ways give the same bits.
#![allow(unsafe_code)]

use super::kernels::{Kernels, Order, STEP, Sums, TILE_COLUMNS, TILE_ROWS, Tile, table};
use super::tile::{Dequantized, Multiply, Weight, run};
use half::bf16;
use std::arch::aarch64::*;
use std::arch::asm;
use std::marker::PhantomData;

// 2,048 numbers of four rows are 16 KiB, half of a small first-level cache.
pub static BF16: Kernels = table!(Order::Bf16, 2048, 8, tile<bf16>, [8, 8, 8, 8]);
pub static DEQUANTIZED: Kernels = table!(Order::Bf16, 2048, 8, tile<Dequantized<bf16>>, [8, 8, 8, 8]);

/// Bytes of a number.
const BYTES: usize = 2;
/// Numbers of a part of a step.
const PART: usize = 8;
const ROW_PAIRS: usize = TILE_ROWS.div_ceil(2);
const COLUMN_PAIRS: usize = TILE_COLUMNS.div_ceil(2);

/// The sums of pairs of rows and columns, of which [`ROWS`](tile) and [`COLUMNS`](tile) say how many there are.
struct Lanes {
    /// `[[0, 0], [0, 1], [1, 0], [1, 1]]` as `[row, column]` of a pair: those of the first and of the second half of each part.
    pairs: [[[float32x4_t; 2]; COLUMN_PAIRS]; ROW_PAIRS],
    /// Of a single row: the first half of the row and of the column, two that mean nothing, the second half.
    single: [float32x4_t; TILE_COLUMNS],
}

/// # Safety
///
/// As [`Kernel`](super::kernels::Kernel).
#[target_feature(enable = "neon,bf16")]
unsafe fn tile<W: Weight, const R: usize, const C: usize>(tile: &Tile, sums: &mut Sums) {
    // SAFETY: the caller says so.
    unsafe { run::<Matrices<W>, R, C>(tile, sums) }
}

/// Products of matrices of bf16 numbers, which lie where `W` says.
struct Matrices<W>(PhantomData<W>);

impl<W: Weight> Multiply for Matrices<W> {
    type Sums<const R: usize, const C: usize> = Lanes;
    const X_BYTES: usize = BYTES;
    const BYTES: usize = BYTES;
    const IS_FETCHED: bool = W::IS_FETCHED;

    #[inline(always)]
    unsafe fn zero<const R: usize, const C: usize>() -> Lanes {
        // SAFETY: the caller says so.
        let zero = unsafe { vdupq_n_f32(0.0) };
        Lanes { pairs: [[[zero; 2]; COLUMN_PAIRS]; ROW_PAIRS], single: [zero; TILE_COLUMNS] }
    }

    #[inline(always)]
    unsafe fn add<const ROWS: usize, const COLUMNS: usize>(
        lanes: &mut Lanes,
        x: *const u8,
        weight: *const u8,
        row_bytes: usize,
    ) {
        for part in 0..STEP / PART {
            // SAFETY: the caller says so; the numbers of each row and column from `part * PART` on are in its step. A pair of which only one
            // is there has that one twice.
            unsafe {
                let row = |row: usize| vld1q_u16(x.add((row.min(ROWS - 1) * STEP + part * PART) * BYTES).cast());
                let column = |column: usize| {
                    vld1q_u16(weight.add(column.min(COLUMNS - 1) * row_bytes + part * PART * BYTES).cast())
                };
                if ROWS == 1 {
                    let x = row(0);
                    for i in 0..COLUMNS {
                        lanes.single[i] = multiply(lanes.single[i], x, column(i));
                    }
                    continue;
                }
                let mut rows = [[vdupq_n_u16(0); 2]; ROW_PAIRS];
                for (i, rows) in rows.iter_mut().enumerate().take(ROWS.div_ceil(2)) {
                    *rows = halves(row(2 * i), row(2 * i + 1));
                }
                for j in 0..COLUMNS.div_ceil(2) {
                    let columns = halves(column(2 * j), column(2 * j + 1));
                    for (lanes, rows) in lanes.pairs.iter_mut().zip(&rows).take(ROWS.div_ceil(2)) {
                        let [first, second] = lanes[j];
                        lanes[j] = [multiply(first, rows[0], columns[0]), multiply(second, rows[1], columns[1])];
                    }
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn write<const ROWS: usize, const COLUMNS: usize>(lanes: Lanes, to: &mut Sums) {
        for (row, sums) in to.chunks_exact_mut(COLUMNS).take(ROWS).enumerate() {
            for (column, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the caller says so; the array takes four numbers.
                *sum = unsafe {
                    if ROWS == 1 {
                        vgetq_lane_f32::<0>(lanes.single[column]) + vgetq_lane_f32::<3>(lanes.single[column])
                    } else {
                        let [first, second] = lanes.pairs[row / 2][column / 2];
                        let mut four = [0.0; 4];
                        vst1q_f32(four.as_mut_ptr(), vaddq_f32(first, second));
                        four[row % 2 * 2 + column % 2]
                    }
                };
            }
        }
    }
}

/// The first halves of both, and the second halves.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn halves(a: uint16x8_t, b: uint16x8_t) -> [uint16x8_t; 2] {
    // SAFETY: the caller says so.
    unsafe {
        let [a, b] = [a, b].map(|v| vreinterpretq_u64_u16(v));
        [vzip1q_u64(a, b), vzip2q_u64(a, b)].map(|v| vreinterpretq_u16_u64(v))
    }
}

/// `sums[2 i + j] += rows[4 i ..][k] * columns[4 j ..][k]` for `k` below 4.
///
/// # Safety
///
/// The machine has the bf16 extension.
#[inline(always)]
unsafe fn multiply(mut sums: float32x4_t, rows: uint16x8_t, columns: uint16x8_t) -> float32x4_t {
    // SAFETY: the caller says so; the instruction changes one register.
    unsafe {
        asm!(
            "bfmmla {sums:v}.4s, {rows:v}.8h, {columns:v}.8h",
            sums = inout(vreg) sums,
            rows = in(vreg) rows,
            columns = in(vreg) columns,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}
