//! Few rows of `x`: bound by the reading of the weights.
//!
//! Sixteen columns are read side by side. A vector holds 32 codes of two of them, which VNNI multiplies with the digits of `x` into eight
//! sums for each column. The sums of 16 columns are added up to one vector, a column in each lane, which then takes one conversion and
//! one product with the scales.
#![allow(unsafe_code)]

use super::super::pack::Scratch;
use super::super::tiles::chunk_columns;
use super::super::{Call, for_columns};
use super::activations::{Digits, Group, digits};
use super::codings::{Columns, Factors, Integers, PIECE_STEPS, Second, StepCodes};
use super::{STEP, add_scaled, by_coding, store};
use crate::backend::Coding;
use crate::backend::cpu::Pool;
use crate::backend::cpu::amx::{EDGE, LINE_BYTES};
use crate::backend::cpu::matrix::Segment;
use std::arch::x86_64::*;
use std::ops::Range;

/// How far ahead of their use weights are asked for, at least.
const AHEAD_BYTES: usize = 32 << 10;

/// Computes the columns of `out` in `columns`.
pub fn run(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let by_segment: fn(&Pool, &mut Scratch, &Call, &[f32], Range<usize>) = by_coding!(call.coding, run_as);
    by_segment(pool, scratch, call, x, columns);
}

fn run_as<D: Integers>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let inputs = call.weight.cols();
    let x = digits(pool, &mut scratch.x, x, (call.tokens, inputs), D::FORMAT);
    let chunk = chunk_columns(call.row_bytes, columns.len(), pool.threads(), EDGE);
    for_columns(pool, columns, chunk, &|_, range, later| {
        for (segment, following) in call.segments(range, later) {
            let walk = Walk { call, x, segment: &segment, following, inputs };
            for first in (0..segment.rows.len()).step_by(EDGE) {
                let columns = Columns::new(&segment, first);
                let mut row = 0;
                // SAFETY: `takes` chose this module for `Isa::Avx512Bf16` and better, which include VNNI and F16C.
                unsafe {
                    while row + 4 <= call.tokens {
                        walk.rows::<D, 4>(&columns, first, row);
                        row += 4;
                    }
                    if row + 2 <= call.tokens {
                        walk.rows::<D, 2>(&columns, first, row);
                        row += 2;
                    }
                    if row < call.tokens {
                        walk.rows::<D, 1>(&columns, first, row);
                    }
                }
            }
        }
    });
}

/// A segment of weights, and what it is multiplied with.
struct Walk<'a> {
    call: &'a Call<'a>,
    x: Digits<'a>,
    segment: &'a Segment<'a>,
    /// Weights that are probably read after the segment's.
    following: &'a [u8],
    inputs: usize,
}

/// The rows of `x` of which products are taken at once, from the same group on.
struct Rows<const ROWS: usize> {
    groups: [*const Group; ROWS],
    digits: [*const u8; ROWS],
}

impl Walk<'_> {
    /// Computes [`EDGE`] columns, or those that are left, from `first` on, for `ROWS` rows from `row` on.
    ///
    /// # Safety
    ///
    /// The machine has AVX-512, VNNI and F16C.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,f16c")]
    unsafe fn rows<D: Integers, const ROWS: usize>(&self, columns: &Columns, first: usize, row: usize) {
        let mut sums = [_mm512_setzero_ps(); ROWS];
        // A loop and no closure: closures do not always become part of a function with these instructions.
        let mut rows = Rows { groups: [std::ptr::null(); ROWS], digits: [std::ptr::null(); ROWS] };
        for i in 0..ROWS {
            (rows.groups[i], rows.digits[i]) = self.x.row(row + i);
        }
        let (coding, mut factors) = (self.call.coding, Factors::EMPTY);
        let (steps, whole) = (self.inputs / STEP, self.inputs / STEP / PIECE_STEPS * PIECE_STEPS);
        // SAFETY: the caller says what the machine has; the columns have all steps of `inputs`, whole blocks, and `x` has them too.
        unsafe {
            for step in (0..whole).step_by(PIECE_STEPS) {
                let piece = Piece { coding, first: step, ahead: self.ahead(first, step) };
                add::<D, ROWS, PIECE_STEPS>(&mut sums, &mut factors, columns, &rows, piece);
            }
            for step in whole..steps {
                let piece = Piece { coding, first: step, ahead: self.ahead(first, step) };
                add::<D, ROWS, 1>(&mut sums, &mut factors, columns, &rows, piece);
            }
            for (i, sums) in sums.into_iter().enumerate() {
                store(self.call, self.segment, first, row + i, sums);
            }
        }
    }

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
/// The machine has AVX-512, VNNI and F16C. The columns and `x` have these steps.
#[inline(always)]
unsafe fn add<D: Integers, const ROWS: usize, const STEPS: usize>(
    sums: &mut [__m512; ROWS],
    factors: &mut Factors,
    columns: &Columns,
    rows: &Rows<ROWS>,
    piece: Piece,
) {
    let Piece { coding, first, ahead } = piece;
    let lines = const { (D::STEP_BYTES * EDGE).div_ceil(LINE_BYTES) };
    // SAFETY: the caller says so; a prefetch may lead anywhere.
    unsafe {
        D::factors::<STEPS>(coding, columns, first * STEP, factors);
        for step in 0..STEPS {
            for line in 0..lines {
                let at = ahead.wrapping_add(step * D::STEP_BYTES * EDGE + line * LINE_BYTES);
                _mm_prefetch::<_MM_HINT_T1>(at.cast());
            }
            let codes = D::codes(columns, first * STEP, step);
            for (row, sums) in sums.iter_mut().enumerate() {
                let group = &*rows.groups[row].add(first + step);
                let products = products::<D>(codes, rows.digits[row].add((first + step) * group_bytes::<D>()));
                *sums = add_group::<D>(*sums, products, group, factors, step);
            }
        }
    }
}

