//! Kernels of AVX2 and FMA: eight numbers along `k` in a register.
//!
//! Sixteen registers bound the tile: twelve sums, which is what two FMA units of latency four want at the least, the columns'
//! weights, and one row of `x` at a time.
#![allow(unsafe_code)]

use super::kernels::{Kernels, Order, STEP, Sums, Tile, padded_tails, table};
use half::{bf16, f16};
use std::arch::asm;
use std::arch::x86_64::*;

// 1,024 numbers of four rows are 16 KiB, half of the first-level cache.
pub static BF16: Kernels = table!(Order::EvenOdd(8), 1024, 6, tile<bf16>, [3, 3, 3, 3]);
pub static F16: Kernels = table!(Order::Straight, 1024, 6, tile<f16>, [6, 3, 3, 2]);
pub static F32: Kernels = table!(Order::Straight, 1024, 6, tile<f32>, [6, 3, 3, 3]);
pub static DECODED: Kernels = table!(Order::Straight, 1024, 6, tile<Decoded>, [6, 3, 3, 3]);
pub static DECODED_PAIRS: Kernels = table!(Order::EvenOdd(8), 1024, 6, tile<Decoded>, [6, 3, 3, 3]);

/// An f32 in a thread's scratch, which is in the cache.
struct Decoded;

/// How weights of one type become vectors of f32.
///
/// # Safety
///
/// `load` reads what it says.
unsafe trait Weight {
    const BYTES: usize;
    /// Whether weights are brought into the cache.
    const IS_FETCHED: bool = true;

    /// Vector `PART` of the four in a step, in the order of [`Kernels::order`].
    ///
    /// # Safety
    ///
    /// The machine has AVX2 and F16C, and [`STEP`] numbers can be read at `step`.
    unsafe fn load<const PART: usize>(step: *const u8) -> __m256;
}

// SAFETY: parts 0 and 1 are the even and the odd ones of the first 16 numbers, parts 2 and 3 those of the others.
unsafe impl Weight for bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<const PART: usize>(step: *const u8) -> __m256 {
        // SAFETY: the 32 bytes begin with number 0 or 16 of 32.
        unsafe {
            let pairs = _mm256_loadu_si256(step.add(PART / 2 * 32).cast());
            _mm256_castsi256_ps(match PART % 2 {
                0 => _mm256_slli_epi32::<16>(pairs),
                _ => _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff_0000_u32 as i32)),
            })
        }
    }
}

// SAFETY: part `p` is the numbers from `8 p` on.
unsafe impl Weight for f16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<const PART: usize>(step: *const u8) -> __m256 {
        // SAFETY: the 16 bytes begin with number `8 PART` of 32.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(step.add(PART * 16).cast())) }
    }
}

// SAFETY: part `p` is the numbers from `8 p` on.
unsafe impl Weight for f32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<const PART: usize>(step: *const u8) -> __m256 {
        // SAFETY: the 32 bytes begin with number `8 PART` of 32.
        unsafe { _mm256_loadu_ps(step.add(PART * 32).cast()) }
    }
}

// SAFETY: as f32.
unsafe impl Weight for Decoded {
    const BYTES: usize = 4;
    const IS_FETCHED: bool = false;

    #[inline(always)]
    unsafe fn load<const PART: usize>(step: *const u8) -> __m256 {
        // SAFETY: the caller says so.
        unsafe { f32::load::<PART>(step) }
    }
}

