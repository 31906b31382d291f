//! Products of neighbouring lanes, which the instructions of x86-64 add up.
#![allow(unsafe_code)]

use super::activations::Form;
use super::codings::{Factors, HalfCodes, Integers, Second, StepCodes, opaque};
use super::panel::{Layout, Product, by_fours};
use super::target::Target;
use super::{EDGE, LINE_BYTES, STEP};
use crate::cpu::lanes::simd::Pairwise;
use std::marker::PhantomData;
use std::ops::Range;

/// [`Target::sums`].
///
/// # Safety
///
/// As there.
#[inline(always)]
pub unsafe fn sums<T: Target + Pairwise, D: Integers>(codes: HalfCodes<T>, x: *const u8) -> T::Ints {
    // SAFETY: the caller says so.
    unsafe {
        match const { Form::of::<T, D>() } {
            Form::Digits => added::<T>(digit_products::<T, D>(codes, x)),
            Form::Bytes => added_words::<T>(byte_products::<T>(codes, x)),
            Form::EvenOdd => added::<T>(word_products::<T>(codes, x)),
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
unsafe fn digit_products<T: Target + Pairwise, D: Integers>(codes: HalfCodes<T>, digits: *const u8) -> HalfCodes<T> {
    let mut products = codes;
    // SAFETY: the caller says so.
    unsafe {
        let first = T::twice(digits);
        if D::FORMAT.is_wide {
            let low = T::twice(digits.add(STEP));
            for product in &mut products {
                let high = T::dot(T::zero(), *product, first);
                *product = T::dot(T::shl_i32(high, 6), *product, low);
            }
        } else {
            for product in &mut products {
                *product = T::dot(T::zero(), *product, first);
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
/// The machine has the target's instructions, and the bytes can be read.
#[inline(always)]
unsafe fn byte_products<T: Target + Pairwise>(codes: HalfCodes<T>, bytes: *const u8) -> HalfCodes<T> {
    let mut products = codes;
    // SAFETY: the caller says so.
    unsafe {
        let x = T::twice(bytes);
        for product in &mut products {
            *product = T::multiply_bytes(*product, x);
        }
    }
    products
}

/// The products of the codes of eight columns with the words of a group: in each vector, eight sums of each of two columns.
///
/// # Safety
///
/// The machine has the target's instructions, and the words can be read.
#[inline(always)]
unsafe fn word_products<T: Target + Pairwise>(codes: HalfCodes<T>, words: *const u8) -> HalfCodes<T> {
    let mut products = codes;
    // SAFETY: the caller says so.
    unsafe {
        let (even, odd) = (T::twice(words), T::twice(words.add(STEP)));
        let lower = T::every_i16(255);
        for product in &mut products {
            let (first, second) = (T::and(*product, lower), T::upper_bytes(*product));
            *product = T::add_i32(T::multiply_words(first, even), T::multiply_words(second, odd));
        }
    }
    products
}

/// Adds each four neighbouring lanes. A quarter of the result has four columns of the first four or of the other four, by turns their first and
/// their last 16 codes.
///
/// # Safety
///
/// The machine has the target's instructions.
#[inline(always)]
unsafe fn added<T: Target + Pairwise>(products: HalfCodes<T>) -> T::Ints {
    let [a, b, c, d] = products;
    // SAFETY: the caller says so.
    unsafe {
        let a = T::add_i32(T::low_u64(a, b), T::high_u64(a, b));
        let c = T::add_i32(T::low_u64(c, d), T::high_u64(c, d));
        T::add_i32(T::even_u32(a, c), T::odd_u32(a, c))
    }
}

/// As [`added`], of sums of 16 bits.
///
/// # Safety
///
/// As there.
#[inline(always)]
unsafe fn added_words<T: Target + Pairwise>(products: HalfCodes<T>) -> T::Ints {
    let [a, b, c, d] = products;
    // SAFETY: the caller says so.
    unsafe {
        let a = T::add_i16(T::low_u64(a, b), T::high_u64(a, b));
        let c = T::add_i16(T::low_u64(c, d), T::high_u64(c, d));
        let words = T::add_i16(T::even_u32(a, c), T::odd_u32(a, c));
        T::multiply_words(words, T::every_i16(1))
    }
}

/// Codes as bytes. `[four][column][4]`
pub struct Fours<T>(PhantomData<T>);

impl<T: Target + Pairwise> Layout for Fours<T> {
    type Target = T;
    type Step = [[u32; EDGE]; STEP / 4];

    #[inline(always)]
    unsafe fn write<D: Integers>(codes: StepCodes<T>, _: &Factors, _: usize, to: &mut Self::Step) {
        // SAFETY: the caller says what the machine has; each row has 64 bytes.
        unsafe {
            for (to, four) in to.iter_mut().zip(by_fours::<T>(codes)) {
                T::store(to.as_mut_ptr().cast(), four);
            }
        }
    }
}

impl<T: Target + Pairwise> Product for Fours<T> {
    const HAS_ZEROS: bool = true;

    #[inline(always)]
    unsafe fn products<D: Integers, const R: usize, const C: usize>(
        codes: [*const Self::Step; C],
        x: [*const u8; R],
        range: Range<usize>,
    ) -> [[T::Ints; C]; R] {
        let form = const { Form::of::<T, D>() };
        let lines = range.start / 4..range.end / 4;
        // SAFETY: the caller says so.
        unsafe {
            let mut integers = [[T::zero(); C]; R];
            for digit in 0..if form == Form::Digits && D::FORMAT.is_wide { 2 } else { 1 } {
                for line in lines.clone() {
                    let mut vector = [T::zero(); C];
                    for (c, to) in vector.iter_mut().enumerate() {
                        *to = T::load(codes[c].cast::<u8>().add(line * LINE_BYTES));
                    }
                    for r in 0..R {
                        let x = T::every_i32(x[r].add(digit * STEP + line * 4).cast::<i32>().read_unaligned());
                        for c in 0..C {
                            integers[r][c] = match form {
                                Form::Digits => T::dot(integers[r][c], vector[c], x),
                                _ => T::add_i16(integers[r][c], T::multiply_bytes(vector[c], x)),
                            };
                        }
                    }
                }
                if form == Form::Digits && D::FORMAT.is_wide && digit == 0 {
                    for row in &mut integers {
                        for integers in row {
                            *integers = T::shl_i32(*integers, 6);
                        }
                    }
                }
            }
            if form == Form::Bytes {
                for row in &mut integers {
                    for integers in row {
                        *integers = T::multiply_words(*integers, T::every_i16(1));
                    }
                }
            }
            integers
        }
    }
}

/// Codes without their zeros as words, of each four the even ones and then the odd ones. `[four][2][column][2]`
pub struct Words<T>(PhantomData<T>);

impl<T: Target + Pairwise> Layout for Words<T> {
    type Target = T;
    type Step = [[[u32; EDGE]; 2]; STEP / 4];

    #[inline(always)]
    unsafe fn write<D: Integers>(codes: StepCodes<T>, factors: &Factors, step: usize, to: &mut Self::Step) {
        // SAFETY: the caller says what the machine has; each row has 64 bytes.
        unsafe {
            let zeros = match D::SECOND {
                Second::Minima => T::zero(),
                Second::Zero(zero) => T::every_i16(i16::from(zero)),
                Second::Zeros => {
                    let zeros = T::to_integers(T::load_floats(&factors.seconds[step]));
                    T::or(zeros, T::shl_i32(zeros, 16))
                }
            };
            let lower = T::every_i16(255);
            for ([even, odd], four) in to.iter_mut().zip(by_fours::<T>(codes)) {
                T::store(even.as_mut_ptr().cast(), T::sub_i16(T::and(four, lower), zeros));
                T::store(odd.as_mut_ptr().cast(), T::sub_i16(T::upper_bytes(four), zeros));
            }
        }
    }
}

impl<T: Target + Pairwise> Product for Words<T> {
    const HAS_ZEROS: bool = false;

    #[inline(always)]
    unsafe fn products<D: Integers, const R: usize, const C: usize>(
        codes: [*const Self::Step; C],
        x: [*const u8; R],
        range: Range<usize>,
    ) -> [[T::Ints; C]; R] {
        // How often the loop runs is hidden from the compiler: it would write it out, add row by row and spill the codes.
        let lines = range.start / 2..opaque(range.end / 2);
        // SAFETY: the caller says so.
        unsafe {
            let mut integers = [[T::zero(); C]; R];
            for line in lines {
                let mut vector = [T::zero(); C];
                for (c, to) in vector.iter_mut().enumerate() {
                    *to = T::load(codes[c].cast::<u8>().add(line * LINE_BYTES));
                }
                for r in 0..R {
                    let x = T::every_i32(x[r].add(line % 2 * STEP + line / 2 * 4).cast::<i32>().read_unaligned());
                    for c in 0..C {
                        integers[r][c] = T::add_i32(integers[r][c], T::multiply_words(vector[c], x));
                    }
                }
            }
            integers
        }
    }
}
