//! A query of a tile, and the state of its softmax between two steps of keys.

use std::ops::Range;

/// A query and the state of its softmax.
#[derive(Clone, Copy)]
pub struct Query {
    /// `[head_dim]`
    pub query: *const f32,
    /// `[value_dim]`: sums of weighted values, to be divided by `total` in the end.
    pub out: *mut f32,
    /// First position that it attends to.
    pub window_start: usize,
    /// One past the last position that it attends to.
    pub context: usize,
    /// Greatest score so far.
    pub greatest: f32,
    /// Sum of the weights so far, relative to the greatest score.
    pub total: f32,
    /// What `out` must be multiplied with before more is added, now that a greater score may have come.
    pub rescale: f32,
}

impl Query {
    /// In the place of a query that is not there.
    pub const NONE: Query = Query {
        query: std::ptr::null(),
        out: std::ptr::null_mut(),
        window_start: 0,
        context: 0,
        greatest: f32::NEG_INFINITY,
        total: 0.0,
        rescale: 0.0,
    };

    /// Of the `len` positions from `start` on, those it attends to, relative to `start`.
    #[inline(always)]
    pub fn attended(&self, start: usize, len: usize) -> Range<usize> {
        let relative = |position: usize| position.saturating_sub(start).min(len);
        relative(self.window_start)..relative(self.context)
    }
}
