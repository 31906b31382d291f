//! NEON: four numbers in a register; and the products of bytes that the [`Isa`] of the number `ISA` has.
//!
//! A [`Neon`] exists only inside [`run`], whose caller promised the instructions.
#![allow(unsafe_code)]

use super::simd::{NUMBERS, Simd};
use super::{Kernel, Lanes, each, of_registers, operations};
use crate::cpu::Isa;
use half::{bf16, f16};
use std::arch::aarch64::*;
use std::arch::asm;

/// # Safety
///
/// The machine must have NEON.
#[target_feature(enable = "neon")]
pub unsafe fn run<K: Kernel>(kernel: K) {
    kernel.run(Neon::<{ Isa::Neon as u8 }>(()));
}

#[derive(Clone, Copy)]
pub struct Neon<const ISA: u8>(());

/// NEON alone.
pub type Plain = Neon<{ Isa::Neon as u8 }>;
/// Products of four bytes besides.
pub type DotProd = Neon<{ Isa::DotProd as u8 }>;
/// Products of matrices of bytes besides.
pub type I8mm = Neon<{ Isa::I8mm as u8 }>;

type V = float32x4_t;
type U = uint32x4_t;

impl<const ISA: u8> Lanes for Neon<ISA> {
    type V = V;
    type U = U;
    const N: usize = 4;
    const REGISTERS: usize = 32;
    // 24 of 32 registers accumulate.
    const QUERIES: usize = 6;

    #[inline(always)]
    unsafe fn token() -> Self {
        Neon(())
    }

    operations! { unsafe fn with self:
        load(from: *const f32) -> V = vld1q_f32(from);
        load_f16(from: *const f16) -> V = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from.cast())));
        load_bf16(from: *const bf16) -> V = vreinterpretq_f32_u32(vshll_n_u16::<16>(vld1_u16(from.cast())));
        load_two_f16(from: *const f16) -> [V; 2] = {
            let halves = vreinterpretq_f16_u16(vld1q_u16(from.cast()));
            [vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)]
        };
        load_two_bf16(from: *const bf16) -> [V; 2] = {
            let bits = vld1q_u16(from.cast());
            [
                vreinterpretq_f32_u32(vshll_n_u16::<16>(vget_low_u16(bits))),
                vreinterpretq_f32_u32(vshll_high_n_u16::<16>(bits)),
            ]
        };
        load_i8(from: *const i8) -> V = {
            let bytes = vcreate_s8(u64::from(from.cast::<u32>().read_unaligned()));
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))))
        };
        load_first(from: *const f32, len: usize) -> V = {
            let mut v = [0.0; 4];
            std::ptr::copy_nonoverlapping(from, v.as_mut_ptr(), len);
            vld1q_f32(v.as_ptr())
        };
        store(to: *mut f32, v: V) = vst1q_f32(to, v);
        store_first(to: *mut f32, v: V, len: usize) = {
            let mut numbers = [0.0; 4];
            vst1q_f32(numbers.as_mut_ptr(), v);
            std::ptr::copy_nonoverlapping(numbers.as_ptr(), to, len);
        };
        store_u32(to: *mut u32, v: U) = vst1q_u32(to, v);
    }

    #[inline(always)]
    fn prefetch<T>(self, from: *const T) {
        // SAFETY: a prefetch never faults and changes nothing that a program sees.
        unsafe { asm!("prfm pldl1keep, [{}]", in(reg) from, options(readonly, nostack, preserves_flags)) }
    }

    operations! { fn:
        splat(value: f32) -> V = vdupq_n_f32(value);
        add(a: V, b: V) -> V = vaddq_f32(a, b);
        sub(a: V, b: V) -> V = vsubq_f32(a, b);
        mul(a: V, b: V) -> V = vmulq_f32(a, b);
        div(a: V, b: V) -> V = vdivq_f32(a, b);
        fma(a: V, b: V, c: V) -> V = vfmaq_f32(c, a, b);
        // The instruction of that name returns NaN where either is.
        max(a: V, b: V) -> V = vbslq_f32(vcgtq_f32(a, b), a, b);
        select_less(x: V, bound: V, then: V, otherwise: V) -> V = vbslq_f32(vcltq_f32(x, bound), then, otherwise);
        pow2(n: V) -> V = vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127))));
        splat_u32(value: u32) -> U = vdupq_n_u32(value);
        count_from(first: u32) -> U = vaddq_u32(vdupq_n_u32(first), vld1q_u32([0, 1, 2, 3].as_ptr()));
        add_u32(a: U, b: U) -> U = vaddq_u32(a, b);
        xor(a: U, b: U) -> U = veorq_u32(a, b);
        and(a: U, b: U) -> U = vandq_u32(a, b);
        // A shift to the left by a negative number is one to the right.
        shift_right(a: U, bits: u32) -> U = vshlq_u32(a, vdupq_n_s32(-bits.cast_signed()));
        mul_wide(a: U, b: U) -> [U; 2] = {
            let first = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a), vget_low_u32(b)));
            let second = vreinterpretq_u32_u64(vmull_high_u32(a, b));
            [vuzp2q_u32(first, second), vuzp1q_u32(first, second)]
        };
        to_bits(v: V) -> U = vreinterpretq_u32_f32(v);
        with_bits(v: U) -> V = vreinterpretq_f32_u32(v);
        to_f32(v: U) -> V = vcvtq_f32_u32(v);
        truncate(v: V) -> U = vcvtq_u32_f32(v);
        sum(v: V) -> f32 = {
            let pairs = vpaddq_f32(v, v);
            vgetq_lane_f32::<0>(vpaddq_f32(pairs, pairs))
        };
        sum4(v: [V; 4]) -> [f32; 4] = {
            let mut sums = [0.0; 4];
            vst1q_f32(sums.as_mut_ptr(), vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3])));
            sums
        };
        // As `f32::max`, it passes over a NaN.
        greatest(v: V) -> f32 = vmaxnmvq_f32(v);
    }
}

