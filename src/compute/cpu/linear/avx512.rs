//! Kernels of AVX-512: sixteen numbers along `k` in a register.
//!
//! Of 32 registers a tile of four rows takes 24 for its sums, six for the columns' weights and one for a row of `x`.
#![allow(unsafe_code)]

use super::kernels::{Kernels, Order, Sums, Tile, table};
use super::tile::{Dequantized, Vectors, Weight, run};
use crate::cpu::lanes::Avx512;
use half::{bf16, f16};

/// Columns of a panel for many rows: in f32 a slice of them has 384 KiB. Second-level caches of processors with AVX-512 have 512 KiB to 2 MiB.
pub const WIDE_PANEL: usize = 96;

// 1,024 numbers of four rows are 16 KiB, half of the first-level cache or less.
pub static BF16: Kernels =
    Kernels { wide_panel: WIDE_PANEL, ..table!(Order::EvenOdd(16), 1024, 8, tile<bf16>, [8, 4, 4, 4]) };
pub static F16: Kernels =
    Kernels { wide_panel: WIDE_PANEL, ..table!(Order::Straight, 1024, 6, tile<f16>, [6, 6, 6, 6]) };
pub static F32: Kernels =
    Kernels { wide_panel: WIDE_PANEL, ..table!(Order::Straight, 1024, 6, tile<f32>, [6, 6, 6, 6]) };
pub static DEQUANTIZED: Kernels = table!(Order::Straight, 1024, 6, tile<Dequantized<f32>>, [6, 6, 6, 6]);
pub static DEQUANTIZED_PAIRS: Kernels = table!(Order::EvenOdd(16), 1024, 6, tile<Dequantized<f32>>, [6, 6, 6, 6]);

/// # Safety
///
/// As [`Kernel`](super::kernels::Kernel).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn tile<W: Weight, const R: usize, const C: usize>(tile: &Tile, sums: &mut Sums) {
    // SAFETY: the caller says so.
    unsafe { run::<Vectors<Avx512<false>, W, false>, R, C>(tile, sums) }
}
