//! Many rows by VNNI: four codes of each of 16 columns at a time, with the digits of a row in every lane, so that no sums are added across lanes.
#![allow(unsafe_code)]

use super::super::pack::Scratch;
use super::super::{Call, for_columns};
use super::activations::{Digits, Group, digits};
use super::codings::{Factors, Integers, Second, StepCodes};
use super::panel::{Layout, Panel, StepFactors, by_fours, chunk_columns, parts, staged_numbers};
use super::{STEP, add_scaled, by_coding, store};
use crate::backend::cpu::Pool;
use crate::backend::cpu::amx::EDGE;
use crate::backend::cpu::disjoint::Disjoint;
use crate::backend::cpu::matrix::Segment;
use std::arch::x86_64::*;
use std::ops::Range;

/// Rows of `x` of which products are taken at once, and groups of columns: as many as there are registers for.
const ROWS: usize = 6;
const GROUPS: usize = 2;
/// Rows of `x` for which no more columns than these groups are rewritten at a time: a panel would leave the first-level cache.
const FEW_ROWS: usize = 32;

/// Codes as bytes. `[four][column][4]`
struct Fours;

impl Layout for Fours {
    type Step = [[u32; EDGE]; STEP / 4];

    #[inline(always)]
    unsafe fn write<D: Integers>(codes: StepCodes, _: &Factors, _: usize, to: &mut Self::Step) {
        // SAFETY: the caller says what the machine has; each row has 64 bytes.
        unsafe {
            for (to, four) in to.iter_mut().zip(by_fours(codes)) {
                _mm512_storeu_si512(to.as_mut_ptr().cast(), four);
            }
        }
    }
}

/// Computes the columns of `out` in `columns`.
pub fn run(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let by_segment: fn(&Pool, &mut Scratch, &Call, &[f32], Range<usize>) = by_coding!(call.coding, run_as);
    by_segment(pool, scratch, call, x, columns);
}

fn run_as<D: Integers>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let inputs = call.weight.cols();
    let Scratch { x: room, staged } = scratch;
    let x = digits(pool, room, x, (call.tokens, inputs), D::FORMAT);
    let (chunk, numbers) = (chunk_columns(inputs, columns.len(), pool.threads()), staged_numbers(inputs));
    let staged = Disjoint::new(staged);
    for_columns(pool, columns, chunk, &|thread, range, later| {
        // SAFETY: no two calls with the same thread overlap.
        let staged = unsafe { staged.part(thread * numbers..(thread + 1) * numbers) };
        for (segment, following) in call.segments(range, later) {
            let columns = if call.tokens <= FEW_ROWS { GROUPS * EDGE } else { segment.rows.len() };
            for (segment, following) in parts(&segment, columns, following) {
                // SAFETY: `takes` chose this module for `Isa::Avx512Bf16` and better. The parts of `Pages` are whole lines of the cache.
                unsafe {
                    let panel = Panel::<Fours>::stage::<D>(staged, call.coding, &segment, inputs, following);
                    multiply::<D>(call, &segment, &panel, x);
                }
            }
        }
    });
}

/// Computes all rows of the columns of a panel.
///
/// # Safety
///
/// The machine has AVX-512 and VNNI.
unsafe fn multiply<D: Integers>(call: &Call, segment: &Segment, panel: &Panel<Fours>, x: Digits) {
    for row in (0..call.tokens).step_by(ROWS) {
        for group in (0..panel.groups).step_by(GROUPS) {
            let (rows, groups) = (ROWS.min(call.tokens - row), GROUPS.min(panel.groups - group));
            let tile = Tile { call, segment, panel, x, row, group };
            // SAFETY: the caller says so.
            unsafe {
                match (rows, groups) {
                    (ROWS, GROUPS) => tile.compute::<D, ROWS, GROUPS>(),
                    (ROWS, _) => tile.compute::<D, ROWS, 1>(),
                    (_, groups) => tile.compute_rows::<D>(rows, groups),
                }
            }
        }
    }
}

/// Some rows and groups of columns.
struct Tile<'a> {
    call: &'a Call<'a>,
    segment: &'a Segment<'a>,
    panel: &'a Panel<'a, Fours>,
    x: Digits<'a>,
    row: usize,
    group: usize,
}

