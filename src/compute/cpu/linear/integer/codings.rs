//! The codes and the scales of 16 columns, for each coding.
//!
//! Codes are unsigned bytes. What is taken from them, their zero, is known, or is one of the numbers that come with the scales. Where an instruction
//! set multiplies signed bytes ([`Target::IS_SIGNED`]), codes that may be above 127 are 128 less, and so are their zeros.
#![allow(unsafe_code)]

use super::activations::Format;
use super::target::Target;
use super::{EDGE, STEP};
use crate::cpu::lanes::simd::Simd;
use crate::cpu::matrix::Segment;
use formats::{Block, IQ4, WeightFormat};
use std::arch::asm;

/// Steps of a piece of a row: 256 numbers.
pub const PIECE_STEPS: usize = 8;

/// Where the bytes of [`EDGE`] columns lie.
pub struct Columns {
    codes: [*const u8; EDGE],
    scales: [*const u8; EDGE],
    zeros: [*const u8; EDGE],
}

impl Columns {
    /// Those of `segment` from `first` on. In place of a column beyond the last one stands the last one, whose sums are not stored twice.
    #[inline]
    pub fn new(segment: &Segment, first: usize) -> Columns {
        let last = segment.rows.len() - 1;
        // Short, because one row of `x` spends little more on 16 columns.
        let plane = |plane: &[u8], row_bytes: usize| -> [*const u8; EDGE] {
            let mut columns = [plane.as_ptr(); EDGE];
            if row_bytes > 0 {
                assert!(last * row_bytes <= plane.len());
                for (column, at) in columns.iter_mut().enumerate() {
                    *at = at.wrapping_add((first + column).min(last) * row_bytes);
                }
            }
            columns
        };
        let [code_bytes, scale_bytes, zero_bytes] = segment.row_bytes;
        Columns {
            codes: plane(segment.bytes, code_bytes),
            scales: plane(segment.scales, scale_bytes),
            zeros: plane(segment.zeros, zero_bytes),
        }
    }

    /// Goes on to those from `first` on, which are [`EDGE`] further. One addition each, where all of them are there: a new table took 7 % of the
    /// time of a token of Q4_K.
    #[inline]
    pub fn advance(&mut self, segment: &Segment, first: usize) {
        if first + EDGE > segment.rows.len() {
            *self = Columns::new(segment, first);
            return;
        }
        let planes = [&mut self.codes, &mut self.scales, &mut self.zeros];
        for (columns, row_bytes) in planes.into_iter().zip(segment.row_bytes) {
            for at in columns {
                *at = at.wrapping_add(EDGE * row_bytes);
            }
        }
    }
}

/// The numbers of 16 columns that belong to the codes of a piece.
#[repr(C, align(64))]
pub struct Factors {
    /// For each step, or for each half of one.
    pub scales: [[f32; EDGE]; 2 * PIECE_STEPS],
    /// For each step, its minima or its zeros.
    pub seconds: [[f32; EDGE]; PIECE_STEPS],
}

impl Factors {
    pub const EMPTY: Factors = Factors { scales: [[0.0; EDGE]; 2 * PIECE_STEPS], seconds: [[0.0; EDGE]; PIECE_STEPS] };
}

/// What [`Factors::seconds`] are, and what is taken from codes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Second {
    /// Nothing. All codes have this zero.
    Zero(u8),
    /// What is added for each one of `x`. Codes have no zero.
    Minima,
    /// The zeros of each column.
    Zeros,
}

/// What is taken from the codes of `D` that `T` multiplies.
pub const fn second<T: Target, D: Integers>() -> Second {
    match D::SECOND {
        Second::Zero(zero) if T::IS_SIGNED && D::GREATEST > 127 => Second::Zero(zero - 128),
        second => second,
    }
}

/// Thirty-two codes of each of eight columns: vector `i` has columns `i` and `4 + i`.
pub type HalfCodes<T> = [<T as Simd>::Ints; EDGE / 4];

/// The codes of a step of 16 columns.
pub type StepCodes<T> = [HalfCodes<T>; 2];

