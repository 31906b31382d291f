//! Quantized weights as integers: sums of products that are exact, and one rounding for each group of 32.
//!
//! `x` is rounded once per row and group of [`STEP`] numbers along `k`, to integers with a scale ([`activations`]). The codes of the weights
//! are integers already. Their products are summed exactly in each group, and one chain of f32 sums per row and column takes the groups in
//! the order of `k`:
//!
//! ```text
//! out[t, n] = bias[n] + sum over groups g:  (sum over k in g: code[n, k] x[t, k]) * (scale[n, g] scale[t, g])
//!                                         + min[n, g] (scale[t, g] * sum over k in g: x[t, k])
//! ```
//!
//! Codes are taken without their zero, and the second term is that of codings with minima. Where a scale serves 16 numbers, a group is
//! summed in two halves, one after the other. Because a sum of a group is exact, a kernel may take its products in any order and by any
//! instruction: eight or four bytes at a time, two words or one for few rows ([`few`]) and for many ([`many`]), by tiles of bf16 numbers
//! (`tiles`). All have the same bits.
#![allow(unsafe_code)]

mod activations;
mod codings;
mod few;
mod many;
#[cfg(target_arch = "aarch64")]
mod neon;
#[cfg(target_arch = "x86_64")]
mod pairwise;
mod panel;
#[cfg(target_arch = "aarch64")]
mod smmla;
mod target;
#[cfg(target_arch = "x86_64")]
mod tile_rows;
#[cfg(target_arch = "x86_64")]
mod tiles;

use super::pack::Scratch;
use super::{Call, kernels::STEP};
use crate::cpu::matrix::Segment;
use crate::cpu::{Isa, Pool};
use formats::{Block, Codes, Scaled, WeightFormat};
use std::ops::Range;
use target::Target;

pub use panel::staged_numbers;

/// Columns of a vector of sums.
const EDGE: usize = 16;
/// Bytes of a vector, and of a line of the cache.
const LINE_BYTES: usize = 64;

/// Whether products with weights in `coding` are those of integers.
pub fn takes(isa: Isa, coding: WeightFormat) -> bool {
    let is_known = match coding {
        WeightFormat::F32 | WeightFormat::F16 | WeightFormat::Bf16 => false,
        // Each half of a group has a minimum of its own.
        WeightFormat::Block(Block::Q2K) => false,
        // What rewrites its panels was compiled to a fault on x86-64: docs/decisions/0101.
        WeightFormat::Block(Block::Mxfp4) => false,
        // Their indices have no kernel that reads a table.
        WeightFormat::Block(block) if block.is_lattice() => false,
        WeightFormat::Block(_) => true,
        WeightFormat::Scaled(Scaled { codes: Codes::U4 | Codes::U8, .. }) => true,
        // A signed code less an unsigned zero may have nine bits and a sign, which no bf16 number has.
        WeightFormat::Scaled(Scaled { codes: Codes::I8, zeros, .. }) => !zeros,
        WeightFormat::Scaled(Scaled { codes: Codes::E4m3 | Codes::E2m1, .. }) => false,
    };
    isa > Isa::Portable && is_known
}

