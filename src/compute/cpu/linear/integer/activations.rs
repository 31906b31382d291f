//! Rounds `x` to integers, in groups of [`STEP`] numbers of a row that share a scale.
//!
//! | precision | greatest integer | beside codes of |
//! |-----------|------------------|-----------------|
//! | wide      | 2,040, of eight significant bits | more than four bits |
//! | narrow    | 127              | four bits       |
//!
//! Wide integers are the group's numbers rounded to bf16, and then to the scale: all of them are bf16 numbers, and two digits of eight bits.
//! The sum of the products of 32 of them with codes below 256 is below 2^24, so that even f32 numbers hold every part of it exactly.
//!
//! A group whose numbers are all zero, or too small to matter in f32, has the scale zero. A group with an infinity or a NaN has the scale NaN.
#![allow(unsafe_code)]

use super::STEP;
use super::codings::Integers;
use super::target::{Target, Work};
use crate::cpu::Pool;
use crate::cpu::disjoint::Disjoint;
use std::marker::PhantomData;

/// Groups that are worth a thread's waking up.
pub const CHUNK_GROUPS: usize = 512;

/// The greatest wide integer: of eight significant bits, and 32 times it times 255 is below 2^24.
pub const WIDE_MAX: f32 = 2040.0;
/// The greatest narrow integer.
pub const NARROW_MAX: f32 = 127.0;
/// Numbers of a group below it are taken for zeros, so that no scale is a denormal number.
pub const LEAST: f32 = f32::MIN_POSITIVE * 4096.0;

/// How `x` is rounded, and in which order the numbers of a group lie.
#[derive(Clone, Copy)]
pub struct Format {
    /// Whether integers are wide.
    pub is_wide: bool,
    /// The even ones of a group, then the odd ones.
    pub is_pairs: bool,
}

/// What a group of a row shares.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Group {
    pub scale: f32,
    /// The sums of the first 16 integers and of the others.
    pub halves: [f32; 2],
    /// The scale times the sum of all.
    pub scaled_sum: f32,
}

/// The bytes of a group of integers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A wide integer is `64 * high + low`, both signed bytes: the high digits and then the low ones. Narrow ones are bytes.
    Digits,
    /// Narrow integers, whose products have 16 bits.
    Bytes,
    /// Words, the even ones and then the odd ones.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    EvenOdd,
    /// Words.
    #[cfg_attr(not(target_arch = "aarch64"), allow(dead_code))]
    Words,
}

impl Form {
    /// The form that `T` multiplies with the codes of `D`.
    pub const fn of<T: Target, D: Integers>() -> Form {
        let [wide, narrow, short] = T::FORMS;
        match D::FORMAT.is_wide {
            true => wide,
            false if D::GREATEST > 15 => narrow,
            false => short,
        }
    }
}

/// Bytes of the integers of a group.
pub const fn group_bytes(form: Form, format: Format) -> usize {
    match form {
        Form::Digits if format.is_wide => 2 * STEP,
        Form::Digits | Form::Bytes => STEP,
        Form::EvenOdd | Form::Words => 2 * STEP,
    }
}

/// Rows of integers. `[row][group]`
#[derive(Clone, Copy)]
pub struct Rounded<'a> {
    groups: &'a [Group],
    bytes: &'a [u8],
    /// Groups of a row.
    per_row: usize,
    /// Bytes of a group.
    group_bytes: usize,
}

impl Rounded<'_> {
    /// Where row `row` begins.
    pub fn row(&self, row: usize) -> (*const Group, *const u8) {
        let first = row * self.per_row;
        (self.groups[first..].as_ptr(), self.bytes[first * self.group_bytes..].as_ptr())
    }
}

/// Rounds `x` to integers in the form that `T` multiplies with the codes of `D`. `[tokens, inputs]`
///
/// # Panics
///
/// If the scratch is too small, or a row has no whole groups: such a matrix is not kept in a coding.
pub fn rounded<'a, T: Target, D: Integers>(
    pool: &Pool,
    scratch: &'a mut [f32],
    x: &[f32],
    (tokens, inputs): (usize, usize),
) -> Rounded<'a> {
    let per_row = inputs / STEP;
    let (count, group_bytes) = (tokens * per_row, group_bytes(const { Form::of::<T, D>() }, D::FORMAT));
    let (groups, rest) = scratch.split_at_mut(count * size_of::<Group>() / 4);
    let bytes: &mut [u8] = &mut bytemuck::cast_slice_mut(rest)[..count * group_bytes];
    // SAFETY: `Pages` begin at a page, and any bits are valid f32 numbers.
    let groups = unsafe { std::slice::from_raw_parts_mut(groups.as_mut_ptr().cast::<Group>(), count) };
    let (all_groups, all_bytes) = (Disjoint::new(groups), Disjoint::new(bytes));
    let x = whole_groups(x, tokens, inputs);
    pool.for_each(count, CHUNK_GROUPS, &|_, range| {
        // SAFETY: the ranges of `for_each` do not overlap. The caller serves `T`.
        unsafe {
            let bytes = all_bytes.part(range.start * group_bytes..range.end * group_bytes);
            T::enter(Rows::<D> { x: &x[range.clone()], groups: all_groups.part(range), bytes, coding: PhantomData });
        }
    });
    Rounded { groups, bytes, per_row, group_bytes }
}

