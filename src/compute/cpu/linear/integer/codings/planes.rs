//! Codes whose scales lie apart: the integers of quantized folders.
#![allow(unsafe_code)]

use super::{
    Columns, Factors, Format, HalfCodes, Integers, NARROW, Pair, Second, WIDE, gathered, opaque, two, two_of_nibbles,
};
use crate::cpu::linear::integer::target::Target;
use crate::cpu::linear::integer::{EDGE, STEP};
use formats::{Codes, Scaled, Scales as ScaleFormat, WeightFormat};

/// The scales of a piece whose codes have them in a plane of their own, and zeros, which are `zero` where there is no plane of them.
///
/// # Safety
///
/// The machine has the target's instructions, and the columns have these steps.
#[inline(always)]
unsafe fn planes<T: Target, const STEPS: usize>(
    coding: WeightFormat,
    columns: &Columns,
    first: usize,
    zero: f32,
    to: &mut Factors,
) {
    let WeightFormat::Scaled(scaled) = coding else { unreachable!("chosen by the coding") };
    // A group whose length is no power of two is a whole row: `reads` says so.
    let shift = if scaled.group.is_power_of_two() { scaled.group.trailing_zeros() } else { usize::BITS - 1 };
    let mut known = None;
    let less = if T::IS_SIGNED && scaled.codes == Codes::U8 { 128 } else { 0 };
    // SAFETY: the caller says that the columns have these groups.
    unsafe {
        let (mut scales, mut zeros) = (T::every(0.0), T::every(zero - less as f32));
        for step in 0..STEPS {
            let group = (first + step * STEP) >> shift;
            if known != Some(group) {
                known = Some(group);
                scales = scales_of::<T>(scaled, columns, group);
                if scaled.zeros {
                    zeros = T::to_floats(T::sub_i32(T::bytes(&gathered(&columns.zeros, group)), T::every_i32(less)));
                }
            }
            T::store_floats(&mut to.scales[step], scales);
            T::store_floats(&mut to.seconds[step], zeros);
        }
    }
}

/// The scales of group `group`.
///
/// # Safety
///
/// The machine has the target's instructions, and the columns have this group.
#[inline(always)]
unsafe fn scales_of<T: Target>(scaled: Scaled, columns: &Columns, group: usize) -> T::Floats {
    let at = opaque(group * scaled.scales.bytes());
    // SAFETY: the caller says so.
    unsafe {
        match scaled.scales {
            ScaleFormat::F16 => T::halves(&gathered(&columns.scales, at)),
            ScaleFormat::Bf16 => T::from_bits(T::shl_i32(T::words(&gathered(&columns.scales, at)), 16)),
            ScaleFormat::F32 => T::load_floats(&gathered(&columns.scales, at)),
            ScaleFormat::E8m0 => {
                let bytes: [u8; EDGE] = gathered(&columns.scales, at);
                let numbers: [f32; EDGE] = std::array::from_fn(|column| scaled.scales.read(&bytes, column));
                T::load_floats(&numbers)
            }
        }
    }
}

/// [`Codes::U4`]
pub struct Pairs;

impl Integers for Pairs {
    const FORMAT: Format = Format { is_pairs: true, ..NARROW };
    const SECOND: Second = Second::Zeros;
    const STEP_BYTES: usize = Codes::U4.row_bytes(STEP);
    const GREATEST: u8 = 15;

    #[inline(always)]
    unsafe fn factors<T: Target, const STEPS: usize>(
        coding: WeightFormat,
        columns: &Columns,
        first: usize,
        to: &mut Factors,
    ) {
        // SAFETY: the caller says so.
        unsafe { planes::<T, STEPS>(coding, columns, first, Codes::U4.zero(), to) }
    }

    #[inline(always)]
    unsafe fn codes<T: Target>(columns: &Columns, half: usize, first: usize, step: usize) -> HalfCodes<T> {
        let at = opaque(Codes::U4.row_bytes(first + step * STEP));
        // SAFETY: the caller says that the columns have this step.
        unsafe { vectors!(columns, half, pair => two_of_nibbles::<T>(pair, at)) }
    }
}

/// [`Codes::U8`], or [`Codes::I8`], which are signed.
pub struct Bytes<const IS_SIGNED: bool>;

impl<const IS_SIGNED: bool> Integers for Bytes<IS_SIGNED> {
    const FORMAT: Format = WIDE;
    const SECOND: Second = if IS_SIGNED { Second::Zero(128) } else { Second::Zeros };
    const STEP_BYTES: usize = STEP;
    const GREATEST: u8 = u8::MAX;

    #[inline(always)]
    unsafe fn factors<T: Target, const STEPS: usize>(
        coding: WeightFormat,
        columns: &Columns,
        first: usize,
        to: &mut Factors,
    ) {
        // SAFETY: the caller says so.
        unsafe { planes::<T, STEPS>(coding, columns, first, Codes::U8.zero(), to) }
    }

    #[inline(always)]
    unsafe fn codes<T: Target>(columns: &Columns, half: usize, first: usize, step: usize) -> HalfCodes<T> {
        let at = opaque(first + step * STEP);
        // SAFETY: the caller says that the columns have this step.
        unsafe {
            let sign = T::every_u8(if IS_SIGNED == T::IS_SIGNED { 0 } else { 128 });
            vectors!(columns, half, pair => T::xor(two::<T>(pair, at), sign))
        }
    }
}
