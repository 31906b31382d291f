//! Few rows of `x`: bound by the reading of the weights.
//!
//! Sixteen columns are read side by side. A vector holds 32 codes of two of them, which are multiplied with the integers of `x` into some
//! sums for each column. The sums of 16 columns are added up to one vector, a column in each lane, which then takes one conversion and one
//! product with the scales.
#![allow(unsafe_code)]

use super::super::pack::Scratch;
use super::super::tiles::{chunk_columns, prefetch_line};
use super::super::{Call, for_columns};
use super::activations::{Form, Group, Rounded, group_bytes, rounded};
use super::codings::{Columns, Factors, Integers, PIECE_STEPS, Second, second};
use super::target::{Target, Work};
use super::{EDGE, LINE_BYTES, STEP, add_scaled, by_coding, store};
use crate::cpu::Pool;
use crate::cpu::matrix::Segment;
use formats::WeightFormat;
use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{Ordering, compiler_fence};

/// How far ahead of their use weights are asked for, at least.
const AHEAD_BYTES: usize = 32 << 10;

/// Computes the columns of `out` in `columns`.
pub fn run<T: Target>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let by_segment: fn(&Pool, &mut Scratch, &Call, &[f32], Range<usize>) = by_coding!(call.coding, run_as, T);
    by_segment(pool, scratch, call, x, columns);
}

