//! The codes and the scales of 16 columns, for each coding.
//!
//! Codes are unsigned bytes. What is taken from them, their zero, is known, or is one of the numbers that come with the scales.
#![allow(unsafe_code)]

use super::super::kernels::STEP;
use super::activations::Format;
use crate::backend::cpu::amx::EDGE;
use crate::backend::cpu::matrix::Segment;
use crate::backend::{Block, Coding, IQ4};
use std::arch::asm;
use std::arch::x86_64::*;

/// Steps of a piece of a row: 256 numbers.
pub const PIECE_STEPS: usize = 8;

/// Where the bytes of [`EDGE`] columns lie.
pub struct Columns {
    codes: [*const u8; EDGE],
    scales: [*const u8; EDGE],
    zeros: [*const u8; EDGE],
}

impl Columns {
    /// Those of `segment` from `first` on. In place of a column beyond the last one stands the last one, whose sums are not stored twice.
    pub fn new(segment: &Segment, first: usize) -> Columns {
        let last = segment.rows.len() - 1;
        let plane = |plane: &[u8], row_bytes: usize| -> [*const u8; EDGE] {
            std::array::from_fn(|column| plane[(first + column).min(last) * row_bytes..].as_ptr())
        };
        let [code_bytes, scale_bytes, zero_bytes] = segment.row_bytes;
        Columns {
            codes: plane(segment.bytes, code_bytes),
            scales: plane(segment.scales, scale_bytes),
            zeros: plane(segment.zeros, zero_bytes),
        }
    }
}

/// The numbers of 16 columns that belong to the codes of a piece.
#[repr(C, align(64))]
pub struct Factors {
    /// For each step, or for each half of one.
    pub scales: [[f32; EDGE]; 2 * PIECE_STEPS],
    /// For each step, its minima or its zeros.
    pub seconds: [[f32; EDGE]; PIECE_STEPS],
}

impl Factors {
    pub const EMPTY: Factors = Factors { scales: [[0.0; EDGE]; 2 * PIECE_STEPS], seconds: [[0.0; EDGE]; PIECE_STEPS] };
}

/// What [`Factors::seconds`] are, and what is taken from codes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Second {
    /// Nothing. All codes have this zero.
    Zero(u8),
    /// What is added for each one of `x`. Codes have no zero.
    Minima,
    /// The zeros of each column.
    Zeros,
}

/// The 64 codes of a step of two columns: columns `i` and `4 + i` for `i` below 4, and then `4 + i` and `8 + i`.
pub type StepCodes = [__m512i; EDGE / 2];

/// A coding.
pub trait Integers {
    /// How `x` is rounded, and the order of codes in a step.
    const FORMAT: Format;
    /// Whether each half of a step has a scale of its own.
    const HAS_HALVES: bool = false;
    /// What belongs to the codes besides scales.
    const SECOND: Second;
    /// Bytes of the codes of a step and a column, rounded up.
    const STEP_BYTES: usize;

    /// Reads what belongs to the codes of `STEPS` steps from number `first` on: [`PIECE_STEPS`], or 1 where blocks are no longer.
    ///
    /// # Safety
    ///
    /// The machine has AVX-512 and F16C, and the columns have these steps.
    unsafe fn factors<const STEPS: usize>(coding: Coding, columns: &Columns, first: usize, to: &mut Factors);

    /// The codes of the `step`-th step from number `first` on, a multiple of a piece where blocks are that long.
    ///
    /// # Safety
    ///
    /// The machine has AVX-512, and the columns have this step.
    unsafe fn codes(columns: &Columns, first: usize, step: usize) -> StepCodes;
}

const WIDE: Format = Format { is_wide: true, is_pairs: false };
const NARROW: Format = Format { is_wide: false, is_pairs: false };

/// The two columns of the `i`-th vector of codes.
#[inline(always)]
const fn pair(i: usize) -> (usize, usize) {
    let first = if i < 4 { i } else { 4 + i };
    (first, first + 4)
}

/// Thirty-two bytes of each of two columns, `at` bytes from their beginning.
///
/// # Safety
///
/// The machine has AVX-512. They can be read.
#[inline(always)]
unsafe fn two(columns: &Columns, i: usize, at: usize) -> __m512i {
    let (first, second) = pair(i);
    // SAFETY: the caller says so.
    unsafe {
        let first = _mm256_loadu_si256(columns.codes[first].add(at).cast());
        let second = _mm256_loadu_si256(columns.codes[second].add(at).cast());
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), second)
    }
}

