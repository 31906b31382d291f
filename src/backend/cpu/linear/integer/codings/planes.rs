//! Codes whose scales lie apart: the integers of quantized folders.
#![allow(unsafe_code)]

use super::{
    Columns, Factors, Format, Integers, NARROW, Second, StepCodes, WIDE, gathered, opaque, put, two, two_of_nibbles,
};
use crate::backend::cpu::amx::EDGE;
use crate::backend::cpu::linear::kernels::STEP;
use crate::backend::{Codes, Coding, Scaled, Scales as ScaleFormat};
use std::arch::x86_64::*;

/// The scales of a piece whose codes have them in a plane of their own, and zeros, which are `zero` where there is no plane of them.
///
/// # Safety
///
/// The machine has AVX-512 and F16C, and the columns have these steps.
#[inline(always)]
unsafe fn planes<const STEPS: usize>(coding: Coding, columns: &Columns, first: usize, zero: f32, to: &mut Factors) {
    let Coding::Scaled(scaled) = coding else { unreachable!("chosen by the coding") };
    // A group whose length is no power of two is a whole row: `reads` says so.
    let shift = if scaled.group.is_power_of_two() { scaled.group.trailing_zeros() } else { usize::BITS - 1 };
    let mut known = None;
    // SAFETY: the caller says that the columns have these groups.
    unsafe {
        let (mut scales, mut zeros) = (_mm512_setzero_ps(), _mm512_set1_ps(zero));
        for step in 0..STEPS {
            let group = (first + step * STEP) >> shift;
            if known != Some(group) {
                known = Some(group);
                scales = scales_of(scaled, columns, group);
                if scaled.zeros {
                    let bytes: [u8; EDGE] = gathered(&columns.zeros, group);
                    zeros = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().cast())));
                }
            }
            put(&mut to.scales[step], scales);
            put(&mut to.seconds[step], zeros);
        }
    }
}

/// The scales of group `group`.
///
/// # Safety
///
/// The machine has AVX-512 and F16C, and the columns have this group.
#[inline(always)]
unsafe fn scales_of(scaled: Scaled, columns: &Columns, group: usize) -> __m512 {
    let at = opaque(group * scaled.scales.bytes());
    // SAFETY: the caller says so; the arrays have 32 or 64 bytes.
    unsafe {
        match scaled.scales {
            ScaleFormat::F16 => {
                let halves: [u16; EDGE] = gathered(&columns.scales, at);
                _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_ptr().cast()))
            }
            ScaleFormat::Bf16 => {
                let words: [u16; EDGE] = gathered(&columns.scales, at);
                let words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(words.as_ptr().cast()));
                _mm512_castsi512_ps(_mm512_slli_epi32::<16>(words))
            }
            ScaleFormat::F32 => {
                let singles: [u32; EDGE] = gathered(&columns.scales, at);
                _mm512_castsi512_ps(_mm512_loadu_si512(singles.as_ptr().cast()))
            }
            ScaleFormat::E8m0 => {
                let bytes: [u8; EDGE] = gathered(&columns.scales, at);
                let numbers: [f32; EDGE] = std::array::from_fn(|column| scaled.scales.read(&bytes, column));
                _mm512_loadu_ps(numbers.as_ptr())
            }
        }
    }
}

/// [`Codes::U4`]
pub struct Pairs;

impl Integers for Pairs {
    const FORMAT: Format = Format { is_pairs: true, ..NARROW };
    const SECOND: Second = Second::Zeros;
    const STEP_BYTES: usize = Codes::U4.row_bytes(STEP);

    #[inline(always)]
    unsafe fn factors<const STEPS: usize>(coding: Coding, columns: &Columns, first: usize, to: &mut Factors) {
        // SAFETY: the caller says so.
        unsafe { planes::<STEPS>(coding, columns, first, Codes::U4.zero(), to) }
    }

    #[inline(always)]
    unsafe fn codes(columns: &Columns, first: usize, step: usize) -> StepCodes {
        let at = opaque(Codes::U4.row_bytes(first + step * STEP));
        // SAFETY: the caller says that the columns have this step.
        unsafe { vectors!(i => two_of_nibbles(columns, i, at)) }
    }
}

/// [`Codes::U8`], or [`Codes::I8`], which are signed.
pub struct Bytes<const IS_SIGNED: bool>;

impl<const IS_SIGNED: bool> Integers for Bytes<IS_SIGNED> {
    const FORMAT: Format = WIDE;
    const SECOND: Second = if IS_SIGNED { Second::Zero(128) } else { Second::Zeros };
    const STEP_BYTES: usize = STEP;

    #[inline(always)]
    unsafe fn factors<const STEPS: usize>(coding: Coding, columns: &Columns, first: usize, to: &mut Factors) {
        // SAFETY: the caller says so.
        unsafe { planes::<STEPS>(coding, columns, first, Codes::U8.zero(), to) }
    }

    #[inline(always)]
    unsafe fn codes(columns: &Columns, first: usize, step: usize) -> StepCodes {
        let at = opaque(first + step * STEP);
        // SAFETY: the caller says that the columns have this step.
        unsafe {
            let sign = _mm512_set1_epi8(if IS_SIGNED { -128 } else { 0 });
            vectors!(i => _mm512_xor_si512(two(columns, i, at), sign))
        }
    }
}
