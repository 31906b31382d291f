//! Writes sums whose tiles are columns by tokens.
#![allow(unsafe_code)]

use super::super::Call;
use crate::cpu::amx::{EDGE, LINE_BYTES, transpose};
use std::ops::Range;

/// Writes a tile of sums to the columns of `out` in `columns`, for the `block`-th [`EDGE`] tokens, and adds the bias. `[column][token]`
pub fn store(call: &Call, sums: &[[f32; EDGE]; EDGE], columns: Range<usize>, block: usize) {
    let Call { out, weight, bias, tokens, .. } = call;
    let mut by_token = [[0.0f32; EDGE]; EDGE];
    // SAFETY: this file serves `Isa::Amx`, which includes AVX-512. Both are whole tiles.
    unsafe { transpose(sums.as_ptr().cast(), LINE_BYTES, by_token.as_mut_ptr().cast()) };
    for (token, sums) in (block * EDGE..*tokens).zip(by_token) {
        let start = token * weight.rows() + columns.start;
        // SAFETY: the threads' columns do not overlap by `Pool::for_each`, and this thread holds one part at a time.
        let out = unsafe { out.part(start..start + columns.len()) };
        match out.first_chunk_mut() {
            Some(out) => *out = sums,
            None => out.copy_from_slice(&sums[..columns.len()]),
        }
        if let Some(bias) = bias {
            for (out, bias) in out.iter_mut().zip(&bias[columns.start..]) {
                *out += bias;
            }
        }
    }
}
