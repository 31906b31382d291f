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
    /// What the low bits of 16 bytes name, then what their high bits name.
    unsafe fn store_nibbles(to: *mut u8, codes: __m128i, table: Self::Table);
    /// [`Number::store_nibbles`] for two places, each with codes and numbers of its own.
    unsafe fn store_two_nibbles(to: [*mut u8; 2], codes: [__m128i; 2], tables: [__m512; 2]);
    /// What the low and the high bits of each of 16 bytes name.
    unsafe fn store_pairs(to: *mut u8, codes: __m128i, table: Self::Table);
    /// What the low bits of 32 bytes name in the first table, to the first place; what their high bits name in the second one, to the second.
    unsafe fn store_halves(to: [*mut u8; 2], codes: __m256i, tables: [__m512; 2]);
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

    #[inline(always)]
    unsafe fn store_nibbles(to: *mut u8, codes: __m128i, table: __m512) {
        // SAFETY: as above. An index is the low four bits of a lane.
        unsafe {
            let low = _mm512_cvtepu8_epi32(codes);
            let high = _mm512_srli_epi32::<4>(low);
            Self::store(to, _mm512_permutexvar_ps(low, table), _mm512_permutexvar_ps(high, table));
        }
    }

    #[inline(always)]
    unsafe fn store_two_nibbles(to: [*mut u8; 2], codes: [__m128i; 2], tables: [__m512; 2]) {
        for i in 0..2 {
            // SAFETY: as above.
            unsafe { Self::store_nibbles(to[i], codes[i], tables[i]) };
        }
    }

    /// The even ones first: the kernel takes `x` in the same order.
    #[inline(always)]
    unsafe fn store_pairs(to: *mut u8, codes: __m128i, table: __m512) {
        // SAFETY: as above.
        unsafe { Self::store_nibbles(to, codes, table) }
    }

    #[inline(always)]
    unsafe fn store_halves(to: [*mut u8; 2], codes: __m256i, [first, second]: [__m512; 2]) {
        // SAFETY: as above, for both places. An index is the low four bits of a lane.
        unsafe {
            let low = _mm512_cvtepu8_epi32(_mm256_castsi256_si128(codes));
            let high = _mm512_cvtepu8_epi32(_mm256_extracti128_si256::<1>(codes));
            Self::store(to[0], _mm512_permutexvar_ps(low, first), _mm512_permutexvar_ps(high, first));
            let (low, high) = (_mm512_srli_epi32::<4>(low), _mm512_srli_epi32::<4>(high));
            Self::store(to[1], _mm512_permutexvar_ps(low, second), _mm512_permutexvar_ps(high, second));
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
    unsafe fn store_nibbles(to: *mut u8, codes: __m128i, table: __m512i) {
        // SAFETY: as above.
        unsafe {
            let low = _mm256_cvtepu8_epi16(codes);
            let high = _mm256_srli_epi16::<4>(low);
            let index = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high);
            _mm512_storeu_si512(to.cast(), _mm512_permutexvar_epi16(index, table));
        }
    }

    #[inline(always)]
    unsafe fn store_two_nibbles(to: [*mut u8; 2], codes: [__m128i; 2], [first, second]: [__m512; 2]) {
        // SAFETY: as above, for both places.
        unsafe {
            // One table of 32 words: the fifth bit of an index chooses between the two.
            let table: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(second, first));
            let (first, second) = (_mm256_cvtepu8_epi16(codes[0]), _mm256_cvtepu8_epi16(codes[1]));
            let first = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(first), _mm256_srli_epi16::<4>(first));
            let second = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(second), _mm256_srli_epi16::<4>(second));
            let codes = _mm512_set1_epi16(15);
            let first = _mm512_and_si512(first, codes);
            // (second & 15) | 16
            let second = _mm512_ternarylogic_epi32::<0xea>(second, codes, _mm512_set1_epi16(16));
            _mm512_storeu_si512(to[0].cast(), _mm512_permutexvar_epi16(first, table));
            _mm512_storeu_si512(to[1].cast(), _mm512_permutexvar_epi16(second, table));
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

    #[inline(always)]
    unsafe fn store_halves(to: [*mut u8; 2], codes: __m256i, [first, second]: [__m512; 2]) {
        // SAFETY: as above, for both places.
        unsafe {
            // One table of 32 words: the fifth bit of an index chooses between the two.
            let table: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(second, first));
            let bytes = _mm512_cvtepu8_epi16(codes);
            let low = _mm512_and_si512(bytes, _mm512_set1_epi16(15));
            let high = _mm512_or_si512(_mm512_srli_epi16::<4>(bytes), _mm512_set1_epi16(16));
            _mm512_storeu_si512(to[0].cast(), _mm512_permutexvar_epi16(low, table));
            _mm512_storeu_si512(to[1].cast(), _mm512_permutexvar_epi16(high, table));
        }
    }
}
