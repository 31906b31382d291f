//! A linear layer by AMX, for bf16 weights and for coded ones, which are dequantized to bf16.
//!
//! Sixteen columns by sixteen tokens at a time, `x` rounded to bf16. Few tokens wait for the weights, which are read where they
//! lie ([`few`]); many tokens are worth the weights' being rewritten ([`many`]). Both take the same products in the same order
//! along `k`, so that a token has the same bits in either. Quantized weights are dequantized into a small buffer, by [`quantized`] for few tokens,
//! and from there into the same tiles for many: their products have the bits of those with the bf16 matrix that they dequantize to.

mod few;
mod many;
mod pack;
mod quantized;
mod store;

use super::Call;
use super::dequantize::Dequantizer;
use super::pack::Scratch;
use crate::cpu::Pool;
use crate::cpu::amx::EDGE;
use std::ops::Range;

pub use many::staged_numbers;

/// Tokens that are few, at most: two blocks.
const FEW: usize = 2 * EDGE;

/// Computes the columns of `out` in `columns`, by AMX. `dequantizer` dequantizes the weights to bf16, unless they are bf16 numbers.
pub fn run(
    pool: &Pool,
    scratch: &mut Scratch,
    call: &Call,
    dequantizer: Option<Dequantizer>,
    x: &[f32],
    columns: Range<usize>,
) {
    match dequantizer {
        _ if call.tokens > FEW => many::run(pool, scratch, call, dequantizer, x, columns),
        Some(_) => quantized::run(pool, scratch, call, x, columns),
        None => few::run(pool, scratch, call, x, columns),
    }
}
