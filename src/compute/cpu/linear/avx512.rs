//! Kernels of AVX-512: sixteen numbers along `k` in a register.
//!
//! Of 32 registers a tile of four rows takes 24 for its sums, six for the columns' weights and one for a row of `x`.
#![allow(unsafe_code)]

use super::kernels::{Kernels, Order, STEP, Sums, Tile, padded_tails, table};
use half::{bf16, f16};
use std::arch::x86_64::*;

// 1,024 numbers of four rows are 16 KiB, half of the first-level cache or less.
pub static BF16: Kernels = table!(Order::EvenOdd(16), 1024, 8, tile<bf16>, [8, 4, 4, 4]);
pub static F16: Kernels = table!(Order::Straight, 1024, 6, tile<f16>, [6, 6, 6, 6]);
pub static F32: Kernels = table!(Order::Straight, 1024, 6, tile<f32>, [6, 6, 6, 6]);
pub static DECODED: Kernels = table!(Order::Straight, 1024, 6, tile<Decoded>, [6, 6, 6, 6]);
pub static DECODED_PAIRS: Kernels = table!(Order::EvenOdd(16), 1024, 6, tile<Decoded>, [6, 6, 6, 6]);

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

    /// Vector `PART` of the two in a step, in the order of [`Kernels::order`].
    ///
    /// # Safety
    ///
    /// The machine has AVX-512, and [`STEP`] numbers can be read at `step`.
    unsafe fn load<const PART: usize>(step: *const u8) -> __m512;
}

// SAFETY: parts 0 and 1 are the even and the odd ones of the 32 numbers.
unsafe impl Weight for bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<const PART: usize>(step: *const u8) -> __m512 {
        // SAFETY: the 64 bytes are the 32 numbers.
        unsafe {
            let pairs = _mm512_loadu_si512(step.cast());
            _mm512_castsi512_ps(match PART {
                0 => _mm512_slli_epi32::<16>(pairs),
                _ => _mm512_and_si512(pairs, _mm512_set1_epi32(0xffff_0000_u32 as i32)),
            })
        }
    }
}

// SAFETY: part `p` is the numbers from `16 p` on.
unsafe impl Weight for f16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<const PART: usize>(step: *const u8) -> __m512 {
        // SAFETY: the 32 bytes begin with number `16 PART` of 32.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(step.add(PART * 32).cast())) }
    }
}

// SAFETY: part `p` is the numbers from `16 p` on.
unsafe impl Weight for f32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<const PART: usize>(step: *const u8) -> __m512 {
        // SAFETY: the 64 bytes begin with number `16 PART` of 32.
        unsafe { _mm512_loadu_ps(step.add(PART * 64).cast()) }
    }
}

// SAFETY: as f32.
unsafe impl Weight for Decoded {
    const BYTES: usize = 4;
    const IS_FETCHED: bool = false;

    #[inline(always)]
    unsafe fn load<const PART: usize>(step: *const u8) -> __m512 {
        // SAFETY: the caller says so.
        unsafe { f32::load::<PART>(step) }
    }
}

/// # Safety
///
/// As [`Kernel`](super::kernels::Kernel).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn tile<W: Weight, const ROWS: usize, const COLUMNS: usize>(tile: &Tile, sums: &mut Sums) {
    let mut lanes = [[_mm512_setzero_ps(); COLUMNS]; ROWS];
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
/// The machine has AVX-512. `x` holds `ROWS * STEP` numbers, and `weight` and each further column `row_bytes` on
/// hold `STEP`.
#[inline(always)]
unsafe fn add<W: Weight, const ROWS: usize, const COLUMNS: usize>(
    lanes: &mut [[__m512; COLUMNS]; ROWS],
    x: *const u8,
    weight: *const u8,
    row_bytes: usize,
) {
    // SAFETY: the caller says so.
    unsafe {
        add_part::<W, 0, ROWS, COLUMNS>(lanes, x, weight, row_bytes);
        add_part::<W, 1, ROWS, COLUMNS>(lanes, x, weight, row_bytes);
    }
}

/// Adds half a step.
///
/// # Safety
///
/// As [`add`].
#[inline(always)]
unsafe fn add_part<W: Weight, const PART: usize, const ROWS: usize, const COLUMNS: usize>(
    lanes: &mut [[__m512; COLUMNS]; ROWS],
    x: *const u8,
    weight: *const u8,
    row_bytes: usize,
) {
    // SAFETY: the caller says so; 16 numbers of each row lie at `PART * 16` of its 32.
    unsafe {
        let mut weights = [_mm512_setzero_ps(); COLUMNS];
        for (column, vector) in weights.iter_mut().enumerate() {
            *vector = W::load::<PART>(weight.add(column * row_bytes));
        }
        for (row, lanes) in lanes.iter_mut().enumerate() {
            let x = _mm512_loadu_ps(x.add((row * STEP + PART * 16) * 4).cast());
            for (lanes, &weight) in lanes.iter_mut().zip(&weights) {
                *lanes = _mm512_fmadd_ps(x, weight, *lanes);
            }
        }
    }
}

/// The sum of each vector: lanes `i` and `i + 8` are added, then `((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))`.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub fn sum_four(vectors: [__m512; 4]) -> [f32; 4] {
    let [a, b, c, d] = vectors.map(|v| _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)));
    let quads = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    let sums = _mm_add_ps(_mm256_castps256_ps128(quads), _mm256_extractf128_ps::<1>(quads));
    let mut four = [0.0; 4];
    // SAFETY: the array takes four numbers.
    unsafe { _mm_storeu_ps(four.as_mut_ptr(), sums) };
    four
}
