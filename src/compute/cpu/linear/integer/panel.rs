//! Many rows: the weights of a panel of columns are rewritten once, and then read for each few rows of `x`.
#![allow(unsafe_code)]

use super::super::tiles::prefetch;
use super::codings::{Columns, Factors, Integers, PIECE_STEPS, StepCodes, codes as codes_of, transposed_fours};
use super::target::{Target, Work};
use super::{EDGE, STEP};
use crate::cpu::lanes::simd::Simd;
use crate::cpu::matrix::Segment;
use formats::WeightFormat;
use std::marker::PhantomData;
use std::ops::Range;

/// Steps of 16 columns in a panel: at most 1 MiB with their factors, so that a second-level cache of 2 MiB also holds what streams by.
const PANEL_STEPS: usize = 768;
/// Groups of [`EDGE`] columns in a panel, at most.
const PANEL_GROUPS: usize = 8;
/// Approximate number of ranges of columns per thread and call: enough for all threads to finish together.
const RANGES: usize = 4;

/// Bytes that are asked for during a panel, at most: half of a second-level cache.
const MOST_AHEAD: usize = 512 << 10;

/// Numbers of 32 bits of a step of 16 columns: a tile of bf16 numbers, two vectors of scales and one of minima or zeros.
const STEP_NUMBERS: usize = EDGE * EDGE + 3 * EDGE;

/// Numbers of 32 bits that a thread needs for weights of `inputs` columns.
pub fn staged_numbers(inputs: usize) -> usize {
    let steps = inputs.div_ceil(STEP);
    panel_groups(steps) * steps * STEP_NUMBERS
}

/// Groups of columns in a panel, an even number.
fn panel_groups(steps: usize) -> usize {
    (PANEL_STEPS / steps.max(1)).clamp(2, PANEL_GROUPS) & !1
}

/// Columns that a thread takes at a time, of `columns` for all of `threads`.
pub fn chunk_columns(inputs: usize, columns: usize, threads: usize) -> usize {
    let shared = columns.div_ceil(threads * RANGES).next_multiple_of(2 * EDGE);
    shared.min(panel_groups(inputs.div_ceil(STEP)) * EDGE)
}

/// The columns of `segment`, `columns` at a time, each part with the bytes that are probably read after it.
pub fn parts<'a>(
    segment: &Segment<'a>,
    columns: usize,
    following: &'a [u8],
) -> impl Iterator<Item = (Segment<'a>, &'a [u8])> {
    let Segment { ref rows, bytes, scales, zeros, row_bytes } = *segment;
    let (start, count) = (rows.start, rows.len());
    (0..count).step_by(columns.max(1)).map(move |first| {
        let last = count.min(first + columns);
        let [of_codes, of_scales, of_zeros] = row_bytes.map(|bytes| first * bytes..last * bytes);
        let next = last * row_bytes[0]..count.min(last + columns) * row_bytes[0];
        let following = if next.is_empty() { following } else { &bytes[next] };
        let rows = start + first..start + last;
        let part =
            Segment { rows, bytes: &bytes[of_codes], scales: &scales[of_scales], zeros: &zeros[of_zeros], row_bytes };
        (part, following)
    })
}

/// The form in which codes are rewritten.
pub trait Layout {
    /// What it is written with.
    type Target: Target;
    /// A step of 16 columns.
    type Step: Copy;

    /// Writes a step.
    ///
    /// # Safety
    ///
    /// The machine has the target's instructions.
    unsafe fn write<D: Integers>(codes: StepCodes<Self::Target>, factors: &Factors, step: usize, to: &mut Self::Step);
}

/// A layout for few rows at a time.
pub trait Product: Layout {
    /// Whether codes still have their zeros.
    const HAS_ZEROS: bool;

    /// The sums of the products of `range` of a step, all of it or half of it, of `C` groups of columns with the integers of `R` rows.
    ///
    /// # Safety
    ///
    /// The machine has the target's instructions. The pointers lead to the step and to the group of integers.
    unsafe fn products<D: Integers, const R: usize, const C: usize>(
        codes: [*const Self::Step; C],
        x: [*const u8; R],
        range: Range<usize>,
    ) -> [[<Self::Target as Simd>::Ints; C]; R];
}

/// What belongs to a step of 16 columns: scales, of each half where halves have them, and minima or zeros.
#[repr(C, align(64))]
#[derive(Clone, Copy)]
pub struct StepFactors {
    pub scales: [[f32; EDGE]; 2],
    pub seconds: [f32; EDGE],
}

/// A panel, rewritten. `[group of columns][step]`
pub struct Panel<'a, L: Layout> {
    pub codes: &'a mut [L::Step],
    pub factors: &'a mut [StepFactors],
    /// Groups of columns.
    pub groups: usize,
    pub steps: usize,
}