fn run_as<T: Target, D: Integers>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let inputs = call.weight.cols();
    let x = rounded::<T, D>(pool, &mut scratch.x, x, (call.tokens, inputs));
    let chunk = chunk_columns(call.row_bytes, columns.len(), pool.threads(), EDGE);
    for_columns(pool, columns, chunk, &|_, range, later| {
        for (segment, following) in call.segments(range, later) {
            let piece_bytes = EDGE * call.coding.row_bytes(PIECE_STEPS * STEP);
            let walk = Walk { call, x, segment: &segment, following, inputs, piece_bytes };
            let mut columns = Columns::new(&segment, 0);
            for first in (0..segment.rows.len()).step_by(EDGE) {
                if first > 0 {
                    columns.advance(&segment, first);
                }
                let (columns, mut row) = (&columns, 0);
                // SAFETY: `run` of the module above chose the target for the machine's `Isa`.
                unsafe {
                    while row + 4 <= call.tokens && const { T::FEW >= 4 } {
                        T::enter(Tile::<D, 4> { walk: &walk, columns, first, row, coding: PhantomData });
                        row += 4;
                    }
                    if row + 2 <= call.tokens && const { T::FEW >= 2 } {
                        T::enter(Tile::<D, 2> { walk: &walk, columns, first, row, coding: PhantomData });
                        row += 2;
                    }
                    if row < call.tokens {
                        T::enter(Tile::<D, 1> { walk: &walk, columns, first, row, coding: PhantomData });
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
    /// Bytes of a piece of [`EDGE`] columns.
    piece_bytes: usize,
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
    unsafe fn run<T: Target>(self) {
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
            let mut sums = [T::every(0.0); ROWS];
            for step in (0..whole).step_by(PIECE_STEPS) {
                let piece = Piece { coding, first: step, ahead: walk.ahead(first, step) };
                add::<T, D, ROWS, PIECE_STEPS>(&mut sums, &mut factors, columns, &rows, piece);
            }
            for step in whole..steps {
                let piece = Piece { coding, first: step, ahead: walk.ahead(first, step) };
                add::<T, D, ROWS, 1>(&mut sums, &mut factors, columns, &rows, piece);
            }
            for (i, sums) in sums.into_iter().enumerate() {
                store::<T>(walk.call, walk.segment, first, row + i, sums);
            }
        }
    }
}

impl Walk<'_> {
    /// What is asked for from step `step` on: the columns are read side by side, in pieces, but they are asked for in the order of memory.
    #[inline(always)]
    fn ahead(&self, first: usize, step: usize) -> *const u8 {
        let Call { row_bytes, .. } = self.call;
        let before = step * self.piece_bytes / PIECE_STEPS;
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
    coding: WeightFormat,
    /// The first step.
    first: usize,
    /// What is asked for meanwhile. May lead anywhere.
    ahead: *const u8,
}

/// Adds `STEPS` steps of 16 columns to the sums of `ROWS` rows.
///
/// # Safety
///
/// The machine has the target's instructions. The columns and `x` have these steps.
#[inline(always)]
unsafe fn add<T: Target, D: Integers, const ROWS: usize, const STEPS: usize>(
    sums: &mut [T::Floats; ROWS],
    factors: &mut Factors,
    columns: &Columns,
    rows: &Rows<ROWS>,
    piece: Piece,
) {
    let period = const { if ROWS == 1 && D::PERIOD < STEPS { D::PERIOD } else { 1 } };
    // SAFETY: the caller says so.
    unsafe {
        D::factors::<T, STEPS>(piece.coding, columns, piece.first * STEP, factors);
        // For one row a period is written out here: the compiler leaves it a loop, which shifts by numbers that it does not know. With four
        // rows that was faster.
        for step in (0..STEPS).step_by(period) {
            add_step::<T, D, ROWS>(sums, factors, columns, rows, piece, step);
            if period >= 2 {
                add_step::<T, D, ROWS>(sums, factors, columns, rows, piece, step + 1);
            }
            if period == 4 {
                add_step::<T, D, ROWS>(sums, factors, columns, rows, piece, step + 2);
                add_step::<T, D, ROWS>(sums, factors, columns, rows, piece, step + 3);
            }
        }
    }
}

/// Adds the `step`-th step of a piece, and asks for what comes later.
///
/// # Safety
///
/// As [`add`].
#[inline(always)]
unsafe fn add_step<T: Target, D: Integers, const ROWS: usize>(
    sums: &mut [T::Floats; ROWS],
    factors: &Factors,
    columns: &Columns,
    rows: &Rows<ROWS>,
    piece: Piece,
    step: usize,
) {
    let Piece { first, ahead, .. } = piece;
    let lines = const { (D::STEP_BYTES * EDGE).div_ceil(LINE_BYTES) };
    // SAFETY: the caller says so.
    unsafe {
        for line in 0..lines {
            prefetch_line(ahead.wrapping_add(step * D::STEP_BYTES * EDGE + line * LINE_BYTES));
        }
        // The compiler would ask for the lines of a whole period at once, which are more than a core waits for.
        compiler_fence(Ordering::SeqCst);
        // Eight columns after the other eight: registers do not hold the codes of 16.
        let [left, right] = [
            half_sums::<T, D, ROWS>(columns, rows, 0, first, step),
            half_sums::<T, D, ROWS>(columns, rows, 1, first, step),
        ];
        for i in 0..ROWS {
            let group = &*rows.groups[i].add(first + step);
            sums[i] = add_group::<T, D>(sums[i], [left[i], right[i]], group, factors, step);
        }
    }
}

/// The sums of the products of eight columns, the first ones or the last ones, with a group of each row: see [`Target::sums`].
///
/// # Safety
///
/// As [`add`].
#[inline(always)]
unsafe fn half_sums<T: Target, D: Integers, const ROWS: usize>(
    columns: &Columns,
    rows: &Rows<ROWS>,
    half: usize,
    first: usize,
    step: usize,
) -> [T::Ints; ROWS] {
    let group_bytes = const { group_bytes(Form::of::<T, D>(), D::FORMAT) };
    // SAFETY: the caller says so.
    unsafe {
        let mut sums = [T::zero(); ROWS];
        let codes = D::codes::<T>(columns, half, first * STEP, step);
        for (integers, sums) in rows.integers.iter().zip(&mut sums) {
            *sums = T::sums::<D>(codes, integers.add((first + step) * group_bytes));
        }
        sums
    }
}

/// Adds the products of a group: the sums of columns 0 to 7, and of columns 8 to 15.
///
/// # Safety
///
/// The machine has the target's instructions.
#[inline(always)]
unsafe fn add_group<T: Target, D: Integers>(
    sums: T::Floats,
    [first, second]: [T::Ints; 2],
    group: &Group,
    factors: &Factors,
    step: usize,
) -> T::Floats {
    // SAFETY: the caller says so.
    unsafe {
        let (even, odd) = (T::even_quarters(first, second), T::odd_quarters(first, second));
        let x_scale = T::every(group.scale);
        if D::HAS_HALVES {
            let mut sums = sums;
            for (half, integers) in [even, odd].into_iter().enumerate() {
                let scales = T::load_floats(&factors.scales[2 * step + half]);
                let sum = T::every(group.halves[half]);
                sums = add_scaled::<T>(sums, without_zeros::<T, D>(integers, sum, factors, step), scales, x_scale);
            }
            return sums;
        }
        let scales = T::load_floats(&factors.scales[step]);
        let sum = T::every(group.halves[0] + group.halves[1]);
        let integers = without_zeros::<T, D>(T::add_i32(even, odd), sum, factors, step);
        let sums = add_scaled::<T>(sums, integers, scales, x_scale);
        match D::SECOND {
            Second::Minima => T::mul_add(T::load_floats(&factors.seconds[step]), T::every(group.scaled_sum), sums),
            _ => sums,
        }
    }
}

/// Sums of products with codes from which their zeros are taken: exactly, for these are integers below 2^24.
///
/// # Safety
///
/// The machine has the target's instructions.
#[inline(always)]
unsafe fn without_zeros<T: Target, D: Integers>(
    integers: T::Ints,
    sum_of_x: T::Floats,
    factors: &Factors,
    step: usize,
) -> T::Floats {
    // SAFETY: the caller says so.
    unsafe {
        let integers = T::to_floats(integers);
        match const { second::<T, D>() } {
            Second::Minima | Second::Zero(0) => integers,
            Second::Zero(zero) => T::mul_sub_from(T::every(f32::from(zero)), sum_of_x, integers),
            Second::Zeros => T::mul_sub_from(T::load_floats(&factors.seconds[step]), sum_of_x, integers),
        }
    }
}
