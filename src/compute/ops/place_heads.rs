//! Copies parts of heads to where attention, or what follows it, reads them: `out[t, to(h) + i] = x[t, from(h) + i]` for each head `h` and each
//! `i < width`, with `column(h) = first + h * step`. A part without `x` is zeros, and a step of 0 gives every head the same numbers.
//!
//! Numbers move unchanged. Columns of `out` that no part names are left alone.

use crate::{Backend, HEAD_PARTS_MAX, HeadPart, Tensor};

/// | tensor | shape |
/// |--------|-------|
/// | `out`  | `[tokens, cols]` |
/// | `x` of each part | `[tokens, cols of its own]` |
///
/// Widths, first columns and steps are multiples of 8. A width may be 0.
///
/// # Panics
///
/// If the shapes disagree, or there are more than [`HEAD_PARTS_MAX`] parts: only a wrong model can cause it, never a user's input.
pub fn place_heads<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    heads: usize,
    parts: &[HeadPart<Tensor<B::Storage>>],
) {
    assert!(parts.len() <= HEAD_PARTS_MAX);
    for &HeadPart { ref from, to, width } in parts {
        let is_whole = |number: usize| number.is_multiple_of(8);
        assert!([width, to.first, to.step].into_iter().all(is_whole));
        assert!(to.is_within(heads, width, out.cols()), "{to:?} is_within {}", out.cols());
        if let Some((x, from)) = from {
            assert!([from.first, from.step].into_iter().all(is_whole));
            assert!(x.rows() == out.rows() && from.is_within(heads, width, x.cols()));
        }
    }
    backend.place_heads(out, heads, parts);
}
