//! Decoders of AVX2: codes become integers of 32 bits, then f32 numbers.
#![allow(unsafe_code)]

use super::scaled::{Walk, factors, scaled};
use super::{Decoder, Job};
use crate::cpu::linear::kernels::STEP;
use formats::{Codes, E2M1};
use std::arch::x86_64::*;

/// The decoder to f32 numbers. Codes of four bits come in groups of 16: the even ones, then the odd ones.
pub fn to_f32(codes: Codes) -> Decoder {
    match codes {
        Codes::E2m1 => e2m1,
        Codes::I8 => i8,
        Codes::E4m3 => e4m3,
        Codes::U4 | Codes::U8 => unreachable!("multiplied as integers"),
    }
}

/// Bytes of 32 decoded numbers.
const TO: usize = STEP * 4;

/// Writes 32 numbers.
///
/// # Safety
///
/// The machine has AVX2, and `to` has room.
#[inline(always)]
unsafe fn store(to: *mut u8, numbers: [__m256; 4]) {
    for (i, numbers) in numbers.into_iter().enumerate() {
        // SAFETY: the caller says so.
        unsafe { _mm256_storeu_ps(to.add(32 * i).cast(), numbers) };
    }
}

/// Eight bytes at `at`, each in 32 bits.
///
/// # Safety
///
/// The machine has AVX2, and they can be read.
#[inline(always)]
unsafe fn eight(at: *const u8) -> __m256i {
    // SAFETY: the caller says so.
    unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(at.cast())) }
}

/// Eight signed bytes at `at`, each in 32 bits.
///
/// # Safety
///
/// The machine has AVX2, and they can be read.
#[inline(always)]
unsafe fn signed(at: *const u8) -> __m256i {
    // SAFETY: the caller says so.
    unsafe { _mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast())) }
}

/// Floating-point numbers of four bits: of each 16 the even ones, then the odd ones.
///
/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn e2m1(job: Job) {
    let scaled = scaled(job.coding);
    // SAFETY: the caller says that the machine has F16C.
    let factors = unsafe { factors(scaled, &job) };
    let mut walk = Walk::new(scaled, job);
    for group in 0..factors.count {
        let (scale, zero) = (_mm256_set1_ps(factors.scales[group]), _mm256_set1_ps(factors.zeros[group]));
        for _ in 0..walk.steps_of_group() {
            // SAFETY: `Walk` has 16 bytes of codes for each step, and room for its numbers.
            unsafe {
                let (first, second) = (eight(walk.codes), eight(walk.codes.add(8)));
                let codes = [first, _mm256_srli_epi32::<4>(first), second, _mm256_srli_epi32::<4>(second)];
                let number = |code| {
                    // An index is the low three bits of a lane, and the fourth is the sign.
                    let sign = _mm256_and_si256(_mm256_slli_epi32::<28>(code), _mm256_set1_epi32(i32::MIN));
                    let magnitude = _mm256_permutevar8x32_ps(_mm256_loadu_ps(E2M1.as_ptr()), code);
                    let number = _mm256_xor_ps(magnitude, _mm256_castsi256_ps(sign));
                    _mm256_mul_ps(_mm256_sub_ps(number, zero), scale)
                };
                store(walk.to, codes.map(number));
            }
            walk.advance(STEP / 2, TO);
        }
    }
}

/// Signed integers less unsigned zeros.
///
/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn i8(job: Job) {
    let scaled = scaled(job.coding);
    // SAFETY: the caller says that the machine has F16C.
    let factors = unsafe { factors(scaled, &job) };
    let mut walk = Walk::new(scaled, job);
    for group in 0..factors.count {
        let (scale, zero) = (_mm256_set1_ps(factors.scales[group]), _mm256_set1_ps(factors.zeros[group]));
        for _ in 0..walk.steps_of_group() {
            let at = walk.codes;
            // SAFETY: `Walk` has 32 bytes of codes for each step, and room for its numbers.
            unsafe {
                let codes = [signed(at), signed(at.add(8)), signed(at.add(16)), signed(at.add(24))];
                let number = |code| _mm256_mul_ps(_mm256_sub_ps(_mm256_cvtepi32_ps(code), zero), scale);
                store(walk.to, codes.map(number));
            }
            walk.advance(STEP, TO);
        }
    }
}

/// # Safety
///
/// As [`Decoder`].
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn e4m3(job: Job) {
    let scaled = scaled(job.coding);
    // SAFETY: the caller says that the machine has F16C.
    let factors = unsafe { factors(scaled, &job) };
    let (magnitude, nan) = (_mm256_castsi256_ps(_mm256_set1_epi32(i32::MAX)), _mm256_set1_ps(480.0));
    let mut walk = Walk::new(scaled, job);
    for group in 0..factors.count {
        let scale = _mm256_set1_ps(factors.scales[group]);
        for _ in 0..walk.steps_of_group() {
            // SAFETY: `Walk` has 32 bytes of codes for each step, and room for its numbers.
            unsafe {
                let halves = |at: *const u8| {
                    // Moved by a bit, and with the sign back in its place, a code is a half of 1/256 of its number.
                    let words = _mm256_slli_epi16::<8>(_mm256_cvtepu8_epi16(_mm_loadu_si128(at.cast())));
                    _mm256_and_si256(_mm256_srai_epi16::<1>(words), _mm256_set1_epi16(0xbf80_u16.cast_signed()))
                };
                let (first, second) = (halves(walk.codes), halves(walk.codes.add(16)));
                let numbers = [
                    _mm256_castsi256_si128(first),
                    _mm256_extracti128_si256::<1>(first),
                    _mm256_castsi256_si128(second),
                    _mm256_extracti128_si256::<1>(second),
                ];
                let number = |half| {
                    let number = _mm256_mul_ps(_mm256_cvtph_ps(half), _mm256_set1_ps(256.0));
                    // The greatest magnitude is that of no number.
                    let is_nan = _mm256_cmp_ps::<_CMP_EQ_OQ>(_mm256_and_ps(number, magnitude), nan);
                    _mm256_mul_ps(_mm256_or_ps(number, is_nan), scale)
                };
                store(walk.to, numbers.map(number));
            }
            walk.advance(STEP, TO);
        }
    }
}
