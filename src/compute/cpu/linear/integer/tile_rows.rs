//! Rounds 16 rows of `x` at once to integers that are bf16 numbers, for tiles.
#![allow(unsafe_code)]

use super::activations::{CHUNK_GROUPS, Format, LEAST, NARROW_MAX, WIDE_MAX, whole_groups};
use super::{EDGE, STEP};
use crate::cpu::Pool;
use crate::cpu::disjoint::Disjoint;
use std::arch::x86_64::*;

/// What a group of [`EDGE`] rows shares.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct TileGroup {
    pub scales: [f32; EDGE],
    pub scaled_sums: [f32; EDGE],
}

/// Blocks of [`EDGE`] rows as tiles of bf16 numbers. `[block][group]`
#[derive(Clone, Copy)]
pub struct Tiles<'a> {
    pub groups: &'a [TileGroup],
    /// `[row][STEP]`
    pub tiles: &'a [[[u16; STEP]; EDGE]],
}

/// Rounds `x` to tiles. `[tokens, inputs]`
///
/// # Panics
///
/// As `rounded` in `activations`.
pub fn tiles<'a>(
    pool: &Pool,
    scratch: &'a mut [f32],
    x: &[f32],
    (tokens, inputs): (usize, usize),
    format: Format,
) -> Tiles<'a> {
    const TILE: usize = STEP / 2 * EDGE;
    let per_row = inputs / STEP;
    let count = tokens.div_ceil(EDGE) * per_row;
    let (groups, rest) = scratch.split_at_mut(count * size_of::<TileGroup>() / 4);
    let tiles = &mut rest[..count * TILE];
    // SAFETY: `Pages` begin at a page, so that both parts begin at a line of the cache; any bits are valid numbers.
    let (groups, tiles) = unsafe {
        let tiles = tiles.as_mut_ptr().cast::<[[u16; STEP]; EDGE]>();
        (
            std::slice::from_raw_parts_mut(groups.as_mut_ptr().cast::<TileGroup>(), count),
            std::slice::from_raw_parts_mut(tiles, count),
        )
    };
    let (all_groups, all_tiles) = (Disjoint::new(groups), Disjoint::new(tiles));
    let x = whole_groups(x, tokens, inputs);
    pool.for_each(count, CHUNK_GROUPS / EDGE, &|_, range| {
        // SAFETY: the ranges of `for_each` do not overlap.
        let (groups, tiles) = unsafe { (all_groups.part(range.clone()), all_tiles.part(range.clone())) };
        for ((at, group), tile) in range.zip(groups).zip(tiles) {
            let (block, step) = (at / per_row, at % per_row);
            let rows = EDGE.min(tokens - block * EDGE);
            let x = &x[block * EDGE * per_row + step..];
            // SAFETY: this function serves `Isa::Amx`. `x` has `rows` rows of whole groups.
            unsafe { round_tile(x, per_row, rows, format, group, tile) };
        }
    });
    Tiles { groups, tiles }
}

/// Rounds a group of each of `rows` rows, `stride` groups apart. Rows beyond them are zero.
///
/// What rows share is computed for all of them at once, with the bits that `round` in `activations` has for one.
///
/// # Safety
///
/// The machine has AVX512-BF16.
///
/// # Panics
///
/// If `x` has fewer rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn round_tile(
    x: &[[f32; STEP]],
    stride: usize,
    rows: usize,
    format: Format,
    group: &mut TileGroup,
    tile: &mut [[u16; STEP]; EDGE],
) {
    let magnitude = _mm512_set1_epi32(i32::MAX);
    let mut greatest = [_mm512_setzero_si512(); EDGE];
    for (row, to) in greatest.iter_mut().enumerate().take(rows) {
        let [first, second] = load(&x[row * stride]);
        let (first, second) = (_mm512_castps_si512(first), _mm512_castps_si512(second));
        // Positive numbers, infinity and NaN are in the order of their bits.
        *to = _mm512_max_epu32(_mm512_and_si512(first, magnitude), _mm512_and_si512(second, magnitude));
    }
    let greatest = by_row::<false>(greatest);
    let is_finite = _mm512_cmplt_epu32_mask(greatest, _mm512_set1_epi32(f32::INFINITY.to_bits() as i32));
    let greatest = _mm512_castsi512_ps(greatest);
    let counts = is_finite & _mm512_cmp_ps_mask::<_CMP_GE_OQ>(greatest, _mm512_set1_ps(LEAST));
    let most = _mm512_set1_ps(if format.is_wide { WIDE_MAX } else { NARROW_MAX });
    let scales = _mm512_maskz_div_ps(counts, greatest, most);
    let scales = _mm512_mask_mov_ps(_mm512_set1_ps(f32::NAN), is_finite, scales);
    let mut inverses = [0.0f32; EDGE];
    let mut sums = [_mm512_setzero_si512(); EDGE];
    // SAFETY: the arrays have 16 numbers.
    unsafe {
        _mm512_storeu_ps(inverses.as_mut_ptr(), _mm512_maskz_div_ps(counts, most, greatest));
        _mm512_store_ps(group.scales.as_mut_ptr(), scales);
    }
    for (row, to) in tile.iter_mut().enumerate() {
        if counts >> row & 1 == 0 {
            *to = [0; STEP];
            continue;
        }
        let inverse = _mm512_set1_ps(inverses[row]);
        let [first, second] = load(&x[row * stride]);
        let integers =
            [to_integers(_mm512_mul_ps(first, inverse), format), to_integers(_mm512_mul_ps(second, inverse), format)];
        sums[row] = _mm512_castps_si512(_mm512_add_ps(integers[0], integers[1]));
        // SAFETY: the caller says so.
        unsafe { write_bf16(integers, format, to) };
    }
    let sums = by_row::<true>(sums);
    // SAFETY: the array has 16 numbers.
    unsafe { _mm512_store_ps(group.scaled_sums.as_mut_ptr(), _mm512_mul_ps(scales, _mm512_castsi512_ps(sums))) };
}

