//! Codes whose scales lie apart.
#![allow(unsafe_code)]

use super::number::Number;
use super::{Decode, counted, load16, load32};
use crate::backend::cpu::linear::decode::Job;
use crate::backend::cpu::linear::decode::scaled::{Walk, factors, scaled};
use crate::backend::cpu::linear::kernels::STEP;
use crate::backend::{Codes, E2M1};
use std::arch::x86_64::*;

/// Codes of four bits, in pairs.
pub struct Pairs;

impl Decode for Pairs {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        let scaled = scaled(job.coding);
        // SAFETY: the caller says that the machine has AVX-512 and F16C; the table has 16 numbers.
        let (factors, values) = unsafe {
            let values = if scaled.codes == Codes::E2m1 { _mm512_loadu_ps(E2M1.as_ptr()) } else { counted() };
            (factors(scaled, &job), values)
        };
        let mut walk = Walk::new(scaled, job);
        for group in 0..factors.count {
            let (scale, zero) = (factors.scales[group], factors.zeros[group]);
            // SAFETY: as above. `Walk` has 16 bytes of codes for each step, and room for its numbers.
            unsafe {
                let centred = _mm512_sub_ps(values, _mm512_set1_ps(zero));
                let table = N::table(_mm512_mul_ps(centred, _mm512_set1_ps(scale)));
                for _ in 0..walk.steps_of_group() {
                    N::store_pairs(walk.to, load16(walk.codes), table);
                    walk.advance(STEP / 2, STEP * N::BYTES);
                }
            }
        }
    }
}

/// Integers of eight bits.
pub struct Bytes;

impl Decode for Bytes {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        let scaled = scaled(job.coding);
        // SAFETY: the caller says that the machine has AVX-512 and F16C.
        let factors = unsafe { factors(scaled, &job) };
        let (is_unsigned, has_zero) = (scaled.codes == Codes::U8, scaled.zeros || scaled.codes.zero() != 0.0);
        let mut walk = Walk::new(scaled, job);
        for group in 0..factors.count {
            let (scale, zero) = (factors.scales[group], factors.zeros[group]);
            // SAFETY: as above. `Walk` has 32 bytes of codes for each step, and room for its numbers.
            unsafe {
                let (scale, zero) = (_mm512_set1_ps(scale), _mm512_set1_ps(zero));
                for _ in 0..walk.steps_of_group() {
                    let (first, second) = (load16(walk.codes), load16(walk.codes.add(16)));
                    let codes = match is_unsigned {
                        true => [_mm512_cvtepu8_epi32(first), _mm512_cvtepu8_epi32(second)],
                        false => [_mm512_cvtepi8_epi32(first), _mm512_cvtepi8_epi32(second)],
                    };
                    let [mut low, mut high] = [_mm512_cvtepi32_ps(codes[0]), _mm512_cvtepi32_ps(codes[1])];
                    if has_zero {
                        (low, high) = (_mm512_sub_ps(low, zero), _mm512_sub_ps(high, zero));
                    }
                    N::store(walk.to, _mm512_mul_ps(low, scale), _mm512_mul_ps(high, scale));
                    walk.advance(STEP, STEP * N::BYTES);
                }
            }
        }
    }
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

/// Floating-point numbers of eight bits.
pub struct E4m3;

impl Decode for E4m3 {
    #[inline(always)]
    unsafe fn decode<N: Number>(job: Job) {
        let scaled = scaled(job.coding);
        // SAFETY: the caller says that the machine has AVX-512 and F16C.
        let (factors, magnitude, word_bits) = unsafe {
            let word_bits = _mm512_set1_epi16(0xbf80_u16.cast_signed());
            (factors(scaled, &job), _mm256_set1_epi8(0x7f), word_bits)
        };
        let mut walk = Walk::new(scaled, job);
        for group in 0..factors.count {
            // SAFETY: as above. `Walk` has 32 bytes of codes for each step, and room for its numbers.
            unsafe {
                let scale = _mm512_set1_ps(factors.scales[group]);
                for _ in 0..walk.steps_of_group() {
                    let codes = load32(walk.codes);
                    let is_nan = _mm256_cmpeq_epi8_mask(_mm256_and_si256(codes, magnitude), magnitude);
                    // Moved by a bit, and with the sign back in its place, a code is a half of 1/256 of its number.
                    let words = _mm512_slli_epi16::<8>(_mm512_cvtepu8_epi16(codes));
                    let halves = _mm512_and_si512(_mm512_srai_epi16::<1>(words), word_bits);
                    let low = from_halves(_mm512_castsi512_si256(halves), is_nan as u16);
                    let high = from_halves(_mm512_extracti64x4_epi64::<1>(halves), (is_nan >> 16) as u16);
                    N::store(walk.to, _mm512_mul_ps(low, scale), _mm512_mul_ps(high, scale));
                    walk.advance(STEP, STEP * N::BYTES);
                }
            }
        }
    }
}
