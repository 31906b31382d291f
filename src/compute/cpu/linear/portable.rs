//! Kernels in plain Rust, with eight sums side by side that a compiler can hold in vectors.
#![allow(unsafe_code)]

use super::kernels::{Kernels, Order, STEP, Sums, Tile, padded_tails, table};
use half::{bf16, f16};

pub static BF16: Kernels = table!(Order::Straight, 1024, 4, tile<bf16>, [4, 4, 4, 4]);
pub static F16: Kernels = table!(Order::Straight, 1024, 4, tile<f16>, [4, 4, 4, 4]);
pub static F32: Kernels = table!(Order::Straight, 1024, 4, tile<f32>, [4, 4, 4, 4]);

const LANES: usize = 8;

/// A number as it lies in a file.
trait Weight {
    const BYTES: usize;

    /// The number in the first bytes of `bytes`.
    fn read(bytes: &[u8]) -> f32;
}

impl Weight for bf16 {
    const BYTES: usize = 2;

    fn read(bytes: &[u8]) -> f32 {
        f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16)
    }
}

impl Weight for f16 {
    const BYTES: usize = 2;

    fn read(bytes: &[u8]) -> f32 {
        f16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
    }
}

impl Weight for f32 {
    const BYTES: usize = 4;

    fn read(bytes: &[u8]) -> f32 {
        f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }
}

/// One row after another: that is what a compiler without wide registers makes the best of.
///
/// # Safety
///
/// As [`Kernel`](super::kernels::Kernel).
unsafe fn tile<W: Weight, const ROWS: usize, const COLUMNS: usize>(tile: &Tile, sums: &mut Sums) {
    for row in 0..ROWS {
        let mut lanes = [[0.0; LANES]; COLUMNS];
        let (mut x, mut weight) = (tile.x.wrapping_add(row * STEP * 4), tile.weight);
        for _ in 0..tile.steps {
            // SAFETY: the tile has this many steps.
            unsafe { add::<W, COLUMNS>(&mut lanes, x, weight, tile.row_bytes) };
            x = x.wrapping_add(STEP * 4 * ROWS);
            weight = weight.wrapping_add(STEP * W::BYTES);
        }
        if tile.tail > 0 {
            // SAFETY: the tile has a tail; `x` has a whole step for it, and the copies are of a whole step.
            unsafe {
                let tails = padded_tails::<COLUMNS>(weight, tile.row_bytes, tile.tail, W::BYTES);
                add::<W, COLUMNS>(&mut lanes, x, tails.as_ptr().cast(), STEP * 4);
            }
        }
        for (sum, [a, b, c, d, e, f, g, h]) in sums[row * COLUMNS..].iter_mut().zip(lanes) {
            *sum = ((a + b) + (c + d)) + ((e + f) + (g + h));
        }
    }
}

/// Adds one step.
///
/// # Safety
///
/// `x`, and `weight` and each further column `row_bytes` on, hold [`STEP`] numbers.
#[inline(always)]
unsafe fn add<W: Weight, const COLUMNS: usize>(
    lanes: &mut [[f32; LANES]; COLUMNS],
    x: *const u8,
    weight: *const u8,
    row_bytes: usize,
) {
    // SAFETY: the caller says so; `Packed` lies in memory made for f32.
    let x = unsafe { &*x.cast::<[f32; STEP]>() };
    for (column, lanes) in lanes.iter_mut().enumerate() {
        // SAFETY: the caller says so.
        let bytes = unsafe { std::slice::from_raw_parts(weight.add(column * row_bytes), STEP * W::BYTES) };
        for (x, bytes) in x.as_chunks::<LANES>().0.iter().zip(bytes.chunks_exact(LANES * W::BYTES)) {
            for ((lane, x), bytes) in lanes.iter_mut().zip(x).zip(bytes.chunks_exact(W::BYTES)) {
                *lane += x * W::read(bytes);
            }
        }
    }
}
