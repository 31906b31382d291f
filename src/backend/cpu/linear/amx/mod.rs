//! A linear layer by AMX, for bf16 weights.
//!
//! Sixteen columns by sixteen tokens at a time, `x` rounded to bf16. Few tokens wait for the weights, which are read where they
//! lie ([`few`]); many tokens are worth the weights' being rewritten ([`many`]). Both take the same products in the same order
//! along `k`, so that a token has the same bits in either.

mod few;
mod many;
mod pack;

use super::Call;
use super::pack::Scratch;
use crate::backend::cpu::Pool;
use crate::backend::cpu::amx::EDGE;
use std::ops::Range;

pub use many::staged_numbers;

/// Tokens that are few, at most: two blocks.
const FEW: usize = 2 * EDGE;

/// Computes the columns of `out` in `columns`, by AMX.
pub fn run(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    if call.tokens <= FEW {
        few::run(pool, scratch, call, x, columns);
    } else {
        many::run(pool, scratch, call, x, columns);
    }
}
