//! Decoders of AVX-512: a code of four bits names one of the 16 numbers of a table, other codes are converted.
//!
//! Where the instruction set multiplies bf16 numbers, they are rounded in registers.
#![allow(unsafe_code)]

mod codes;
mod number;

use super::{Decoder, Job, PIECE};
use crate::cpu::linear::kernels::STEP;
pub use codes::{E2m1, E4m3, I8};
use formats::{Codes, WeightFormat};
use number::Singles;
pub use number::{Number, Words};
use std::arch::asm;
use std::arch::x86_64::*;

/// `$function::<D>` for the decoder `D` of `$codes`.
macro_rules! by_codes {
    ($codes:expr, $function:ident) => {{
        use formats::Codes;
        use $crate::cpu::linear::decode::avx512 as decoders;
        match $codes {
            Codes::E2m1 => $function::<decoders::E2m1>,
            Codes::I8 => $function::<decoders::I8>,
            Codes::E4m3 => $function::<decoders::E4m3>,
            Codes::U4 | Codes::U8 => unreachable!("multiplied as integers"),
        }
    }};
}
pub(in crate::cpu::linear) use by_codes;

/// The decoder to f32 numbers. Codes of four bits come in groups of 32: the even ones, then the odd ones.
pub fn to_f32(codes: Codes) -> Decoder {
    by_codes!(codes, singles)
}

/// The decoder to bf16 numbers, as they are.
pub fn to_bf16(codes: Codes) -> Decoder {
    by_codes!(codes, words)
}

/// Decodes to f32.
///
/// # Safety
///
/// The machine has AVX-512 and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,f16c")]
unsafe fn singles<D: Decode>(job: Job) {
    // SAFETY: the caller says so.
    unsafe { decode_steps::<D, Singles>(job) }
}

/// Decodes to bf16.
///
/// # Safety
///
/// The machine has AVX512-BF16 and F16C.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,f16c")]
unsafe fn words<D: Decode>(job: Job) {
    // SAFETY: the caller says so.
    unsafe { decode_steps::<D, Words>(job) }
}

/// Decodes whole steps, one after another.
///
/// # Panics
///
/// If the row is too short.
///
/// # Safety
///
/// The machine has AVX-512, F16C and what `N` needs.
#[inline(always)]
unsafe fn decode_steps<D: Decode, N: Number>(job: Job) {
    let Job { coding, row, first, to, .. } = job;
    let step_bytes = STEP * N::BYTES;
    let steps = to.len() / step_bytes;
    let end = first + steps * STEP;
    assert!(row.codes.len() >= coding.row_bytes(end));
    assert!(row.scales.len() >= coding.scale_bytes(end) && row.zeros.len() >= coding.zero_bytes(end));
    let row = Planes { codes: row.codes.as_ptr(), scales: row.scales.as_ptr(), zeros: row.zeros.as_ptr() };
    // SAFETY: the assertions found the row's bytes, and `to` has room for the steps.
    unsafe { decode_part::<D, N>(coding, row, first, steps, Places { at: to.as_mut_ptr(), stride: step_bytes }) }
}

/// Where the bytes of a row lie: see [`ScaledRow`](formats::ScaledRow).
#[derive(Clone, Copy)]
pub struct Planes {
    pub codes: *const u8,
    pub scales: *const u8,
    pub zeros: *const u8,
}

/// Where decoded steps go.
#[derive(Clone, Copy)]
pub struct Places {
    /// The place of the first one.
    pub at: *mut u8,
    /// Bytes from one step to the next.
    pub stride: usize,
}

impl Places {
    /// The place of step `step`.
    #[inline(always)]
    fn step(self, step: usize) -> *mut u8 {
        self.at.wrapping_add(step * self.stride)
    }

    /// The places from step `step` on.
    #[inline(always)]
    fn from(self, step: usize) -> Places {
        Places { at: self.step(step), ..self }
    }
}

/// Steps that a decoder takes at once: [`PIECE`] numbers.
pub const PIECE_STEPS: usize = PIECE / STEP;

/// Decodes `steps` steps of a row from number `first` on, a multiple of [`PIECE`].
///
/// # Safety
///
/// The machine has AVX-512, F16C and what `N` needs. The row has these steps, whole blocks, and there are as many places.
#[inline(always)]
pub unsafe fn decode_part<D: Decode, N: Number>(
    coding: WeightFormat,
    row: Planes,
    first: usize,
    steps: usize,
    to: Places,
) {
    // SAFETY: the caller says so.
    unsafe {
        let whole = steps / PIECE_STEPS * PIECE_STEPS;
        for step in (0..whole).step_by(PIECE_STEPS) {
            D::decode::<N, PIECE_STEPS>(coding, row, first + step * STEP, to.from(step));
        }
        for step in whole..steps {
            D::decode::<N, 1>(coding, row, first + step * STEP, to.from(step));
        }
    }
}

/// A coding.
pub trait Decode {
    /// Decodes `STEPS` steps of a row from number `first` on: [`PIECE_STEPS`], or 1 where blocks are no longer.
    ///
    /// # Safety
    ///
    /// As [`decode_part`].
    unsafe fn decode<N: Number, const STEPS: usize>(coding: WeightFormat, row: Planes, first: usize, to: Places);
}

/// Thirty-two bytes at `at`.
///
/// # Safety
///
/// The machine has AVX2, and they can be read.
#[inline(always)]
unsafe fn load32(at: *const u8) -> __m256i {
    // SAFETY: the caller says so.
    unsafe { _mm256_loadu_si256(at.cast()) }
}

/// Sixteen bytes at `at`.
///
/// # Safety
///
/// They can be read.
#[inline(always)]
unsafe fn load16(at: *const u8) -> __m128i {
    // SAFETY: the caller says so.
    unsafe { _mm_loadu_si128(at.cast()) }
}

/// Numbers in memory of which each is wanted in every lane of a vector.
#[repr(align(64))]
struct Singly<const COUNT: usize>([f32; COUNT]);

impl<const COUNT: usize> Singly<COUNT> {
    /// Number `i` in every lane, from memory. The compiler would load several numbers at once and spread each from a register, which takes
    /// the port of shuffles.
    ///
    /// # Safety
    ///
    /// The machine has AVX-512.
    #[inline]
    #[target_feature(enable = "avx512f")]
    unsafe fn all(&self, i: usize) -> __m512 {
        let at: *const f32 = &self.0[i];
        let lanes;
        // SAFETY: the caller says that the machine has AVX-512; the number is there.
        unsafe {
            asm!("vbroadcastss {}, dword ptr [{}]", lateout(zmm_reg) lanes, in(reg) at, options(pure, readonly, nostack, preserves_flags));
        }
        lanes
    }
}