/// The 32 codes of four bits of each of two columns whose low bits are the first 16.
///
/// # Safety
///
/// The machine has AVX-512. Sixteen bytes can be read, `at` bytes from the beginning of the columns.
#[inline(always)]
unsafe fn two_of_nibbles(columns: &Columns, i: usize, at: usize) -> __m512i {
    let (first, second) = pair(i);
    // SAFETY: the caller says so.
    unsafe {
        let both = _mm512_broadcast_i32x4(_mm_loadu_si128(columns.codes[first].add(at).cast()));
        let second = _mm_loadu_si128(columns.codes[second].add(at).cast());
        let both = _mm512_mask_broadcast_i32x4(both, 0xff00, second);
        let shift = _mm512_set_epi64(HIGH, HIGH, 0, 0, HIGH, HIGH, 0, 0);
        _mm512_and_si512(_mm512_srlv_epi16(both, shift), _mm512_set1_epi8(15))
    }
}

/// Four words that are shifted by four.
const HIGH: i64 = 0x0004_0004_0004_0004;

/// `at`, of which the compiler then knows nothing: it would keep an address for each column and use of it, and advance dozens of them on the
/// stack in every step.
#[inline(always)]
fn opaque(mut at: usize) -> usize {
    // SAFETY: no instruction is added.
    unsafe { asm!("/* {0} */", inout(reg) at, options(pure, nomem, nostack, preserves_flags)) };
    at
}

/// `$vectors` for each vector of codes. A loop and no closure: closures do not always become part of a function with these instructions.
macro_rules! vectors {
    ($i:ident => $vector:expr) => {{
        let mut vectors = [_mm512_setzero_si512(); EDGE / 2];
        for ($i, to) in vectors.iter_mut().enumerate() {
            *to = $vector;
        }
        vectors
    }};
}

/// A number of `T` from each column, `at` bytes from the beginning of a plane, one after the other. By scalar instructions: the compiler would
/// insert each into a vector, which takes the port of shuffles.
///
/// # Safety
///
/// They can be read.
#[inline(always)]
unsafe fn gathered<T: Copy + Default>(plane: &[*const u8; EDGE], at: usize) -> [T; EDGE] {
    let mut numbers = [T::default(); EDGE];
    for (to, column) in numbers.iter_mut().zip(plane) {
        // SAFETY: the caller says so.
        unsafe { std::ptr::write_volatile(to, column.add(at).cast::<T>().read_unaligned()) };
    }
    numbers
}

/// The half-precision number of each column at `at` in its codes.
///
/// # Safety
///
/// The machine has AVX-512 and F16C. They can be read.
#[inline(always)]
unsafe fn halves(columns: &Columns, at: usize) -> __m512 {
    // SAFETY: the caller says so; the array has 32 bytes.
    unsafe {
        let halves: [u16; EDGE] = gathered(&columns.codes, at);
        _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().cast()))
    }
}

/// Sixteen bytes of each column at `at` in its codes, as four vectors of four bytes of each.
///
/// # Safety
///
/// The machine has AVX-512. They can be read.
#[inline(always)]
unsafe fn four_words(columns: &Columns, at: usize) -> [__m512i; 4] {
    // SAFETY: the caller says so.
    unsafe {
        let mut rows = [_mm512_setzero_si512(); 4];
        for (i, row) in rows.iter_mut().enumerate() {
            let [a, b, c, d] = [i, 4 + i, 8 + i, 12 + i];
            *row = _mm512_castsi128_si512(_mm_loadu_si128(columns.codes[a].add(at).cast()));
            *row = _mm512_inserti32x4::<1>(*row, _mm_loadu_si128(columns.codes[b].add(at).cast()));
            *row = _mm512_inserti32x4::<2>(*row, _mm_loadu_si128(columns.codes[c].add(at).cast()));
            *row = _mm512_inserti32x4::<3>(*row, _mm_loadu_si128(columns.codes[d].add(at).cast()));
        }
        transposed_fours(rows)
    }
}

/// In each quarter of the vectors: columns as rows.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
pub unsafe fn transposed_fours(rows: [__m512i; 4]) -> [__m512i; 4] {
    let [a, b, c, d] = rows;
    // SAFETY: the caller says so.
    unsafe {
        let (low, high) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
        let (next_low, next_high) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
        [
            _mm512_unpacklo_epi64(low, next_low),
            _mm512_unpackhi_epi64(low, next_low),
            _mm512_unpacklo_epi64(high, next_high),
            _mm512_unpackhi_epi64(high, next_high),
        ]
    }
}

/// Byte `i` of each 32 bits, unsigned.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn byte(words: __m512i, i: usize) -> __m512 {
    // SAFETY: the caller says so.
    unsafe {
        let shifted = _mm512_srlv_epi32(words, _mm512_set1_epi32(8 * i as i32));
        _mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(255)))
    }
}

