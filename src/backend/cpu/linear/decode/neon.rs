//! Decoders of NEON: codes of a byte become f32 numbers, which are rounded to bf16 in registers where the instruction set multiplies these.
#![allow(unsafe_code)]

use super::scaled::{Walk, factors, scaled};
use super::{Decoder, Job};
use crate::backend::cpu::linear::kernels::STEP;
use crate::backend::{Block, Codes, Coding, IQ4, Scaled, scale_and_min};
use std::arch::aarch64::*;
use std::arch::asm;

/// The decoder to f32 numbers, as they are.
pub fn to_f32(_: Coding) -> Decoder {
    singles
}

/// The decoder to bf16 numbers, as they are.
pub fn to_bf16(_: Coding) -> Decoder {
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
            Coding::Block(block) => match block {
                Block::Q8_0 => q8_0::<N>(job),
                Block::Q4_0 => q4_0::<N>(job),
                Block::Q4_1 => q4_1::<N>(job),
                Block::Q5_0 => q5_0::<N>(job),
                Block::Q5_1 => q5_1::<N>(job),
                Block::Q4K => q4_k::<N>(job),
                Block::Q5K => q5_k::<N>(job),
                Block::Q6K => q6_k::<N>(job),
                Block::Iq4Nl => iq4_nl::<N>(job),
                Block::Iq4Xs => iq4_xs::<N>(job),
            },
            Coding::Scaled(Scaled { codes, .. }) => match codes {
                Codes::U4 => pairs_of_integers::<N>(job),
                Codes::E2m1 => pairs_of_floats::<N>(job),
                Codes::U8 => bytes::<N, true>(job),
                Codes::I8 => bytes::<N, false>(job),
                Codes::E4m3 => e4m3::<N>(job),
            },
            _ => unreachable!("plain numbers are not decoded"),
        }
    }
}

/// Whole blocks, and where their numbers go.
fn blocks<'a, N: Number>(block: Block, job: Job<'a>) -> impl Iterator<Item = (&'a [u8], &'a mut [u8])> {
    let (numbers, bytes) = (block.numbers(), block.bytes());
    let codes = &job.row.codes[job.first / numbers * bytes..];
    codes.chunks_exact(bytes).zip(job.to.chunks_exact_mut(numbers * N::BYTES))
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

/// The half-precision number at `at`.
///
/// # Safety
///
/// As [`decode`], and two bytes can be read.
#[inline(always)]
unsafe fn half(at: *const u8) -> f32 {
    // SAFETY: the caller says so.
    unsafe { vgetq_lane_f32::<0>(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(at.cast::<u16>().read_unaligned())))) }
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

/// Sixteen unsigned bytes as numbers.
///
/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn from_unsigned(codes: uint8x16_t) -> [float32x4_t; 4] {
    // SAFETY: the caller says so. The conversion divides by 2^24.
    HIGHEST.map(|indices| unsafe {
        vcvtq_n_f32_u32::<24>(vreinterpretq_u32_u8(vqtbl1q_u8(codes, vld1q_u8(indices.as_ptr()))))
    })
}

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

/// Writes `scale * code + offset` of 16 unsigned codes, rounded once.
///
/// # Safety
///
/// As [`decode`], and `to` has room.
#[inline(always)]
unsafe fn store_linear<N: Number>(to: *mut u8, codes: uint8x16_t, scale: f32, offset: f32) {
    // SAFETY: the caller says so.
    unsafe { store::<N>(to, from_unsigned(codes).map(|q| vfmaq_f32(vdupq_n_f32(offset), q, vdupq_n_f32(scale)))) }
}

