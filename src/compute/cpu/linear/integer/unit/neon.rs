//! Registers of 128 bits, four for a vector.
#![allow(unsafe_code)]

use super::{Unit, Work};
use crate::cpu::Isa;
use crate::cpu::linear::integer::EDGE;
use crate::cpu::linear::integer::activations::Form;
use crate::cpu::linear::integer::codings::{HalfCodes, Integers};
use crate::cpu::linear::integer::lanes::{self, Panels};
use std::arch::aarch64::*;

/// NEON, and the products of bytes that the [`Isa`] of this number has.
pub struct Neon<const ISA: u8>;

/// NEON alone.
pub type Plain = Neon<{ Isa::Neon as u8 }>;
/// Products of four bytes besides.
pub type DotProd = Neon<{ Isa::DotProd as u8 }>;
/// Products of matrices of bytes besides.
pub type I8mm = Neon<{ Isa::I8mm as u8 }>;

#[target_feature(enable = "neon")]
unsafe fn enter_plain<W: Work>(work: W) -> W::Output {
    // SAFETY: the caller says so.
    unsafe { work.run::<Plain>() }
}

#[target_feature(enable = "neon,dotprod")]
unsafe fn enter_dotprod<W: Work>(work: W) -> W::Output {
    // SAFETY: the caller says so.
    unsafe { work.run::<DotProd>() }
}

#[target_feature(enable = "neon,dotprod,i8mm")]
unsafe fn enter_i8mm<W: Work>(work: W) -> W::Output {
    // SAFETY: the caller says so.
    unsafe { work.run::<I8mm>() }
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

/// `$value` for each number below 4 or 8, a constant in it. No closure: closures do not always become part of a function with these instructions.
macro_rules! each {
    ($i:ident of 4 => $value:expr) => { each!($i in 0 1 2 3 => $value) };
    ($i:ident of 8 => $value:expr) => { each!($i in 0 1 2 3 4 5 6 7 => $value) };
    ($i:ident in $($number:literal)* => $value:expr) => {
        [$({ const $i: usize = $number; $value }),*]
    };
}
pub(in super::super) use each;

/// Verbs that are an instruction of each register.
macro_rules! of_two_vectors {
    ($($verb:ident: $instruction:ident)*) => {$(
        #[inline(always)]
        unsafe fn $verb(a: Self::Ints, b: Self::Ints) -> Self::Ints {
            // SAFETY: the caller says so.
            unsafe { each!(I of 4 => cast($instruction(cast(a[I]), cast(b[I])))) }
        }
    )*};
}

/// Sixteen more where a bit is set, of the 16 from bit `FIRST` on.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn add_fifth_bits<const FIRST: usize>(codes: uint8x16_t, bits: uint8x16_t) -> uint8x16_t {
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
    // SAFETY: the caller says so; the arrays have 16 bytes.
    unsafe {
        let (bytes, left) = (vld1q_u8(PLACES[FIRST / 16].0.as_ptr()), vld1q_s8(PLACES[FIRST / 16].1.as_ptr()));
        let moved = vshlq_u8(vqtbl1q_u8(bits, bytes), left);
        vbslq_u8(vdupq_n_u8(16), moved, codes)
    }
}

impl<const ISA: u8> Neon<ISA> {
    const HAS_DOT: bool = ISA >= Isa::DotProd as u8;
    const HAS_MATRICES: bool = ISA >= Isa::I8mm as u8;
}

