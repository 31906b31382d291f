//! What does one attention layer compute, apart from its weights?
//!
//! Each field is a property that models differ in. What no backend computes has no field here.

/// Parameters of one attention layer. The shape of its keys and values is that of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads: a multiple of the KV heads of the cache. Consecutive query heads share a KV head.
    pub heads: usize,
    /// Factor of each score before the softmax; `1 / sqrt(head_dim)` in most models.
    pub scale: f32,
    /// Sliding window in tokens, at least 1: the token at position `p` attends to the positions from
    /// [`window_start(p)`](Self::window_start) to `p`. `None` attends to all positions up to `p`.
    ///
    /// As `sliding_window` of transformers, whose mask is `kv_idx > q_idx - sliding_window`. [`Reach::Both`] has as many positions behind the token,
    /// itself counted again.
    pub window: Option<usize>,
    /// Bound of the scaled scores: each score `s` becomes `softcap * tanh(s / softcap)` before the mask and the softmax. Above 0.
    /// `None` leaves the scores as they are.
    ///
    /// As `attn_logit_softcapping` of transformers.
    pub softcap: Option<f32>,
    /// Whether tokens attend to those behind them.
    pub reach: Reach,
}

/// Whether a token attends to those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// To itself and those before it.
    Back,
    /// To all of its row, of which a batch brings every token.
    Both,
}

impl AttentionSpec {
    /// The first position that the token at `position` attends to.
    pub fn window_start(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    /// One past the last position that the token at `position` attends to, in a row of `context` tokens.
    pub fn window_end(&self, position: usize, context: usize) -> usize {
        match self.reach {
            Reach::Back => position + 1,
            Reach::Both => self.window.map_or(context, |window| position.saturating_add(window).min(context)),
        }
    }
}

/// What one attention layer computes, with what it has stored for it.
#[derive(Debug)]
pub struct Scoring<'a, V> {
    /// The parameters.
    pub spec: &'a AttentionSpec,
    /// A score for each query head that joins the softmax of every token, and to which no value belongs. `None`: the softmax is over keys alone. `[heads]`
    pub sinks: Option<&'a V>,
}

impl<V> Clone for Scoring<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Scoring<'_, V> {}

/// Without sinks.
impl<'a, V> From<&'a AttentionSpec> for Scoring<'a, V> {
    fn from(spec: &'a AttentionSpec) -> Self {
        Scoring { spec, sinks: None }
    }
}

/// What the projections made of the tokens of a pass, and where their attention goes.
#[derive(Debug)]
pub struct HeadRows<'a, T> {
    /// Queries, keys and values, where these are no part of the keys. `[tokens, (heads + 2 kv_heads) * head_dim]`
    pub qkv: &'a mut T,
    /// `[tokens, heads * value_dim]`
    pub out: &'a mut T,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_attends_to_as_many_positions_as_the_window_has_where_there_are_as_many() {
        let attended = |window, position| {
            let spec = AttentionSpec { heads: 1, scale: 1.0, window, softcap: None, reach: Reach::Back };
            position + 1 - spec.window_start(position)
        };
        for (window, position, expected) in
            [(Some(1), 0, 1), (Some(1), 9, 1), (Some(4), 2, 3), (Some(4), 3, 4), (Some(4), 4, 4), (None, 9, 10)]
        {
            assert_eq!(attended(window, position), expected, "a window of {window:?} at position {position}");
        }
        assert_eq!(attended(Some(usize::MAX), 9), 10);
    }

    #[test]
    fn a_token_that_looks_both_ways_has_as_many_positions_on_either_side() {
        for (window, position, expected) in [
            (Some(1), 4, 4..5),
            (Some(3), 4, 2..7),
            (Some(3), 8, 6..10),
            (Some(3), 0, 0..3),
            (None, 4, 0..10),
            (Some(usize::MAX), 4, 0..10),
        ] {
            let spec = AttentionSpec { heads: 1, scale: 1.0, window, softcap: None, reach: Reach::Both };
            let found = spec.window_start(position)..spec.window_end(position, 10);
            assert_eq!(found, expected, "a window of {window:?} at position {position}");
        }
    }
}