/// Both halves of a group.
#[inline]
#[target_feature(enable = "avx512f")]
fn load(x: &[f32; STEP]) -> [__m512; 2] {
    // SAFETY: the array has two vectors.
    unsafe { [_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(EDGE))] }
}

/// The sum of each row's f32 numbers, added in any order, or the greatest of its unsigned ones.
#[inline]
#[target_feature(enable = "avx512f")]
fn by_row<const SUM: bool>(rows: [__m512i; EDGE]) -> __m512i {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn join<const SUM: bool>(a: __m512i, b: __m512i) -> __m512i {
        match SUM {
            true => _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b))),
            false => _mm512_max_epu32(a, b),
        }
    }
    let mut pairs = [_mm512_setzero_si512(); EDGE / 2];
    for (i, to) in pairs.iter_mut().enumerate() {
        let (a, b) = (rows[i], rows[i + 8]);
        *to = join::<SUM>(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    }
    let mut fours = [_mm512_setzero_si512(); EDGE / 4];
    for (i, to) in fours.iter_mut().enumerate() {
        let (a, b) = (pairs[i], pairs[i + 4]);
        *to = join::<SUM>(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    }
    // Each quarter of `fours[i]` has rows i, i + 8, i + 4, i + 12.
    let mut eights = [_mm512_setzero_si512(); EDGE / 8];
    for (i, to) in eights.iter_mut().enumerate() {
        let (a, b) = (fours[2 * i], fours[2 * i + 1]);
        *to = join::<SUM>(_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
    }
    let (a, b) = (eights[0], eights[1]);
    let all = join::<SUM>(_mm512_shuffle_i32x4::<0x88>(a, b), _mm512_shuffle_i32x4::<0xdd>(a, b));
    // Quarter q has rows q, q + 8, q + 4, q + 12.
    let order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 1, 5, 9, 13, 3, 7, 11, 15);
    _mm512_permutexvar_epi32(order, all)
}

/// Rounded to integers.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn to_integers(numbers: __m512, format: Format) -> __m512 {
    let numbers = if format.is_wide { from_words(to_words(numbers)) } else { numbers };
    _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(numbers)
}

/// Rounded to bf16.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn to_words(numbers: __m512) -> __m256i {
    // SAFETY: both are 32 bytes that may hold anything.
    unsafe { std::mem::transmute(_mm512_cvtneps_pbh(numbers)) }
}

/// Of bf16 numbers.
#[inline]
#[target_feature(enable = "avx512f")]
fn from_words(words: __m256i) -> __m512 {
    _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(words)))
}

/// The words of both halves of a group in the order of the format.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn ordered(first: __m256i, second: __m256i, format: Format) -> __m512i {
    const EVEN_ODD: [u16; STEP] = {
        let (mut order, mut i) = ([0; STEP], 0);
        while i < STEP {
            order[i] = (2 * (i % (STEP / 2)) + i / (STEP / 2)) as u16;
            i += 1;
        }
        order
    };
    let words = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second);
    match format.is_pairs {
        // SAFETY: the array has 64 bytes.
        true => _mm512_permutexvar_epi16(unsafe { _mm512_loadu_si512(EVEN_ODD.as_ptr().cast()) }, words),
        false => words,
    }
}

/// Writes bf16 numbers.
///
/// # Safety
///
/// The machine has AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn write_bf16(integers: [__m512; 2], format: Format, to: &mut [u16; STEP]) {
    let [first, second] = integers;
    let words = ordered(to_words(first), to_words(second), format);
    // SAFETY: the array has 64 bytes.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) };
}
