//! Products of neighbouring lanes, which the instructions of x86-64 add up.
#![allow(unsafe_code)]

use super::activations::Form;
use super::codings::{Factors, HalfCodes, Integers, Second, StepCodes, opaque};
use super::panel::{Layout, Product, by_fours};
use super::unit::Unit;
use super::{EDGE, LINE_BYTES, STEP};
use std::marker::PhantomData;
use std::ops::Range;

/// What units of x86-64 do besides. Codes are unsigned bytes.
///
/// # Safety
///
/// As [`Unit`]. [`dot`](Pairwise::dot) is an instruction where integers have digits.
pub trait Pairwise: Unit {
    unsafe fn store(to: *mut u8, v: Self::Ints);
    /// Thirty-two bytes, twice.
    unsafe fn twice(from: *const u8) -> Self::Ints;
    /// Four bytes, in every lane.
    unsafe fn every_four(from: *const u8) -> Self::Ints;
    unsafe fn every_i16(word: i16) -> Self::Ints;
    unsafe fn add_i16(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn sub_i16(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// The upper byte of each word.
    unsafe fn upper_bytes(v: Self::Ints) -> Self::Ints;
    /// In each quarter of the vectors, the even numbers of 32 bits of `a`, and those of `b`.
    unsafe fn even_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn odd_u32(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    /// Adds the products of each four unsigned bytes with signed ones.
    unsafe fn dot(sums: Self::Ints, codes: Self::Ints, x: Self::Ints) -> Self::Ints;
    /// The sums of the products of each two unsigned bytes with signed ones, which must have 16 bits.
    unsafe fn multiply_bytes(codes: Self::Ints, x: Self::Ints) -> Self::Ints;
    /// The sums of the products of each two words.
    unsafe fn multiply_words(a: Self::Ints, b: Self::Ints) -> Self::Ints;
    unsafe fn to_integers(numbers: Self::Floats) -> Self::Ints;
}

/// [`Unit::sums`].
///
/// # Safety
///
/// As there.
#[inline(always)]
pub unsafe fn sums<U: Pairwise, D: Integers>(codes: HalfCodes<U>, x: *const u8) -> U::Ints {
    // SAFETY: the caller says so.
    unsafe {
        match const { Form::of::<U, D>() } {
            Form::Digits => added::<U>(digit_products::<U, D>(codes, x)),
            Form::Bytes => added_words::<U>(byte_products::<U>(codes, x)),
            Form::EvenOdd => added::<U>(word_products::<U>(codes, x)),
            Form::Words => unreachable!("words in order are those of ARM64"),
        }
    }
}

/// The products of the codes of eight columns with the digits of a group: in each vector, eight sums of each of two columns.
///
/// # Safety
///
/// The machine has VNNI, and the digits can be read.
#[inline(always)]
unsafe fn digit_products<U: Pairwise, D: Integers>(codes: HalfCodes<U>, digits: *const u8) -> HalfCodes<U> {
    let mut products = codes;
    // SAFETY: the caller says so.
    unsafe {
        let first = U::twice(digits);
        if D::FORMAT.is_wide {
            let low = U::twice(digits.add(STEP));
            for product in &mut products {
                let high = U::dot(U::zero(), *product, first);
                *product = U::dot(U::shl_i32(high, 6), *product, low);
            }
        } else {
            for product in &mut products {
                *product = U::dot(U::zero(), *product, first);
            }
        }
    }
    products
}

/// The products of the codes of eight columns, of at most 15, with the bytes of a group: in each vector, 16 sums of 16 bits of each of two
/// columns. Eight of them, 16 products, still have 16 bits.
///
/// # Safety
///
/// The machine has the unit's instructions, and the bytes can be read.
#[inline(always)]
unsafe fn byte_products<U: Pairwise>(codes: HalfCodes<U>, bytes: *const u8) -> HalfCodes<U> {
    let mut products = codes;
    // SAFETY: the caller says so.
    unsafe {
        let x = U::twice(bytes);
        for product in &mut products {
            *product = U::multiply_bytes(*product, x);
        }
    }
    products
}

/// The products of the codes of eight columns with the words of a group: in each vector, eight sums of each of two columns.
///
/// # Safety
///
/// The machine has the unit's instructions, and the words can be read.
#[inline(always)]
unsafe fn word_products<U: Pairwise>(codes: HalfCodes<U>, words: *const u8) -> HalfCodes<U> {
    let mut products = codes;
    // SAFETY: the caller says so.
    unsafe {
        let (even, odd) = (U::twice(words), U::twice(words.add(STEP)));
        let lower = U::every_i16(255);
        for product in &mut products {
            let (first, second) = (U::and(*product, lower), U::upper_bytes(*product));
            *product = U::add_i32(U::multiply_words(first, even), U::multiply_words(second, odd));
        }
    }
    products
}

/// Adds each four neighbouring lanes. A quarter of the result has four columns of the first four or of the other four, by turns their first and
/// their last 16 codes.
///
/// # Safety
///
/// The machine has the unit's instructions.
#[inline(always)]
unsafe fn added<U: Pairwise>(products: HalfCodes<U>) -> U::Ints {
    let [a, b, c, d] = products;
    // SAFETY: the caller says so.
    unsafe {
        let a = U::add_i32(U::low_u64(a, b), U::high_u64(a, b));
        let c = U::add_i32(U::low_u64(c, d), U::high_u64(c, d));
        U::add_i32(U::even_u32(a, c), U::odd_u32(a, c))
    }
}

/// As [`added`], of sums of 16 bits.
///
/// # Safety
///
/// As there.
#[inline(always)]
unsafe fn added_words<U: Pairwise>(products: HalfCodes<U>) -> U::Ints {
    let [a, b, c, d] = products;
    // SAFETY: the caller says so.
    unsafe {
        let a = U::add_i16(U::low_u64(a, b), U::high_u64(a, b));
        let c = U::add_i16(U::low_u64(c, d), U::high_u64(c, d));
        let words = U::add_i16(U::even_u32(a, c), U::odd_u32(a, c));
        U::multiply_words(words, U::every_i16(1))
    }
}

/// Codes as bytes. `[four][column][4]`
pub struct Fours<U>(PhantomData<U>);

impl<U: Pairwise> Layout for Fours<U> {
    type Unit = U;
    type Step = [[u32; EDGE]; STEP / 4];

    #[inline(always)]
    unsafe fn write<D: Integers>(codes: StepCodes<U>, _: &Factors, _: usize, to: &mut Self::Step) {
        // SAFETY: the caller says what the machine has; each row has 64 bytes.
        unsafe {
            for (to, four) in to.iter_mut().zip(by_fours::<U>(codes)) {
                U::store(to.as_mut_ptr().cast(), four);
            }
        }
    }
}

impl<U: Pairwise> Product for Fours<U> {
    const HAS_ZEROS: bool = true;

    #[inline(always)]
    unsafe fn products<D: Integers, const R: usize, const C: usize>(
        codes: [*const Self::Step; C],
        x: [*const u8; R],
        range: Range<usize>,
    ) -> [[U::Ints; C]; R] {
        let form = const { Form::of::<U, D>() };
        let lines = range.start / 4..range.end / 4;
        // SAFETY: the caller says so.
        unsafe {
            let mut integers = [[U::zero(); C]; R];
            for digit in 0..if form == Form::Digits && D::FORMAT.is_wide { 2 } else { 1 } {
                for line in lines.clone() {
                    let mut vector = [U::zero(); C];
                    for (c, to) in vector.iter_mut().enumerate() {
                        *to = U::load(codes[c].cast::<u8>().add(line * LINE_BYTES));
                    }
                    for r in 0..R {
                        let x = U::every_four(x[r].add(digit * STEP + line * 4));
                        for c in 0..C {
                            integers[r][c] = match form {
                                Form::Digits => U::dot(integers[r][c], vector[c], x),
                                _ => U::add_i16(integers[r][c], U::multiply_bytes(vector[c], x)),
                            };
                        }
                    }
                }
                if form == Form::Digits && D::FORMAT.is_wide && digit == 0 {
                    for row in &mut integers {
                        for integers in row {
                            *integers = U::shl_i32(*integers, 6);
                        }
                    }
                }
            }
            if form == Form::Bytes {
                for row in &mut integers {
                    for integers in row {
                        *integers = U::multiply_words(*integers, U::every_i16(1));
                    }
                }
            }
            integers
        }
    }
}

/// Codes without their zeros as words, of each four the even ones and then the odd ones. `[four][2][column][2]`
pub struct Words<U>(PhantomData<U>);

impl<U: Pairwise> Layout for Words<U> {
    type Unit = U;
    type Step = [[[u32; EDGE]; 2]; STEP / 4];

    #[inline(always)]
    unsafe fn write<D: Integers>(codes: StepCodes<U>, factors: &Factors, step: usize, to: &mut Self::Step) {
        // SAFETY: the caller says what the machine has; each row has 64 bytes.
        unsafe {
            let zeros = match D::SECOND {
                Second::Minima => U::zero(),
                Second::Zero(zero) => U::every_i16(i16::from(zero)),
                Second::Zeros => {
                    let zeros = U::to_integers(U::load_floats(&factors.seconds[step]));
                    U::or(zeros, U::shl_i32(zeros, 16))
                }
            };
            let lower = U::every_i16(255);
            for ([even, odd], four) in to.iter_mut().zip(by_fours::<U>(codes)) {
                U::store(even.as_mut_ptr().cast(), U::sub_i16(U::and(four, lower), zeros));
                U::store(odd.as_mut_ptr().cast(), U::sub_i16(U::upper_bytes(four), zeros));
            }
        }
    }
}

impl<U: Pairwise> Product for Words<U> {
    const HAS_ZEROS: bool = false;

    #[inline(always)]
    unsafe fn products<D: Integers, const R: usize, const C: usize>(
        codes: [*const Self::Step; C],
        x: [*const u8; R],
        range: Range<usize>,
    ) -> [[U::Ints; C]; R] {
        // How often the loop runs is hidden from the compiler: it would write it out, add row by row and spill the codes.
        let lines = range.start / 2..opaque(range.end / 2);
        // SAFETY: the caller says so.
        unsafe {
            let mut integers = [[U::zero(); C]; R];
            for line in lines {
                let mut vector = [U::zero(); C];
                for (c, to) in vector.iter_mut().enumerate() {
                    *to = U::load(codes[c].cast::<u8>().add(line * LINE_BYTES));
                }
                for r in 0..R {
                    let x = U::every_four(x[r].add(line % 2 * STEP + line / 2 * 4));
                    for c in 0..C {
                        integers[r][c] = U::add_i32(integers[r][c], U::multiply_words(vector[c], x));
                    }
                }
            }
            integers
        }
    }
}
