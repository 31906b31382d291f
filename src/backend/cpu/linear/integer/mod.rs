//! Coded weights as integers: sums of products that are exact, and one rounding for each group of 32.
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
//! instruction: by VNNI for few rows ([`few`]) and for many ([`vnni`]), by tiles of bf16 numbers ([`tiles`]). All have the same bits.
#![allow(unsafe_code)]

mod activations;
mod codings;
mod few;
mod panel;
mod tiles;
mod vnni;

use super::pack::Scratch;
use super::{Call, kernels::STEP};
use crate::backend::cpu::amx::EDGE;
use crate::backend::cpu::matrix::Segment;
use crate::backend::cpu::{Isa, Pool};
use crate::backend::{Codes, Coding, Scaled};
use std::arch::x86_64::*;
use std::ops::Range;

pub use panel::staged_numbers;

/// Rows of `x` up to which weights are read as they lie; for more rows they are rewritten first.
const FEW: usize = 4;

/// Whether products with weights in `coding` are those of integers.
pub fn takes(isa: Isa, coding: Coding) -> bool {
    let is_known = match coding {
        Coding::F32 | Coding::F16 | Coding::Bf16 => false,
        Coding::Block(_) => true,
        Coding::Scaled(Scaled { codes: Codes::U4 | Codes::U8, .. }) => true,
        // A signed code less an unsigned zero may have nine bits and a sign, which no bf16 number has.
        Coding::Scaled(Scaled { codes: Codes::I8, zeros, .. }) => !zeros,
        Coding::Scaled(Scaled { codes: Codes::E4m3 | Codes::E2m1, .. }) => false,
    };
    isa >= Isa::Avx512Bf16 && is_known
}

/// `$function::<D>` for the type `D` that reads `$coding`.
macro_rules! by_coding {
    ($coding:expr, $function:ident) => {{
        use super::codings;
        use crate::backend::{Block, Codes, Coding, Scaled};
        match $coding {
            Coding::Block(block) => match block {
                Block::Q8_0 => $function::<codings::Q8_0>,
                Block::Q4_0 => $function::<codings::Q4_0>,
                Block::Q4_1 => $function::<codings::Q4_1>,
                Block::Q5_0 => $function::<codings::Q5_0>,
                Block::Q5_1 => $function::<codings::Q5_1>,
                Block::Q4K => $function::<codings::Q4K>,
                Block::Q5K => $function::<codings::Q5K>,
                Block::Q6K => $function::<codings::Q6K>,
                Block::Iq4Nl => $function::<codings::Iq4Nl>,
                Block::Iq4Xs => $function::<codings::Iq4Xs>,
            },
            Coding::Scaled(Scaled { codes, .. }) => match codes {
                Codes::U4 => $function::<codings::Pairs>,
                Codes::U8 => $function::<codings::Bytes<false>>,
                Codes::I8 => $function::<codings::Bytes<true>>,
                Codes::E4m3 | Codes::E2m1 => unreachable!("`takes` leaves them to decoders"),
            },
            _ => unreachable!("plain numbers are no codes"),
        }
    }};
}
use by_coding;

/// Computes the columns of `out` in `columns`.
pub fn run(pool: &Pool, isa: Isa, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    if call.tokens <= FEW {
        few::run(pool, scratch, call, x, columns);
    } else if isa == Isa::Amx {
        tiles::run(pool, scratch, call, x, columns);
    } else {
        vnni::run(pool, scratch, call, x, columns);
    }
}

/// Writes the sums of a row and of up to [`EDGE`] columns of `segment` from `first` on, and adds the bias.
///
/// # Safety
///
/// The machine has AVX-512. This thread alone writes these columns.
#[inline(always)]
unsafe fn store(call: &Call, segment: &Segment, first: usize, row: usize, sums: __m512) {
    let Call { out, weight, bias, .. } = call;
    let (columns, column) = (EDGE.min(segment.rows.len() - first), segment.rows.start + first);
    let start = row * weight.rows() + column;
    let mask = u16::MAX >> (EDGE - columns);
    // SAFETY: the caller says so; nothing is read or written beyond the mask.
    unsafe {
        let out = out.part(start..start + columns);
        let sums = match bias {
            Some(bias) => {
                let bias = &bias[column..][..columns];
                _mm512_add_ps(sums, _mm512_maskz_loadu_ps(mask, bias.as_ptr()))
            }
            None => sums,
        };
        _mm512_mask_storeu_ps(out.as_mut_ptr(), mask, sums);
    }
}

/// What a group adds to the sums of a row: see the module.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn add_scaled(sums: __m512, integers: __m512, weight_scales: __m512, x_scale: __m512) -> __m512 {
    // SAFETY: the caller says so.
    unsafe { _mm512_fmadd_ps(integers, _mm512_mul_ps(weight_scales, x_scale), sums) }
}
