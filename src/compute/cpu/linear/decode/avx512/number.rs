//! What decoders of AVX-512 write: f32 numbers, or bf16 numbers that are rounded in registers.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// What is written: 32 numbers at a time.
///
/// # Safety
///
/// Each method needs the instruction set of the number, and room for 32 numbers at `to`, of any alignment.
pub trait Number {
    const BYTES: usize;
    /// Sixteen numbers to choose from.
    type Table: Copy;

    unsafe fn table(numbers: __m512) -> Self::Table;
    /// Two vectors of numbers.
    unsafe fn store(to: *mut u8, low: __m512, high: __m512);
    /// What the low and the high bits of each of 16 bytes name.
    unsafe fn store_pairs(to: *mut u8, codes: __m128i, table: Self::Table);
}

/// f32.
pub struct Singles;

// SAFETY: `to` has room for two vectors, as the trait says.
impl Number for Singles {
    const BYTES: usize = 4;
    type Table = __m512;

    #[inline(always)]
    unsafe fn table(numbers: __m512) -> __m512 {
        numbers
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, low: __m512, high: __m512) {
        // SAFETY: as above.
        unsafe {
            _mm512_storeu_ps(to.cast(), low);
            _mm512_storeu_ps(to.add(64).cast(), high);
        }
    }

    /// The even ones first: the kernel takes `x` in the same order.
    #[inline(always)]
    unsafe fn store_pairs(to: *mut u8, codes: __m128i, table: __m512) {
        // SAFETY: as above. An index is the low four bits of a lane.
        unsafe {
            let low = _mm512_cvtepu8_epi32(codes);
            let high = _mm512_srli_epi32::<4>(low);
            Self::store(to, _mm512_permutexvar_ps(low, table), _mm512_permutexvar_ps(high, table));
        }
    }
}

/// bf16, rounded to nearest even.
pub struct Words;

// SAFETY: `to` has room for a vector, as the trait says.
impl Number for Words {
    const BYTES: usize = 2;
    /// Twice 16 words: an index is the low five bits of a word.
    type Table = __m512i;

    #[inline(always)]
    unsafe fn table(numbers: __m512) -> __m512i {
        // SAFETY: as above.
        unsafe { std::mem::transmute(_mm512_cvtne2ps_pbh(numbers, numbers)) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, low: __m512, high: __m512) {
        // SAFETY: as above.
        unsafe {
            let words: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
            _mm512_storeu_si512(to.cast(), words);
        }
    }

    #[inline(always)]
    unsafe fn store_pairs(to: *mut u8, codes: __m128i, table: __m512i) {
        // SAFETY: as above.
        unsafe {
            let bytes = _mm512_cvtepu8_epi32(codes);
            // The high bits of a byte go to the low bits of the upper word: a product, which takes no port of shuffles.
            let index = _mm512_madd_epi16(bytes, _mm512_set1_epi32(0x1001));
            _mm512_storeu_si512(to.cast(), _mm512_permutexvar_epi16(index, table));
        }
    }
}
