//! Products of NEON: SDOT adds four of bytes to a lane, SMLAL one of bytes or of words. Those of matrices are in `smmla`.
//!
//! With many rows, SDOT and the SMLAL of words take four bytes or a word of `x` out of a register that has those of several lines.
#![allow(unsafe_code)]

use super::activations::Form;
use super::codings::{Factors, Integers, Second, StepCodes, second};
use super::panel::{Layout, Product, by_fours};
use super::target::Target;
use super::{EDGE, STEP};
use crate::cpu::lanes::{DotProd, Plain, cast, each};
use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

/// Adds the products of each four signed bytes.
///
/// # Safety
///
/// The machine has products of bytes.
#[inline(always)]
unsafe fn dot(mut sums: int32x4_t, codes: uint8x16_t, x: uint8x16_t) -> int32x4_t {
    // SAFETY: the caller says so; the instruction changes one register.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {codes:v}.16b, {x:v}.16b",
            sums = inout(vreg) sums,
            codes = in(vreg) codes,
            x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// Adds the products of each four signed bytes with the `FOUR`-th four of `x`.
///
/// # Safety
///
/// The machine has products of bytes.
#[inline(always)]
unsafe fn dot_four<const FOUR: usize>(mut sums: uint8x16_t, codes: uint8x16_t, x: uint8x16_t) -> uint8x16_t {
    // SAFETY: the caller says so; the instruction changes one register.
    unsafe {
        asm!(
            "sdot {sums:v}.4s, {codes:v}.16b, {x:v}.4b[{four}]",
            sums = inout(vreg) sums,
            codes = in(vreg) codes,
            x = in(vreg) x,
            four = const FOUR,
            options(pure, nomem, nostack, preserves_flags),
        );
    }
    sums
}

/// See [`Target::sums`].
///
/// # Safety
///
/// As there.
#[inline(always)]
pub unsafe fn sums<T: Target, D: Integers>(codes: [[uint8x16_t; 4]; 4], x: *const u8) -> [uint8x16_t; 4] {
    // SAFETY: the caller says so.
    unsafe {
        let mut quarters = [vdupq_n_u8(0); 4];
        for four in [0, 1] {
            let mut halves = [[vdupq_n_s32(0); 4]; 2];
            for (i, codes) in codes.iter().enumerate() {
                let codes = [codes[2 * four], codes[2 * four + 1]];
                if D::HAS_HALVES {
                    halves[0][i] = multiply::<T, D, 1>([codes[0]], x, 0);
                    halves[1][i] = multiply::<T, D, 1>([codes[1]], x, STEP / 2);
                } else {
                    halves[0][i] = multiply::<T, D, 2>(codes, x, 0);
                }
            }
            quarters[2 * four] = cast(added(halves[0]));
            if D::HAS_HALVES {
                quarters[2 * four + 1] = cast(added(halves[1]));
            }
        }
        quarters
    }
}

/// The sum of each vector.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn added([a, b, c, d]: [int32x4_t; 4]) -> int32x4_t {
    // SAFETY: the caller says so.
    unsafe { vpaddq_s32(vpaddq_s32(a, b), vpaddq_s32(c, d)) }
}