impl Tile<'_> {
    /// Computes fewer rows than [`ROWS`].
    ///
    /// # Safety
    ///
    /// As [`multiply`].
    unsafe fn compute_rows<D: Integers>(&self, rows: usize, groups: usize) {
        let mut at = Tile { ..*self };
        // SAFETY: the caller says so.
        unsafe {
            while at.row < self.row + rows {
                match (self.row + rows - at.row, groups) {
                    (4.., GROUPS) => at.compute::<D, 4, GROUPS>(),
                    (4.., _) => at.compute::<D, 4, 1>(),
                    (2.., GROUPS) => at.compute::<D, 2, GROUPS>(),
                    (2.., _) => at.compute::<D, 2, 1>(),
                    (_, GROUPS) => at.compute::<D, 1, GROUPS>(),
                    _ => at.compute::<D, 1, 1>(),
                }
                at.row += match self.row + rows - at.row {
                    4.. => 4,
                    2.. => 2,
                    _ => 1,
                };
            }
        }
    }

    /// Computes `R` rows of `C` groups of columns.
    ///
    /// # Safety
    ///
    /// As [`multiply`].
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
    unsafe fn compute<D: Integers, const R: usize, const C: usize>(&self) {
        let Tile { call, segment, panel, x, row, group } = self;
        let mut sums = [[_mm512_setzero_ps(); C]; R];
        // Loops and no closures: closures do not always become part of a function with these instructions.
        let mut rows = [(std::ptr::null(), std::ptr::null()); R];
        for (r, to) in rows.iter_mut().enumerate() {
            *to = x.row(row + r);
        }
        let steps = panel.steps;
        assert!((group + C) * steps <= panel.codes.len().min(panel.factors.len()));
        // SAFETY: the assertion found `C` groups of columns of these steps.
        let (codes, factors) =
            unsafe { (panel.codes.as_ptr().add(group * steps), panel.factors.as_ptr().add(group * steps)) };
        for step in 0..steps {
            let at = Step { codes, factors, steps, step };
            // SAFETY: the caller says what the machine has; `x` and the panel have this step.
            unsafe {
                if D::HAS_HALVES {
                    add::<D, R, C>(&mut sums, at, &rows, 0, 0..STEP / 2);
                    add::<D, R, C>(&mut sums, at, &rows, 1, STEP / 2..STEP);
                } else {
                    add::<D, R, C>(&mut sums, at, &rows, 0, 0..STEP);
                }
            }
        }
        for (r, sums) in sums.into_iter().enumerate() {
            for (c, sums) in sums.into_iter().enumerate() {
                // SAFETY: the threads' columns do not overlap by `Pool::for_each`.
                unsafe { store(call, segment, (group + c) * EDGE, row + r, sums) };
            }
        }
    }
}

/// A step of a panel's groups of columns.
#[derive(Clone, Copy)]
struct Step {
    /// Of the first group, as are the factors; those of the next group come `steps` later.
    codes: *const [[u32; EDGE]; STEP / 4],
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
unsafe fn add<D: Integers, const R: usize, const C: usize>(
    sums: &mut [[__m512; C]; R],
    at: Step,
    rows: &[(*const Group, *const u8); R],
    half: usize,
    range: Range<usize>,
) {
    let Step { codes, factors, steps, step } = at;
    let group_bytes = if D::FORMAT.is_wide { 2 * STEP } else { STEP };
    // SAFETY: the caller says so; the arrays have 16 numbers.
    unsafe {
        let mut integers = [[_mm512_setzero_si512(); C]; R];
        for digit in 0..if D::FORMAT.is_wide { 2 } else { 1 } {
            for four in range.start / 4..range.end / 4 {
                let mut vectors = [_mm512_setzero_si512(); C];
                for (c, vector) in vectors.iter_mut().enumerate() {
                    *vector = _mm512_load_si512((*codes.add(c * steps + step))[four].as_ptr().cast());
                }
                for r in 0..R {
                    let at = rows[r].1.add(step * group_bytes + digit * STEP + four * 4);
                    let x = _mm512_set1_epi32(at.cast::<i32>().read_unaligned());
                    for c in 0..C {
                        integers[r][c] = _mm512_dpbusd_epi32(integers[r][c], vectors[c], x);
                    }
                }
            }
            if D::FORMAT.is_wide && digit == 0 {
                for row in &mut integers {
                    for integers in row {
                        *integers = _mm512_slli_epi32::<6>(*integers);
                    }
                }
            }
        }
        for r in 0..R {
            let group = &*rows[r].0.add(step);
            let of_x = if D::HAS_HALVES { group.halves[half] } else { group.halves[0] + group.halves[1] };
            let (of_x, x_scale) = (_mm512_set1_ps(of_x), _mm512_set1_ps(group.scale));
            for c in 0..C {
                let factors = &*factors.add(c * steps + step);
                let integers = _mm512_cvtepi32_ps(integers[r][c]);
                let seconds = _mm512_load_ps(factors.seconds.as_ptr());
                let integers = match D::SECOND {
                    Second::Minima => integers,
                    Second::Zero(zero) => _mm512_fnmadd_ps(_mm512_set1_ps(f32::from(zero)), of_x, integers),
                    Second::Zeros => _mm512_fnmadd_ps(seconds, of_x, integers),
                };
                let scales = _mm512_load_ps(factors.scales[half].as_ptr());
                sums[r][c] = add_scaled(sums[r][c], integers, scales, x_scale);
                if let Second::Minima = D::SECOND {
                    sums[r][c] = _mm512_fmadd_ps(seconds, _mm512_set1_ps(group.scaled_sum), sums[r][c]);
                }
            }
        }
    }
}