/// A coding.
pub trait Integers {
    /// How `x` is rounded, and the order of codes in a step.
    const FORMAT: Format;
    /// Whether each half of a step has a scale of its own.
    const HAS_HALVES: bool = false;
    /// What belongs to the codes besides scales.
    const SECOND: Second;
    /// Whether codes are below 32, and all columns have the same zero.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    const IS_SHORT: bool = false;
    /// Bytes of the codes of a step and a column, rounded up.
    const STEP_BYTES: usize;
    /// Steps after which codes lie in the same bits of their bytes again: 1, 2 or 4.
    const PERIOD: usize = 1;
    /// The greatest code.
    const GREATEST: u8;

    /// Reads what belongs to the codes of `STEPS` steps from number `first` on: [`PIECE_STEPS`], or 1 where blocks are no longer.
    ///
    /// # Safety
    ///
    /// The machine has the target's instructions, and the columns have these steps.
    unsafe fn factors<T: Target, const STEPS: usize>(
        coding: WeightFormat,
        columns: &Columns,
        first: usize,
        to: &mut Factors,
    );

    /// The codes of eight columns, the first ones or the last ones, in the `step`-th step from number `first` on, a multiple of a piece where
    /// blocks are that long.
    ///
    /// # Safety
    ///
    /// The machine has the target's instructions, and the columns have this step.
    unsafe fn codes<T: Target>(columns: &Columns, half: usize, first: usize, step: usize) -> HalfCodes<T>;
}

/// The codes of 16 columns: see [`Integers::codes`].
///
/// # Safety
///
/// As there.
#[inline(always)]
pub unsafe fn codes<T: Target, D: Integers>(columns: &Columns, first: usize, step: usize) -> StepCodes<T> {
    // SAFETY: the caller says so.
    unsafe { [D::codes::<T>(columns, 0, first, step), D::codes::<T>(columns, 1, first, step)] }
}

/// Two columns.
#[derive(Clone, Copy)]
struct Pair<'a> {
    columns: &'a Columns,
    first: usize,
    second: usize,
}

