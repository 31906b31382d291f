//! Kernels of NEON: four numbers along `k` in a register.
//!
//! Thirty-two registers hold sixteen sums, eight numbers of each of four rows, and those of one column.
#![allow(unsafe_code)]

use super::kernels::{Kernels, Order, Sums, Tile, table};
use super::tile::{Dequantized, Vectors, Weight, run};
use crate::cpu::lanes::Plain;
use half::{bf16, f16};

// 1,024 numbers of four rows are 16 KiB, half of a small first-level cache.
pub static BF16: Kernels = table!(Order::Straight, 1024, 8, tile<bf16>, [8, 8, 4, 4]);
pub static F16: Kernels = table!(Order::Straight, 1024, 8, tile<f16>, [8, 8, 4, 4]);
pub static F32: Kernels = table!(Order::Straight, 1024, 8, tile<f32>, [8, 8, 4, 4]);
pub static DEQUANTIZED: Kernels = table!(Order::Straight, 1024, 8, tile<Dequantized<f32>>, [8, 8, 4, 4]);

/// # Safety
///
/// As [`Kernel`](super::kernels::Kernel).
#[target_feature(enable = "neon")]
unsafe fn tile<W: Weight, const R: usize, const C: usize>(tile: &Tile, sums: &mut Sums) {
    // SAFETY: the caller says so.
    unsafe { run::<Vectors<Plain, W, true>, R, C>(tile, sums) }
}
