//! Many rows by SMMLA, which multiplies two rows of eight signed bytes by two columns of them: half the instructions of SDOT.
//!
//! A register has the sums of two rows and two columns, `[[0, 0], [0, 1], [1, 0], [1, 1]]` as `[row, column]`: of integers in a step, and of f32
//! numbers over all steps. Only at the end do they become rows. Zeros are taken from codes when a panel is written, where the differences are bytes.
#![allow(unsafe_code)]

use super::activations::{Form, Group, group_bytes};
use super::codings::{Factors, Integers, Second, StepCodes, second};
use super::many::{Step, Sums};
use super::neon::zeros;
use super::panel::Layout;
use super::target::Target;
use super::{EDGE, STEP, add_scaled};
use crate::cpu::lanes::simd::Simd;
use crate::cpu::lanes::{I8mm, cast, each};
use std::arch::aarch64::*;
use std::arch::asm;
use std::ops::Range;

/// Pairs of rows whose sums are in registers.
const ROW_PAIRS: usize = I8mm::TILE.0 / 2;
const COLUMN_PAIRS: usize = EDGE / 2;

/// Codes as bytes. `[eight][pair of columns][2][8]`
pub struct Eights;

impl Layout for Eights {
    type Target = I8mm;
    type Step = [[[u8; 16]; COLUMN_PAIRS]; STEP / 8];

    #[inline(always)]
    unsafe fn write<D: Integers>(codes: StepCodes<I8mm>, factors: &Factors, step: usize, to: &mut Self::Step) {
        // SAFETY: the caller says what the machine has; the arrays have 16 bytes.
        unsafe {
            let zeros = match const { second::<I8mm, D>() } {
                Second::Zero(zero) => [vdupq_n_u8(zero); COLUMN_PAIRS],
                Second::Zeros if const { !keeps_zeros::<D>() } => of_pairs(cast(zeros(&factors.seconds[step]))),
                Second::Minima | Second::Zeros => [vdupq_n_u8(0); COLUMN_PAIRS],
            };
            for (half, [a, b, c, d]) in codes.into_iter().enumerate() {
                for (pair, (left, right)) in [(a, b), (c, d)].into_iter().enumerate() {
                    // Two columns of each, of which the second one comes four later. Four eights of both.
                    let (even, odd) = (I8mm::low_u64(left, right), I8mm::high_u64(left, right));
                    for (i, (even, odd)) in even.into_iter().zip(odd).enumerate() {
                        let (eight, pair) = (i % 2 * 2, COLUMN_PAIRS / 2 * half + i / 2 * 2 + pair);
                        vst1q_u8(to[eight][pair].as_mut_ptr(), vsubq_u8(even, zeros[pair]));
                        vst1q_u8(to[eight + 1][pair].as_mut_ptr(), vsubq_u8(odd, zeros[pair]));
                    }
                }
            }
        }
    }
}

/// Whether the difference of a code and its zero may be no signed byte. Where codes may be above 127, a known zero is 0: see [`second`].
const fn keeps_zeros<D: Integers>() -> bool {
    let keeps = matches!(D::SECOND, Second::Zeros) && D::GREATEST > 127;
    assert!(!keeps || !D::HAS_HALVES);
    keeps
}

/// The bytes of each two columns, eight times each.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn of_pairs(bytes: uint8x16_t) -> [uint8x16_t; COLUMN_PAIRS] {
    /// Which byte.
    const PLACES: [[u8; 16]; COLUMN_PAIRS] = {
        let (mut places, mut i) = ([[0; 16]; COLUMN_PAIRS], 0);
        while i < 16 * COLUMN_PAIRS {
            places[i / 16][i % 16] = (i / 8) as u8;
            i += 1;
        }
        places
    };
    // SAFETY: the caller says so; the arrays have 16 bytes.
    unsafe { each!(I of 8 => vqtbl1q_u8(bytes, vld1q_u8(PLACES[I].as_ptr()))) }
}

impl Sums for Eights {
    const IN_PAIRS: bool = true;

