//! Many rows: a panel of rewritten weights has a vector of some codes of 16 columns, and the integers of a row are in every lane, so that no
//! sums are added across lanes.
#![allow(unsafe_code)]

use super::super::pack::Scratch;
use super::super::{Call, for_columns};
use super::activations::{Form, Group, Rounded, group_bytes, rounded};
use super::codings::{Factors, Integers, Second, StepCodes, opaque};
use super::panel::{Layout, Panel, StepFactors, by_fours, chunk_columns, parts, staged_numbers};
use super::unit::{Unit, Work};
use super::{STEP, add_scaled, by_coding, store};
use crate::backend::cpu::Pool;
use crate::backend::cpu::amx::{EDGE, LINE_BYTES};
use crate::backend::cpu::disjoint::Disjoint;
use crate::backend::cpu::matrix::Segment;
use std::marker::PhantomData;
use std::ops::Range;

/// Rows of `x` for which no more columns than a tile has are rewritten at a time: a panel would leave the first-level cache.
const FEW_ROWS: usize = 32;

/// Codes as bytes. `[four][column][4]`
struct Fours<U>(PhantomData<U>);

impl<U: Unit> Layout for Fours<U> {
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

/// Codes without their zeros as words, of each four the even ones and then the odd ones. `[four][2][column][2]`
struct Words<U>(PhantomData<U>);

impl<U: Unit> Layout for Words<U> {
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

/// Computes the columns of `out` in `columns`.
pub fn run<U: Unit>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let by_segment: fn(&Pool, &mut Scratch, &Call, &[f32], Range<usize>) = by_coding!(call.coding, run_as, U);
    by_segment(pool, scratch, call, x, columns);
}

fn run_as<U: Unit, D: Integers>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    match const { Form::of::<U, D>() } {
        Form::Words => run_in::<D, Words<U>>(pool, scratch, call, x, columns),
        Form::Digits | Form::Bytes => run_in::<D, Fours<U>>(pool, scratch, call, x, columns),
    }
}

fn run_in<D: Integers, L: Layout>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let inputs = call.weight.cols();
    let Scratch { x: room, staged } = scratch;
    let x = rounded::<L::Unit, D>(pool, room, x, (call.tokens, inputs));
    let (chunk, numbers) = (chunk_columns(inputs, columns.len(), pool.threads()), staged_numbers(inputs));
    let staged = Disjoint::new(staged);
    for_columns(pool, columns, chunk, &|thread, range, later| {
        // SAFETY: no two calls with the same thread overlap.
        let staged = unsafe { staged.part(thread * numbers..(thread + 1) * numbers) };
        for (segment, following) in call.segments(range, later) {
            let columns = if call.tokens <= FEW_ROWS { L::Unit::TILE.1 * EDGE } else { segment.rows.len() };
            for (segment, following) in parts(&segment, columns, following) {
                // SAFETY: `run` of the module above chose the unit for the machine's `Isa`. The parts of `Pages` are whole lines of the cache.
                unsafe {
                    let panel = Panel::<L>::stage::<D>(staged, call.coding, &segment, inputs, following);
                    multiply::<D, L>(call, &segment, &panel, x);
                }
            }
        }
    });
}

/// Computes all rows of the columns of a panel.
///
/// # Safety
///
/// The machine has the layout's unit.
unsafe fn multiply<D: Integers, L: Layout>(call: &Call, segment: &Segment, panel: &Panel<L>, x: Rounded) {
    let (most_rows, most_groups) = L::Unit::TILE;
    for first in (0..call.tokens).step_by(most_rows) {
        for group in (0..panel.groups).step_by(most_groups) {
            let end = call.tokens.min(first + most_rows);
            let groups = most_groups.min(panel.groups - group);
            let mut row = first;
            while row < end {
                let at = At { call, segment, panel, x, row, group };
                // SAFETY: the caller says so.
                row += unsafe {
                    match (end - row, groups) {
                        (6.., 2) if const { L::Unit::TILE.0 == 6 } => at.compute::<D, 6, 2>(),
                        (6.., _) if const { L::Unit::TILE.0 == 6 } => at.compute::<D, 6, 1>(),
                        (4.., 2) if const { L::Unit::TILE.1 == 2 } => at.compute::<D, 4, 2>(),
                        (4.., _) => at.compute::<D, 4, 1>(),
                        (2.., 2) if const { L::Unit::TILE.1 == 2 } => at.compute::<D, 2, 2>(),
                        (2.., _) => at.compute::<D, 2, 1>(),
                        (_, 2) if const { L::Unit::TILE.1 == 2 } => at.compute::<D, 1, 2>(),
                        _ => at.compute::<D, 1, 1>(),
                    }
                };
            }
        }
    }
}

/// Some rows and groups of columns.
#[derive(Clone, Copy)]
struct At<'a, L: Layout> {
    call: &'a Call<'a>,
    segment: &'a Segment<'a>,
    panel: &'a Panel<'a, L>,
    x: Rounded<'a>,
    row: usize,
    group: usize,
}

impl<L: Layout> At<'_, L> {
    /// Computes `R` rows of `C` groups of columns and returns `R`.
    ///
    /// # Safety
    ///
    /// As [`multiply`].
    unsafe fn compute<D: Integers, const R: usize, const C: usize>(&self) -> usize {
        // SAFETY: the caller says so.
        unsafe { L::Unit::enter(Tile::<D, L, R, C> { at: self, coding: PhantomData }) };
        R
    }
}

