//! Few rows of `x`: bound by the reading of the weights.
//!
//! Sixteen columns are read side by side. A vector holds 32 codes of two of them, which are multiplied with the integers of `x` into eight
//! sums for each column, or 16 of 16 bits. The sums of 16 columns are added up to one vector, a column in each lane, which then takes one
//! conversion and one product with the scales.
#![allow(unsafe_code)]

use super::super::pack::Scratch;
use super::super::tiles::chunk_columns;
use super::super::{Call, for_columns};
use super::activations::{Form, Group, Rounded, group_bytes, rounded};
use super::codings::{Columns, Factors, HalfCodes, Integers, PIECE_STEPS, Second};
use super::unit::{Unit, Work};
use super::{STEP, add_scaled, by_coding, store};
use crate::backend::Coding;
use crate::backend::cpu::Pool;
use crate::backend::cpu::amx::{EDGE, LINE_BYTES};
use crate::backend::cpu::matrix::Segment;
use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
use std::marker::PhantomData;
use std::ops::Range;

/// How far ahead of their use weights are asked for, at least.
const AHEAD_BYTES: usize = 32 << 10;

/// Computes the columns of `out` in `columns`.
pub fn run<U: Unit>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let by_segment: fn(&Pool, &mut Scratch, &Call, &[f32], Range<usize>) = by_coding!(call.coding, run_as, U);
    by_segment(pool, scratch, call, x, columns);
}

fn run_as<U: Unit, D: Integers>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let inputs = call.weight.cols();
    let x = rounded::<U, D>(pool, &mut scratch.x, x, (call.tokens, inputs));
    let chunk = chunk_columns(call.row_bytes, columns.len(), pool.threads(), EDGE);
    for_columns(pool, columns, chunk, &|_, range, later| {
        for (segment, following) in call.segments(range, later) {
            let walk = Walk { call, x, segment: &segment, following, inputs };
            for first in (0..segment.rows.len()).step_by(EDGE) {
                let columns = &Columns::new(&segment, first);
                let mut row = 0;
                // SAFETY: `run` of the module above chose the unit for the machine's `Isa`.
                unsafe {
                    while row + 4 <= call.tokens {
                        U::enter(Tile::<D, 4> { walk: &walk, columns, first, row, coding: PhantomData });
                        row += 4;
                    }
                    if row + 2 <= call.tokens {
                        U::enter(Tile::<D, 2> { walk: &walk, columns, first, row, coding: PhantomData });
                        row += 2;
                    }
                    if row < call.tokens {
                        U::enter(Tile::<D, 1> { walk: &walk, columns, first, row, coding: PhantomData });
                    }
                }
            }
        }
    });
}

/// A segment of weights, and what it is multiplied with.
struct Walk<'a> {
    call: &'a Call<'a>,
    x: Rounded<'a>,
    segment: &'a Segment<'a>,
    /// Weights that are probably read after the segment's.
    following: &'a [u8],
    inputs: usize,
}

/// The rows of `x` of which products are taken at once, from the same group on.
struct Rows<const ROWS: usize> {
    groups: [*const Group; ROWS],
    integers: [*const u8; ROWS],
}

/// [`EDGE`] columns, or those that are left, from `first` on, and `ROWS` rows from `row` on.
struct Tile<'a, D, const ROWS: usize> {
    walk: &'a Walk<'a>,
    columns: &'a Columns,
    first: usize,
    row: usize,
    coding: PhantomData<D>,
}

impl<D: Integers, const ROWS: usize> Work for Tile<'_, D, ROWS> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<U: Unit>(self) {
        let Tile { walk, columns, first, row, .. } = self;
        // A loop and no closure: closures do not always become part of a function with these instructions.
        let mut rows = Rows { groups: [std::ptr::null(); ROWS], integers: [std::ptr::null(); ROWS] };
        for i in 0..ROWS {
            (rows.groups[i], rows.integers[i]) = walk.x.row(row + i);
        }
        let (coding, mut factors) = (walk.call.coding, Factors::EMPTY);
        let (steps, whole) = (walk.inputs / STEP, walk.inputs / STEP / PIECE_STEPS * PIECE_STEPS);
        // SAFETY: the caller says what the machine has; the columns have all steps of `inputs`, whole blocks, and `x` has them too.
        unsafe {
            let mut sums = [U::every(0.0); ROWS];
            for step in (0..whole).step_by(PIECE_STEPS) {
                let piece = Piece { coding, first: step, ahead: walk.ahead(first, step) };
                add::<U, D, ROWS, PIECE_STEPS>(&mut sums, &mut factors, columns, &rows, piece);
            }
            for step in whole..steps {
                let piece = Piece { coding, first: step, ahead: walk.ahead(first, step) };
                add::<U, D, ROWS, 1>(&mut sums, &mut factors, columns, &rows, piece);
            }
            for (i, sums) in sums.into_iter().enumerate() {
                store::<U>(walk.call, walk.segment, first, row + i, sums);
            }
        }
    }
}

impl Walk<'_> {
    /// What is asked for from step `step` on: the columns are read side by side, in pieces, but they are asked for in the order of memory.
    #[inline(always)]
    fn ahead(&self, first: usize, step: usize) -> *const u8 {
        let Call { coding, row_bytes, .. } = self.call;
        let before = coding.row_bytes(step * STEP) * EDGE;
        let at = first * row_bytes + before + AHEAD_BYTES.max(EDGE * row_bytes);
        let bytes = self.segment.bytes;
        match at < bytes.len() {
            true => bytes.as_ptr().wrapping_add(at),
            // May lead anywhere.
            false => self.following.as_ptr().wrapping_add(at - bytes.len()),
        }
    }
}

