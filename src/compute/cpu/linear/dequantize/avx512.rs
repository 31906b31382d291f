//! AVX-512: a code of four bits names one of the 16 numbers of a table, other codes are converted. Of f32 numbers, codes of four bits come in
//! groups of 32: the even ones, then the odd ones.
//!
//! Where the instruction set multiplies bf16 numbers, they are rounded in registers.
#![allow(unsafe_code)]

use super::Dequantizer;
use super::vectors::{MAX_GROUPS, Number, dequantizer};
use formats::{Codes, E2M1, Scales};
use std::arch::asm;
use std::arch::x86_64::*;

pub fn to_f32(codes: Codes) -> Dequantizer {
    dequantizer!(codes, Avx512<false>, "avx512f,avx512bw,avx512dq,avx512vl,f16c")
}

pub fn to_bf16(codes: Codes) -> Dequantizer {
    dequantizer!(codes, Avx512<true>, "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")
}

/// To f32, or, with AVX512-BF16, to bf16, rounded to nearest even.
pub struct Avx512<const BF16: bool>;

impl<const BF16: bool> Avx512<BF16> {
    /// Writes two vectors of numbers.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set, and `to` has room.
    #[inline(always)]
    unsafe fn store(to: *mut u8, low: __m512, high: __m512) {
        // SAFETY: the caller says so.
        unsafe {
            if BF16 {
                let words: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(high, low));
                return _mm512_storeu_si512(to.cast(), words);
            }
            _mm512_storeu_ps(to.cast(), low);
            _mm512_storeu_ps(to.add(64).cast(), high);
        }
    }
}

/// A number in every lane, from memory. The compiler would load several numbers at once and spread each from a register, which takes the port of
/// shuffles.
#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(number: &f32) -> __m512 {
    let at: *const f32 = number;
    let lanes;
    // SAFETY: the number is there.
    unsafe {
        asm!("vbroadcastss {}, dword ptr [{}]", lateout(zmm_reg) lanes, in(reg) at, options(pure, readonly, nostack, preserves_flags));
    }
    lanes
}

/// 256 times the numbers of `halves`, or NaN.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn from_halves(halves: __m256i, is_nan: __mmask16) -> __m512 {
    // SAFETY: the caller says so.
    unsafe {
        let numbers = _mm512_mul_ps(_mm512_cvtph_ps(halves), _mm512_set1_ps(256.0));
        _mm512_mask_mov_ps(numbers, is_nan, _mm512_set1_ps(f32::NAN))
    }
}

// SAFETY: of all blocks, the caller says so.
impl<const BF16: bool> Number for Avx512<BF16> {
    const BYTES: usize = if BF16 { 2 } else { 4 };
    type Vector = __m512;
    /// Sixteen f32 numbers, or twice 16 words: an index is the low five bits of a word.
    type Table = __m512i;