/// Bytes of the digits of a group.
const fn group_bytes<D: Integers>() -> usize {
    if D::FORMAT.is_wide { 2 * STEP } else { STEP }
}

/// The products of the codes of 16 columns with the digits of a group: in each vector, eight sums of each of two columns.
///
/// # Safety
///
/// The machine has VNNI, and the digits can be read.
#[inline(always)]
unsafe fn products<D: Integers>(codes: StepCodes, digits: *const u8) -> StepCodes {
    let mut products = codes;
    // SAFETY: the caller says so.
    unsafe {
        let first = _mm512_broadcast_i64x4(_mm256_loadu_si256(digits.cast()));
        if D::FORMAT.is_wide {
            let low = _mm512_broadcast_i64x4(_mm256_loadu_si256(digits.add(STEP).cast()));
            for product in &mut products {
                let high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), *product, first);
                *product = _mm512_dpbusd_epi32(_mm512_slli_epi32::<6>(high), *product, low);
            }
        } else {
            for product in &mut products {
                *product = _mm512_dpbusd_epi32(_mm512_setzero_si512(), *product, first);
            }
        }
    }
    products
}

/// Adds the products of a group.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn add_group<D: Integers>(
    sums: __m512,
    products: StepCodes,
    group: &Group,
    factors: &Factors,
    step: usize,
) -> __m512 {
    // SAFETY: the caller says so; the arrays have 16 numbers.
    unsafe {
        let [first, second] = quarters(products);
        let (even, odd) = (_mm512_shuffle_i32x4::<0x88>(first, second), _mm512_shuffle_i32x4::<0xdd>(first, second));
        let x_scale = _mm512_set1_ps(group.scale);
        if D::HAS_HALVES {
            let mut sums = sums;
            for (half, integers) in [even, odd].into_iter().enumerate() {
                let scales = _mm512_load_ps(factors.scales[2 * step + half].as_ptr());
                let sum = _mm512_set1_ps(group.halves[half]);
                sums = add_scaled(sums, without_zeros::<D>(integers, sum, factors, step), scales, x_scale);
            }
            return sums;
        }
        let scales = _mm512_load_ps(factors.scales[step].as_ptr());
        let sum = _mm512_set1_ps(group.halves[0] + group.halves[1]);
        let sums =
            add_scaled(sums, without_zeros::<D>(_mm512_add_epi32(even, odd), sum, factors, step), scales, x_scale);
        match D::SECOND {
            Second::Minima => {
                let minima = _mm512_load_ps(factors.seconds[step].as_ptr());
                _mm512_fmadd_ps(minima, _mm512_set1_ps(group.scaled_sum), sums)
            }
            _ => sums,
        }
    }
}

/// Sums of products with codes from which their zeros are taken: exactly, for these are integers below 2^24.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn without_zeros<D: Integers>(integers: __m512i, sum_of_x: __m512, factors: &Factors, step: usize) -> __m512 {
    // SAFETY: the caller says so; the array has 16 numbers.
    unsafe {
        let integers = _mm512_cvtepi32_ps(integers);
        match D::SECOND {
            Second::Minima => integers,
            Second::Zero(zero) => _mm512_fnmadd_ps(_mm512_set1_ps(f32::from(zero)), sum_of_x, integers),
            Second::Zeros => {
                let zeros = _mm512_load_ps(factors.seconds[step].as_ptr());
                _mm512_fnmadd_ps(zeros, sum_of_x, integers)
            }
        }
    }
}

/// Adds each four neighbouring lanes. A quarter of the first result has four columns of 0 to 3 or of 4 to 7, by turns their first and their
/// last 16 codes; the second result has columns 8 to 15.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn quarters(products: StepCodes) -> [__m512i; 2] {
    let mut quarters = [products[0]; 2];
    for (half, quarter) in quarters.iter_mut().enumerate() {
        let [a, b, c, d] = [products[4 * half], products[4 * half + 1], products[4 * half + 2], products[4 * half + 3]];
        // SAFETY: the caller says so.
        unsafe {
            let a = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
            let c = _mm512_add_epi32(_mm512_unpacklo_epi64(c, d), _mm512_unpackhi_epi64(c, d));
            let (a, c) = (_mm512_castsi512_ps(a), _mm512_castsi512_ps(c));
            let (even, odd) = (_mm512_shuffle_ps::<0x88>(a, c), _mm512_shuffle_ps::<0xdd>(a, c));
            *quarter = _mm512_add_epi32(_mm512_castps_si512(even), _mm512_castps_si512(odd));
        }
    }
    quarters
}