/// A register as one of other lanes.
///
/// # Safety
///
/// Both are registers, in which any bits are valid.
#[inline(always)]
pub unsafe fn cast<From, To>(register: From) -> To {
    const { assert!(size_of::<From>() == 16 && size_of::<To>() == 16) };
    // SAFETY: the caller says so.
    unsafe { std::mem::transmute_copy(&register) }
}

type Ints = [uint8x16_t; 4];
type Floats = [float32x4_t; 4];

impl<const ISA: u8> Simd for Neon<ISA> {
    type Ints = Ints;
    type Floats = Floats;

    of_registers! { (0 1 2 3):
        and(a: Ints, b: Ints) -> Ints = vandq_u8(a, b);
        or(a: Ints, b: Ints) -> Ints = vorrq_u8(a, b);
        xor(a: Ints, b: Ints) -> Ints = veorq_u8(a, b);
        add_i32(a: Ints, b: Ints) -> Ints = cast(vaddq_s32(cast(a), cast(b)));
        sub_i32(a: Ints, b: Ints) -> Ints = cast(vsubq_s32(cast(a), cast(b)));
        shl_i32(v: Ints; bits: i32) -> Ints = cast(vshlq_s32(cast(v), vdupq_n_s32(bits)));
        shr_u32(v: Ints; bits: i32) -> Ints = cast(vshlq_u32(cast(v), vdupq_n_s32(-bits)));
        shr_i32(v: Ints; bits: i32) -> Ints = cast(vshlq_s32(cast(v), vdupq_n_s32(-bits)));
        low_u32(a: Ints, b: Ints) -> Ints = cast(vzip1q_u32(cast(a), cast(b)));
        high_u32(a: Ints, b: Ints) -> Ints = cast(vzip2q_u32(cast(a), cast(b)));
        low_u64(a: Ints, b: Ints) -> Ints = cast(vzip1q_u64(cast(a), cast(b)));
        high_u64(a: Ints, b: Ints) -> Ints = cast(vzip2q_u64(cast(a), cast(b)));
        zero() -> Ints = vdupq_n_u8(0);
        every_u8(; byte: u8) -> Ints = vdupq_n_u8(byte);
        every_i32(; number: i32) -> Ints = cast(vdupq_n_s32(number));
        every(; number: f32) -> Floats = vdupq_n_f32(number);
        to_floats(v: Ints) -> Floats = vcvtq_f32_s32(cast(v));
        from_bits(v: Ints) -> Floats = cast(v);
        from_halves(v: Ints) -> Floats = vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(cast(v))));
        mul(a: Floats, b: Floats) -> Floats = vmulq_f32(a, b);
        mul_add(a: Floats, b: Floats, c: Floats) -> Floats = vfmaq_f32(c, a, b);
        mul_sub_from(a: Floats, b: Floats, c: Floats) -> Floats = vfmsq_f32(c, a, b);
        look_up(indexes: Ints; table: &[u8; 16]) -> Ints = vqtbl1q_u8(vld1q_u8(table.as_ptr()), indexes);
    }

    operations! { unsafe fn:
        load(from: *const u8) -> Ints = each!(I of 4 => vld1q_u8(from.add(16 * I)));
        two(columns: [*const u8; 2]) -> Ints = each!(I of 4 => vld1q_u8(columns[I / 2].add(16 * (I % 2))));
        two_of_nibbles(columns: [*const u8; 2]) -> Ints = {
            let (first, second, low) = (vld1q_u8(columns[0]), vld1q_u8(columns[1]), vdupq_n_u8(15));
            [vandq_u8(first, low), vshrq_n_u8::<4>(first), vandq_u8(second, low), vshrq_n_u8::<4>(second)]
        };
        four(columns: [*const u8; 4]) -> Ints = each!(I of 4 => vld1q_u8(columns[I]));
        four_and_more(low: Ints, high: Ints, at: i32, ones: u8) -> Ints = {
            // A negative number of bits moves to the right.
            let (four, left) = (vdupq_n_u8(15), vdupq_n_s32(4 - at));
            let ones = vdupq_n_u8(15 | ones << 4);
            each!(I of 4 => vandq_u8(vbslq_u8(four, low[I], cast(vshlq_u32(cast(high[I]), left))), ones))
        };
        add_fifth_bits(codes: Ints, bits: [u32; 2]) -> Ints = each!(I of 4 => {
            /// Which byte has the bit, and how far to the left its place is: bit 4.
            const PLACES: [([u8; 16], [i8; 16]); 2] = {
                let (mut places, mut i) = ([([0; 16], [0; 16]); 2], 0);
                while i < 32 {
                    places[i / 16].0[i % 16] = (i / 8) as u8;
                    places[i / 16].1[i % 16] = 4 - (i % 8) as i8;
                    i += 1;
                }
                places
            };
            let (bytes, left) = (vld1q_u8(PLACES[I % 2].0.as_ptr()), vld1q_s8(PLACES[I % 2].1.as_ptr()));
            let moved = vshlq_u8(vqtbl1q_u8(cast(vdupq_n_u32(bits[I / 2])), bytes), left);
            vbslq_u8(vdupq_n_u8(16), moved, codes[I])
        });
        even_quarters(a: Ints, b: Ints) -> Ints = [a[0], a[2], b[0], b[2]];
        odd_quarters(a: Ints, b: Ints) -> Ints = [a[1], a[3], b[1], b[3]];
        halves(from: &[u16; NUMBERS]) -> Floats =
            each!(I of 4 => vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from.as_ptr().add(4 * I)))));
        words(from: &[u16; NUMBERS]) -> Ints = each!(I of 4 => cast(vmovl_u16(vld1_u16(from.as_ptr().add(4 * I)))));
        bytes(from: &[u8; NUMBERS]) -> Ints = {
            let bytes = vld1q_u8(from.as_ptr());
            let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
            [
                cast(vmovl_u16(vget_low_u16(low))),
                cast(vmovl_high_u16(low)),
                cast(vmovl_u16(vget_low_u16(high))),
                cast(vmovl_high_u16(high)),
            ]
        };
        load_floats(from: &[f32; NUMBERS]) -> Floats = each!(I of 4 => vld1q_f32(from.as_ptr().add(4 * I)));
        store_floats(to: &mut [f32; NUMBERS], v: Floats) =
            _ = each!(I of 4 => vst1q_f32(to.as_mut_ptr().add(4 * I), v[I]));
    }
}