impl<'a, L: Layout> Panel<'a, L> {
    /// Rewrites the columns of `segment` into `room`, which has [`staged_numbers`]. Asks for `following` meanwhile.
    ///
    /// # Safety
    ///
    /// The machine has the target's instructions. `room` begins at a line of the cache.
    pub unsafe fn stage<D: Integers>(
        room: &'a mut [f32],
        coding: WeightFormat,
        segment: &Segment,
        inputs: usize,
        following: &[u8],
    ) -> Panel<'a, L> {
        const { assert!(size_of::<L::Step>() + size_of::<StepFactors>() <= STEP_NUMBERS * 4) };
        let (groups, steps) = (segment.rows.len().div_ceil(EDGE), inputs / STEP);
        let count = groups * steps;
        let (factors, codes) = room.split_at_mut(count * size_of::<StepFactors>() / 4);
        assert!(codes.len() * 4 >= count * size_of::<L::Step>());
        // SAFETY: the caller says where `room` begins, and both parts are multiples of a line; the assertion found room for the codes. Any bits
        // are valid numbers.
        let (factors, codes) = unsafe {
            (
                std::slice::from_raw_parts_mut(factors.as_mut_ptr().cast::<StepFactors>(), count),
                std::slice::from_raw_parts_mut(codes.as_mut_ptr().cast::<L::Step>(), count),
            )
        };
        // Spread evenly, because few lines of the cache can be waited for at a time.
        let ahead_bytes = following.len().min(MOST_AHEAD).div_ceil(count.max(1));
        for group in 0..groups {
            let columns = Columns::new(segment, group * EDGE);
            let range = group * steps..(group + 1) * steps;
            let ahead = following.as_ptr().wrapping_add(range.start * ahead_bytes);
            let group = Group { coding, columns: &columns, ahead, ahead_bytes };
            let (codes, factors) = (&mut codes[range.clone()], &mut factors[range]);
            // SAFETY: the caller says what the machine has; the columns have all steps of `inputs`.
            unsafe { L::Target::enter(Staging::<D, L> { group: &group, codes, factors, coding: PhantomData }) };
        }
        Panel { codes, factors, groups, steps }
    }
}

/// Sixteen columns that are rewritten.
struct Group<'a> {
    coding: WeightFormat,
    columns: &'a Columns,
    /// What is asked for meanwhile, and how much of it in each step. May lead anywhere.
    ahead: *const u8,
    ahead_bytes: usize,
}

/// All steps of 16 columns.
struct Staging<'a, D, L: Layout> {
    group: &'a Group<'a>,
    codes: &'a mut [L::Step],
    factors: &'a mut [StepFactors],
    coding: PhantomData<D>,
}

impl<D: Integers, L: Layout> Work for Staging<'_, D, L> {
    type Output = ();

    /// Rewrites them. `T` is the layout's target.
    #[inline(always)]
    unsafe fn run<T: Target>(self) {
        let Staging { group, codes, factors, .. } = self;
        let whole = codes.len() / PIECE_STEPS * PIECE_STEPS;
        let mut all = Factors::EMPTY;
        // SAFETY: the caller says so.
        unsafe {
            for first in (0..whole).step_by(PIECE_STEPS) {
                let piece = first..first + PIECE_STEPS;
                let (codes, factors) = (&mut codes[piece.clone()], &mut factors[piece]);
                stage_piece::<D, L, PIECE_STEPS>(group, first, &mut all, codes, factors);
            }
            for first in whole..codes.len() {
                let piece = first..first + 1;
                let (codes, factors) = (&mut codes[piece.clone()], &mut factors[piece]);
                stage_piece::<D, L, 1>(group, first, &mut all, codes, factors);
            }
        }
    }
}

/// Rewrites `STEPS` steps.
///
/// # Safety
///
/// The machine has the layout's target, and the columns have these steps.
#[inline(always)]
unsafe fn stage_piece<D: Integers, L: Layout, const STEPS: usize>(
    group: &Group,
    first: usize,
    all: &mut Factors,
    codes: &mut [L::Step],
    factors: &mut [StepFactors],
) {
    let Group { coding, columns, ahead, ahead_bytes } = group;
    // SAFETY: the caller says so.
    unsafe {
        D::factors::<L::Target, STEPS>(*coding, columns, first * STEP, all);
        for (step, (to, factors)) in codes.iter_mut().zip(factors).enumerate() {
            prefetch(ahead.wrapping_add((first + step) * ahead_bytes), *ahead_bytes);
            let halves = if D::HAS_HALVES { [2 * step, 2 * step + 1] } else { [step, step] };
            factors.scales[0] = all.scales[halves[0]];
            factors.scales[1] = all.scales[halves[1]];
            factors.seconds = all.seconds[step];
            L::write::<D>(codes_of::<L::Target, D>(columns, first * STEP, step), all, step, to);
        }
    }
}

/// Four codes of each of 16 columns in a vector: those from the first one on, then the next ones.
///
/// # Safety
///
/// The machine has the target's instructions.
#[inline(always)]
pub unsafe fn by_fours<T: Target>([left, right]: StepCodes<T>) -> [T::Ints; STEP / 4] {
    // SAFETY: the caller says so.
    unsafe {
        let (left, right) = (transposed_fours::<T>(left), transposed_fours::<T>(right));
        let mut fours = [T::zero(); STEP / 4];
        for j in 0..4 {
            fours[j] = T::even_quarters(left[j], right[j]);
            fours[4 + j] = T::odd_quarters(left[j], right[j]);
        }
        fours
    }
}
