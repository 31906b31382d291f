//! Blocks of E2M1 numbers: twice each is an integer from -12 to 12.
#![allow(unsafe_code)]

use super::{Columns, Factors, Format, HalfCodes, Integers, NARROW, Pair, Second, gathered, opaque, two_of_nibbles};
use crate::cpu::linear::integer::unit::Unit;
use crate::cpu::linear::integer::{EDGE, STEP};
use formats::{Block, Coding, E2M1, from_e8m0};

/// What is taken from codes.
const ZERO: u8 = 12;

/// Twice what [`E2M1`] has, and [`ZERO`] more.
const TABLE: [u8; 16] = {
    let (mut table, mut code) = ([0; 16], 0);
    while code < table.len() {
        table[code] = (2.0 * E2M1[code] + ZERO as f32) as u8;
        code += 1;
    }
    table
};

/// Aligned as [`Factors`] are. The compiler reads these numbers in the place of those where it can, by an instruction that wants that alignment, and did not give it to
/// an array.
#[repr(align(64))]
struct Line([f32; EDGE]);

/// [`Block::Mxfp4`]
pub struct Mxfp4;

impl Integers for Mxfp4 {
    const FORMAT: Format = NARROW;
    const SECOND: Second = Second::Zero(ZERO);
    const IS_SHORT: bool = true;
    const STEP_BYTES: usize = Block::Mxfp4.bytes();
    const GREATEST: u8 = 2 * ZERO;

    #[inline(always)]
    unsafe fn factors<U: Unit, const STEPS: usize>(_: Coding, columns: &Columns, first: usize, to: &mut Factors) {
        for step in 0..STEPS {
            let at = opaque((first / STEP + step) * Block::Mxfp4.bytes());
            // SAFETY: the caller says that the columns have these blocks.
            unsafe {
                let bytes: [u8; EDGE] = gathered(&columns.codes, at);
                let scales = Line(bytes.map(|byte| from_e8m0(byte) / 2.0));
                U::store_floats(&mut to.scales[step], U::load_floats(&scales.0));
            }
        }
    }

    #[inline(always)]
    unsafe fn codes<U: Unit>(columns: &Columns, half: usize, first: usize, step: usize) -> HalfCodes<U> {
        let at = opaque((first / STEP + step) * Block::Mxfp4.bytes() + 1);
        // SAFETY: the caller says that the columns have this block.
        unsafe { vectors!(columns, half, pair => U::look_up(&TABLE, two_of_nibbles::<U>(pair, at))) }
    }
}
