//! Many rows: a panel of rewritten weights has a vector of some codes of 16 columns, and the integers of a row are in every lane, so that no
//! sums are added across lanes. Where products are those of matrices (`smmla`), a vector has some codes of two columns, and those of two rows.
#![allow(unsafe_code)]

use super::super::pack::Scratch;
use super::super::{Call, for_columns};
use super::activations::{Form, Group, Rounded, group_bytes, rounded};
use super::codings::{Integers, Second, second};
use super::panel::{Layout, Panel, Product, StepFactors, chunk_columns, parts, staged_numbers};
use super::target::{Target, Work};
use super::{EDGE, STEP, add_scaled, by_coding, store};
use crate::cpu::Pool;
use crate::cpu::disjoint::Disjoint;
use crate::cpu::lanes::simd::Simd;
use crate::cpu::matrix::Segment;
use std::marker::PhantomData;
use std::ops::Range;

/// Rows of `x` for which no more columns than a tile has are rewritten at a time: a panel would leave the first-level cache.
const FEW_ROWS: usize = 32;

/// Computes the columns of `out` in `columns`.
pub fn run<T: Target>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let by_segment: fn(&Pool, &mut Scratch, &Call, &[f32], Range<usize>) = by_coding!(call.coding, run_as, T);
    by_segment(pool, scratch, call, x, columns);
}

fn run_as<T: Target, D: Integers>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    match const { Form::of::<T, D>() } {
        Form::EvenOdd | Form::Words => run_in::<D, T::Words>(pool, scratch, call, x, columns),
        Form::Digits | Form::Bytes => run_in::<D, T::Bytes>(pool, scratch, call, x, columns),
    }
}

fn run_in<D: Integers, L: Sums>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let inputs = call.weight.cols();
    let Scratch { x: room, staged } = scratch;
    let x = rounded::<L::Target, D>(pool, room, x, (call.tokens, inputs));
    let (chunk, numbers) = (chunk_columns(inputs, columns.len(), pool.threads()), staged_numbers(inputs));
    let staged = Disjoint::new(staged);
    for_columns(pool, columns, chunk, &|thread, range, later| {
        // SAFETY: no two calls with the same thread overlap.
        let staged = unsafe { staged.part(thread * numbers..(thread + 1) * numbers) };
        for (segment, following) in call.segments(range, later) {
            let columns = if call.tokens <= FEW_ROWS { L::Target::TILE.1 * EDGE } else { segment.rows.len() };
            for (segment, following) in parts(&segment, columns, following) {
                // SAFETY: `run` of the module above chose the target for the machine's `Isa`. The parts of `Pages` are whole lines of the cache.
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
/// The machine has the layout's target.
unsafe fn multiply<D: Integers, L: Sums>(call: &Call, segment: &Segment, panel: &Panel<L>, x: Rounded) {
    let (most_rows, most_groups) = L::Target::TILE;
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
                        (6.., 2) if const { matches!(L::Target::TILE, (6, 2)) } => at.compute::<D, 6, 2>(),
                        (6.., _) if const { L::Target::TILE.0 == 6 } => at.compute::<D, 6, 1>(),
                        (4.., 2) if const { L::Target::TILE.1 == 2 } => at.compute::<D, 4, 2>(),
                        (4.., _) => at.compute::<D, 4, 1>(),
                        (2.., 2) if const { L::Target::TILE.1 == 2 } => at.compute::<D, 2, 2>(),
                        (2.., _) => at.compute::<D, 2, 1>(),
                        _ if const { L::IN_PAIRS } => at.compute::<D, 2, 1>(),
                        (_, 2) if const { L::Target::TILE.1 == 2 } => at.compute::<D, 1, 2>(),
                        _ => at.compute::<D, 1, 1>(),
                    }
                };
            }
        }
    }
}

/// Some rows and groups of columns.
#[derive(Clone, Copy)]
struct At<'a, L: Sums> {
    call: &'a Call<'a>,
    segment: &'a Segment<'a>,
    panel: &'a Panel<'a, L>,
    x: Rounded<'a>,
    row: usize,
    group: usize,
}

impl<L: Sums> At<'_, L> {
    /// Computes `R` rows of `C` groups of columns and returns `R`.
    ///
    /// # Safety
    ///
    /// As [`multiply`].
    unsafe fn compute<D: Integers, const R: usize, const C: usize>(&self) -> usize {
        // SAFETY: the caller says so.
        unsafe { L::Target::enter(Tile::<D, L, R, C> { at: self, coding: PhantomData }) };
        R
    }
}

/// `R` rows of `C` groups of columns.
struct Tile<'a, D, L: Sums, const R: usize, const C: usize> {
    at: &'a At<'a, L>,
    coding: PhantomData<D>,
}

