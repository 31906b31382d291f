//! Queries, keys and values of a narrow projection of the input, as data.

use super::Norm;

/// Multi-head latent attention: keys and values are projections of a latent of `rank` numbers, and queries may be of another one. Each head of a query has
/// `nope` numbers, which meet a projection of the latent, and behind them in the files `rope` numbers, which meet those that all heads of a key share.
///
/// The latent itself is cached. There is one KV head, whose key is the rotated numbers and then the latent, and whose value is the latent. The projection of
/// keys multiplies queries, and that of values multiplies what attention gives. Rotated numbers come first, so that the first
/// [`rotary`](crate::rope::Rope::rotary) numbers of a head turn as in other models.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Latent {
    /// Numbers of the latent of queries. `None`: queries are a projection of the input.
    pub query_rank: Option<usize>,
    /// Numbers of the latent of keys and values.
    pub rank: usize,
    /// Numbers of a query and of a key that are not rotated.
    pub nope: usize,
    /// Numbers that are rotated.
    pub rope: usize,
    /// Numbers of a value.
    pub value: usize,
    /// Of both latents.
    pub norm: Norm,
}

impl Latent {
    /// Numbers of a query as it is projected.
    pub fn key(&self) -> usize {
        self.rope + self.nope
    }

    /// Weights of its projections and of that back.
    pub(super) fn parameters(&self, heads: usize, hidden: usize) -> usize {
        let queries = heads * self.key();
        let of_queries = self.query_rank.map_or(hidden * queries, |rank| rank * (hidden + queries));
        let of_keys = (self.rank + self.rope) * hidden + self.rank * heads * (self.nope + self.value);
        of_queries + of_keys + heads * self.value * hidden
    }

    /// Numbers of a key of the cache.
    pub fn head_dim(&self) -> usize {
        self.rope + self.rank
    }
}
