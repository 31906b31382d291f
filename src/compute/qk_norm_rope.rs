//! What happens to the queries and keys of a token before their dot products, and to its values before they are stored?
//!
//! In this order: a norm of the whole width or of each head, the rotation, a norm of each head, the temperature of the queries.
//! Each step is optional, and there is at most one norm. Values may be normalized, each head on its own and without weights.

/// The steps between the projections and the dot products. `V` is a [`Device::Vector`](super::Device::Vector), `T` a tensor.
pub struct QkNormRope<'a, V, T: ?Sized> {
    /// `None` where the model has no norm of queries and keys.
    pub norm: Option<QkNormWeights<'a, V>>,
    /// What [`NormExtent::Whole`] takes its means over. `None` where this rank has all heads.
    pub whole: Option<WholeRows<'a, T>>,
    /// `None` where the layer rotates nothing.
    pub rope: Option<RopeTable<'a, V>>,
    /// Factor of the queries at each position, after the rotation. `[positions]`
    pub temperature: Option<&'a V>,
    /// What is added to the mean of squares that values are divided by the root of, head by head. `None`: values are stored as they are.
    pub value_norm: Option<f32>,
}

/// The queries and keys of all ranks, as the projections made them.
pub struct WholeRows<'a, T: ?Sized> {
    /// `[tokens, query heads of the model * head_dim]`
    pub queries: &'a T,
    /// `[tokens, KV heads of the model * head_dim]`
    pub keys: &'a T,
}

/// RMS normalization of queries and keys: `v / sqrt(mean(v^2) + eps) * weight`.
pub struct QkNormWeights<'a, V> {
    /// Weight for queries. `[head_dim]`, or `[heads * head_dim]` for [`NormExtent::Whole`], of the heads of this rank
    pub query: &'a V,
    /// Weight for keys. `[head_dim]`, or `[kv_heads * head_dim]` for [`NormExtent::Whole`]. Not read where only queries come
    pub key: &'a V,
    /// Added to the mean of squares.
    pub eps: f32,
    /// Which numbers the mean is taken over.
    pub extent: NormExtent,
}

/// Which numbers the norm of queries and keys takes its mean over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormExtent {
    /// Those of one head; all heads share their weights.
    Head(NormOrder),
    /// Those of all query heads of a token, and those of all its key heads, before the rotation (OLMo 2).
    Whole,
}

/// Where the norm of each head has its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormOrder {
    /// Before the rotation (Qwen3, Gemma 3).
    BeforeRope,
    /// After the rotation (Hunyuan).
    AfterRope,
}

/// The cosines and sines of a rotary position embedding.
pub struct RopeTable<'a, V> {
    /// `[positions, rotary]`: of each position `rotary / 2` cosines, then as many sines
    pub table: &'a V,
    /// Numbers of each head that turn, the first ones; the others pass. Even, from 2 to `head_dim`.
    pub rotary: usize,
    /// Which two numbers turn together.
    pub pairing: Pairing,
}

/// Which two of the first `rotary` numbers of a head form pair `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pairing {
    /// `i` and `i + rotary / 2` (Llama in transformers).
    Halves,
    /// `2i` and `2i + 1` (GLM-4, Cohere, ERNIE 4.5).
    Neighbours,
}