/// `$function::<T, D>` for the type `D` that reads `$coding`, or `$function::<D>`.
macro_rules! by_coding {
    ($coding:expr, $function:ident $(, $target:ty)?) => {{
        use super::codings;
        use formats::{Block, Codes, WeightFormat, Scaled};
        match $coding {
            WeightFormat::Block(block) => match block {
                Block::Q8_0 => $function::<$($target,)? codings::Q8_0>,
                Block::Q4_0 => $function::<$($target,)? codings::Q4_0>,
                Block::Q4_1 => $function::<$($target,)? codings::Q4_1>,
                Block::Q5_0 => $function::<$($target,)? codings::Q5_0>,
                Block::Q5_1 => $function::<$($target,)? codings::Q5_1>,
                Block::Q4K => $function::<$($target,)? codings::Q4K>,
                Block::Q5K => $function::<$($target,)? codings::Q5K>,
                Block::Q6K => $function::<$($target,)? codings::Q6K>,
                Block::Iq4Nl => $function::<$($target,)? codings::Iq4Nl>,
                Block::Iq4Xs => $function::<$($target,)? codings::Iq4Xs>,
                Block::Q3K => $function::<$($target,)? codings::Q3K>,
                Block::Q2K | Block::Mxfp4 => unreachable!("`takes` leaves them to dequantizers"),
                _ => unreachable!("`takes` leaves lattices to dequantizers"),
            },
            WeightFormat::Scaled(Scaled { codes, .. }) => match codes {
                Codes::U4 => $function::<$($target,)? codings::Pairs>,
                Codes::U8 => $function::<$($target,)? codings::Bytes<false>>,
                Codes::I8 => $function::<$($target,)? codings::Bytes<true>>,
                Codes::E4m3 | Codes::E2m1 => unreachable!("`takes` leaves them to dequantizers"),
            },
            _ => unreachable!("plain numbers are no codes"),
        }
    }};
}
use by_coding;

/// Computes the columns of `out` in `columns`.
#[cfg(target_arch = "x86_64")]
pub fn run(pool: &Pool, isa: Isa, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    use crate::cpu::lanes::{Avx2, Avx512};
    let run = match isa {
        Isa::Portable => unreachable!("`takes` leaves it to dequantizers"),
        Isa::Avx2 => vectors::<Avx2>(call),
        Isa::Avx512 => vectors::<Avx512<false>>(call),
        Isa::Amx if call.tokens > <Avx512<true>>::FEW => tiles::run,
        Isa::Avx512Bf16 | Isa::Amx => vectors::<Avx512<true>>(call),
    };
    run(pool, scratch, call, x, columns);
}

/// Computes the columns of `out` in `columns`.
#[cfg(target_arch = "aarch64")]
pub fn run(pool: &Pool, isa: Isa, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    use crate::cpu::lanes::{DotProd, I8mm, Plain};
    let run = match isa {
        Isa::Portable => unreachable!("`takes` leaves it to dequantizers"),
        Isa::Neon => vectors::<Plain>(call),
        Isa::DotProd => vectors::<DotProd>(call),
        Isa::I8mm | Isa::Bf16 => vectors::<I8mm>(call),
    };
    run(pool, scratch, call, x, columns);
}

/// Computes columns.
type Run = fn(&Pool, &mut Scratch, &Call, &[f32], Range<usize>);

/// What a call takes on a target.
fn vectors<T: Target>(call: &Call) -> Run {
    if call.tokens <= T::FEW { few::run::<T> } else { many::run::<T> }
}

/// Writes the sums of a row and of up to [`EDGE`] columns of `segment` from `first` on, and adds the bias.
///
/// # Safety
///
/// The machine has the target's instructions. This thread alone writes these columns.
#[inline(always)]
unsafe fn store<T: Target>(call: &Call, segment: &Segment, first: usize, row: usize, sums: T::Floats) {
    let Call { out, weight, bias, .. } = call;
    let (columns, column) = (EDGE.min(segment.rows.len() - first), segment.rows.start + first);
    let start = row * weight.rows() + column;
    // SAFETY: the caller says so.
    unsafe { T::store_columns(out.part(start..start + columns), sums, bias.map(|bias| &bias[column..][..columns])) };
}

/// What a group adds to the sums of a row: see the module.
///
/// # Safety
///
/// The machine has the target's instructions.
#[inline(always)]
unsafe fn add_scaled<T: Target>(
    sums: T::Floats,
    integers: T::Floats,
    weight_scales: T::Floats,
    x_scale: T::Floats,
) -> T::Floats {
    // SAFETY: the caller says so.
    unsafe { T::mul_add(integers, T::mul(weight_scales, x_scale), sums) }
}
