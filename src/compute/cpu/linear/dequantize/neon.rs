//! NEON: codes of a byte become f32 numbers, which are rounded to bf16 in registers where the instruction set multiplies these.
#![allow(unsafe_code)]

use super::Dequantizer;
use super::vectors::{Number, dequantizer};
use crate::cpu::lanes::each;
use formats::Codes;
use std::arch::aarch64::*;
use std::arch::asm;

pub fn to_f32(codes: Codes) -> Dequantizer {
    dequantizer!(codes, Neon<false>, "neon")
}

pub fn to_bf16(codes: Codes) -> Dequantizer {
    dequantizer!(codes, Neon<true>, "neon,bf16")
}

/// To f32, or, with the bf16 extension, to bf16, rounded to nearest even.
struct Neon<const BF16: bool>;

impl<const BF16: bool> Neon<BF16> {
    /// Writes four vectors of numbers.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set, and `to` has room.
    #[inline(always)]
    unsafe fn store(to: *mut u8, numbers: [float32x4_t; 4]) {
        // SAFETY: the caller says so; the instructions change one register.
        unsafe {
            if !BF16 {
                _ = each!(I of 4 => vst1q_f32(to.add(16 * I).cast(), numbers[I]));
                return;
            }
            _ = each!(I of 2 => {
                let words: uint16x8_t;
                asm!(
                    "bfcvtn {words:v}.4h, {low:v}.4s",
                    "bfcvtn2 {words:v}.8h, {high:v}.4s",
                    words = out(vreg) words,
                    low = in(vreg) numbers[2 * I],
                    high = in(vreg) numbers[2 * I + 1],
                    options(pure, nomem, nostack, preserves_flags),
                );
                vst1q_u16(to.add(16 * I).cast(), words);
            });
        }
    }

    /// Writes `(number - zero) * scale` of 16 numbers.
    ///
    /// # Safety
    ///
    /// As [`Neon::store`].
    #[inline(always)]
    unsafe fn store_scaled(to: *mut u8, numbers: [float32x4_t; 4], zero: float32x4_t, scale: float32x4_t) {
        // SAFETY: the caller says so.
        unsafe { Self::store(to, each!(I of 4 => vmulq_f32(vsubq_f32(numbers[I], zero), scale))) }
    }
}

/// The half-precision numbers of these bits.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn from_halves(bits: [uint16x8_t; 2]) -> [float32x4_t; 4] {
    // SAFETY: the caller says so.
    unsafe {
        let (first, second) = (vreinterpretq_f16_u16(bits[0]), vreinterpretq_f16_u16(bits[1]));
        [
            vcvt_f32_f16(vget_low_f16(first)),
            vcvt_high_f32_f16(first),
            vcvt_f32_f16(vget_low_f16(second)),
            vcvt_high_f32_f16(second),
        ]
    }
}

/// The words of which these are the upper bytes.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn upper_bytes(bytes: uint8x16_t) -> [uint16x8_t; 2] {
    // SAFETY: the caller says so.
    unsafe { [vshll_n_u8::<8>(vget_low_u8(bytes)), vshll_high_n_u8::<8>(bytes)] }
}

/// For each four of 16 bytes, the indices that bring them to the highest bytes of four lanes. Others become zero.
const HIGHEST: [[u8; 16]; 4] = {
    let (mut indices, mut i) = ([[255; 16]; 4], 0);
    while i < 16 {
        indices[i / 4][i % 4 * 4 + 3] = i as u8;
        i += 1;
    }
    indices
};

/// The upper bytes of [`E2M1`](formats::E2M1) in half precision, whose lower bytes are zero.
const E2M1_HALVES: [u8; 16] =
    [0, 0x38, 0x3c, 0x3e, 0x40, 0x42, 0x44, 0x46, 0x80, 0xb8, 0xbc, 0xbe, 0xc0, 0xc2, 0xc4, 0xc6];

// SAFETY: of all blocks, the caller says so.
impl<const BF16: bool> Number for Neon<BF16> {
    const BYTES: usize = if BF16 { 2 } else { 4 };
    type Vector = float32x4_t;
    type Table = [float32x4_t; 2];

    #[inline(always)]
    unsafe fn halves(to: &mut [f32], bytes: &[u8]) {
        for (to, from) in to.iter_mut().zip(bytes.as_chunks::<2>().0) {
            let bits = u16::from_le_bytes(*from);
            // SAFETY: as above.
            *to = unsafe { vgetq_lane_f32::<0>(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(bits)))) };
        }
    }

    #[inline(always)]
    unsafe fn every(number: &f32) -> float32x4_t {
        // SAFETY: as above.
        unsafe { vdupq_n_f32(*number) }
    }

    #[inline(always)]
    unsafe fn table(zero: float32x4_t, scale: float32x4_t) -> [float32x4_t; 2] {
        [zero, scale]
    }

    #[inline(always)]
    unsafe fn e2m1(to: *mut u8, codes: *const u8, [zero, scale]: [float32x4_t; 2]) {
        // SAFETY: as above; the table has 16 bytes.
        unsafe {
            let (codes, table) = (vld1q_u8(codes), vld1q_u8(E2M1_HALVES.as_ptr()));
            let low = vqtbl1q_u8(table, vandq_u8(codes, vdupq_n_u8(15)));
            let high = vqtbl1q_u8(table, vshrq_n_u8::<4>(codes));
            Self::store_scaled(to, from_halves(upper_bytes(vzip1q_u8(low, high))), zero, scale);
            let second = to.add(16 * Self::BYTES);
            Self::store_scaled(second, from_halves(upper_bytes(vzip2q_u8(low, high))), zero, scale);
        }
    }

    #[inline(always)]
    unsafe fn i8(to: *mut u8, codes: *const u8, zero: float32x4_t, scale: float32x4_t) {
        for half in 0..2 {
            // SAFETY: as above. The conversion divides by 2^24.
            unsafe {
                let codes = vld1q_u8(codes.add(16 * half));
                let numbers = each!(I of 4 => {
                    let highest = vqtbl1q_u8(codes, vld1q_u8(HIGHEST[I].as_ptr()));
                    vcvtq_n_f32_s32::<24>(vreinterpretq_s32_u8(highest))
                });
                Self::store_scaled(to.add(16 * half * Self::BYTES), numbers, zero, scale);
            }
        }
    }

    #[inline(always)]
    unsafe fn e4m3(to: *mut u8, codes: *const u8, scale: float32x4_t) {
        for half in 0..2 {
            // SAFETY: as above.
            unsafe {
                // Moved by a bit, and with the sign back in its place, a code is a half of 1/256 of its number.
                let words = upper_bytes(vld1q_u8(codes.add(16 * half)));
                let numbers = from_halves(each!(I of 2 => {
                    let moved = vreinterpretq_u16_s16(vshrq_n_s16::<1>(vreinterpretq_s16_u16(words[I])));
                    vandq_u16(moved, vdupq_n_u16(0xbf80))
                }));
                let numbers = each!(I of 4 => {
                    let number = vmulq_f32(numbers[I], vdupq_n_f32(256.0));
                    // The greatest magnitude is that of no number.
                    let is_nan = vceqq_f32(vabsq_f32(number), vdupq_n_f32(480.0));
                    let number = vreinterpretq_f32_u32(vorrq_u32(vreinterpretq_u32_f32(number), is_nan));
                    vmulq_f32(number, scale)
                });
                Self::store(to.add(16 * half * Self::BYTES), numbers);
            }
        }
    }
}