/// The products of codes of a column with the integers of a group from number `first` on, in any lanes.
///
/// # Safety
///
/// The machine has the target's instructions, and the integers can be read.
#[inline(always)]
unsafe fn multiply<T: Target, D: Integers, const N: usize>(
    codes: [uint8x16_t; N],
    x: *const u8,
    first: usize,
) -> int32x4_t {
    // SAFETY: the caller says so.
    unsafe {
        let mut sums = vdupq_n_s32(0);
        match const { Form::of::<T, D>() } {
            Form::Digits => {
                for (i, codes) in codes.into_iter().enumerate() {
                    sums = dot(sums, codes, vld1q_u8(x.add(first + 16 * i)));
                }
                if D::FORMAT.is_wide {
                    sums = vshlq_n_s32::<6>(sums);
                    for (i, codes) in codes.into_iter().enumerate() {
                        sums = dot(sums, codes, vld1q_u8(x.add(STEP + first + 16 * i)));
                    }
                }
            }
            Form::Bytes => {
                for (i, codes) in codes.into_iter().enumerate() {
                    let (codes, x): (int8x16_t, int8x16_t) = (cast(codes), vld1q_s8(x.add(first + 16 * i).cast()));
                    let products = vmlal_high_s8(vmull_s8(vget_low_s8(codes), vget_low_s8(x)), codes, x);
                    sums = vpadalq_s16(sums, products);
                }
            }
            Form::Words => {
                for (i, codes) in codes.into_iter().enumerate() {
                    let codes: int8x16_t = cast(codes);
                    let x = x.cast::<i16>().add(first + 16 * i);
                    for (words, x) in
                        [vmovl_s8(vget_low_s8(codes)), vmovl_high_s8(codes)].into_iter().zip([x, x.add(8)])
                    {
                        let x = vld1q_s16(x);
                        sums = vmlal_s16(sums, vget_low_s16(words), vget_low_s16(x));
                        sums = vmlal_high_s16(sums, words, x);
                    }
                }
            }
            Form::EvenOdd => unreachable!("even and odd words are those of x86-64"),
        }
        sums
    }
}

/// Four codes of each of 16 columns as four vectors of one of each.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn by_ones([a, b, c, d]: [uint8x16_t; 4]) -> [uint8x16_t; 4] {
    // SAFETY: the caller says so.
    unsafe {
        let (even, next_even) = (vuzp1q_u8(a, b), vuzp1q_u8(c, d));
        let (odd, next_odd) = (vuzp2q_u8(a, b), vuzp2q_u8(c, d));
        [vuzp1q_u8(even, next_even), vuzp1q_u8(odd, next_odd), vuzp2q_u8(even, next_even), vuzp2q_u8(odd, next_odd)]
    }
}

/// The zeros of 16 columns as signed bytes.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
pub unsafe fn zeros(from: &[f32; EDGE]) -> int8x16_t {
    // SAFETY: the caller says so; the array has 16 numbers.
    unsafe {
        let four: [int16x8_t; 4] = each!(I of 4 => cast(vcvtnq_s32_f32(vld1q_f32(from.as_ptr().add(4 * I)))));
        cast(vuzp1q_u8(cast(vuzp1q_s16(four[0], four[1])), cast(vuzp1q_s16(four[2], four[3]))))
    }
}

/// Codes as bytes. `[four][column][4]`
pub struct Fours;

impl Layout for Fours {
    type Target = DotProd;
    type Step = [[[u8; EDGE]; 4]; STEP / 4];

    #[inline(always)]
    unsafe fn write<D: Integers>(codes: StepCodes<DotProd>, _: &Factors, _: usize, to: &mut Self::Step) {
        // SAFETY: the caller says what the machine has; the arrays have 16 bytes.
        unsafe {
            for (to, four) in to.iter_mut().zip(by_fours::<DotProd>(codes)) {
                for (to, register) in to.iter_mut().zip(four) {
                    vst1q_u8(to.as_mut_ptr(), register);
                }
            }
        }
    }
}

impl Product for Fours {
    const HAS_ZEROS: bool = true;

    #[inline(always)]
    unsafe fn products<D: Integers, const R: usize, const C: usize>(
        codes: [*const Self::Step; C],
        x: [*const u8; R],
        range: Range<usize>,
    ) -> [[[uint8x16_t; 4]; C]; R] {
        // SAFETY: the caller says so.
        unsafe {
            let mut integers = [[[vdupq_n_u8(0); 4]; C]; R];
            for digit in 0..if D::FORMAT.is_wide { 2 } else { 1 } {
                for first in range.clone().step_by(16) {
                    let mut numbers = [vdupq_n_u8(0); R];
                    for (to, x) in numbers.iter_mut().zip(x) {
                        *to = vld1q_u8(x.add(digit * STEP + first));
                    }
                    each!(FOUR of 4 => for c in 0..C {
                        each!(I of 4 => {
                            let codes = vld1q_u8(codes[c].cast::<u8>().add((first + 4 * FOUR) * EDGE + 16 * I));
                            for r in 0..R {
                                integers[r][c][I] = dot_four::<FOUR>(integers[r][c][I], codes, numbers[r]);
                            }
                        });
                    });
                }
                if D::FORMAT.is_wide && digit == 0 {
                    for integers in integers.as_flattened_mut().as_flattened_mut() {
                        *integers = cast(vshlq_n_s32::<6>(cast(*integers)));
                    }
                }
            }
            integers
        }
    }
}

