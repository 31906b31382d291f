//! Brings the columns together that ranks computed apart: afterwards `out` holds those of every rank, on every rank.
//!
//! Every rank calls it, in the same order, with the same `out` and the same `shares`; `shares[r]` are the columns of `out` that rank `r`
//! computed. They move unchanged, so that joined numbers have the bits that their rank computed. Shares may overlap where ranks
//! computed the same columns; columns that are in no share are left alone.

use crate::{Backend, Part, Tensor};
use std::ops::Range;

/// | tensor | shape |
/// |--------|-------|
/// | `out`    | `[rows, cols]` |
/// | `part.x` | `[rows, cols of the rank]`, of which the columns from `part.first` on are this rank's share |
///
/// Without a `part`, `out` holds this rank's columns already, in their places.
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn join_columns<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    part: Option<Part<Tensor<B::Storage>>>,
    shares: &[Range<usize>],
) {
    assert!(shares.iter().all(|share| share.start < share.end && share.end <= out.cols()));
    assert!(part.as_ref().is_none_or(|part| part.x.rows() == out.rows() && part.first < part.x.cols()));
    backend.join_columns(out, part, shares);
}
