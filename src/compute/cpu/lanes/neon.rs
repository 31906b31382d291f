//! Four numbers in a NEON register.
//!
//! The blocks marked "token" are sound because a [`Neon`] exists only inside [`run`], whose caller promised the
//! instructions.
#![allow(unsafe_code)]

use super::{Kernel, Lanes};
use half::{bf16, f16};
use std::arch::aarch64::*;
use std::arch::asm;

/// # Safety
///
/// The machine must have NEON.
#[target_feature(enable = "neon")]
pub unsafe fn run<K: Kernel>(kernel: K) {
    kernel.run(Neon(()));
}

#[derive(Clone, Copy)]
pub struct Neon(());

impl Lanes for Neon {
    type V = float32x4_t;
    type U = uint32x4_t;
    const N: usize = 4;
    // 24 of 32 registers accumulate.
    const QUERIES: usize = 6;

    #[inline(always)]
    fn splat(self, value: f32) -> float32x4_t {
        // SAFETY: token.
        unsafe { vdupq_n_f32(value) }
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f32) -> float32x4_t {
        // SAFETY: token, and the caller's promise.
        unsafe { vld1q_f32(from) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const f16) -> float32x4_t {
        // SAFETY: token, and the caller's promise.
        unsafe { vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_bf16(self, from: *const bf16) -> float32x4_t {
        // SAFETY: token, and the caller's promise.
        unsafe { vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.cast()))) }
    }

    #[inline(always)]
    unsafe fn load_i8(self, from: *const i8) -> float32x4_t {
        // SAFETY: token, and the caller's promise of 4 bytes.
        unsafe {
            let bytes = vcreate_s8(u64::from(from.cast::<u32>().read_unaligned()));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))
        }
    }

    #[inline(always)]
    unsafe fn load_first(self, from: *const f32, len: usize) -> float32x4_t {
        let mut v = [0.0; 4];
        // SAFETY: the caller promises that `len` numbers are there and less than 4.
        unsafe { std::ptr::copy_nonoverlapping(from, v.as_mut_ptr(), len) };
        // SAFETY: token, and the array has 4 numbers.
        unsafe { vld1q_f32(v.as_ptr()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, v: float32x4_t) {
        // SAFETY: token, and the caller's promise.
        unsafe { vst1q_f32(to, v) }
    }

    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, v: float32x4_t, len: usize) {
        let mut numbers = [0.0; 4];
        // SAFETY: token; the array has 4 numbers, and the caller promises that `len` may be written and is less than 4.
        unsafe {
            vst1q_f32(numbers.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(numbers.as_ptr(), to, len);
        }
    }

    #[inline(always)]
    fn prefetch<T>(self, from: *const T) {
        // SAFETY: a prefetch never faults and changes nothing that a program sees.
        unsafe { asm!("prfm pldl1keep, [{}]", in(reg) from, options(readonly, nostack, preserves_flags)) }
    }

    #[inline(always)]
    fn add(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: token.
        unsafe { vaddq_f32(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: token.
        unsafe { vsubq_f32(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: token.
        unsafe { vmulq_f32(a, b) }
    }

    #[inline(always)]
    fn div(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: token.
        unsafe { vdivq_f32(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
        // SAFETY: token.
        unsafe { vfmaq_f32(c, a, b) }
    }

    #[inline(always)]
    fn max(self, a: float32x4_t, b: float32x4_t) -> float32x4_t {
        // SAFETY: token. The instruction of that name returns NaN where either is.
        unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) }
    }

    #[inline(always)]
    fn select_less(self, x: float32x4_t, bound: float32x4_t, then: float32x4_t, otherwise: float32x4_t) -> float32x4_t {
        // SAFETY: token.
        unsafe { vbslq_f32(vcltq_f32(x, bound), then, otherwise) }
    }

    #[inline(always)]
    fn pow2(self, n: float32x4_t) -> float32x4_t {
        // SAFETY: token.
        unsafe {
            let exponent = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
            vreinterpretq_f32_s32(vshlq_n_s32::<23>(exponent))
        }
    }

    #[inline(always)]
    fn splat_u32(self, value: u32) -> uint32x4_t {
        // SAFETY: token.
        unsafe { vdupq_n_u32(value) }
    }

    #[inline(always)]
    fn count_from(self, first: u32) -> uint32x4_t {
        // SAFETY: token, and the array has 4 numbers.
        unsafe { vaddq_u32(vdupq_n_u32(first), vld1q_u32([0, 1, 2, 3].as_ptr())) }
    }

    #[inline(always)]
    unsafe fn store_u32(self, to: *mut u32, v: uint32x4_t) {
        // SAFETY: token, and the caller's promise.
        unsafe { vst1q_u32(to, v) }
    }

    #[inline(always)]
    fn add_u32(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: token.
        unsafe { vaddq_u32(a, b) }
    }

    #[inline(always)]
    fn xor(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: token.
        unsafe { veorq_u32(a, b) }
    }

    #[inline(always)]
    fn and(self, a: uint32x4_t, b: uint32x4_t) -> uint32x4_t {
        // SAFETY: token.
        unsafe { vandq_u32(a, b) }
    }

    #[inline(always)]
    fn shift_right(self, a: uint32x4_t, bits: u32) -> uint32x4_t {
        // SAFETY: token. A shift to the left by a negative number is one to the right.
        unsafe { vshlq_u32(a, vdupq_n_s32(-bits.cast_signed())) }
    }

    #[inline(always)]
    fn mul_wide(self, a: uint32x4_t, b: uint32x4_t) -> [uint32x4_t; 2] {
        // SAFETY: token.
        unsafe {
            let first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a), vget_low_u32(b)));
            let second = vreinterpretq_u32_u64(vmull_high_u32(a, b));
            [vuzp2q_u32(first, second), vuzp1q_u32(first, second)]
        }
    }

    #[inline(always)]
    fn to_bits(self, v: float32x4_t) -> uint32x4_t {
        // SAFETY: token.
        unsafe { vreinterpretq_u32_f32(v) }
    }

    #[inline(always)]
    fn with_bits(self, v: uint32x4_t) -> float32x4_t {
        // SAFETY: token.
        unsafe { vreinterpretq_f32_u32(v) }
    }

    #[inline(always)]
    fn to_f32(self, v: uint32x4_t) -> float32x4_t {
        // SAFETY: token.
        unsafe { vcvtq_f32_u32(v) }
    }

    #[inline(always)]
    fn truncate(self, v: float32x4_t) -> uint32x4_t {
        // SAFETY: token.
        unsafe { vcvtq_u32_f32(v) }
    }

    #[inline(always)]
    fn sum(self, v: float32x4_t) -> f32 {
        // SAFETY: token.
        unsafe {
            let pairs = vpaddq_f32(v, v);
            vgetq_lane_f32::<0>(vpaddq_f32(pairs, pairs))
        }
    }

    #[inline(always)]
    fn sum4(self, v: [float32x4_t; 4]) -> [f32; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: token, and the array takes 4 numbers.
        unsafe { vst1q_f32(sums.as_mut_ptr(), vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3]))) };
        sums
    }

    #[inline(always)]
    fn greatest(self, v: float32x4_t) -> f32 {
        // SAFETY: token. As `f32::max`, it passes over a NaN.
        unsafe { vmaxnmvq_f32(v) }
    }
}