/// Codes without their zeros as words. `[number][column]`
pub struct Words;

impl Layout for Words {
    type Target = Plain;
    type Step = [[i16; EDGE]; STEP];

    #[inline(always)]
    unsafe fn write<D: Integers>(codes: StepCodes<Plain>, factors: &Factors, step: usize, to: &mut Self::Step) {
        // SAFETY: the caller says what the machine has; the arrays have 16 numbers.
        unsafe {
            let zeros = match const { second::<Plain, D>() } {
                Second::Minima => vdupq_n_s8(0),
                Second::Zero(zero) => vdupq_n_s8(zero.cast_signed()),
                Second::Zeros => zeros(&factors.seconds[step]),
            };
            for (to, four) in to.as_chunks_mut::<4>().0.iter_mut().zip(by_fours::<Plain>(codes)) {
                for (to, codes) in to.iter_mut().zip(by_ones(four)) {
                    let codes: int8x16_t = cast(codes);
                    vst1q_s16(to.as_mut_ptr(), vsubl_s8(vget_low_s8(codes), vget_low_s8(zeros)));
                    vst1q_s16(to.as_mut_ptr().add(8), vsubl_high_s8(codes, zeros));
                }
            }
        }
    }
}

impl Product for Words {
    const HAS_ZEROS: bool = false;

    #[inline(always)]
    unsafe fn products<D: Integers, const R: usize, const C: usize>(
        codes: [*const Self::Step; C],
        x: [*const u8; R],
        range: Range<usize>,
    ) -> [[[uint8x16_t; 4]; C]; R] {
        // SAFETY: the caller says so.
        unsafe {
            let mut integers = [[[vdupq_n_s32(0); 4]; C]; R];
            for first in range.step_by(8) {
                let mut numbers = [vdupq_n_s16(0); R];
                for (to, x) in numbers.iter_mut().zip(x) {
                    *to = match const { Form::of::<Plain, D>() } {
                        Form::Words => vld1q_s16(x.cast::<i16>().add(first)),
                        _ => vmovl_s8(vld1_s8(x.cast::<i8>().add(first))),
                    };
                }
                each!(WORD of 8 => for c in 0..C {
                    let codes = codes[c].cast::<i16>().add((first + WORD) * EDGE);
                    let (low, high) = (vld1q_s16(codes), vld1q_s16(codes.add(8)));
                    for r in 0..R {
                        let [a, b, c, d] = &mut integers[r][c];
                        *a = vmlal_laneq_s16::<{ WORD as i32 }>(*a, vget_low_s16(low), numbers[r]);
                        *b = vmlal_high_laneq_s16::<{ WORD as i32 }>(*b, low, numbers[r]);
                        *c = vmlal_laneq_s16::<{ WORD as i32 }>(*c, vget_low_s16(high), numbers[r]);
                        *d = vmlal_high_laneq_s16::<{ WORD as i32 }>(*d, high, numbers[r]);
                    }
                });
            }
            as_bytes(integers)
        }
    }
}

/// The same registers.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn as_bytes<const R: usize, const C: usize>(integers: [[[int32x4_t; 4]; C]; R]) -> [[[uint8x16_t; 4]; C]; R] {
    // SAFETY: the caller says so.
    unsafe {
        let mut bytes = [[[vdupq_n_u8(0); 4]; C]; R];
        for (to, from) in
            bytes.as_flattened_mut().as_flattened_mut().iter_mut().zip(integers.as_flattened().as_flattened())
        {
            *to = cast(*from);
        }
        bytes
    }
}