    /// Sums `2 p` are those of pair `p` of rows and the first four pairs of columns, sums `2 p + 1` those with the other four.
    #[inline(always)]
    unsafe fn add<D: Integers, const R: usize, const C: usize>(
        sums: &mut [[[float32x4_t; 4]; C]; R],
        at: &Step<Eights>,
        rows: &[(*const Group, *const u8); R],
        half: usize,
        range: Range<usize>,
    ) {
        let Step { codes, factors, steps, step } = *at;
        let group_bytes = const { group_bytes(Form::of::<I8mm, D>(), D::FORMAT) };
        // SAFETY: the caller says so; the arrays have 16 numbers.
        unsafe {
            let mut x = [std::ptr::null(); R];
            for (to, (_, integers)) in x.iter_mut().zip(rows) {
                *to = integers.add(step * group_bytes);
            }
            for c in 0..C {
                let (codes, factors) = (codes.add(c * steps + step), &*factors.add(c * steps + step));
                let integers = products::<D, R>(codes.cast(), x, range.clone());
                each!(P in (0 1 2) => if 2 * P + 1 < R {
                    let (a, b) = (&*rows[2 * P].0.add(step), &*rows[2 * P + 1].0.add(step));
                    let x_scale = of_two_rows(a.scale, b.scale);
                    each!(HALF in (0 1) => {
                        let sums = &mut sums[2 * P + HALF][c];
                        let mut integers = I8mm::to_floats(each!(I of 4 => cast(integers[P][4 * HALF + I])));
                        let seconds = of_columns::<HALF>(&factors.seconds);
                        if const { keeps_zeros::<D>() } {
                            let of_x = of_two_rows(a.halves[0] + a.halves[1], b.halves[0] + b.halves[1]);
                            integers = I8mm::mul_sub_from(seconds, of_x, integers);
                        }
                        let scales = of_columns::<HALF>(&factors.scales[half]);
                        *sums = add_scaled::<I8mm>(*sums, integers, scales, x_scale);
                        *sums = each!(I of 4 => in_order(sums[I]));
                        if let Second::Minima = D::SECOND {
                            *sums = I8mm::mul_add(seconds, of_two_rows(a.scaled_sum, b.scaled_sum), *sums);
                        }
                    });
                });
            }
        }
    }

    #[inline(always)]
    unsafe fn of_rows<const R: usize, const C: usize>(
        mut sums: [[[float32x4_t; 4]; C]; R],
    ) -> [[[float32x4_t; 4]; C]; R] {
        // SAFETY: the caller says so.
        unsafe {
            for [first, second] in sums.as_chunks_mut::<2>().0 {
                for (first, second) in first.iter_mut().zip(second) {
                    let ([a, b, c, d], [e, f, g, h]) = (*first, *second);
                    let (left, right): ([uint8x16_t; 4], _) =
                        ([cast(a), cast(c), cast(e), cast(g)], [cast(b), cast(d), cast(f), cast(h)]);
                    *first = I8mm::from_bits(I8mm::low_u64(left, right));
                    *second = I8mm::from_bits(I8mm::high_u64(left, right));
                }
            }
        }
        sums
    }
}

/// Numbers of two rows, beside those of [`of_columns`].
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn of_two_rows(a: f32, b: f32) -> [float32x4_t; 4] {
    // SAFETY: the caller says so.
    unsafe { [vcombine_f32(vdup_n_f32(a), vdup_n_f32(b)); 4] }
}

/// The numbers of four pairs of columns, for two rows.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn of_columns<const HALF: usize>(from: &[f32; EDGE]) -> [float32x4_t; 4] {
    // SAFETY: the caller says so; the array has 16 numbers.
    unsafe {
        let from = from.as_ptr().add(EDGE / 2 * HALF);
        let (a, b) = (cast(vld1q_f32(from)), cast(vld1q_f32(from.add(4))));
        [
            cast(vdupq_laneq_u64::<0>(a)),
            cast(vdupq_laneq_u64::<1>(a)),
            cast(vdupq_laneq_u64::<0>(b)),
            cast(vdupq_laneq_u64::<1>(b)),
        ]
    }
}

/// The sums of the products of `range` of a step, of pairs of rows and of columns.
///
/// # Safety
///
/// The machine has products of matrices of bytes. The pointers lead to the step's codes and to the group of integers.
#[inline(always)]
unsafe fn products<D: Integers, const R: usize>(
    codes: *const u8,
    mut x: [*const u8; R],
    range: Range<usize>,
) -> [[int32x4_t; COLUMN_PAIRS]; ROW_PAIRS] {
    // SAFETY: the caller says so.
    unsafe {
        let mut sums = [[vdupq_n_s32(0); COLUMN_PAIRS]; ROW_PAIRS];
        add_range::<D, R>(&mut sums, codes, x, range.clone());
        if D::FORMAT.is_wide {
            for sums in sums.as_flattened_mut() {
                *sums = vshlq_n_s32::<6>(*sums);
            }
            for x in &mut x {
                *x = x.add(STEP);
            }
            add_range::<D, R>(&mut sums, codes, x, range);
        }
        sums
    }
}

