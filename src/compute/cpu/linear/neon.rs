//! Kernels of NEON: four numbers along `k` in a register.
//!
//! Thirty-two registers hold sixteen sums, eight numbers of each of four rows, and those of one column.
#![allow(unsafe_code)]

use super::kernels::{Kernels, Order, STEP, Sums, Tile, padded_tails, table};
use half::{bf16, f16};
use std::arch::aarch64::*;
use std::arch::asm;

// 1,024 numbers of four rows are 16 KiB, half of a small first-level cache.
pub static BF16: Kernels = table!(Order::Straight, 1024, 8, tile<bf16>, [8, 8, 4, 4]);
pub static F16: Kernels = table!(Order::Straight, 1024, 8, tile<f16>, [8, 8, 4, 4]);
pub static F32: Kernels = table!(Order::Straight, 1024, 8, tile<f32>, [8, 8, 4, 4]);
pub static DECODED: Kernels = table!(Order::Straight, 1024, 8, tile<Decoded>, [8, 8, 4, 4]);

/// An f32 in a thread's scratch, which is in the cache.
struct Decoded;

/// Numbers of a part of a step.
const PART: usize = 8;

/// How weights of one type become vectors of f32.
trait Weight {
    const BYTES: usize;
    /// Whether weights are brought into the cache.
    const IS_FETCHED: bool = true;

    /// The [`PART`] numbers at `at`.
    ///
    /// # Safety
    ///
    /// The machine has NEON, and they can be read.
    unsafe fn load(at: *const u8) -> [float32x4_t; 2];
}

impl Weight for bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> [float32x4_t; 2] {
        // SAFETY: the caller says so.
        unsafe {
            let bits = vld1q_u16(at.cast());
            [vshll_n_u16::<16>(vget_low_u16(bits)), vshll_high_n_u16::<16>(bits)]
                .map(|bits| vreinterpretq_f32_u32(bits))
        }
    }
}

impl Weight for f16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> [float32x4_t; 2] {
        // SAFETY: the caller says so.
        unsafe {
            let halves = vreinterpretq_f16_u16(vld1q_u16(at.cast()));
            [vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)]
        }
    }
}

impl Weight for f32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> [float32x4_t; 2] {
        // SAFETY: the caller says so.
        unsafe { [vld1q_f32(at.cast()), vld1q_f32(at.add(16).cast())] }
    }
}

impl Weight for Decoded {
    const BYTES: usize = 4;
    const IS_FETCHED: bool = false;

    #[inline(always)]
    unsafe fn load(at: *const u8) -> [float32x4_t; 2] {
        // SAFETY: the caller says so.
        unsafe { f32::load(at) }
    }
}

/// # Safety
///
/// As [`Kernel`](super::kernels::Kernel).
#[target_feature(enable = "neon")]
unsafe fn tile<W: Weight, const ROWS: usize, const COLUMNS: usize>(tile: &Tile, sums: &mut Sums) {
    let mut lanes = [[vdupq_n_f32(0.0); COLUMNS]; ROWS];
    let (mut x, mut weight, mut ahead) = (tile.x, tile.weight, tile.ahead);
    for _ in 0..tile.steps {
        if W::IS_FETCHED {
            for column in 0..COLUMNS {
                let line = ahead.wrapping_add(column * tile.ahead_stride);
                prefetch(line);
                if W::BYTES == 4 {
                    prefetch(line.wrapping_add(64));
                }
            }
            ahead = ahead.wrapping_add(tile.ahead_step);
        }
        // SAFETY: the tile has this many steps.
        unsafe {
            add::<W, ROWS, COLUMNS>(&mut lanes, x, weight, tile.row_bytes);
            x = x.add(STEP * 4 * ROWS);
            weight = weight.add(STEP * W::BYTES);
        }
    }
    if tile.tail > 0 {
        // SAFETY: the tile has a tail; `x` has a whole step for it, and the copies are of a whole step.
        unsafe {
            let tails = padded_tails::<COLUMNS>(weight, tile.row_bytes, tile.tail, W::BYTES);
            add::<W, ROWS, COLUMNS>(&mut lanes, x, tails.as_ptr().cast(), STEP * 4);
        }
    }
    for (sums, lanes) in sums.chunks_exact_mut(COLUMNS).zip(lanes) {
        for (sum, lanes) in sums.iter_mut().zip(lanes) {
            // Pairs, then pairs of these.
            *sum = vaddvq_f32(lanes);
        }
    }
}

/// Adds one step.
///
/// # Safety
///
/// The machine has NEON. `x` holds `ROWS * STEP` numbers, and `weight` and each further column `row_bytes` on hold
/// `STEP`.
#[inline(always)]
unsafe fn add<W: Weight, const ROWS: usize, const COLUMNS: usize>(
    lanes: &mut [[float32x4_t; COLUMNS]; ROWS],
    x: *const u8,
    weight: *const u8,
    row_bytes: usize,
) {
    for part in 0..STEP / PART {
        // SAFETY: the caller says so; the numbers of each row from `part * PART` on are in its step.
        unsafe {
            let mut rows = [[vdupq_n_f32(0.0); 2]; ROWS];
            for (row, numbers) in rows.iter_mut().enumerate() {
                *numbers = f32::load(x.add((row * STEP + part * PART) * 4));
            }
            for column in 0..COLUMNS {
                let weights = W::load(weight.add(column * row_bytes + part * PART * W::BYTES));
                for (lanes, x) in lanes.iter_mut().zip(&rows) {
                    lanes[column] = vfmaq_f32(lanes[column], x[0], weights[0]);
                    lanes[column] = vfmaq_f32(lanes[column], x[1], weights[1]);
                }
            }
        }
    }
}

/// Asks for the line of the second-level cache at `at`, which need not be readable.
#[inline(always)]
pub fn prefetch(at: *const u8) {
    // SAFETY: a prefetch never faults and changes nothing that a program sees; every ARM64 processor has it.
    unsafe { asm!("prfm pldl2keep, [{}]", in(reg) at, options(readonly, nostack, preserves_flags)) }
}
