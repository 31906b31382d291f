//! Blocks of codes of three bits, with a scale for each 16.
#![allow(unsafe_code)]

use super::{
    Columns, Factors, Format, HalfCodes, Integers, PIECE_STEPS, Pair, Second, WIDE, gathered, halves, opaque, two,
    whole_block,
};
use crate::cpu::linear::integer::EDGE;
use crate::cpu::linear::integer::target::Target;
use formats::{Block, WeightFormat};

/// [`Block::Q3K`]
pub struct Q3K;

impl Integers for Q3K {
    const FORMAT: Format = WIDE;
    const HAS_HALVES: bool = true;
    const SECOND: Second = Second::Zero(4);
    const STEP_BYTES: usize = Block::Q3K.bytes().div_ceil(PIECE_STEPS);
    const PERIOD: usize = 4;
    const GREATEST: u8 = 7;

    #[inline(always)]
    unsafe fn factors<T: Target, const STEPS: usize>(
        _: WeightFormat,
        columns: &Columns,
        first: usize,
        to: &mut Factors,
    ) {
        let at = whole_block::<STEPS>(Block::Q3K, first);
        // SAFETY: the caller says that the columns have this block; the arrays have 64 bytes.
        unsafe {
            let d = halves::<T>(columns, at + 108);
            let words = [96, 100, 104].map(|word| gathered::<u32>(&columns.codes, at + word));
            let [first, second, high] = words.map(|words: [u32; EDGE]| T::load(words.as_ptr().cast()));
            let (low_four, two_bits) = (T::every_i32(0x0f0f_0f0f), T::every_i32(0x3030_3030));
            let low = [first, second, T::shr_u32(first, 4), T::shr_u32(second, 4)];
            for (quarter, low) in low.into_iter().enumerate() {
                // Bits 2 q and 2 q + 1 become the upper ones of six.
                let high = match quarter {
                    0 => T::shl_i32(high, 4),
                    1 => T::shl_i32(high, 2),
                    2 => high,
                    _ => T::shr_u32(high, 2),
                };
                let scales = T::or(T::and(low, low_four), T::and(high, two_bits));
                for byte in 0..4 {
                    let scale = T::and(T::shr_u32(scales, 8 * byte), T::every_i32(255));
                    let scale = T::to_floats(T::sub_i32(scale, T::every_i32(32)));
                    T::store_floats(&mut to.scales[quarter * 4 + byte as usize], T::mul(d, scale));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn codes<T: Target>(columns: &Columns, half: usize, first: usize, step: usize) -> HalfCodes<T> {
        let block = opaque(whole_block::<PIECE_STEPS>(Block::Q3K, first));
        let low_at = opaque(block + 32 + step / 4 * 32);
        // SAFETY: the caller says that the columns have this block.
        unsafe {
            vectors!(columns, half, pair => {
                let low = T::shr_u32(two::<T>(pair, low_at), 2 * (step as i32 % 4));
                let high = two::<T>(pair, block);
                let high = if step < 2 { T::shl_i32(high, 2 - step as i32) } else { T::shr_u32(high, step as i32 - 2) };
                T::or(T::and(low, T::every_u8(3)), T::and(high, T::every_u8(4)))
            })
        }
    }
}
