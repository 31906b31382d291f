//! Parts of heads that are copied from tensors with other widths of heads.

/// What [`place_heads`](crate::ops::place_heads) copies at most at once.
pub const HEAD_PARTS_MAX: usize = 8;

/// The numbers of each head that are copied: `to[h] = x[from[h]]`, as many as [`width`](HeadPart::width).
#[derive(Debug)]
pub struct HeadPart<'a, T> {
    /// Where they come from, and which columns of it. `None`: they are zeros.
    pub from: Option<(&'a T, HeadColumns)>,
    /// Where they go.
    pub to: HeadColumns,
    /// Numbers of each head.
    pub width: usize,
}

/// The columns of each head in a tensor: head `h` begins at `first + h * step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadColumns {
    /// Where the first head begins.
    pub first: usize,
    /// From one head to the next. 0: all heads are one.
    pub step: usize,
}

impl HeadColumns {
    /// Where head `head` begins.
    pub fn of(self, head: usize) -> usize {
        self.first + head * self.step
    }

    /// Whether `heads` heads of `width` numbers lie within `cols` columns.
    pub fn is_within(self, heads: usize, width: usize, cols: usize) -> bool {
        heads > 0 && self.of(heads - 1) + width <= cols
    }
}