/// Byte `i` of each 32 bits, signed.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn signed_byte(words: __m512i, i: usize) -> __m512 {
    // SAFETY: the caller says so.
    unsafe {
        let shifted = _mm512_sllv_epi32(words, _mm512_set1_epi32(24 - 8 * i as i32));
        _mm512_cvtepi32_ps(_mm512_srai_epi32::<24>(shifted))
    }
}

/// Writes 16 numbers.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn put(to: &mut [f32; EDGE], numbers: __m512) {
    // SAFETY: the caller says so; the array has 16 numbers.
    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), numbers) }
}

/// The bits of `low` where `mask` has ones, and of `high` elsewhere.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn select(mask: __m512i, low: __m512i, high: __m512i) -> __m512i {
    // SAFETY: the caller says so.
    unsafe { _mm512_ternarylogic_epi32::<0xca>(mask, low, high) }
}

/// Each 32 bits rotated to the left. Within a byte, bits come to the place that they would have by a shift of the byte.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn rotated(words: __m512i, left: i32) -> __m512i {
    // SAFETY: the caller says so.
    unsafe { _mm512_rolv_epi32(words, _mm512_set1_epi32(left & 31)) }
}

mod planes;

pub use planes::{Bytes, Pairs};

/// Blocks of 32 numbers that begin with a scale, and with a minimum where the coding has minima.
macro_rules! blocks_of_32 {
    ($(#[$doc:meta])* $name:ident, $block:expr, $format:expr, $second:expr, |$columns:ident, $i:ident, $at:ident| $codes:expr) => {
        $(#[$doc])*
        pub struct $name;

        impl Integers for $name {
            const FORMAT: Format = $format;
            const SECOND: Second = $second;
            const STEP_BYTES: usize = $block.bytes();

            #[inline(always)]
            unsafe fn factors<const STEPS: usize>(_: Coding, columns: &Columns, first: usize, to: &mut Factors) {
                for step in 0..STEPS {
                    let at = opaque((first / STEP + step) * $block.bytes());
                    // SAFETY: the caller says that the columns have these blocks.
                    unsafe {
                        put(&mut to.scales[step], halves(columns, at));
                        if let Second::Minima = Self::SECOND {
                            put(&mut to.seconds[step], halves(columns, at + 2));
                        }
                    }
                }
            }

            #[inline(always)]
            unsafe fn codes($columns: &Columns, first: usize, step: usize) -> StepCodes {
                let $at = opaque((first / STEP + step) * $block.bytes());
                // SAFETY: the caller says that the columns have this block.
                unsafe { vectors!($i => $codes) }
            }
        }
    };
}

blocks_of_32!(
    /// [`Block::Q8_0`]
    Q8_0, Block::Q8_0, WIDE, Second::Zero(128),
    |columns, i, at| _mm512_xor_si512(two(columns, i, at + 2), _mm512_set1_epi8(-128))
);
blocks_of_32!(
    /// [`Block::Q4_0`]
    Q4_0, Block::Q4_0, NARROW, Second::Zero(8),
    |columns, i, at| two_of_nibbles(columns, i, at + 2)
);
blocks_of_32!(
    /// [`Block::Q4_1`]
    Q4_1, Block::Q4_1, NARROW, Second::Minima,
    |columns, i, at| two_of_nibbles(columns, i, at + 4)
);
blocks_of_32!(
    /// [`Block::Q5_0`]
    Q5_0, Block::Q5_0, WIDE, Second::Zero(16),
    |columns, i, at| with_fifth_bits(columns, i, at + 2)
);
blocks_of_32!(
    /// [`Block::Q5_1`]
    Q5_1, Block::Q5_1, WIDE, Second::Minima,
    |columns, i, at| with_fifth_bits(columns, i, at + 4)
);
blocks_of_32!(
    /// [`Block::Iq4Nl`]
    Iq4Nl, Block::Iq4Nl, NARROW, Second::Zero(128),
    |columns, i, at| from_table(two_of_nibbles(columns, i, at + 2))
);

/// Codes of four bits whose fifth bits are the 32 bits before them.
///
/// # Safety
///
/// The machine has AVX-512. Twenty bytes can be read, `at` bytes from the beginning of the columns.
#[inline(always)]
unsafe fn with_fifth_bits(columns: &Columns, i: usize, at: usize) -> __m512i {
    let (first, second) = pair(i);
    // SAFETY: the caller says so.
    unsafe {
        let low = two_of_nibbles(columns, i, at + 4);
        let fifth = |column: usize| u64::from(columns.codes[column].add(at).cast::<u32>().read_unaligned());
        let fifth = fifth(first) | fifth(second) << 32;
        _mm512_mask_add_epi8(low, fifth, low, _mm512_set1_epi8(16))
    }
}

/// The numbers of [`IQ4`] that codes stand for, and 128.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn from_table(codes: __m512i) -> __m512i {
    const TABLE: [u8; 16] = {
        let (mut table, mut i) = ([0; 16], 0);
        while i < table.len() {
            table[i] = (IQ4[i] as i16 + 128) as u8;
            i += 1;
        }
        table
    };
    // SAFETY: the caller says so; the table has 16 bytes.
    unsafe {
        let table = _mm512_broadcast_i32x4(_mm_loadu_si128(TABLE.as_ptr().cast()));
        _mm512_shuffle_epi8(table, codes)
    }
}

/// Eight scales and minima of the blocks of [`Block::Q4K`] or [`Block::Q5K`] at `at`, as `scale_and_min` takes them from their 12 bytes.
///
/// # Safety
///
/// The machine has AVX-512 and F16C. Sixteen bytes can be read.
#[inline(always)]
unsafe fn scales_and_minima(columns: &Columns, at: usize, to: &mut Factors) {
    // SAFETY: the caller says so.
    unsafe {
        let [factors, scales, minima, high] = four_words(columns, at);
        let (low_six, low_four, two) =
            (_mm512_set1_epi32(0x3f3f_3f3f), _mm512_set1_epi32(0x0f0f_0f0f), _mm512_set1_epi32(0x3030_3030));
        let d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(factors));
        let e = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(factors)));
        // What is taken away is added with another sign.
        let e = _mm512_xor_ps(e, _mm512_set1_ps(-0.0));
        let upper = [_mm512_srli_epi32::<2>(scales), _mm512_srli_epi32::<2>(minima)];
        let upper = [_mm512_and_si512(upper[0], two), _mm512_and_si512(upper[1], two)];
        let (high, next_high) = (_mm512_and_si512(high, low_four), _mm512_srli_epi32::<4>(high));
        let next_high = _mm512_and_si512(next_high, low_four);
        let scales = [_mm512_and_si512(scales, low_six), _mm512_or_si512(high, upper[0])];
        let minima = [_mm512_and_si512(minima, low_six), _mm512_or_si512(next_high, upper[1])];
        for j in 0..PIECE_STEPS {
            put(&mut to.scales[j], _mm512_mul_ps(d, byte(scales[j / 4], j % 4)));
            put(&mut to.seconds[j], _mm512_mul_ps(e, byte(minima[j / 4], j % 4)));
        }
    }
}

