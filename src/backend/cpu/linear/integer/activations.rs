//! Rounds `x` to integers, in groups of [`STEP`] numbers of a row that share a scale.
//!
//! | precision | greatest integer | beside codes of |
//! |-----------|------------------|-----------------|
//! | wide      | 2,040, of eight significant bits | more than four bits |
//! | narrow    | 127              | four bits       |
//!
//! Wide integers are the group's numbers rounded to bf16, and then to the scale: all of them are bf16 numbers, and two digits of eight bits.
//! The sum of the products of 32 of them with codes below 256 is below 2^24, so that even f32 numbers hold every part of it exactly.
//!
//! A group whose numbers are all zero, or too small to matter in f32, has the scale zero. A group with an infinity or a NaN has the scale NaN.
#![allow(unsafe_code)]

use super::super::kernels::STEP;
use crate::backend::cpu::Pool;
use crate::backend::cpu::amx::EDGE;
use crate::backend::cpu::disjoint::Disjoint;
use std::arch::x86_64::*;

/// Groups that are worth a thread's waking up.
const CHUNK_GROUPS: usize = 512;

/// The greatest wide integer: of eight significant bits, and 32 times it times 255 is below 2^24.
const WIDE_MAX: f32 = 2040.0;
/// The greatest narrow integer.
const NARROW_MAX: f32 = 127.0;
/// Numbers of a group below it are taken for zeros, so that no scale is a denormal number.
const LEAST: f32 = f32::MIN_POSITIVE * 4096.0;

/// How `x` is rounded, and in which order the numbers of a group lie.
#[derive(Clone, Copy)]
pub struct Format {
    /// Whether integers are wide.
    pub is_wide: bool,
    /// The even ones of a group, then the odd ones.
    pub is_pairs: bool,
}

/// What a group of a row shares.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Group {
    pub scale: f32,
    /// The sums of the first 16 integers and of the others.
    pub halves: [f32; 2],
    /// The scale times the sum of all.
    pub scaled_sum: f32,
}

/// Rows as digits: a wide integer is `64 * high + low`, both signed. `[row][group]`
#[derive(Clone, Copy)]
pub struct Digits<'a> {
    groups: &'a [Group],
    /// High digits of a group and then its low ones, or the narrow integers.
    bytes: &'a [u8],
    /// Groups of a row.
    per_row: usize,
    /// Bytes of a group.
    group_bytes: usize,
}

impl Digits<'_> {
    /// Where row `row` begins.
    pub fn row(&self, row: usize) -> (*const Group, *const u8) {
        let first = row * self.per_row;
        (self.groups[first..].as_ptr(), self.bytes[first * self.group_bytes..].as_ptr())
    }
}

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

/// Rounds `x` to digits. `[tokens, inputs]`
///
/// # Panics
///
/// If the scratch is too small, or a row has no whole groups: such a matrix is not kept in a coding.
pub fn digits<'a>(
    pool: &Pool,
    scratch: &'a mut [f32],
    x: &[f32],
    (tokens, inputs): (usize, usize),
    format: Format,
) -> Digits<'a> {
    let per_row = inputs / STEP;
    let (count, group_bytes) = (tokens * per_row, if format.is_wide { 2 * STEP } else { STEP });
    let (groups, rest) = scratch.split_at_mut(count * size_of::<Group>() / 4);
    let bytes: &mut [u8] = &mut bytemuck::cast_slice_mut(rest)[..count * group_bytes];
    // SAFETY: `Pages` begin at a page, and any bits are valid f32 numbers.
    let groups = unsafe { std::slice::from_raw_parts_mut(groups.as_mut_ptr().cast::<Group>(), count) };
    let (all_groups, all_bytes) = (Disjoint::new(groups), Disjoint::new(bytes));
    let x = whole_groups(x, tokens, inputs);
    pool.for_each(count, CHUNK_GROUPS, &|_, range| {
        // SAFETY: the ranges of `for_each` do not overlap.
        let (groups, bytes) = unsafe {
            let bytes = range.start * group_bytes..range.end * group_bytes;
            (all_groups.part(range.clone()), all_bytes.part(bytes))
        };
        for ((x, group), to) in x[range].iter().zip(groups).zip(bytes.chunks_exact_mut(group_bytes)) {
            // SAFETY: this module serves `Isa::Avx512Bf16` and better.
            unsafe {
                let rounded = round(x, format);
                *group = rounded.group;
                write_digits(rounded, format, to);
            }
        }
    });
    Digits { groups, bytes, per_row, group_bytes }
}