impl<'a> Pair<'a> {
    /// Those of vector `i` of a half of the columns.
    #[inline(always)]
    fn new(columns: &'a Columns, half: usize, i: usize) -> Pair<'a> {
        Pair { columns, first: EDGE / 2 * half + i, second: EDGE / 2 * half + EDGE / 4 + i }
    }

    /// What lies `at` bytes from their beginning.
    #[inline(always)]
    fn at(self, at: usize) -> [*const u8; 2] {
        [self.columns.codes[self.first].wrapping_add(at), self.columns.codes[self.second].wrapping_add(at)]
    }
}

/// Thirty-two bytes of each of two columns, `at` bytes from their beginning.
///
/// # Safety
///
/// The machine has the target's instructions. They can be read.
#[inline(always)]
unsafe fn two<T: Target>(pair: Pair, at: usize) -> T::Ints {
    // SAFETY: the caller says so.
    unsafe { T::two(pair.at(at)) }
}

/// The 32 codes of four bits of each of two columns whose low bits are the first 16.
///
/// # Safety
///
/// The machine has the target's instructions. Sixteen bytes can be read, `at` bytes from the beginning of the columns.
#[inline(always)]
unsafe fn two_of_nibbles<T: Target>(pair: Pair, at: usize) -> T::Ints {
    // SAFETY: the caller says so.
    unsafe { T::two_of_nibbles(pair.at(at)) }
}

const WIDE: Format = Format { is_wide: true, is_pairs: false };
const NARROW: Format = Format { is_wide: false, is_pairs: false };

/// `at`, of which the compiler then knows nothing. Of addresses: it would keep an address for each column and use of it, and advance dozens of them on the
/// stack in every step.
#[inline(always)]
pub fn opaque(mut at: usize) -> usize {
    // SAFETY: no instruction is added.
    unsafe { asm!("/* {0} */", inout(reg) at, options(pure, nomem, nostack, preserves_flags)) };
    at
}

/// `$vector` for each vector of codes. A loop and no closure: closures do not always become part of a function with these instructions.
macro_rules! vectors {
    ($columns:expr, $half:expr, $pair:ident => $vector:expr) => {{
        let mut vectors = [T::zero(); EDGE / 4];
        for (i, to) in vectors.iter_mut().enumerate() {
            let $pair = Pair::new($columns, $half, i);
            *to = $vector;
        }
        vectors
    }};
}

/// A number of `T` from each column, `at` bytes from the beginning of a plane, one after the other. On x86-64 by scalar instructions: the compiler
/// would insert each into a vector, which takes the port of shuffles. ARM64 loads a number into a lane.
///
/// # Safety
///
/// They can be read.
#[inline(always)]
unsafe fn gathered<T: Copy + Default>(plane: &[*const u8; EDGE], at: usize) -> [T; EDGE] {
    let mut numbers = [T::default(); EDGE];
    for (to, column) in numbers.iter_mut().zip(plane) {
        // SAFETY: the caller says so.
        unsafe {
            let number = column.add(at).cast::<T>().read_unaligned();
            if cfg!(target_arch = "x86_64") { std::ptr::write_volatile(to, number) } else { *to = number }
        }
    }
    numbers
}

/// The half-precision number of each column at `at` in its codes.
///
/// # Safety
///
/// The machine has the target's instructions. They can be read.
#[inline(always)]
unsafe fn halves<T: Target>(columns: &Columns, at: usize) -> T::Floats {
    // SAFETY: the caller says so.
    unsafe { T::halves(&gathered(&columns.codes, at)) }
}

/// Sixteen bytes of each column at `at` in its codes, as four vectors of four bytes of each.
///
/// # Safety
///
/// The machine has the target's instructions. They can be read.
#[inline(always)]
unsafe fn four_words<T: Target>(columns: &Columns, at: usize) -> [T::Ints; 4] {
    // SAFETY: the caller says so.
    unsafe {
        let mut rows = [T::zero(); 4];
        for (i, row) in rows.iter_mut().enumerate() {
            let [a, b, c, d] = [i, 4 + i, 8 + i, 12 + i];
            *row = T::four([
                columns.codes[a].add(at),
                columns.codes[b].add(at),
                columns.codes[c].add(at),
                columns.codes[d].add(at),
            ]);
        }
        transposed_fours::<T>(rows)
    }
}

/// In each quarter of the vectors: columns as rows.
///
/// # Safety
///
/// The machine has the target's instructions.
#[inline(always)]
pub unsafe fn transposed_fours<T: Target>(rows: [T::Ints; 4]) -> [T::Ints; 4] {
    let [a, b, c, d] = rows;
    // SAFETY: the caller says so.
    unsafe {
        let (low, high) = (T::low_u32(a, b), T::high_u32(a, b));
        let (next_low, next_high) = (T::low_u32(c, d), T::high_u32(c, d));
        [
            T::low_u64(low, next_low),
            T::high_u64(low, next_low),
            T::low_u64(high, next_high),
            T::high_u64(high, next_high),
        ]
    }
}

/// Byte `i` of each 32 bits, unsigned.
///
/// # Safety
///
/// The machine has the target's instructions.
#[inline(always)]
unsafe fn byte<T: Target>(words: T::Ints, i: usize) -> T::Floats {
    // SAFETY: the caller says so.
    unsafe { T::to_floats(T::and(T::shr_u32(words, 8 * i as i32), T::every_i32(255))) }
}

/// Byte `i` of each 32 bits, signed.
///
/// # Safety
///
/// The machine has the target's instructions.
#[inline(always)]
unsafe fn signed_byte<T: Target>(words: T::Ints, i: usize) -> T::Floats {
    // SAFETY: the caller says so.
    unsafe { T::to_floats(T::shr_i32(T::shl_i32(words, 24 - 8 * i as i32), 24)) }
}

mod planes;
mod q3_k;

pub use planes::{Bytes, Pairs};
pub use q3_k::Q3K;

/// Blocks of 32 numbers that begin with a scale, and with a minimum where the coding has minima.
macro_rules! blocks_of_32 {
    ($(#[$doc:meta])* $name:ident, $block:expr, $format:expr, $second:expr, $greatest:expr, $target:ident, |$pair:ident, $at:ident| $codes:expr) => {
        $(#[$doc])*
        pub struct $name;

        impl Integers for $name {
            const FORMAT: Format = $format;
            const SECOND: Second = $second;
            const IS_SHORT: bool = matches!($block, Block::Q4_0 | Block::Q4_1 | Block::Q5_0 | Block::Q5_1);
            const STEP_BYTES: usize = $block.bytes();
            const GREATEST: u8 = $greatest;

            #[inline(always)]
            unsafe fn factors<T: Target, const STEPS: usize>(_: WeightFormat, columns: &Columns, first: usize, to: &mut Factors) {
                for step in 0..STEPS {
                    let at = opaque((first / STEP + step) * $block.bytes());
                    // SAFETY: the caller says that the columns have these blocks.
                    unsafe {
                        T::store_floats(&mut to.scales[step], halves::<T>(columns, at));
                        if let Second::Minima = Self::SECOND {
                            T::store_floats(&mut to.seconds[step], halves::<T>(columns, at + 2));
                        }
                    }
                }
            }

            #[inline(always)]
            unsafe fn codes<$target: Target>(columns: &Columns, half: usize, first: usize, step: usize) -> HalfCodes<$target> {
                let $at = opaque((first / STEP + step) * $block.bytes());
                // SAFETY: the caller says that the columns have this block.
                unsafe { vectors!(columns, half, $pair => $codes) }
            }
        }
    };
}

blocks_of_32!(
    /// [`Block::Q8_0`]
    Q8_0, Block::Q8_0, WIDE, Second::Zero(128), u8::MAX,
    T, |pair, at| from_signed::<T>(two::<T>(pair, at + 2))
);
blocks_of_32!(
    /// [`Block::Q4_0`]
    Q4_0, Block::Q4_0, NARROW, Second::Zero(8), 15,
    T, |pair, at| two_of_nibbles::<T>(pair, at + 2)
);
blocks_of_32!(
    /// [`Block::Q4_1`]
    Q4_1, Block::Q4_1, NARROW, Second::Minima, 15,
    T, |pair, at| two_of_nibbles::<T>(pair, at + 4)
);
blocks_of_32!(
    /// [`Block::Q5_0`]
    Q5_0, Block::Q5_0, WIDE, Second::Zero(16), 31,
    T, |pair, at| with_fifth_bits::<T>(pair, at + 2)
);
blocks_of_32!(
    /// [`Block::Q5_1`]
    Q5_1, Block::Q5_1, WIDE, Second::Minima, 31,
    T, |pair, at| with_fifth_bits::<T>(pair, at + 4)
);
blocks_of_32!(
    /// [`Block::Iq4Nl`]
    Iq4Nl, Block::Iq4Nl, NARROW, Second::Zero(128), u8::MAX,
    T, |pair, at| from_table::<T>(two_of_nibbles::<T>(pair, at + 2))
);

/// Codes of four bits whose fifth bits are the 32 bits before them.
///
/// # Safety
///
/// The machine has the target's instructions. Twenty bytes can be read, `at` bytes from the beginning of the columns.
#[inline(always)]
unsafe fn with_fifth_bits<T: Target>(pair: Pair, at: usize) -> T::Ints {
    // SAFETY: the caller says so.
    unsafe {
        let low = two_of_nibbles::<T>(pair, at + 4);
        let [first, second] = pair.at(at);
        T::add_fifth_bits(low, [first.cast::<u32>().read_unaligned(), second.cast::<u32>().read_unaligned()])
    }
}

/// Signed bytes as codes whose zero is 128.
///
/// # Safety
///
/// The machine has the target's instructions.
#[inline(always)]
unsafe fn from_signed<T: Target>(bytes: T::Ints) -> T::Ints {
    // SAFETY: the caller says so.
    unsafe { if T::IS_SIGNED { bytes } else { T::xor(bytes, T::every_u8(128)) } }
}

/// The numbers of [`IQ4`] as codes whose zero is 128.
///
/// # Safety
///
/// The machine has the target's instructions.
#[inline(always)]
unsafe fn from_table<T: Target>(codes: T::Ints) -> T::Ints {
    /// Signed numbers, and unsigned ones with 128 more.
    const TABLES: [[u8; 16]; 2] = {
        let (mut tables, mut i) = ([[0; 16]; 2], 0);
        while i < IQ4.len() {
            tables[0][i] = IQ4[i].cast_unsigned();
            tables[1][i] = tables[0][i] ^ 128;
            i += 1;
        }
        tables
    };
    // SAFETY: the caller says so.
    unsafe { T::look_up(codes, if T::IS_SIGNED { &TABLES[0] } else { &TABLES[1] }) }
}

/// Eight scales and minima of the blocks of [`Block::Q4K`] or [`Block::Q5K`] at `at`, as `scale_and_min` takes them from their 12 bytes.
///
/// # Safety
///
/// The machine has the target's instructions. Sixteen bytes can be read.
#[inline(always)]
unsafe fn scales_and_minima<T: Target>(columns: &Columns, at: usize, to: &mut Factors) {
    // SAFETY: the caller says so.
    unsafe {
        let [factors, scales, minima, high] = four_words::<T>(columns, at);
        let (low_six, low_four, two) =
            (T::every_i32(0x3f3f_3f3f), T::every_i32(0x0f0f_0f0f), T::every_i32(0x3030_3030));
        let d = T::from_halves(factors);
        // What is taken away is added with another sign.
        let e = T::from_halves(T::xor(T::shr_u32(factors, 16), T::every_i32(0x8000)));
        let upper = [T::and(T::shr_u32(scales, 2), two), T::and(T::shr_u32(minima, 2), two)];
        let (high, next_high) = (T::and(high, low_four), T::and(T::shr_u32(high, 4), low_four));
        let scales = [T::and(scales, low_six), T::or(high, upper[0])];
        let minima = [T::and(minima, low_six), T::or(next_high, upper[1])];
        for j in 0..PIECE_STEPS {
            T::store_floats(&mut to.scales[j], T::mul(d, byte::<T>(scales[j / 4], j % 4)));
            T::store_floats(&mut to.seconds[j], T::mul(e, byte::<T>(minima[j / 4], j % 4)));
        }
    }
}

/// The block of number `first`, of 256 numbers.
#[inline(always)]
fn whole_block<const STEPS: usize>(block: Block, first: usize) -> usize {
    assert!(STEPS == PIECE_STEPS, "{} is read in blocks", block.name());
    first / block.numbers() * block.bytes()
}

/// [`Block::Q4K`]
pub struct Q4K;

impl Integers for Q4K {
    const FORMAT: Format = NARROW;
    const SECOND: Second = Second::Minima;
    const IS_SHORT: bool = true;
    const STEP_BYTES: usize = Block::Q4K.bytes().div_ceil(PIECE_STEPS);
    const PERIOD: usize = 2;
    const GREATEST: u8 = 15;

    #[inline(always)]
    unsafe fn factors<T: Target, const STEPS: usize>(
        _: WeightFormat,
        columns: &Columns,
        first: usize,
        to: &mut Factors,
    ) {
        // SAFETY: the caller says that the columns have this block.
        unsafe { scales_and_minima::<T>(columns, whole_block::<STEPS>(Block::Q4K, first), to) }
    }

    #[inline(always)]
    unsafe fn codes<T: Target>(columns: &Columns, half: usize, first: usize, step: usize) -> HalfCodes<T> {
        let at = opaque(whole_block::<PIECE_STEPS>(Block::Q4K, first) + 16 + step / 2 * 32);
        // SAFETY: the caller says that the columns have this block.
        unsafe {
            let four = T::every_u8(15);
            vectors!(columns, half, pair => T::and(T::shr_u32(two::<T>(pair, at), 4 * (step as i32 % 2)), four))
        }
    }
}

/// [`Block::Q5K`]
pub struct Q5K;

impl Integers for Q5K {
    const FORMAT: Format = WIDE;
    const SECOND: Second = Second::Minima;
    const IS_SHORT: bool = true;
    const STEP_BYTES: usize = Block::Q5K.bytes().div_ceil(PIECE_STEPS);
    const PERIOD: usize = 2;
    const GREATEST: u8 = 31;

    #[inline(always)]
    unsafe fn factors<T: Target, const STEPS: usize>(
        _: WeightFormat,
        columns: &Columns,
        first: usize,
        to: &mut Factors,
    ) {
        // SAFETY: the caller says that the columns have this block.
        unsafe { scales_and_minima::<T>(columns, whole_block::<STEPS>(Block::Q5K, first), to) }
    }

    #[inline(always)]
    unsafe fn codes<T: Target>(columns: &Columns, half: usize, first: usize, step: usize) -> HalfCodes<T> {
        let block = opaque(whole_block::<PIECE_STEPS>(Block::Q5K, first));
        // SAFETY: the caller says that the columns have this block.
        unsafe {
            let low_at = opaque(block + 48 + step / 2 * 32);
            vectors!(columns, half, pair => {
                let low = T::shr_u32(two::<T>(pair, low_at), 4 * (step as i32 % 2));
                T::four_and_more(low, two::<T>(pair, block + 16), step as i32, 1)
            })
        }
    }
}

/// [`Block::Q6K`]
pub struct Q6K;

impl Integers for Q6K {
    const FORMAT: Format = WIDE;
    const HAS_HALVES: bool = true;
    const SECOND: Second = Second::Zero(32);
    const STEP_BYTES: usize = Block::Q6K.bytes().div_ceil(PIECE_STEPS);
    const PERIOD: usize = 4;
    const GREATEST: u8 = 63;

    #[inline(always)]
    unsafe fn factors<T: Target, const STEPS: usize>(
        _: WeightFormat,
        columns: &Columns,
        first: usize,
        to: &mut Factors,
    ) {
        let at = whole_block::<STEPS>(Block::Q6K, first);
        // SAFETY: the caller says that the columns have this block.
        unsafe {
            let (d, scales) = (halves::<T>(columns, at + 208), four_words::<T>(columns, at + 192));
            for (k, to) in to.scales.iter_mut().enumerate() {
                T::store_floats(to, T::mul(d, signed_byte::<T>(scales[k / 4], k % 4)));
            }
        }
    }

    #[inline(always)]
    unsafe fn codes<T: Target>(columns: &Columns, half: usize, first: usize, step: usize) -> HalfCodes<T> {
        let block = whole_block::<PIECE_STEPS>(Block::Q6K, first);
        let (part, quarter) = (step / 4, step % 4);
        let (low_at, high_at) = (opaque(block + part * 64 + quarter % 2 * 32), opaque(block + 128 + part * 32));
        // SAFETY: the caller says that the columns have this block.
        unsafe {
            vectors!(columns, half, pair => {
                let low = T::shr_u32(two::<T>(pair, low_at), 4 * (quarter as i32 / 2));
                T::four_and_more(low, two::<T>(pair, high_at), 2 * quarter as i32, 3)
            })
        }
    }
}

/// [`Block::Iq4Xs`]
pub struct Iq4Xs;

impl Integers for Iq4Xs {
    const FORMAT: Format = NARROW;
    const SECOND: Second = Second::Zero(128);
    const STEP_BYTES: usize = Block::Iq4Xs.bytes().div_ceil(PIECE_STEPS);
    const GREATEST: u8 = u8::MAX;

    #[inline(always)]
    unsafe fn factors<T: Target, const STEPS: usize>(
        _: WeightFormat,
        columns: &Columns,
        first: usize,
        to: &mut Factors,
    ) {
        let at = whole_block::<STEPS>(Block::Iq4Xs, first);
        // SAFETY: the caller says that the columns have this block; the arrays have 64 bytes.
        unsafe {
            let (high, low): ([u32; EDGE], [u32; EDGE]) =
                (gathered(&columns.codes, at), gathered(&columns.codes, at + 4));
            let (factors, low) = (T::load(high.as_ptr().cast()), T::load(low.as_ptr().cast()));
            let (d, high) = (T::from_halves(factors), T::shr_u32(factors, 16));
            for j in 0..PIECE_STEPS {
                let low = T::and(T::shr_u32(low, 4 * j as i32), T::every_i32(15));
                let high = T::shl_i32(T::and(T::shr_u32(high, 2 * j as i32), T::every_i32(3)), 4);
                let scale = T::sub_i32(T::or(low, high), T::every_i32(32));
                T::store_floats(&mut to.scales[j], T::mul(d, T::to_floats(scale)));
            }
        }
    }

    #[inline(always)]
    unsafe fn codes<T: Target>(columns: &Columns, half: usize, first: usize, step: usize) -> HalfCodes<T> {
        let at = opaque(whole_block::<PIECE_STEPS>(Block::Iq4Xs, first) + 8 + step * 16);
        // SAFETY: the caller says that the columns have this block.
        unsafe { vectors!(columns, half, pair => from_table::<T>(two_of_nibbles::<T>(pair, at))) }
    }
}
