//! Kernels of AVX2 and FMA: eight numbers along `k` in a register.
//!
//! Sixteen registers bound the tile: twelve sums, which is what two FMA units of latency four want at the least, the columns'
//! weights, and one row of `x` at a time.
#![allow(unsafe_code)]

use super::kernels::{Kernels, Order, Sums, Tile, table};
use super::tile::{Dequantized, Vectors, Weight, run};
use crate::cpu::lanes::Avx2;
use half::{bf16, f16};

// 1,024 numbers of four rows are 16 KiB, half of the first-level cache.
pub static BF16: Kernels = table!(Order::EvenOdd(8), 1024, 6, tile<bf16>, [3, 3, 3, 3]);
pub static F16: Kernels = table!(Order::Straight, 1024, 6, tile<f16>, [6, 3, 3, 2]);
pub static F32: Kernels = table!(Order::Straight, 1024, 6, tile<f32>, [6, 3, 3, 3]);
pub static DEQUANTIZED: Kernels = table!(Order::Straight, 1024, 6, tile<Dequantized<f32>>, [6, 3, 3, 3]);
pub static DEQUANTIZED_PAIRS: Kernels = table!(Order::EvenOdd(8), 1024, 6, tile<Dequantized<f32>>, [6, 3, 3, 3]);

/// # Safety
///
/// As [`Kernel`](super::kernels::Kernel).
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn tile<W: Weight, const R: usize, const C: usize>(tile: &Tile, sums: &mut Sums) {
    // SAFETY: the caller says so.
    unsafe { run::<Vectors<Avx2, W, false>, R, C>(tile, sums) }
}