/// Groups that are rounded.
struct Rows<'a, D> {
    x: &'a [[f32; STEP]],
    groups: &'a mut [Group],
    bytes: &'a mut [u8],
    coding: PhantomData<D>,
}

impl<D: Integers> Work for Rows<'_, D> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<T: Target>(self) {
        let form = const { Form::of::<T, D>() };
        let bytes = self.bytes.chunks_exact_mut(group_bytes(form, D::FORMAT));
        for ((x, group), to) in self.x.iter().zip(self.groups).zip(bytes) {
            let mut integers = [0; STEP];
            *group = round(x, D::FORMAT, &mut integers);
            write(&integers, form, D::FORMAT.is_wide, to);
        }
    }
}

/// The groups of all rows.
pub fn whole_groups(x: &[f32], tokens: usize, inputs: usize) -> &[[f32; STEP]] {
    assert!(inputs.is_multiple_of(STEP), "a coded row of {inputs} numbers");
    &x.as_chunks::<STEP>().0[..tokens * (inputs / STEP)]
}

/// Rounds a group. Without branches within it, so that the compiler makes vectors of it.
#[inline(always)]
fn round(x: &[f32; STEP], format: Format, to: &mut [i16; STEP]) -> Group {
    /// The bits of an infinity. Those of a NaN are greater.
    const INFINITY: u32 = f32::INFINITY.to_bits();
    let greatest = x.iter().fold(0, |greatest, x| greatest.max(x.abs().to_bits()));
    if greatest >= INFINITY || f32::from_bits(greatest) < LEAST {
        let scale = if greatest >= INFINITY { f32::NAN } else { 0.0 };
        *to = [0; STEP];
        return Group { scale, halves: [0.0; 2], scaled_sum: scale };
    }
    let (greatest, most) = (f32::from_bits(greatest), if format.is_wide { WIDE_MAX } else { NARROW_MAX });
    let (scale, inverse) = (greatest / most, most / greatest);
    let mut integers = [0i32; STEP];
    for (to, x) in integers.iter_mut().zip(x) {
        let mut number = x * inverse;
        if format.is_wide {
            // To bf16, of two equally near to the even one.
            let bits = number.to_bits();
            number = f32::from_bits((bits + (0x7fff + (bits >> 16 & 1))) & 0xffff_0000);
        }
        // SAFETY: the greatest magnitude is that of `most`.
        *to = unsafe { number.round_ties_even().to_int_unchecked() };
    }
    let halves = [&integers[..STEP / 2], &integers[STEP / 2..]].map(|half| half.iter().sum::<i32>() as f32);
    for (i, to) in to.iter_mut().enumerate() {
        let from = if format.is_pairs { 2 * (i % (STEP / 2)) + i / (STEP / 2) } else { i };
        *to = integers[from] as i16;
    }
    Group { scale, halves, scaled_sum: scale * (halves[0] + halves[1]) }
}

/// Writes the integers of a group.
#[inline(always)]
fn write(integers: &[i16; STEP], form: Form, is_wide: bool, to: &mut [u8]) {
    match form {
        Form::Digits if is_wide => {
            let [high, low] = to.as_chunks_mut::<STEP>().0 else { unreachable!("two digits") };
            for ((high, low), integer) in high.iter_mut().zip(low).zip(integers) {
                let digit = (integer + 32) >> 6;
                *high = digit as u8;
                *low = (integer - (digit << 6)) as u8;
            }
        }
        Form::Digits | Form::Bytes => to.iter_mut().zip(integers).for_each(|(to, integer)| *to = *integer as u8),
        Form::EvenOdd => {
            let words: [i16; STEP] = std::array::from_fn(|i| integers[2 * (i % (STEP / 2)) + i / (STEP / 2)]);
            to.copy_from_slice(bytemuck::bytes_of(&words));
        }
        Form::Words => to.copy_from_slice(bytemuck::bytes_of(integers)),
    }
}
