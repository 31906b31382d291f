//! What an instruction set does with the integers of 16 columns.
//!
//! A kernel is written once against [`Unit`] and compiled for each. Vectors have 64 bytes: where registers have fewer, a vector is two or four of them.
//! All verbs are `#[inline(always)]` and take on the instructions of [`Unit::enter`], through which alone a kernel is called.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub use neon::{DotProd, I8mm, Plain};
#[cfg(target_arch = "aarch64")]
pub(super) use neon::{cast, each};

use super::EDGE;
use super::activations::Form;
use super::codings::{HalfCodes, Integers};
use super::many::Sums;

/// A kernel that is compiled for each unit.
pub trait Work {
    type Output;

    /// Runs it. Implementations are `#[inline(always)]`, so that they take on the instructions of their caller.
    ///
    /// # Safety
    ///
    /// The machine has the unit's instructions.
    unsafe fn run<U: Unit>(self) -> Self::Output;
}

/// The verbs of vectors of 64 bytes.
///
/// # Safety
///
/// All require a machine that has the unit's instructions, and that pointers lead to as many bytes as they say.
pub trait Unit: Sized {
    /// 64 bytes.
    type Ints: Copy;
    /// Sixteen numbers.
    type Floats: Copy;
    /// How codes of bytes are kept and multiplied for many rows.
    type Bytes: Sums<Unit = Self>;
    /// The same for words.
    type Words: Sums<Unit = Self>;
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

    unsafe fn zero() -> Self::Ints;
    unsafe fn load(from: *const u8) -> Self::Ints;
    /// Thirty-two bytes of each of two columns.
    unsafe fn two(first: *const u8, second: *const u8) -> Self::Ints;
    /// Thirty-two codes of four bits of each of two columns, of which the low bits are the first 16.
    unsafe fn two_of_nibbles(first: *const u8, second: *const u8) -> Self::Ints;
    /// Sixteen bytes of each of four columns.
    unsafe fn four(columns: [*const u8; 4]) -> Self::Ints;
    unsafe fn every_u8(byte: u8) -> Self::Ints;
    unsafe fn every_i32(number: i32) -> Self::Ints;
    unsafe fn and(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn or(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn xor(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn add_i32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn sub_i32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn shl_i32(v: Self::Ints, bits: i32) -> Self::Ints;
    unsafe fn shr_u32(v: Self::Ints, bits: i32) -> Self::Ints;
    unsafe fn shr_i32(v: Self::Ints, bits: i32) -> Self::Ints;
    /// The low four bits of each byte of `low`, and above them those from bit `at` on of `high`, as many as `ones` has: 1 or 3.
    unsafe fn four_and_more(low: Self::Ints, high: Self::Ints, at: i32, ones: u8) -> Self::Ints;
    /// Sixteen more where a bit is set, of the 32 of each column.
    unsafe fn add_fifth_bits(codes: Self::Ints, bits: [u32; 2]) -> Self::Ints;
    /// The bytes of a table at indexes.
    unsafe fn look_up(table: &[u8; 16], indexes: Self::Ints) -> Self::Ints;

    // In each quarter of the vectors.

    unsafe fn low_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn high_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn low_u64(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn high_u64(a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// The even quarters of `a`, and those of `b`.
    unsafe fn even_quarters(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn odd_quarters(a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// The sums of the products of eight columns with the integers of a group, in quarters of four columns: by turns those of their first and of
    /// their last 16 codes, or any two that add up to all 32 where halves have no scales.
    unsafe fn sums<D: Integers>(codes: HalfCodes<Self>, x: *const u8) -> Self::Ints;

    unsafe fn to_floats(integers: Self::Ints) -> Self::Floats;
    /// Of f32 numbers.
    unsafe fn from_bits(bits: Self::Ints) -> Self::Floats;
    /// Half-precision numbers in the lower words.
    unsafe fn from_halves(words: Self::Ints) -> Self::Floats;
    unsafe fn halves(from: &[u16; EDGE]) -> Self::Floats;
    unsafe fn words(from: &[u16; EDGE]) -> Self::Ints;
    unsafe fn bytes(from: &[u8; EDGE]) -> Self::Ints;

    unsafe fn every(number: f32) -> Self::Floats;
    unsafe fn load_floats(from: &[f32; EDGE]) -> Self::Floats;
    unsafe fn store_floats(to: &mut [f32; EDGE], v: Self::Floats);
    /// Stores the first ones, as many as `to` has, at most 16, after adding `bias`.
    unsafe fn store_columns(to: &mut [f32], v: Self::Floats, bias: Option<&[f32]>);
    unsafe fn mul(a: Self::Floats, b: Self::Floats) -> Self::Floats;
    /// `a * b + c`, rounded once.
    unsafe fn mul_add(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// `c - a * b`, rounded once.
    unsafe fn mul_sub_from(a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
}
