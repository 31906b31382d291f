//! Kernels of AVX512-BF16: 32 products of bf16 numbers an instruction, added in pairs to sixteen sums.
//!
//! `x` is rounded to bf16, as a GPU has it. The instruction takes denormal numbers for zero.
#![allow(unsafe_code)]

use super::avx512::sum_four;
use super::kernels::{Kernels, Order, STEP, Sums, Tile, padded_tails, table};
use half::bf16;
use std::arch::x86_64::*;

// 2,048 numbers of four rows are 16 KiB, half of the first-level cache or less.
pub static BF16: Kernels = table!(Order::Bf16, 2048, 6, tile<bf16>, [6, 6, 6, 6]);
pub static DECODED: Kernels = table!(Order::Bf16, 2048, 6, tile<Decoded>, [6, 6, 6, 6]);

/// A number in a thread's scratch, which is in the cache.
struct Decoded;

/// Where bf16 numbers lie.
trait Weight {
    /// Whether they are brought into the cache.
    const IS_FETCHED: bool;
}

impl Weight for bf16 {
    const IS_FETCHED: bool = true;
}

impl Weight for Decoded {
    const IS_FETCHED: bool = false;
}

/// Bytes of a weight.
const BYTES: usize = 2;

/// # Safety
///
/// As [`Kernel`](super::kernels::Kernel).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn tile<W: Weight, const ROWS: usize, const COLUMNS: usize>(tile: &Tile, sums: &mut Sums) {
    let mut lanes = [[_mm512_setzero_ps(); COLUMNS]; ROWS];
    let (mut x, mut weight, mut ahead) = (tile.x, tile.weight, tile.ahead);
    for _ in 0..tile.steps {
        // SAFETY: the tile has this many steps; a prefetch may lead anywhere.
        unsafe {
            for column in 0..if W::IS_FETCHED { COLUMNS } else { 0 } {
                _mm_prefetch::<_MM_HINT_T1>(ahead.wrapping_add(column * tile.ahead_stride).cast());
            }
            add::<ROWS, COLUMNS>(&mut lanes, x, weight, tile.row_bytes);
            x = x.add(STEP * 2 * ROWS);
            weight = weight.add(STEP * BYTES);
            ahead = ahead.wrapping_add(tile.ahead_step);
        }
    }
    if tile.tail > 0 {
        // SAFETY: the tile has a tail; `x` has a whole step for it, and the copies are of a whole step.
        unsafe {
            let tails = padded_tails::<COLUMNS>(weight, tile.row_bytes, tile.tail, BYTES);
            add::<ROWS, COLUMNS>(&mut lanes, x, tails.as_ptr().cast(), STEP * 4);
        }
    }
    for row in 0..ROWS {
        for column in (0..COLUMNS).step_by(4) {
            let lane = |i: usize| if column + i < COLUMNS { lanes[row][column + i] } else { _mm512_setzero_ps() };
            let four = sum_four([lane(0), lane(1), lane(2), lane(3)]);
            let width = 4.min(COLUMNS - column);
            sums[row * COLUMNS + column..][..width].copy_from_slice(&four[..width]);
        }
    }
}

/// Adds one step.
///
/// # Safety
///
/// The machine has AVX512-BF16. `x` holds `ROWS * STEP` numbers, and `weight` and each further column `row_bytes` on hold
/// `STEP`.
#[inline(always)]
unsafe fn add<const ROWS: usize, const COLUMNS: usize>(
    lanes: &mut [[__m512; COLUMNS]; ROWS],
    x: *const u8,
    weight: *const u8,
    row_bytes: usize,
) {
    // SAFETY: the caller says so; 64 bytes are 32 numbers.
    unsafe {
        let mut weights = [_mm512_setzero_si512(); COLUMNS];
        for (column, vector) in weights.iter_mut().enumerate() {
            *vector = _mm512_loadu_si512(weight.add(column * row_bytes).cast());
        }
        for (row, lanes) in lanes.iter_mut().enumerate() {
            let x = pairs(_mm512_loadu_si512(x.add(row * STEP * 2).cast()));
            for (lanes, &weight) in lanes.iter_mut().zip(&weights) {
                *lanes = _mm512_dpbf16_ps(*lanes, x, pairs(weight));
            }
        }
    }
}

/// The same bits as bf16 numbers.
#[inline(always)]
fn pairs(bits: __m512i) -> __m512bh {
    // SAFETY: both are 64 bytes that may hold anything.
    unsafe { std::mem::transmute(bits) }
}
