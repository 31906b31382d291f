//! A linear layer with its input, as one argument of an op.

/// `x weight^T + bias`
#[derive(Debug)]
pub struct LayerInput<'a, T, M, V> {
    /// `[tokens, k]`
    pub x: &'a T,
    /// `[n, k]`
    pub weight: &'a M,
    /// `[n]`
    pub bias: Option<&'a V>,
}

impl<T, M, V> Clone for LayerInput<'_, T, M, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, M, V> Copy for LayerInput<'_, T, M, V> {}