impl<const ISA: u8> Unit for Neon<ISA>
where
    Neon<ISA>: Panels,
{
    type Ints = [uint8x16_t; 4];
    type Floats = [float32x4_t; 4];
    type Bytes = <Self as Panels>::Panel;
    type Words = <Self as Panels>::Panel;
    const FORMS: [Form; 3] = if Self::HAS_DOT { [Form::Digits; 3] } else { [Form::Words, Form::Bytes, Form::Bytes] };
    const IS_SIGNED: bool = true;
    // By numbers of instructions: two rows of codes of four bits take up to 19 % more of them with SMMLA.
    const FEW: usize = match () {
        () if Self::HAS_MATRICES => 2,
        () if Self::HAS_DOT => 4,
        () => 1,
    };
    const TILE: (usize, usize) = if Self::HAS_DOT { (6, 1) } else { (4, 1) };

    unsafe fn enter<W: Work>(work: W) -> W::Output {
        // SAFETY: the caller says so.
        unsafe {
            match () {
                () if Self::HAS_MATRICES => enter_i8mm(work),
                () if Self::HAS_DOT => enter_dotprod(work),
                () => enter_plain(work),
            }
        }
    }

    of_two_vectors! {
        and: vandq_u8
        or: vorrq_u8
        xor: veorq_u8
        add_i32: vaddq_s32
        sub_i32: vsubq_s32
        low_u32: vzip1q_u32
        high_u32: vzip2q_u32
        low_u64: vzip1q_u64
        high_u64: vzip2q_u64
    }

    #[inline(always)]
    unsafe fn zero() -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { [vdupq_n_u8(0); 4] }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => vld1q_u8(from.add(16 * I))) }
    }

    #[inline(always)]
    unsafe fn two(first: *const u8, second: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { [vld1q_u8(first), vld1q_u8(first.add(16)), vld1q_u8(second), vld1q_u8(second.add(16))] }
    }

    #[inline(always)]
    unsafe fn two_of_nibbles(first: *const u8, second: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let (first, second, low) = (vld1q_u8(first), vld1q_u8(second), vdupq_n_u8(15));
            [vandq_u8(first, low), vshrq_n_u8::<4>(first), vandq_u8(second, low), vshrq_n_u8::<4>(second)]
        }
    }

    #[inline(always)]
    unsafe fn four(columns: [*const u8; 4]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => vld1q_u8(columns[I])) }
    }

    #[inline(always)]
    unsafe fn every_u8(byte: u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { [vdupq_n_u8(byte); 4] }
    }

    #[inline(always)]
    unsafe fn every_i32(number: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { [cast(vdupq_n_s32(number)); 4] }
    }

    #[inline(always)]
    unsafe fn shl_i32(v: Self::Ints, bits: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => cast(vshlq_s32(cast(v[I]), vdupq_n_s32(bits)))) }
    }

    #[inline(always)]
    unsafe fn shr_u32(v: Self::Ints, bits: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => cast(vshlq_u32(cast(v[I]), vdupq_n_s32(-bits)))) }
    }

    #[inline(always)]
    unsafe fn shr_i32(v: Self::Ints, bits: i32) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => cast(vshlq_s32(cast(v[I]), vdupq_n_s32(-bits)))) }
    }

    #[inline(always)]
    unsafe fn four_and_more(low: Self::Ints, high: Self::Ints, at: i32, ones: u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            // A negative number of bits moves to the right.
            let (four, left) = (vdupq_n_u8(15), vdupq_n_s32(4 - at));
            let both = each!(I of 4 => vbslq_u8(four, low[I], cast(vshlq_u32(cast(high[I]), left))));
            Self::and(both, Self::every_u8(15 | ones << 4))
        }
    }

    #[inline(always)]
    unsafe fn add_fifth_bits(codes: Self::Ints, bits: [u32; 2]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let [first, second] = [cast(vdupq_n_u32(bits[0])), cast(vdupq_n_u32(bits[1]))];
            [
                add_fifth_bits::<0>(codes[0], first),
                add_fifth_bits::<16>(codes[1], first),
                add_fifth_bits::<0>(codes[2], second),
                add_fifth_bits::<16>(codes[3], second),
            ]
        }
    }

    #[inline(always)]
    unsafe fn look_up(table: &[u8; 16], indexes: Self::Ints) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => vqtbl1q_u8(vld1q_u8(table.as_ptr()), indexes[I])) }
    }

    #[inline(always)]
    unsafe fn even_quarters(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        [a[0], a[2], b[0], b[2]]
    }

    #[inline(always)]
    unsafe fn odd_quarters(a: Self::Ints, b: Self::Ints) -> Self::Ints {
        [a[1], a[3], b[1], b[3]]
    }

    #[inline(always)]
    unsafe fn sums<D: Integers>(codes: HalfCodes<Self>, x: *const u8) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { lanes::sums::<Self, D>(codes, x) }
    }

    #[inline(always)]
    unsafe fn to_floats(integers: Self::Ints) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => vcvtq_f32_s32(cast(integers[I]))) }
    }

    #[inline(always)]
    unsafe fn from_bits(bits: Self::Ints) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => cast(bits[I])) }
    }

    #[inline(always)]
    unsafe fn from_halves(words: Self::Ints) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(cast(words[I]))))) }
    }

    #[inline(always)]
    unsafe fn halves(from: &[u16; EDGE]) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from.as_ptr().add(4 * I))))) }
    }

    #[inline(always)]
    unsafe fn words(from: &[u16; EDGE]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => cast(vmovl_u16(vld1_u16(from.as_ptr().add(4 * I))))) }
    }

    #[inline(always)]
    unsafe fn bytes(from: &[u8; EDGE]) -> Self::Ints {
        // SAFETY: the caller says so.
        unsafe {
            let bytes = vld1q_u8(from.as_ptr());
            let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
            [
                cast(vmovl_u16(vget_low_u16(low))),
                cast(vmovl_high_u16(low)),
                cast(vmovl_u16(vget_low_u16(high))),
                cast(vmovl_high_u16(high)),
            ]
        }
    }

    #[inline(always)]
    unsafe fn every(number: f32) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { [vdupq_n_f32(number); 4] }
    }

    #[inline(always)]
    unsafe fn load_floats(from: &[f32; EDGE]) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => vld1q_f32(from.as_ptr().add(4 * I))) }
    }

    #[inline(always)]
    unsafe fn store_floats(to: &mut [f32; EDGE], v: Self::Floats) {
        // SAFETY: the caller says so.
        unsafe { _ = each!(I of 4 => vst1q_f32(to.as_mut_ptr().add(4 * I), v[I])) };
    }

    #[inline(always)]
    unsafe fn store_columns(to: &mut [f32], v: Self::Floats, bias: Option<&[f32]>) {
        // SAFETY: the caller says so.
        unsafe {
            let mut numbers = [0.0; EDGE];
            Self::store_floats(&mut numbers, v);
            match bias {
                Some(bias) => to.iter_mut().zip(numbers).zip(bias).for_each(|((to, number), bias)| *to = number + bias),
                None => to.copy_from_slice(&numbers[..to.len()]),
            }
        }
    }

    #[inline(always)]
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => vmulq_f32(a[I], b[I])) }
    }

    #[inline(always)]
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => vfmaq_f32(c[I], a[I], b[I])) }
    }

    #[inline(always)]
    unsafe fn mul_sub_from(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats {
        // SAFETY: the caller says so.
        unsafe { each!(I of 4 => vfmsq_f32(c[I], a[I], b[I])) }
    }
}
