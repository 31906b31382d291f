//! Which products of integers an instruction set has, and what follows from them.
//!
//! A kernel is written once against [`Target`] and compiled for each. It inlines the operations of [`Simd`], and is called through [`Target::enter`] alone,
//! whose instructions it takes on.
#![allow(unsafe_code)]

use super::activations::Form;
use super::codings::{HalfCodes, Integers};
use super::many::Sums;
use crate::cpu::lanes::simd::Simd;

/// A kernel that is compiled for each target.
pub trait Work {
    type Output;

    /// Runs it. Implementations are `#[inline(always)]`, so that they take on the instructions of their caller.
    ///
    /// # Safety
    ///
    /// The machine has the target's instructions.
    unsafe fn run<T: Target>(self) -> Self::Output;
}

/// How an instruction set multiplies integers.
///
/// # Safety
///
/// The functions require a machine that has the target's instructions.
pub trait Target: Simd {
    /// How codes of bytes are kept and multiplied for many rows.
    type Bytes: Sums<Target = Self>;
    /// The same for words.
    type Words: Sums<Target = Self>;
    /// The forms of wide integers, of narrow ones, and of narrow ones beside codes of at most 15.
    const FORMS: [Form; 3];
    /// Whether codes are signed bytes. Those that may be above 127 are then 128 less.
    const IS_SIGNED: bool;
    /// Rows of `x` up to which weights are read as they lie; for more rows they are rewritten first.
    const FEW: usize;
    /// Rows and groups of columns of which many rows keep sums in registers: 6 and 2, 6 and 1, or 4 and 1.
    const TILE: (usize, usize);

    /// Runs `work` with these instructions.
    unsafe fn enter<W: Work>(work: W) -> W::Output;

    /// The sums of the products of eight columns with the integers of a group, in quarters of four columns. By turns they are those of the columns' first and
    /// of their last 16 codes, or any two that add up to all 32 where halves have no scales. `x` leads to the group.
    unsafe fn sums<D: Integers>(codes: HalfCodes<Self>, x: *const u8) -> Self::Ints;
}

/// A target: its instructions, what multiplies many rows, and the constants of [`Target`].
macro_rules! target {
    ($name:ty { enter: $features:literal, bytes: $bytes:ty, words: $words:ty, forms: $forms:expr, few: $few:literal, tile: $tile:expr }) => {
        impl Target for $name {
            type Bytes = $bytes;
            type Words = $words;
            const FORMS: [Form; 3] = $forms;
            const IS_SIGNED: bool = cfg!(target_arch = "aarch64");
            const FEW: usize = $few;
            const TILE: (usize, usize) = $tile;

            unsafe fn enter<W: Work>(work: W) -> W::Output {
                #[target_feature(enable = $features)]
                unsafe fn with_instructions<W: Work>(work: W) -> W::Output {
                    // SAFETY: the caller says so.
                    unsafe { work.run::<$name>() }
                }
                // SAFETY: the caller says so.
                unsafe { with_instructions(work) }
            }

            #[inline(always)]
            unsafe fn sums<D: Integers>(codes: HalfCodes<Self>, x: *const u8) -> Self::Ints {
                // SAFETY: the caller says so.
                unsafe { sums::<Self, D>(codes, x) }
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use super::super::pairwise::{Fours, Words, sums};
    use super::{Form, HalfCodes, Integers, Target, Work};
    use crate::cpu::lanes::{Avx2, Avx512};

    const WORDS: [Form; 3] = [Form::EvenOdd, Form::EvenOdd, Form::Bytes];

    target! { Avx2 {
        enter: "avx2,fma,f16c",
        bytes: Fours<Self>, words: Words<Self>, forms: WORDS, few: 4, tile: (4, 1)
    } }
    target! { Avx512<false> {
        enter: "avx512f,avx512bw,avx512dq,avx512vl,f16c",
        bytes: Fours<Self>, words: Words<Self>, forms: WORDS, few: 4, tile: (6, 2)
    } }
    target! { Avx512<true> {
        enter: "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,f16c",
        bytes: Fours<Self>, words: Words<Self>, forms: [Form::Digits; 3], few: 4, tile: (6, 2)
    } }
}

#[cfg(target_arch = "aarch64")]
mod aarch64 {
    use super::super::neon::{Fours, Words, sums};
    use super::super::smmla::Eights;
    use super::{Form, HalfCodes, Integers, Target, Work};
    use crate::cpu::lanes::{DotProd, I8mm, Plain};

    target! { Plain {
        enter: "neon",
        bytes: Words, words: Words, forms: [Form::Words, Form::Bytes, Form::Bytes], few: 1, tile: (4, 1)
    } }
    target! { DotProd {
        enter: "neon,dotprod",
        bytes: Fours, words: Fours, forms: [Form::Digits; 3], few: 4, tile: (6, 1)
    } }
    // Few rows by numbers of instructions: two rows of codes of four bits take up to 19 % more of them with SMMLA.
    target! { I8mm {
        enter: "neon,dotprod,i8mm",
        bytes: Eights, words: Eights, forms: [Form::Digits; 3], few: 2, tile: (6, 1)
    } }
}