/// Adds the products of `range` of a step with one digit of `x`.
///
/// # Safety
///
/// As [`products`].
#[inline(always)]
unsafe fn add_range<D: Integers, const R: usize>(
    sums: &mut [[int32x4_t; COLUMN_PAIRS]; ROW_PAIRS],
    codes: *const u8,
    x: [*const u8; R],
    range: Range<usize>,
) {
    // SAFETY: the caller says so.
    unsafe {
        // No loop, neither here nor over digits: the compiler would keep it.
        add_sixteen::<R>(sums, codes, x, range.start);
        if const { !D::HAS_HALVES } {
            add_sixteen::<R>(sums, codes, x, range.start + 16);
        }
    }
}

/// Adds the products of the 16 numbers from `first` on.
///
/// # Safety
///
/// As [`products`].
#[inline(always)]
unsafe fn add_sixteen<const R: usize>(
    sums: &mut [[int32x4_t; COLUMN_PAIRS]; ROW_PAIRS],
    codes: *const u8,
    x: [*const u8; R],
    first: usize,
) {
    // SAFETY: the caller says so.
    unsafe {
        let (mut rows, mut next) = ([vdupq_n_u8(0); ROW_PAIRS], [vdupq_n_u8(0); ROW_PAIRS]);
        each!(P in (0 1 2) => if 2 * P + 1 < R {
            (rows[P], next[P]) = eights(vld1q_u8(x[2 * P].add(first)), vld1q_u8(x[2 * P + 1].add(first)));
        });
        add_eight::<R>(sums, codes.add(first * EDGE), rows);
        add_eight::<R>(sums, codes.add((first + 8) * EDGE), next);
    }
}

/// Adds the products of eight numbers of pairs of rows and of columns.
///
/// # Safety
///
/// The machine has products of matrices of bytes, and the pointer leads to eight codes of 16 columns.
#[inline(always)]
unsafe fn add_eight<const R: usize>(
    sums: &mut [[int32x4_t; COLUMN_PAIRS]; ROW_PAIRS],
    codes: *const u8,
    rows: [uint8x16_t; ROW_PAIRS],
) {
    // SAFETY: the caller says so.
    unsafe {
        each!(I of 8 => {
            let codes = vld1q_u8(codes.add(16 * I));
            each!(P in (0 1 2) => if 2 * P + 1 < R {
                sums[P][I] = multiply(sums[P][I], rows[P], codes);
            });
        });
    }
}

// What follows is assembly that is not `pure`, and so stays in the order of the source. The compiler would load the codes of many columns before
// their products, keep rows for their second halves, and scale one half's sums among the products of the next: it then lacks registers for sums.

/// The same number, computed before what follows in assembly.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn in_order(mut sums: float32x4_t) -> float32x4_t {
    // SAFETY: no instruction is added.
    unsafe { asm!("/* {0:v} */", inout(vreg) sums, options(nomem, nostack, preserves_flags)) };
    sums
}

/// The first halves of both, and the second halves.
///
/// # Safety
///
/// The machine has NEON.
#[inline(always)]
unsafe fn eights(mut a: uint8x16_t, b: uint8x16_t) -> (uint8x16_t, uint8x16_t) {
    let first;
    // SAFETY: the caller says so; the instructions change two registers.
    unsafe {
        asm!(
            "zip1 {first:v}.2d, {a:v}.2d, {b:v}.2d",
            "zip2 {a:v}.2d, {a:v}.2d, {b:v}.2d",
            first = out(vreg) first,
            a = inout(vreg) a,
            b = in(vreg) b,
            options(nomem, nostack, preserves_flags),
        );
    }
    (first, a)
}

/// `sums[2 i + j] += rows[8 i ..][k] * columns[8 j ..][k]` for `k` below 8, of signed bytes.
///
/// # Safety
///
/// The machine has products of matrices of bytes.
#[inline(always)]
unsafe fn multiply(mut sums: int32x4_t, rows: uint8x16_t, columns: uint8x16_t) -> int32x4_t {
    // SAFETY: the caller says so; the instruction changes one register.
    unsafe {
        asm!(
            "smmla {sums:v}.4s, {rows:v}.16b, {columns:v}.16b",
            sums = inout(vreg) sums,
            rows = in(vreg) rows,
            columns = in(vreg) columns,
            options(nomem, nostack, preserves_flags),
        );
    }
    sums
}