/// # Safety
///
/// As [`Kernel`](super::kernels::Kernel).
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<W: Weight, const ROWS: usize, const COLUMNS: usize>(tile: &Tile, sums: &mut Sums) {
    let mut lanes = [[_mm256_setzero_ps(); COLUMNS]; ROWS];
    let (mut x, mut weight, mut ahead) = (tile.x, tile.weight, tile.ahead);
    for _ in 0..tile.steps {
        // SAFETY: the tile has this many steps; a prefetch may lead anywhere.
        unsafe {
            for column in 0..if W::IS_FETCHED { COLUMNS } else { 0 } {
                let line = ahead.wrapping_add(column * tile.ahead_stride);
                _mm_prefetch::<_MM_HINT_T1>(line.cast());
                if W::BYTES == 4 {
                    _mm_prefetch::<_MM_HINT_T1>(line.wrapping_add(64).cast());
                }
            }
            add::<W, ROWS, COLUMNS>(&mut lanes, x, weight, tile.row_bytes);
            x = x.add(STEP * 4 * ROWS);
            weight = weight.add(STEP * W::BYTES);
            ahead = ahead.wrapping_add(tile.ahead_step);
        }
    }
    if tile.tail > 0 {
        // SAFETY: the tile has a tail; `x` has a whole step for it, and the copies are of a whole step.
        unsafe {
            let tails = padded_tails::<COLUMNS>(weight, tile.row_bytes, tile.tail, W::BYTES);
            add::<W, ROWS, COLUMNS>(&mut lanes, x, tails.as_ptr().cast(), STEP * 4);
        }
    }
    for row in 0..ROWS {
        for column in (0..COLUMNS).step_by(4) {
            let lane = |i: usize| if column + i < COLUMNS { lanes[row][column + i] } else { _mm256_setzero_ps() };
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
/// The machine has AVX2 and FMA. `x` holds `ROWS * STEP` numbers, and `weight` and each further column `row_bytes` on
/// hold `STEP`.
#[inline(always)]
unsafe fn add<W: Weight, const ROWS: usize, const COLUMNS: usize>(
    lanes: &mut [[__m256; COLUMNS]; ROWS],
    x: *const u8,
    weight: *const u8,
    row_bytes: usize,
) {
    // SAFETY: the caller says so.
    unsafe {
        add_part::<W, 0, ROWS, COLUMNS>(lanes, x, weight, row_bytes);
        add_part::<W, 1, ROWS, COLUMNS>(lanes, x, weight, row_bytes);
        add_part::<W, 2, ROWS, COLUMNS>(lanes, x, weight, row_bytes);
        add_part::<W, 3, ROWS, COLUMNS>(lanes, x, weight, row_bytes);
    }
}

/// Adds a quarter of a step.
///
/// # Safety
///
/// As [`add`].
#[inline(always)]
unsafe fn add_part<W: Weight, const PART: usize, const ROWS: usize, const COLUMNS: usize>(
    lanes: &mut [[__m256; COLUMNS]; ROWS],
    x: *const u8,
    weight: *const u8,
    row_bytes: usize,
) {
    // SAFETY: the caller says so; eight numbers of each row lie at `PART * 8` of its 32.
    unsafe {
        let mut weights = [_mm256_setzero_ps(); COLUMNS];
        let weight = unknown(weight);
        for (column, vector) in weights.iter_mut().enumerate() {
            *vector = W::load::<PART>(weight.add(column * row_bytes));
        }
        for (row, lanes) in lanes.iter_mut().enumerate() {
            let x = _mm256_loadu_ps(x.add((row * STEP + PART * 8) * 4).cast());
            for (lanes, &weight) in lanes.iter_mut().zip(&weights) {
                *lanes = _mm256_fmadd_ps(x, weight, *lanes);
            }
        }
    }
}

/// The same pointer, of which the compiler knows nothing: it reads the weights again for the odd ones instead of keeping
/// them in registers that the sums need.
#[inline(always)]
fn unknown(mut pointer: *const u8) -> *const u8 {
    // SAFETY: no instruction is run.
    unsafe { asm!("/* {pointer} */", pointer = inout(reg) pointer, options(readonly, nostack, preserves_flags)) };
    pointer
}

/// The sum of each vector, as `((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))` of its lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_four([a, b, c, d]: [__m256; 4]) -> [f32; 4] {
    let quads = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    let sums = _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps::<1>(quads));
    let mut four = [0.0; 4];
    // SAFETY: the array takes four numbers.
    unsafe { _mm_storeu_ps(four.as_mut_ptr(), sums) };
    four
}
