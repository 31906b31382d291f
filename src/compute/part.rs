//! The columns that one rank computed of a tensor that ranks compute together.

/// Columns `first..` of `x`, as many as the rank's share has.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a, T> {
    /// As many rows as the joined tensor.
    pub x: &'a T,
    /// The first column.
    pub first: usize,
}
