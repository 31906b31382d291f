//! The columns that one rank computed of a tensor that ranks compute together.

/// Columns `first..` of `x`, as many as the rank's share has.
#[derive(Debug)]
pub struct Part<'a, T> {
    /// As many rows as the joined tensor.
    pub x: &'a T,
    /// The first column.
    pub first: usize,
}

impl<T> Clone for Part<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Part<'_, T> {}
