//! Decoders of NEON: codes of a byte become f32 numbers, which are rounded to bf16 in registers where the instruction set multiplies these.
#![allow(unsafe_code)]

mod codes;

use super::{Decoder, Job};
use formats::{Codes, Scaled, WeightFormat};
use std::arch::aarch64::*;
use std::arch::asm;

/// The decoder to f32 numbers, as they are.
pub fn to_f32(_: WeightFormat) -> Decoder {
    singles
}

/// The decoder to bf16 numbers, as they are.
pub fn to_bf16(_: WeightFormat) -> Decoder {
    words
}

/// # Safety
///
/// The machine has NEON.
#[target_feature(enable = "neon")]
unsafe fn singles(job: Job) {
    // SAFETY: the caller says so.
    unsafe { decode::<Singles>(job) }
}

/// # Safety
///
/// The machine has NEON and the bf16 extension.
#[target_feature(enable = "neon,bf16")]
unsafe fn words(job: Job) {
    // SAFETY: the caller says so.
    unsafe { decode::<Words>(job) }
}

/// What is written.
trait Number {
    const BYTES: usize;

    /// Writes eight numbers.
    ///
    /// # Safety
    ///
    /// The machine has the instruction set of the number, and `to` has room.
    unsafe fn store(to: *mut u8, numbers: [float32x4_t; 2]);
}

/// f32.
struct Singles;

impl Number for Singles {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn store(to: *mut u8, [low, high]: [float32x4_t; 2]) {
        // SAFETY: the caller says so.
        unsafe {
            vst1q_f32(to.cast(), low);
            vst1q_f32(to.add(16).cast(), high);
        }
    }
}

/// bf16, rounded to nearest even.
struct Words;

impl Number for Words {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn store(to: *mut u8, [low, high]: [float32x4_t; 2]) {
        // SAFETY: the caller says so; the instructions change one register.
        unsafe {
            let words: uint16x8_t;
            asm!(
                "bfcvtn {words:v}.4h, {low:v}.4s",
                "bfcvtn2 {words:v}.8h, {high:v}.4s",
                words = out(vreg) words,
                low = in(vreg) low,
                high = in(vreg) high,
                options(pure, nomem, nostack, preserves_flags),
            );
            vst1q_u16(to.cast(), words);
        }
    }
}

/// # Safety
///
/// The machine has NEON and what `N` needs. The functions below want the same of their callers.
#[inline(always)]
unsafe fn decode<N: Number>(job: Job) {
    // SAFETY: the caller says so.
    unsafe {
        match job.coding {
            WeightFormat::Scaled(Scaled { codes: Codes::E2m1, .. }) => codes::pairs_of_floats::<N>(job),
            WeightFormat::Scaled(Scaled { codes: Codes::I8, zeros: true, .. }) => codes::signed_bytes::<N>(job),
            WeightFormat::Scaled(Scaled { codes: Codes::E4m3, .. }) => codes::e4m3::<N>(job),
            _ => unreachable!("plain numbers are not decoded, and others are multiplied as integers"),
        }
    }
}

/// Writes 16 numbers.
///
/// # Safety
///
/// As [`decode`], and `to` has room.
#[inline(always)]
unsafe fn store<N: Number>(to: *mut u8, [a, b, c, d]: [float32x4_t; 4]) {
    // SAFETY: the caller says so.
    unsafe {
        N::store(to, [a, b]);
        N::store(to.add(8 * N::BYTES), [c, d]);
    }
}

/// For each four of 16 bytes, the indices that bring them to the highest bytes of four lanes. Others become zero.
const HIGHEST: [[u8; 16]; 4] = {
    let mut indices = [[255; 16]; 4];
    let mut i = 0;
    while i < 16 {
        indices[i / 4][i % 4 * 4 + 3] = i as u8;
        i += 1;
    }
    indices
};

/// Sixteen signed bytes as numbers.
///
/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn from_signed(codes: uint8x16_t) -> [float32x4_t; 4] {
    // SAFETY: the caller says so. The conversion divides by 2^24.
    HIGHEST.map(|indices| unsafe {
        vcvtq_n_f32_s32::<24>(vreinterpretq_s32_u8(vqtbl1q_u8(codes, vld1q_u8(indices.as_ptr()))))
    })
}

/// The low and the high four bits of the 16 bytes at `at`.
///
/// # Safety
///
/// As [`decode`], and they can be read.
#[inline(always)]
unsafe fn nibbles(at: *const u8) -> [uint8x16_t; 2] {
    // SAFETY: the caller says so.
    unsafe {
        let codes = vld1q_u8(at);
        [vandq_u8(codes, vdupq_n_u8(15)), vshrq_n_u8::<4>(codes)]
    }
}