/// `R` rows of `C` groups of columns.
struct Tile<'a, D, L: Layout, const R: usize, const C: usize> {
    at: &'a At<'a, L>,
    coding: PhantomData<D>,
}

impl<D: Integers, L: Layout, const R: usize, const C: usize> Work for Tile<'_, D, L, R, C> {
    type Output = ();

    /// Computes them. `U` is the layout's unit.
    #[inline(always)]
    unsafe fn run<U: Unit>(self) {
        let At { call, segment, panel, x, row, group } = self.at;
        // Loops and no closures: closures do not always become part of a function with these instructions.
        let mut rows = [(std::ptr::null(), std::ptr::null()); R];
        for (r, to) in rows.iter_mut().enumerate() {
            *to = x.row(row + r);
        }
        let steps = panel.steps;
        assert!((group + C) * steps <= panel.codes.len().min(panel.factors.len()));
        // SAFETY: the assertion found `C` groups of columns of these steps; the caller says what the machine has; `x` and the panel have these
        // steps. The threads' columns do not overlap by `Pool::for_each`.
        unsafe {
            let mut sums = [[U::every(0.0); C]; R];
            let (codes, factors) = (panel.codes.as_ptr().add(group * steps), panel.factors.as_ptr().add(group * steps));
            for step in 0..steps {
                let at = Step { codes: codes.cast(), factors, steps, step };
                if D::HAS_HALVES {
                    add::<U, D, R, C>(&mut sums, at, &rows, 0, 0..STEP / 2);
                    add::<U, D, R, C>(&mut sums, at, &rows, 1, STEP / 2..STEP);
                } else {
                    add::<U, D, R, C>(&mut sums, at, &rows, 0, 0..STEP);
                }
            }
            for (r, sums) in sums.into_iter().enumerate() {
                for (c, sums) in sums.into_iter().enumerate() {
                    store::<U>(call, segment, (group + c) * EDGE, row + r, sums);
                }
            }
        }
    }
}

/// A step of a panel's groups of columns.
#[derive(Clone, Copy)]
struct Step {
    /// Of the first group, as are the factors; those of the next group come `steps` later.
    codes: *const u8,
    factors: *const StepFactors,
    steps: usize,
    step: usize,
}

/// Adds the numbers of `range` of a step, all or half of them.
///
/// # Safety
///
/// As [`multiply`]; the panel and the rows have the step.
#[inline(always)]
unsafe fn add<U: Unit, D: Integers, const R: usize, const C: usize>(
    sums: &mut [[U::Floats; C]; R],
    at: Step,
    rows: &[(*const Group, *const u8); R],
    half: usize,
    range: Range<usize>,
) {
    let Step { codes, factors, steps, step } = at;
    let form = const { Form::of::<U, D>() };
    let is_word = form == Form::Words;
    // Vectors of codes in a step. How often the loop over words runs is hidden from the compiler: it would write it out, add row by row and
    // spill the codes.
    let vectors = if is_word { STEP / 2 } else { STEP / 4 };
    let [start, end] = [range.start, range.end].map(|number| number * vectors / STEP);
    let lines = start..if is_word { opaque(end) } else { end };
    // SAFETY: the caller says so; the arrays have 16 numbers.
    unsafe {
        let mut integers = [[U::zero(); C]; R];
        for digit in 0..if form == Form::Digits && D::FORMAT.is_wide { 2 } else { 1 } {
            for line in lines.clone() {
                let mut vector = [U::zero(); C];
                for (c, to) in vector.iter_mut().enumerate() {
                    *to = U::load(codes.add(((c * steps + step) * vectors + line) * LINE_BYTES));
                }
                let at = if is_word { line % 2 * STEP + line / 2 * 4 } else { digit * STEP + line * 4 };
                for r in 0..R {
                    let x = U::every_four(rows[r].1.add(step * group_bytes(form, D::FORMAT) + at));
                    for c in 0..C {
                        integers[r][c] = match form {
                            Form::Digits => U::dot(integers[r][c], vector[c], x),
                            Form::Bytes => U::add_i16(integers[r][c], U::multiply_bytes(vector[c], x)),
                            Form::Words => U::add_i32(integers[r][c], U::multiply_words(vector[c], x)),
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
        for r in 0..R {
            let group = &*rows[r].0.add(step);
            let of_x = if D::HAS_HALVES { group.halves[half] } else { group.halves[0] + group.halves[1] };
            let (of_x, x_scale) = (U::every(of_x), U::every(group.scale));
            for c in 0..C {
                let factors = &*factors.add(c * steps + step);
                let integers = match form {
                    Form::Bytes => U::multiply_words(integers[r][c], U::every_i16(1)),
                    _ => integers[r][c],
                };
                let integers = U::to_floats(integers);
                let seconds = U::load_floats(&factors.seconds);
                let integers = match D::SECOND {
                    // Words are without zeros.
                    _ if is_word => integers,
                    Second::Minima => integers,
                    Second::Zero(zero) => U::mul_sub_from(U::every(f32::from(zero)), of_x, integers),
                    Second::Zeros => U::mul_sub_from(seconds, of_x, integers),
                };
                let scales = U::load_floats(&factors.scales[half]);
                sums[r][c] = add_scaled::<U>(sums[r][c], integers, scales, x_scale);
                if let Second::Minima = D::SECOND {
                    sums[r][c] = U::mul_add(seconds, U::every(group.scaled_sum), sums[r][c]);
                }
            }
        }
    }
}
