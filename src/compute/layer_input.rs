//! A linear layer with its input, as one argument of an op.

/// `x weight^T + bias`, and what an adapter adds to it.
#[derive(Debug)]
pub struct LayerInput<'a, T, M, V> {
    /// `[tokens, k]`
    pub x: &'a T,
    /// `[n, k]`
    pub weight: &'a M,
    /// `[n]`
    pub bias: Option<&'a V>,
    /// The low-rank part. It is a part of the sum: what the op does with the sum, such as an activation, comes after it.
    pub adapter: Option<Adapter<'a, T, V>>,
}

/// `scale * projected up`: what an adapter adds to a layer, after the projection of the input to its rank, which is a linear layer of its own.
///
/// Rows may have adapters of their own: `up` stacks several adapters then, and `projected` is zero where a row has another one.
#[derive(Debug)]
pub struct Adapter<'a, T, V> {
    /// `[tokens, rank]`
    pub projected: &'a T,
    /// `[rank, n]`
    pub up: &'a V,
    /// Factor of what is added.
    pub scale: f32,
}

impl<'a, T, M, V> LayerInput<'a, T, M, V> {
    /// A layer without an adapter.
    pub fn new(x: &'a T, weight: &'a M, bias: Option<&'a V>) -> Self {
        LayerInput { x, weight, bias, adapter: None }
    }
}

impl<T, M, V> Clone for LayerInput<'_, T, M, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, M, V> Copy for LayerInput<'_, T, M, V> {}

impl<T, V> Clone for Adapter<'_, T, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, V> Copy for Adapter<'_, T, V> {}
