//! Blocks of GGUF.
#![allow(unsafe_code)]

use super::{Number, blocks, half, nibbles, store_linear, store_scaled};
use crate::backend::cpu::linear::decode::Job;
use crate::backend::cpu::linear::kernels::STEP;
use crate::backend::{Block, IQ4, scale_and_min};
use std::arch::aarch64::*;

/// # Safety
///
/// As [`decode`].
#[inline(always)]
pub unsafe fn q8_0<N: Number>(job: Job) {
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
pub unsafe fn q4_0<N: Number>(job: Job) {
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
pub unsafe fn q4_1<N: Number>(job: Job) {
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
pub unsafe fn q5_0<N: Number>(job: Job) {
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
pub unsafe fn q5_1<N: Number>(job: Job) {
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
pub unsafe fn q4_k<N: Number>(job: Job) {
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
pub unsafe fn q5_k<N: Number>(job: Job) {
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
pub unsafe fn q6_k<N: Number>(job: Job) {
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
pub unsafe fn iq4_nl<N: Number>(job: Job) {
    for (block, to) in blocks::<N>(Block::Iq4Nl, job) {
        // SAFETY: a block of 18 bytes, and room for its 32 numbers, by `blocks`.
        unsafe { store_iq4::<N>(to.as_mut_ptr(), block.as_ptr().add(2), half(block.as_ptr())) };
    }
}

/// # Safety
///
/// As [`decode`].
#[inline(always)]
pub unsafe fn iq4_xs<N: Number>(job: Job) {
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