impl<D: Integers, L: Sums, const R: usize, const C: usize> Work for Tile<'_, D, L, R, C> {
    type Output = ();

    /// Computes them. `T` is the layout's target.
    #[inline(always)]
    unsafe fn run<T: Target>(self) {
        let At { call, segment, panel, x, row, group } = self.at;
        // Loops and no closures: closures do not always become part of a function with these instructions.
        let mut rows = [(std::ptr::null(), std::ptr::null()); R];
        for (r, to) in rows.iter_mut().enumerate() {
            // In place of a row beyond the last one stands the last one, whose sums are not stored twice.
            *to = x.row(if L::IN_PAIRS { (row + r).min(call.tokens - 1) } else { row + r });
        }
        let steps = panel.steps;
        assert!((group + C) * steps <= panel.codes.len().min(panel.factors.len()));
        // SAFETY: the assertion found `C` groups of columns of these steps; the caller says what the machine has; `x` and the panel have these
        // steps. The threads' columns do not overlap by `Pool::for_each`.
        unsafe {
            let mut sums = [[L::Target::every(0.0); C]; R];
            let (codes, factors) = (panel.codes.as_ptr().add(group * steps), panel.factors.as_ptr().add(group * steps));
            for step in 0..steps {
                let at = &Step { codes, factors, steps, step };
                if D::HAS_HALVES {
                    L::add::<D, R, C>(&mut sums, at, &rows, 0, 0..STEP / 2);
                    L::add::<D, R, C>(&mut sums, at, &rows, 1, STEP / 2..STEP);
                } else {
                    L::add::<D, R, C>(&mut sums, at, &rows, 0, 0..STEP);
                }
            }
            for (r, sums) in L::of_rows(sums).into_iter().enumerate() {
                if L::IN_PAIRS && row + r >= call.tokens {
                    break;
                }
                for (c, sums) in sums.into_iter().enumerate() {
                    store::<L::Target>(call, segment, (group + c) * EDGE, row + r, sums);
                }
            }
        }
    }
}

/// A step of a panel's groups of columns.
pub struct Step<L: Layout> {
    /// Of the first group, as are the factors; those of the next group come `steps` later.
    pub codes: *const L::Step,
    pub factors: *const StepFactors,
    pub steps: usize,
    pub step: usize,
}

/// What is added up in registers, of `R` rows and `C` groups of columns.
pub trait Sums: Layout {
    /// Whether sums are those of pairs of rows: `R` is even.
    const IN_PAIRS: bool;

    /// Adds the numbers of `range` of a step, all or half of them.
    ///
    /// # Safety
    ///
    /// The machine has the layout's target; the panel and the rows have the step.
    unsafe fn add<D: Integers, const R: usize, const C: usize>(
        sums: &mut [[<Self::Target as Simd>::Floats; C]; R],
        at: &Step<Self>,
        rows: &[(*const Group, *const u8); R],
        half: usize,
        range: Range<usize>,
    ) where
        Self: Sized;

    /// The sums of each row.
    ///
    /// # Safety
    ///
    /// The machine has the layout's target.
    unsafe fn of_rows<const R: usize, const C: usize>(
        sums: [[<Self::Target as Simd>::Floats; C]; R],
    ) -> [[<Self::Target as Simd>::Floats; C]; R];
}

/// Of one row in each vector.
impl<L: Product> Sums for L {
    const IN_PAIRS: bool = false;

    #[inline(always)]
    unsafe fn add<D: Integers, const R: usize, const C: usize>(
        sums: &mut [[<L::Target as Simd>::Floats; C]; R],
        at: &Step<L>,
        rows: &[(*const Group, *const u8); R],
        half: usize,
        range: Range<usize>,
    ) {
        let Step { codes, factors, steps, step } = *at;
        let group_bytes = const { group_bytes(Form::of::<L::Target, D>(), D::FORMAT) };
        // SAFETY: the caller says so; the arrays have 16 numbers.
        unsafe {
            let (mut code_steps, mut x) = ([codes; C], [std::ptr::null(); R]);
            for (c, to) in code_steps.iter_mut().enumerate() {
                *to = codes.add(c * steps + step);
            }
            for (r, to) in x.iter_mut().enumerate() {
                *to = rows[r].1.add(step * group_bytes);
            }
            let integers = L::products::<D, R, C>(code_steps, x, range);
            for r in 0..R {
                let group = &*rows[r].0.add(step);
                let of_x = if D::HAS_HALVES { group.halves[half] } else { group.halves[0] + group.halves[1] };
                let (of_x, x_scale) = (L::Target::every(of_x), L::Target::every(group.scale));
                for c in 0..C {
                    let factors = &*factors.add(c * steps + step);
                    let integers = L::Target::to_floats(integers[r][c]);
                    let seconds = L::Target::load_floats(&factors.seconds);
                    let integers = match const { second::<L::Target, D>() } {
                        _ if !L::HAS_ZEROS => integers,
                        Second::Minima | Second::Zero(0) => integers,
                        Second::Zero(zero) => {
                            L::Target::mul_sub_from(L::Target::every(f32::from(zero)), of_x, integers)
                        }
                        Second::Zeros => L::Target::mul_sub_from(seconds, of_x, integers),
                    };
                    let scales = L::Target::load_floats(&factors.scales[half]);
                    sums[r][c] = add_scaled::<L::Target>(sums[r][c], integers, scales, x_scale);
                    if let Second::Minima = D::SECOND {
                        sums[r][c] = L::Target::mul_add(seconds, L::Target::every(group.scaled_sum), sums[r][c]);
                    }
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn of_rows<const R: usize, const C: usize>(
        sums: [[<L::Target as Simd>::Floats; C]; R],
    ) -> [[<L::Target as Simd>::Floats; C]; R] {
        sums
    }
}
