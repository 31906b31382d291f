//! Codes whose scales lie apart.
#![allow(unsafe_code)]

use super::{Number, from_signed, nibbles, store};
use crate::cpu::linear::decode::Job;
use crate::cpu::linear::decode::scaled::{Walk, factors, scaled};
use crate::cpu::linear::kernels::STEP;
use std::arch::aarch64::*;

/// Writes `(number - zero) * scale` of 16 numbers.
///
/// # Safety
///
/// As [`decode`], and `to` has room.
#[inline(always)]
unsafe fn store_shifted<N: Number>(to: *mut u8, numbers: [float32x4_t; 4], zero: f32, scale: f32) {
    // SAFETY: the caller says so.
    unsafe {
        let (zero, scale) = (vdupq_n_f32(zero), vdupq_n_f32(scale));
        store::<N>(to, numbers.map(|q| vmulq_f32(vsubq_f32(q, zero), scale)));
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
pub unsafe fn pairs_of_floats<N: Number>(job: Job) {
    /// The upper bytes of [`E2M1`](formats::E2M1) in half precision, whose lower bytes are zero.
    const HALVES: [u8; 16] =
        [0, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46, 0x80, 0xb8, 0xbc, 0xbe, 0xc0, 0xc2, 0xc4, 0xc6];
    let scaled = scaled(job.coding);
    // SAFETY: the caller says that the machine has NEON.
    let factors = unsafe { factors(scaled, &job) };
    let mut walk = Walk::new(scaled, job);
    for group in 0..factors.count {
        let (scale, zero) = (factors.scales[group], factors.zeros[group]);
        for _ in 0..walk.steps_of_group() {
            // SAFETY: `Walk` has 16 bytes of codes for each step, and room for its numbers; the table has 16 bytes.
            unsafe {
                let table = vld1q_u8(HALVES.as_ptr());
                let [low, high] = nibbles(walk.codes).map(|codes| vqtbl1q_u8(table, codes));
                store_shifted::<N>(walk.to, from_upper_bytes(vzip1q_u8(low, high)), zero, scale);
                let second = walk.to.add(16 * N::BYTES);
                store_shifted::<N>(second, from_upper_bytes(vzip2q_u8(low, high)), zero, scale);
            }
            walk.advance(STEP / 2, STEP * N::BYTES);
        }
    }
}

/// The half-precision numbers of which these are the upper bytes.
///
/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn from_upper_bytes(bytes: uint8x16_t) -> [float32x4_t; 4] {
    // SAFETY: the caller says so.
    unsafe { from_halves([vshll_n_u8::<8>(vget_low_u8(bytes)), vshll_high_n_u8::<8>(bytes)]) }
}

/// The half-precision numbers of these bits.
///
/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn from_halves(bits: [uint16x8_t; 2]) -> [float32x4_t; 4] {
    // SAFETY: the caller says so.
    unsafe {
        let [first, second] = bits.map(|bits| vreinterpretq_f16_u16(bits));
        [
            vcvt_f32_f16(vget_low_f16(first)),
            vcvt_high_f32_f16(first),
            vcvt_f32_f16(vget_low_f16(second)),
            vcvt_high_f32_f16(second),
        ]
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
pub unsafe fn signed_bytes<N: Number>(job: Job) {
    let scaled = scaled(job.coding);
    // SAFETY: the caller says that the machine has NEON.
    let factors = unsafe { factors(scaled, &job) };
    let mut walk = Walk::new(scaled, job);
    for group in 0..factors.count {
        let (scale, zero) = (factors.scales[group], factors.zeros[group]);
        for _ in 0..walk.steps_of_group() {
            // SAFETY: `Walk` has 32 bytes of codes for each step, and room for its numbers.
            unsafe {
                for half in 0..2 {
                    let (codes, to) = (vld1q_u8(walk.codes.add(16 * half)), walk.to.add(16 * half * N::BYTES));
                    store_shifted::<N>(to, from_signed(codes), zero, scale);
                }
            }
            walk.advance(STEP, STEP * N::BYTES);
        }
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
pub unsafe fn e4m3<N: Number>(job: Job) {
    let scaled = scaled(job.coding);
    // SAFETY: the caller says that the machine has NEON.
    let factors = unsafe { factors(scaled, &job) };
    let mut walk = Walk::new(scaled, job);
    for group in 0..factors.count {
        let scale = factors.scales[group];
        for _ in 0..walk.steps_of_group() {
            // SAFETY: `Walk` has 32 bytes of codes for each step, and room for its numbers.
            unsafe {
                for half in 0..2 {
                    let codes = vld1q_u8(walk.codes.add(16 * half));
                    // Moved by a bit, and with the sign back in its place, a code is a half of 1/256 of its number.
                    let words = [vshll_n_u8::<8>(vget_low_u8(codes)), vshll_high_n_u8::<8>(codes)].map(|words| {
                        let moved = vreinterpretq_u16_s16(vshrq_n_s16::<1>(vreinterpretq_s16_u16(words)));
                        vandq_u16(moved, vdupq_n_u16(0xbf80))
                    });
                    let numbers = from_halves(words).map(|number| {
                        let number = vmulq_f32(number, vdupq_n_f32(256.0));
                        // The greatest magnitude is that of no number.
                        let is_nan = vceqq_f32(vabsq_f32(number), vdupq_n_f32(480.0));
                        let number = vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(number), is_nan));
                        vmulq_f32(number, vdupq_n_f32(scale))
                    });
                    store::<N>(walk.to.add(16 * half * N::BYTES), numbers);
                }
            }
            walk.advance(STEP, STEP * N::BYTES);
        }
    }
}
