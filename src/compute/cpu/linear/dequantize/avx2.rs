//! AVX2: codes become integers of 32 bits, then f32 numbers. Codes of four bits come in groups of 16: the even ones, then the odd ones.
#![allow(unsafe_code)]

use super::Dequantizer;
use super::vectors::{Number, dequantizer};
use crate::cpu::lanes::each;
use formats::{Codes, E2M1};
use std::arch::x86_64::*;

pub fn to_f32(codes: Codes) -> Dequantizer {
    dequantizer!(codes, Avx2, "avx2,fma,f16c")
}

struct Avx2;

/// Writes vector `i` of a step.
///
/// # Safety
///
/// The machine has AVX2, and `to` has room.
#[inline(always)]
unsafe fn store(to: *mut u8, i: usize, numbers: __m256) {
    // SAFETY: the caller says so.
    unsafe { _mm256_storeu_ps(to.add(32 * i).cast(), numbers) };
}

/// Half-precision numbers of 1/256 of the numbers of 16 codes: a code moved by a bit, with the sign back in its place.
///
/// # Safety
///
/// The machine has AVX2, and the codes can be read.
#[inline(always)]
unsafe fn e4m3_halves(codes: *const u8) -> __m256i {
    // SAFETY: the caller says so.
    unsafe {
        let words = _mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(_mm_loadu_si128(codes.cast())));
        _mm256_and_si256(_mm256_srai_epi16::<1>(words), _mm256_set1_epi16(0xbf80_u16.cast_signed()))
    }
}

// SAFETY: of all blocks, the caller says so.
impl Number for Avx2 {
    const BYTES: usize = 4;
    type Vector = __m256;
    type Table = [__m256; 2];

    #[inline(always)]
    unsafe fn halves(to: &mut [f32], bytes: &[u8]) {
        // SAFETY: as above; eight numbers are read and written.
        unsafe {
            if let (Some(to), Some(from)) = (to.first_chunk_mut::<8>(), bytes.first_chunk::<16>()) {
                return _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())));
            }
            for (to, from) in to.iter_mut().zip(bytes.as_chunks::<2>().0) {
                let bits = i32::from(u16::from_le_bytes(*from));
                *to = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
            }
        }
    }

    #[inline(always)]
    unsafe fn every(number: &f32) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_set1_ps(*number) }
    }

    #[inline(always)]
    unsafe fn table(zero: __m256, scale: __m256) -> [__m256; 2] {
        [zero, scale]
    }

    #[inline(always)]
    unsafe fn e2m1(to: *mut u8, codes: *const u8, [zero, scale]: [__m256; 2]) {
        // SAFETY: as above; the table has eight magnitudes.
        unsafe {
            let magnitudes = _mm256_loadu_ps(E2M1.as_ptr());
            let pairs = each!(I of 2 => _mm256_cvtepu8_epi32(_mm_loadl_epi64(codes.add(8 * I).cast())));
            let codes = [pairs[0], _mm256_srli_epi32::<4>(pairs[0]), pairs[1], _mm256_srli_epi32::<4>(pairs[1])];
            _ = each!(I of 4 => {
                // An index is the low three bits of a lane, and the fourth is the sign.
                let sign = _mm256_and_si256(_mm256_slli_epi32::<28>(codes[I]), _mm256_set1_epi32(i32::MIN));
                let magnitude = _mm256_permutevar8x32_ps(magnitudes, codes[I]);
                let number = _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign));
                store(to, I, _mm256_mul_ps(_mm256_sub_ps(number, zero), scale));
            });
        }
    }

    #[inline(always)]
    unsafe fn i8(to: *mut u8, codes: *const u8, zero: __m256, scale: __m256) {
        // SAFETY: as above.
        unsafe {
            _ = each!(I of 4 => {
                let number = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(codes.add(8 * I).cast())));
                store(to, I, _mm256_mul_ps(_mm256_sub_ps(number, zero), scale));
            });
        }
    }

    #[inline(always)]
    unsafe fn e4m3(to: *mut u8, codes: *const u8, scale: __m256) {
        // SAFETY: as above.
        unsafe {
            let (low, high) = (e4m3_halves(codes), e4m3_halves(codes.add(16)));
            let halves = [
                _mm256_castsi256_si128(low),
                _mm256_extracti128_si256::<1>(low),
                _mm256_castsi256_si128(high),
                _mm256_extracti128_si256::<1>(high),
            ];
            let magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(i32::MAX));
            _ = each!(I of 4 => {
                let number = _mm256_mul_ps(_mm256_cvtph_ps(halves[I]), _mm256_set1_ps(256.0));
                // The greatest magnitude is that of no number.
                let is_nan = _mm256_cmp_ps::<_CMP_EQ_OQ>(_mm256_and_ps(number, magnitude), _mm256_set1_ps(480.0));
                store(to, I, _mm256_mul_ps(_mm256_or_ps(number, is_nan), scale));
            });
        }
    }
}