/// Rounds `x` to tiles. `[tokens, inputs]`
///
/// # Panics
///
/// As [`digits`].
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
            *group = TileGroup { scales: [0.0; EDGE], scaled_sums: [0.0; EDGE] };
            tile[rows..].fill([0; STEP]);
            for (row, to) in tile[..rows].iter_mut().enumerate() {
                // SAFETY: this module serves `Isa::Avx512Bf16` and better.
                unsafe {
                    let rounded = round(&x[(block * EDGE + row) * per_row + step], format);
                    (group.scales[row], group.scaled_sums[row]) = (rounded.group.scale, rounded.group.scaled_sum);
                    write_bf16(rounded, format, to);
                }
            }
        }
    });
    Tiles { groups, tiles }
}

/// The groups of all rows.
fn whole_groups(x: &[f32], tokens: usize, inputs: usize) -> &[[f32; STEP]] {
    assert!(inputs.is_multiple_of(STEP), "a coded row of {inputs} numbers");
    &x.as_chunks::<STEP>().0[..tokens * (inputs / STEP)]
}

/// A group, rounded.
struct Rounded {
    group: Group,
    /// The integers.
    integers: [__m512; 2],
}

/// Rounds a group.
///
/// # Safety
///
/// The machine has AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn round(x: &[f32; STEP], format: Format) -> Rounded {
    /// Quiet and signaling NaN, both infinities.
    const NOT_FINITE: i32 = 0x99;
    // SAFETY: the array has two vectors.
    let x = unsafe { [_mm512_loadu_ps(x.as_ptr()), _mm512_loadu_ps(x.as_ptr().add(EDGE))] };
    let greatest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(x[0]), _mm512_abs_ps(x[1])));
    let is_finite = (_mm512_fpclass_ps_mask::<NOT_FINITE>(x[0]) | _mm512_fpclass_ps_mask::<NOT_FINITE>(x[1])) == 0;
    if !is_finite || greatest < LEAST {
        let scale = if is_finite { 0.0 } else { f32::NAN };
        let group = Group { scale, halves: [0.0; 2], scaled_sum: scale };
        return Rounded { group, integers: [_mm512_setzero_ps(); 2] };
    }
    let most = if format.is_wide { WIDE_MAX } else { NARROW_MAX };
    let (scale, inverse) = (greatest / most, _mm512_set1_ps(most / greatest));
    let mut integers = [_mm512_setzero_ps(); 2];
    let mut halves = [0.0; 2];
    for (half, to) in integers.iter_mut().enumerate() {
        let mut number = _mm512_mul_ps(x[half], inverse);
        if format.is_wide {
            number = from_words(to_words(number));
        }
        *to = _mm512_roundscale_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(number);
        halves[half] = _mm512_reduce_add_ps(*to);
    }
    let scaled_sum = scale * (halves[0] + halves[1]);
    Rounded { group: Group { scale, halves, scaled_sum }, integers }
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

/// Writes high digits and then low ones, or narrow integers.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn write_digits(rounded: Rounded, format: Format, to: &mut [u8]) {
    let [first, second] = rounded.integers;
    let [first, second] =
        [_mm512_cvtepi32_epi16(_mm512_cvtps_epi32(first)), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(second))];
    let integers = ordered(first, second, format);
    let (digits, _) = to.as_chunks_mut::<STEP>();
    if let [high_digits, low_digits] = digits {
        let high = _mm512_srai_epi16::<6>(_mm512_add_epi16(integers, _mm512_set1_epi16(32)));
        let low = _mm512_sub_epi16(integers, _mm512_slli_epi16::<6>(high));
        // SAFETY: both have 32 bytes.
        unsafe {
            _mm256_storeu_si256(high_digits.as_mut_ptr().cast(), _mm512_cvtepi16_epi8(high));
            _mm256_storeu_si256(low_digits.as_mut_ptr().cast(), _mm512_cvtepi16_epi8(low));
        }
    } else {
        // SAFETY: a narrow group has 32 bytes, which the slice has by its index.
        unsafe { _mm256_storeu_si256(digits[0].as_mut_ptr().cast(), _mm512_cvtepi16_epi8(integers)) };
    }
}

/// Writes bf16 numbers.
///
/// # Safety
///
/// The machine has AVX512-BF16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn write_bf16(rounded: Rounded, format: Format, to: &mut [u16; STEP]) {
    let [first, second] = rounded.integers;
    let words = ordered(to_words(first), to_words(second), format);
    // SAFETY: the array has 64 bytes.
    unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), words) };
}