    #[inline(always)]
    unsafe fn scales(format: Scales, at: *const u8, count: usize) -> [f32; MAX_GROUPS] {
        let mask = ((1u32 << count) - 1) as u8;
        let mut to = [0.0; MAX_GROUPS];
        // SAFETY: as above; nothing is read beyond the mask.
        unsafe {
            let scales = match format {
                Scales::F16 => _mm256_cvtph_ps(_mm_maskz_loadu_epi16(mask, at.cast())),
                Scales::F32 => _mm256_maskz_loadu_ps(mask, at.cast()),
                Scales::Bf16 => {
                    let bits = _mm256_cvtepu16_epi32(_mm_maskz_loadu_epi16(mask, at.cast()));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<16>(bits))
                }
                Scales::E8m0 => {
                    let exponents = _mm256_cvtepu8_epi32(_mm_maskz_loadu_epi8(u16::from(mask), at.cast()));
                    // 2^-127 is a denormal number, and the last exponent is that of no number.
                    let least = _mm256_testn_epi32_mask(exponents, exponents);
                    let none = _mm256_cmpeq_epi32_mask(exponents, _mm256_set1_epi32(255));
                    let bits = _mm256_slli_epi32::<23>(exponents);
                    let bits = _mm256_mask_mov_epi32(bits, least, _mm256_set1_epi32(1 << 22));
                    let bits = _mm256_mask_mov_epi32(bits, none, _mm256_set1_epi32(f32::NAN.to_bits().cast_signed()));
                    _mm256_castsi256_ps(bits)
                }
            };
            _mm256_storeu_ps(to.as_mut_ptr(), scales);
        }
        to
    }

    #[inline(always)]
    unsafe fn bytes(at: *const u8, count: usize) -> [f32; MAX_GROUPS] {
        let mut to = [0.0; MAX_GROUPS];
        // SAFETY: as above; nothing is read beyond the mask.
        unsafe {
            let bytes = _mm_maskz_loadu_epi8((1 << count) - 1, at.cast());
            _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
        }
        to
    }

    unsafe fn halves(_: &mut [f32], _: &[u8]) {
        unreachable!("`scales` reads all formats")
    }

    #[inline(always)]
    unsafe fn every(number: &f32) -> __m512 {
        // SAFETY: as above.
        unsafe { broadcast(number) }
    }

    #[inline(always)]
    unsafe fn table(zero: __m512, scale: __m512) -> __m512i {
        // SAFETY: as above; there are 16 numbers.
        unsafe {
            let numbers = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(E2M1.as_ptr()), zero), scale);
            match BF16 {
                true => std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(numbers, numbers)),
                false => _mm512_castps_si512(numbers),
            }
        }
    }

    #[inline(always)]
    unsafe fn e2m1(to: *mut u8, codes: *const u8, table: __m512i) {
        // SAFETY: as above. An index is the low bits of a lane.
        unsafe {
            let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(codes.cast()));
            if BF16 {
                // The high bits of a byte go to the low bits of the upper word: a product, which takes no port of shuffles.
                let index = _mm512_madd_epi16(bytes, _mm512_set1_epi32(0x1001));
                return _mm512_storeu_si512(to.cast(), _mm512_permutexvar_epi16(index, table));
            }
            let (low, table) = (bytes, _mm512_castsi512_ps(table));
            let high = _mm512_srli_epi32::<4>(low);
            Self::store(to, _mm512_permutexvar_ps(low, table), _mm512_permutexvar_ps(high, table));
        }
    }

    #[inline(always)]
    unsafe fn i8(to: *mut u8, codes: *const u8, zero: __m512, scale: __m512) {
        // SAFETY: as above.
        unsafe {
            let low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(codes.cast())));
            let high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(codes.add(16).cast())));
            let (low, high) = (_mm512_sub_ps(low, zero), _mm512_sub_ps(high, zero));
            Self::store(to, _mm512_mul_ps(low, scale), _mm512_mul_ps(high, scale));
        }
    }

    #[inline(always)]
    unsafe fn e4m3(to: *mut u8, codes: *const u8, scale: __m512) {
        // SAFETY: as above.
        unsafe {
            let (magnitude, word_bits) = (_mm256_set1_epi8(0x7f), _mm512_set1_epi16(0xbf80_u16.cast_signed()));
            let codes = _mm256_loadu_si256(codes.cast());
            let is_nan = _mm256_cmpeq_epi8_mask(_mm256_and_si256(codes, magnitude), magnitude);
            // Moved by a bit, and with the sign back in its place, a code is a half of 1/256 of its number.
            let words = _mm512_slli_epi16::<8>(_mm512_cvtepu8_epi16(codes));
            let halves = _mm512_and_si512(_mm512_srai_epi16::<1>(words), word_bits);
            let low = from_halves(_mm512_castsi512_si256(halves), is_nan as u16);
            let high = from_halves(_mm512_extracti64x4_epi64::<1>(halves), (is_nan >> 16) as u16);
            Self::store(to, _mm512_mul_ps(low, scale), _mm512_mul_ps(high, scale));
        }
    }
}