/// Writes `scale * code` of 16 signed codes.
///
/// # Safety
///
/// As [`decode`], and `to` has room.
#[inline(always)]
unsafe fn store_scaled<N: Number>(to: *mut u8, codes: uint8x16_t, scale: f32) {
    // SAFETY: the caller says so.
    unsafe { store::<N>(to, from_signed(codes).map(|q| vmulq_f32(q, vdupq_n_f32(scale)))) }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn q8_0<N: Number>(job: Job) {
    for (block, to) in blocks::<N>(Block::Q8_0, job) {
        // SAFETY: a block of 34 bytes, and room for its 32 numbers, by `blocks`.
        unsafe {
            let (d, at, to) = (half(block.as_ptr()), block.as_ptr().add(2), to.as_mut_ptr());
            store_scaled::<N>(to, vld1q_u8(at), d);
            store_scaled::<N>(to.add(16 * N::BYTES), vld1q_u8(at.add(16)), d);
        }
    }
}

/// `scale * code + offset` of the 32 codes of four bits at `at`, of which the low bits are the first 16.
///
/// # Safety
///
/// As [`decode`]. Sixteen bytes can be read, and `to` has room.
#[inline(always)]
unsafe fn store_four_bits<N: Number>(to: *mut u8, at: *const u8, scale: f32, offset: f32) {
    // SAFETY: the caller says so.
    unsafe {
        let [low, high] = nibbles(at);
        store_linear::<N>(to, low, scale, offset);
        store_linear::<N>(to.add(16 * N::BYTES), high, scale, offset);
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn q4_0<N: Number>(job: Job) {
    for (block, to) in blocks::<N>(Block::Q4_0, job) {
        // SAFETY: a block of 18 bytes, and room for its 32 numbers, by `blocks`. All products and the sum are exact.
        unsafe {
            let d = half(block.as_ptr());
            store_four_bits::<N>(to.as_mut_ptr(), block.as_ptr().add(2), d, d * -8.0);
        }
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn q4_1<N: Number>(job: Job) {
    for (block, to) in blocks::<N>(Block::Q4_1, job) {
        // SAFETY: a block of 20 bytes, and room for its 32 numbers, by `blocks`.
        unsafe {
            let (d, m) = (half(block.as_ptr()), half(block.as_ptr().add(2)));
            store_four_bits::<N>(to.as_mut_ptr(), block.as_ptr().add(4), d, m);
        }
    }
}

/// `scale * code + offset` of 32 codes of five bits: four bytes with the fifth ones, then the others.
///
/// # Safety
///
/// As [`decode`]. Twenty bytes can be read, and `to` has room.
#[inline(always)]
unsafe fn store_five_bits<N: Number>(to: *mut u8, at: *const u8, scale: f32, offset: f32) {
    // Byte `i / 8` of the fifth ones for code `i`, and its bit `i % 8` there.
    const BYTES: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
    const BITS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    // SAFETY: the caller says so.
    unsafe {
        let fifths = vreinterpretq_u8_u32(vdupq_n_u32(at.cast::<u32>().read_unaligned()));
        let (bytes, bits) = (vld1q_u8(BYTES.as_ptr()), vld1q_u8(BITS.as_ptr()));
        for (i, codes) in nibbles(at.add(4)).into_iter().enumerate() {
            let bytes = vaddq_u8(bytes, vdupq_n_u8(2 * i as u8));
            let is_fifth = vtstq_u8(vqtbl1q_u8(fifths, bytes), bits);
            let codes = vorrq_u8(codes, vandq_u8(is_fifth, vdupq_n_u8(16)));
            store_linear::<N>(to.add(16 * i * N::BYTES), codes, scale, offset);
        }
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn q5_0<N: Number>(job: Job) {
    for (block, to) in blocks::<N>(Block::Q5_0, job) {
        // SAFETY: a block of 22 bytes, and room for its 32 numbers, by `blocks`. All products and the sum are exact.
        unsafe {
            let d = half(block.as_ptr());
            store_five_bits::<N>(to.as_mut_ptr(), block.as_ptr().add(2), d, d * -16.0);
        }
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn q5_1<N: Number>(job: Job) {
    for (block, to) in blocks::<N>(Block::Q5_1, job) {
        // SAFETY: a block of 24 bytes, and room for its 32 numbers, by `blocks`.
        unsafe {
            let (d, m) = (half(block.as_ptr()), half(block.as_ptr().add(2)));
            store_five_bits::<N>(to.as_mut_ptr(), block.as_ptr().add(4), d, m);
        }
    }
}

/// The scale and the minimum of each 32 numbers of a block of [`Block::Q4K`] or [`Block::Q5K`].
///
/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn scales_and_mins(block: &[u8]) -> [(f32, f32); 8] {
    // SAFETY: the caller says so; a block is longer.
    let (d, e) = unsafe { (half(block.as_ptr()), half(block.as_ptr().add(2))) };
    std::array::from_fn(|j| {
        let (scale, min) = scale_and_min(&block[4..16], j);
        (d * f32::from(scale), e * f32::from(min))
    })
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn q4_k<N: Number>(job: Job) {
    for (block, to) in blocks::<N>(Block::Q4K, job) {
        // SAFETY: a block of 144 bytes, and room for its 256 numbers, by `blocks`.
        unsafe {
            let factors = scales_and_mins(block);
            for sixteen in 0..8 {
                let (pair, half) = (sixteen / 2, sixteen % 2);
                let [low, high] = nibbles(block.as_ptr().add(16 + 16 * sixteen));
                let to = to.as_mut_ptr().add((64 * pair + 16 * half) * N::BYTES);
                let [(scale, min), (high_scale, high_min)] = [factors[2 * pair], factors[2 * pair + 1]];
                store_linear::<N>(to, low, scale, -min);
                store_linear::<N>(to.add(STEP * N::BYTES), high, high_scale, -high_min);
            }
        }
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn q5_k<N: Number>(job: Job) {
    for (block, to) in blocks::<N>(Block::Q5K, job) {
        // SAFETY: a block of 176 bytes, and room for its 256 numbers, by `blocks`.
        unsafe {
            let factors = scales_and_mins(block);
            for sixteen in 0..8 {
                let (pair, half) = (sixteen / 2, sixteen % 2);
                let fifths = vld1q_u8(block.as_ptr().add(16 + 16 * half));
                let to = to.as_mut_ptr().add((64 * pair + 16 * half) * N::BYTES);
                for (high, codes) in nibbles(block.as_ptr().add(48 + 16 * sixteen)).into_iter().enumerate() {
                    let j = 2 * pair + high;
                    let is_fifth = vtstq_u8(fifths, vdupq_n_u8(1 << j));
                    let codes = vorrq_u8(codes, vandq_u8(is_fifth, vdupq_n_u8(16)));
                    let (scale, min) = factors[j];
                    store_linear::<N>(to.add(high * STEP * N::BYTES), codes, scale, -min);
                }
            }
        }
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn q6_k<N: Number>(job: Job) {
    for (block, to) in blocks::<N>(Block::Q6K, job) {
        let at = block.as_ptr();
        // SAFETY: a block of 210 bytes, and room for its 256 numbers, by `blocks`.
        unsafe {
            let d = half(at.add(208));
            // Sixteen bytes of high bits belong to the low bits of two places, whose low and high halves are quarters of a part.
            for (part, half) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let high = vld1q_u8(at.add(128 + part * 32 + half * 16));
                let [first, third] = nibbles(at.add(part * 64 + half * 16));
                let [second, fourth] = nibbles(at.add(part * 64 + 32 + half * 16));
                // The two bits of a quarter go to bits 4 and 5.
                let two_bits = vdupq_n_u8(0x30);
                let quarters = [
                    vorrq_u8(first, vandq_u8(vshlq_n_u8::<4>(high), two_bits)),
                    vorrq_u8(second, vandq_u8(vshlq_n_u8::<2>(high), two_bits)),
                    vorrq_u8(third, vandq_u8(high, two_bits)),
                    vorrq_u8(fourth, vandq_u8(vshrq_n_u8::<2>(high), two_bits)),
                ];
                for (quarter, codes) in quarters.into_iter().enumerate() {
                    let sixteen = part * 8 + quarter * 2 + half;
                    let scale = d * f32::from(block[192 + sixteen].cast_signed());
                    let codes = vsubq_u8(codes, vdupq_n_u8(32));
                    store_scaled::<N>(to.as_mut_ptr().add(16 * sixteen * N::BYTES), codes, scale);
                }
            }
        }
    }
}

/// `scale` times what the 32 codes of four bits at `at`, of which the low bits are the first 16, stand for in [`IQ4`].
///
/// # Safety
///
/// As [`decode`]. Sixteen bytes can be read, and `to` has room.
#[inline(always)]
unsafe fn store_iq4<N: Number>(to: *mut u8, at: *const u8, scale: f32) {
    // SAFETY: the caller says so; the table has 16 bytes.
    unsafe {
        let (table, [low, high]) = (vld1q_u8(IQ4.as_ptr().cast()), nibbles(at));
        store_scaled::<N>(to, vqtbl1q_u8(table, low), scale);
        store_scaled::<N>(to.add(16 * N::BYTES), vqtbl1q_u8(table, high), scale);
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn iq4_nl<N: Number>(job: Job) {
    for (block, to) in blocks::<N>(Block::Iq4Nl, job) {
        // SAFETY: a block of 18 bytes, and room for its 32 numbers, by `blocks`.
        unsafe { store_iq4::<N>(to.as_mut_ptr(), block.as_ptr().add(2), half(block.as_ptr())) };
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn iq4_xs<N: Number>(job: Job) {
    for (block, to) in blocks::<N>(Block::Iq4Xs, job) {
        let high = u32::from(block[2]) | u32::from(block[3]) << 8;
        for (j, to) in to.chunks_exact_mut(STEP * N::BYTES).enumerate() {
            let scale = u32::from(block[4 + j / 2]) >> (j % 2 * 4) & 15 | (high >> (2 * j) & 3) << 4;
            // SAFETY: a block of 136 bytes, and room for its numbers, by `blocks`.
            unsafe {
                let scale = half(block.as_ptr()) * (scale as f32 - 32.0);
                store_iq4::<N>(to.as_mut_ptr(), block.as_ptr().add(8 + 16 * j), scale);
            }
        }
    }
}

/// Writes `(code - zero) * scale` of 16 unsigned codes. The differences are exact.
///
/// # Safety
///
/// As [`decode`], and `to` has room.
#[inline(always)]
unsafe fn store_differences<N: Number>(to: *mut u8, codes: uint8x16_t, zero: f32, scale: f32) {
    // SAFETY: the caller says so. A zero of unsigned codes is an unsigned byte.
    unsafe {
        let zero = vdupq_n_u8(zero as u8);
        let [low, high] = [vsubl_u8(vget_low_u8(codes), vget_low_u8(zero)), vsubl_high_u8(codes, zero)]
            .map(|d| vreinterpretq_s16_u16(d));
        let numbers =
            [vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low), vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)];
        store::<N>(to, numbers.map(|q| vmulq_f32(vcvtq_f32_s32(q), vdupq_n_f32(scale))));
    }
}

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
unsafe fn pairs_of_integers<N: Number>(job: Job) {
    let scaled = scaled(job.coding);
    // SAFETY: the caller says that the machine has NEON.
    let factors = unsafe { factors(scaled, &job) };
    let mut walk = Walk::new(scaled, job);
    for group in 0..factors.count {
        let (scale, zero) = (factors.scales[group], factors.zeros[group]);
        for _ in 0..walk.steps_of_group() {
            // SAFETY: `Walk` has 16 bytes of codes for each step, and room for its numbers.
            unsafe {
                let [low, high] = nibbles(walk.codes);
                store_differences::<N>(walk.to, vzip1q_u8(low, high), zero, scale);
                store_differences::<N>(walk.to.add(16 * N::BYTES), vzip2q_u8(low, high), zero, scale);
            }
            walk.advance(STEP / 2, STEP * N::BYTES);
        }
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
unsafe fn pairs_of_floats<N: Number>(job: Job) {
    /// The upper bytes of [`E2M1`](crate::backend::E2M1) in half precision, whose lower bytes are zero.
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
unsafe fn bytes<N: Number, const IS_UNSIGNED: bool>(job: Job) {
    let scaled = scaled(job.coding);
    // SAFETY: the caller says that the machine has NEON.
    let factors = unsafe { factors(scaled, &job) };
    let has_zero = scaled.zeros || scaled.codes.zero() != 0.0;
    let mut walk = Walk::new(scaled, job);
    for group in 0..factors.count {
        let (scale, zero) = (factors.scales[group], factors.zeros[group]);
        for _ in 0..walk.steps_of_group() {
            // SAFETY: `Walk` has 32 bytes of codes for each step, and room for its numbers.
            unsafe {
                for half in 0..2 {
                    let (codes, to) = (vld1q_u8(walk.codes.add(16 * half)), walk.to.add(16 * half * N::BYTES));
                    match (IS_UNSIGNED, has_zero) {
                        (true, _) => store_differences::<N>(to, codes, zero, scale),
                        (false, true) => store_shifted::<N>(to, from_signed(codes), zero, scale),
                        (false, false) => store_scaled::<N>(to, codes, scale),
                    }
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
unsafe fn e4m3<N: Number>(job: Job) {
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