/// The block of number `first`, of 256 numbers.
#[inline(always)]
fn whole_block<const STEPS: usize>(block: Block, first: usize) -> usize {
    assert!(STEPS == PIECE_STEPS, "{} is read in blocks", block.name());
    first / block.numbers() * block.bytes()
}

/// [`Block::Q4K`]
pub struct Q4K;

impl Integers for Q4K {
    const FORMAT: Format = NARROW;
    const SECOND: Second = Second::Minima;
    const STEP_BYTES: usize = Block::Q4K.bytes().div_ceil(PIECE_STEPS);

    #[inline(always)]
    unsafe fn factors<const STEPS: usize>(_: Coding, columns: &Columns, first: usize, to: &mut Factors) {
        // SAFETY: the caller says that the columns have this block.
        unsafe { scales_and_minima(columns, whole_block::<STEPS>(Block::Q4K, first), to) }
    }

    #[inline(always)]
    unsafe fn codes(columns: &Columns, first: usize, step: usize) -> StepCodes {
        let at = opaque(whole_block::<PIECE_STEPS>(Block::Q4K, first) + 16 + step / 2 * 32);
        // SAFETY: the caller says that the columns have this block.
        unsafe {
            let four = _mm512_set1_epi8(15);
            vectors!(i => _mm512_and_si512(rotated(two(columns, i, at), -4 * (step as i32 % 2)), four))
        }
    }
}

/// [`Block::Q5K`]
pub struct Q5K;

impl Integers for Q5K {
    const FORMAT: Format = WIDE;
    const SECOND: Second = Second::Minima;
    const STEP_BYTES: usize = Block::Q5K.bytes().div_ceil(PIECE_STEPS);

    #[inline(always)]
    unsafe fn factors<const STEPS: usize>(_: Coding, columns: &Columns, first: usize, to: &mut Factors) {
        // SAFETY: the caller says that the columns have this block.
        unsafe { scales_and_minima(columns, whole_block::<STEPS>(Block::Q5K, first), to) }
    }