/// Some steps of columns.
#[derive(Clone, Copy)]
struct Piece {
    coding: Coding,
    /// The first step.
    first: usize,
    /// What is asked for meanwhile. May lead anywhere.
    ahead: *const u8,
}

/// Adds `STEPS` steps of 16 columns to the sums of `ROWS` rows.
///
/// # Safety
///
/// The machine has the unit's instructions. The columns and `x` have these steps.
#[inline(always)]
unsafe fn add<U: Unit, D: Integers, const ROWS: usize, const STEPS: usize>(
    sums: &mut [U::Floats; ROWS],
    factors: &mut Factors,
    columns: &Columns,
    rows: &Rows<ROWS>,
    piece: Piece,
) {
    let Piece { coding, first, ahead } = piece;
    let lines = const { (D::STEP_BYTES * EDGE).div_ceil(LINE_BYTES) };
    let form = const { Form::of::<U, D>() };
    // SAFETY: the caller says so; a prefetch may lead anywhere.
    unsafe {
        D::factors::<U, STEPS>(coding, columns, first * STEP, factors);
        for step in 0..STEPS {
            for line in 0..lines {
                let at = ahead.wrapping_add(step * D::STEP_BYTES * EDGE + line * LINE_BYTES);
                _mm_prefetch::<_MM_HINT_T1>(at.cast());
            }
            // Eight columns after the other eight: registers do not hold the codes of 16.
            let mut quarters = [[U::zero(); 2]; ROWS];
            for half in [0, 1] {
                let codes = D::codes::<U>(columns, half, first * STEP, step);
                for (integers, quarters) in rows.integers.iter().zip(&mut quarters) {
                    let integers = integers.add((first + step) * group_bytes(form, D::FORMAT));
                    quarters[half] = match form {
                        Form::Digits => added::<U>(digit_products::<U, D>(codes, integers)),
                        Form::Bytes => added_words::<U>(byte_products::<U>(codes, integers)),
                        Form::Words => added::<U>(word_products::<U>(codes, integers)),
                    };
                }
            }
            for ((group, quarters), sums) in rows.groups.iter().zip(quarters).zip(&mut *sums) {
                *sums = add_group::<U, D>(*sums, quarters, &*group.add(first + step), factors, step);
            }
        }
    }
}

/// The products of the codes of eight columns with the digits of a group: in each vector, eight sums of each of two columns.
///
/// # Safety
///
/// The machine has VNNI, and the digits can be read.
#[inline(always)]
unsafe fn digit_products<U: Unit, D: Integers>(codes: HalfCodes<U>, digits: *const u8) -> HalfCodes<U> {
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
unsafe fn byte_products<U: Unit>(codes: HalfCodes<U>, bytes: *const u8) -> HalfCodes<U> {
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
unsafe fn word_products<U: Unit>(codes: HalfCodes<U>, words: *const u8) -> HalfCodes<U> {
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
unsafe fn added<U: Unit>(products: HalfCodes<U>) -> U::Ints {
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
unsafe fn added_words<U: Unit>(products: HalfCodes<U>) -> U::Ints {
    let [a, b, c, d] = products;
    // SAFETY: the caller says so.
    unsafe {
        let a = U::add_i16(U::low_u64(a, b), U::high_u64(a, b));
        let c = U::add_i16(U::low_u64(c, d), U::high_u64(c, d));
        let words = U::add_i16(U::even_u32(a, c), U::odd_u32(a, c));
        U::multiply_words(words, U::every_i16(1))
    }
}

/// Adds the products of a group: the sums of columns 0 to 7, and of columns 8 to 15.
///
/// # Safety
///
/// The machine has the unit's instructions.
#[inline(always)]
unsafe fn add_group<U: Unit, D: Integers>(
    sums: U::Floats,
    [first, second]: [U::Ints; 2],
    group: &Group,
    factors: &Factors,
    step: usize,
) -> U::Floats {
    // SAFETY: the caller says so.
    unsafe {
        let (even, odd) = (U::even_quarters(first, second), U::odd_quarters(first, second));
        let x_scale = U::every(group.scale);
        if D::HAS_HALVES {
            let mut sums = sums;
            for (half, integers) in [even, odd].into_iter().enumerate() {
                let scales = U::load_floats(&factors.scales[2 * step + half]);
                let sum = U::every(group.halves[half]);
                sums = add_scaled::<U>(sums, without_zeros::<U, D>(integers, sum, factors, step), scales, x_scale);
            }
            return sums;
        }
        let scales = U::load_floats(&factors.scales[step]);
        let sum = U::every(group.halves[0] + group.halves[1]);
        let integers = without_zeros::<U, D>(U::add_i32(even, odd), sum, factors, step);
        let sums = add_scaled::<U>(sums, integers, scales, x_scale);
        match D::SECOND {
            Second::Minima => U::mul_add(U::load_floats(&factors.seconds[step]), U::every(group.scaled_sum), sums),
            _ => sums,
        }
    }
}

/// Sums of products with codes from which their zeros are taken: exactly, for these are integers below 2^24.
///
/// # Safety
///
/// The machine has the unit's instructions.
#[inline(always)]
unsafe fn without_zeros<U: Unit, D: Integers>(
    integers: U::Ints,
    sum_of_x: U::Floats,
    factors: &Factors,
    step: usize,
) -> U::Floats {
    // SAFETY: the caller says so.
    unsafe {
        let integers = U::to_floats(integers);
        match D::SECOND {
            Second::Minima => integers,
            Second::Zero(zero) => U::mul_sub_from(U::every(f32::from(zero)), sum_of_x, integers),
            Second::Zeros => U::mul_sub_from(U::load_floats(&factors.seconds[step]), sum_of_x, integers),
        }
    }
}
