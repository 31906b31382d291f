//! Brings the rows together that ranks computed for the slots of their own experts: `out[slot, j] = x[slot, columns[rank].start + j]`, where `x` is that
//! of the rank which has the expert of the slot.
//!
//! Every rank calls it, in the same order, with the same `columns` and `experts` and with routes that hold the same choices. Numbers move unchanged, so
//! that they have the bits that their rank computed. Rows of `x` of slots with experts of other ranks are not read.

use crate::{Backend, Tensor};
use std::ops::Range;

/// | operand   | shape |
/// |-----------|-------|
/// | `out`     | `[slots, columns of this rank]` |
/// | `x`       | `[slots, cols]`, as [`expert_linear`](super::expert_linear) writes it |
/// | `columns` | those that each rank gets. `[ranks]` |
/// | `experts` | those of each rank, which follow each other from 0 on. `[ranks]` |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn join_slots<B: Backend>(
    backend: &mut B,
    out: &mut Tensor<B::Storage>,
    x: &Tensor<B::Storage>,
    columns: &[Range<usize>],
    experts: &[Range<usize>],
    routes: &B::Routes,
) {
    let routed = B::routes_shape(routes);
    assert_eq!((out.rows(), x.rows()), (routed.slots(), routed.slots()));
    assert!(columns.iter().all(|columns| columns.start < columns.end && columns.end <= x.cols()));
    assert!(experts.windows(2).all(|pair| pair[0].end == pair[1].start));
    assert_eq!(experts.first().map(|first| first.start), Some(0));
    assert_eq!(experts.last().map(|last| last.end), Some(routed.experts));
    backend.join_slots(out, x, columns, experts, routes);
}