    #[inline(always)]
    unsafe fn codes(columns: &Columns, first: usize, step: usize) -> StepCodes {
        let block = opaque(whole_block::<PIECE_STEPS>(Block::Q5K, first));
        // SAFETY: the caller says that the columns have this block.
        unsafe {
            let low_at = opaque(block + 48 + step / 2 * 32);
            let (four, five) = (_mm512_set1_epi8(15), _mm512_set1_epi8(31));
            vectors!(i => {
                let low = rotated(two(columns, i, low_at), -4 * (step as i32 % 2));
                let fifth = rotated(two(columns, i, block + 16), 4 - step as i32);
                _mm512_and_si512(select(four, low, fifth), five)
            })
        }
    }
}

/// [`Block::Q6K`]
pub struct Q6K;

impl Integers for Q6K {
    const FORMAT: Format = WIDE;
    const HAS_HALVES: bool = true;
    const SECOND: Second = Second::Zero(32);
    const STEP_BYTES: usize = Block::Q6K.bytes().div_ceil(PIECE_STEPS);

    #[inline(always)]
    unsafe fn factors<const STEPS: usize>(_: Coding, columns: &Columns, first: usize, to: &mut Factors) {
        let at = whole_block::<STEPS>(Block::Q6K, first);
        // SAFETY: the caller says that the columns have this block.
        unsafe {
            let (d, scales) = (halves(columns, at + 208), four_words(columns, at + 192));
            for (k, to) in to.scales.iter_mut().enumerate() {
                put(to, _mm512_mul_ps(d, signed_byte(scales[k / 4], k % 4)));
            }
        }
    }

    #[inline(always)]
    unsafe fn codes(columns: &Columns, first: usize, step: usize) -> StepCodes {
        let block = whole_block::<PIECE_STEPS>(Block::Q6K, first);
        let (part, quarter) = (step / 4, step % 4);
        let (low_at, high_at) = (opaque(block + part * 64 + quarter % 2 * 32), opaque(block + 128 + part * 32));
        // SAFETY: the caller says that the columns have this block.
        unsafe {
            let (four, six) = (_mm512_set1_epi8(15), _mm512_set1_epi8(63));
            vectors!(i => {
                let low = rotated(two(columns, i, low_at), -4 * (quarter as i32 / 2));
                let high = rotated(two(columns, i, high_at), 4 - 2 * quarter as i32);
                _mm512_and_si512(select(four, low, high), six)
            })
        }
    }
}

/// [`Block::Iq4Xs`]
pub struct Iq4Xs;

impl Integers for Iq4Xs {
    const FORMAT: Format = NARROW;
    const SECOND: Second = Second::Zero(128);
    const STEP_BYTES: usize = Block::Iq4Xs.bytes().div_ceil(PIECE_STEPS);

    #[inline(always)]
    unsafe fn factors<const STEPS: usize>(_: Coding, columns: &Columns, first: usize, to: &mut Factors) {
        let at = whole_block::<STEPS>(Block::Iq4Xs, first);
        // SAFETY: the caller says that the columns have this block; the arrays have 64 bytes.
        unsafe {
            let (high, low): ([u32; EDGE], [u32; EDGE]) =
                (gathered(&columns.codes, at), gathered(&columns.codes, at + 4));
            let (factors, low) = (_mm512_loadu_si512(high.as_ptr().cast()), _mm512_loadu_si512(low.as_ptr().cast()));
            let d = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(factors));
            let high = _mm512_srli_epi32::<16>(factors);
            for j in 0..PIECE_STEPS {
                let low = _mm512_srlv_epi32(low, _mm512_set1_epi32(4 * j as i32));
                let high = _mm512_srlv_epi32(high, _mm512_set1_epi32(2 * j as i32));
                let high = _mm512_slli_epi32::<4>(_mm512_and_si512(high, _mm512_set1_epi32(3)));
                let scale = _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi32(15)), high);
                let scale = _mm512_cvtepi32_ps(_mm512_sub_epi32(scale, _mm512_set1_epi32(32)));
                put(&mut to.scales[j], _mm512_mul_ps(d, scale));
            }
        }
    }

    #[inline(always)]
    unsafe fn codes(columns: &Columns, first: usize, step: usize) -> StepCodes {
        let at = opaque(whole_block::<PIECE_STEPS>(Block::Iq4Xs, first) + 8 + step * 16);
        // SAFETY: the caller says that the columns have this block.
        unsafe { vectors!(i => from_table(two_of_nibbles(columns, i, at))) }
    }
}
