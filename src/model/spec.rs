//! A decoder as data: what does each layer compute, and in which order?
//!
//! A decoder is a list of layers, and each layer says by itself what it mixes and what it feeds forward; the families are the
//! functions that write such lists. Invariant: a spec that [`DecoderSpec::check`] accepted can be computed: the layers agree
//! wherever they share memory, and every index leads somewhere.

use crate::backend::{AttentionSpec, DType, KvShape};
use crate::error::{Error, Result};
use crate::model::rope::Rope;

/// Heads wider than this are not computed: kernels keep a head in registers or on the stack.
const HEAD_DIM_MAX: usize = 512;

/// A decoder-only transformer with a residual stream.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// What is computed between the embedding and the head, in order. At least one.
    pub layers: Vec<LayerSpec>,
    /// Before the head.
    pub final_norm: Norm,
    /// Where the weights of the head come from.
    pub head: Head,
    /// The rotary position embeddings that layers refer to by index.
    pub ropes: Vec<Rope>,
    /// Positions that the model was made for, those that rope scaling adds included.
    pub max_positions: usize,
}

/// One layer: `x += mixer(norm(x))`, then `x += feed_forward(norm(x))`.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// Before the mixer.
    pub mixer_norm: Norm,
    /// What brings the tokens of a sequence together.
    pub mixer: Mixer,
    /// Before the feed-forward part.
    pub feed_forward_norm: Norm,
    /// What works on each token alone.
    pub feed_forward: FeedForward,
}

/// RMS normalization.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// Added to the mean of squares.
    pub eps: f32,
}

/// What brings the tokens of a sequence together.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention over a KV cache.
    Attention(SelfAttention),
}

/// What works on each token alone.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedForward {
    /// One MLP for all tokens.
    Dense(GatedMlp),
}

/// Causal attention with grouped heads and rotary positions.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfAttention {
    /// Query heads, and how their scores are made.
    pub scores: AttentionSpec,
    /// Key and value heads, of which the query heads are a multiple.
    pub kv_heads: usize,
    /// Numbers per head, even.
    pub head_dim: usize,
    /// Whether queries and keys are normalized.
    pub qk_norm: QkNorm,
    /// Of the projections to queries, keys and values.
    pub qkv_bias: Bias,
    /// Of the projection out of attention.
    pub output_bias: Bias,
    /// Which of [`DecoderSpec::ropes`] turns queries and keys.
    pub rope: usize,
}

/// `down(silu(gate(x)) * up(x))`
#[derive(Clone, Debug, PartialEq)]
pub struct GatedMlp {
    /// Outputs of `gate` and of `up`.
    pub width: usize,
    /// Of all three projections.
    pub bias: Bias,
}

/// Whether queries and keys are normalized before the rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QkNorm {
    /// Each head on its own, with weights that all heads of a layer share.
    PerHead(Norm),
    /// Not at all.
    None,
}

/// Whether a linear layer adds a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// It does.
    Added,
    /// It does not.
    None,
}

/// Where the weights of the head come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// The embedding table.
    Tied,
    /// A matrix of its own.
    Own,
}

impl DecoderSpec {
    /// Refuses what the decoder, the KV cache or the kernels cannot hold.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedModel`] for a head of a size that no kernel has, and for layers that differ where they share
    /// memory: all layers have their keys and values in one cache of one shape, and their activations in the same buffers.
    ///
    /// # Panics
    ///
    /// If there is no layer, or an index leads nowhere: only a wrong family can cause it.
    pub fn check(&self) -> Result<()> {
        let (first, rest) = self.layers.split_first().expect("a decoder has layers");
        let attention = first.mixer.attention();
        if !attention.head_dim.is_multiple_of(2) || attention.head_dim == 0 || attention.head_dim > HEAD_DIM_MAX {
            return Err(Error::UnsupportedModel {
                setting: "head_dim",
                value: attention.head_dim.to_string(),
                supported: "an even number from 2 to 512",
            });
        }
        for (index, layer) in rest.iter().enumerate() {
            let own = layer.mixer.attention();
            let differs = |setting, here: usize, first: usize| match here == first {
                true => Ok(()),
                false => Err(Error::UnsupportedModel {
                    setting,
                    value: format!("{here} in layer {} and {first} in layer 0", index + 1),
                    supported: "the same in every layer",
                }),
            };
            differs("num_key_value_heads", own.kv_heads, attention.kv_heads)?;
            differs("head_dim", own.head_dim, attention.head_dim)?;
            differs("num_attention_heads", own.scores.heads, attention.scores.heads)?;
            differs("intermediate_size", layer.feed_forward.width(), first.feed_forward.width())?;
        }
        assert!(self.layers.iter().all(|layer| layer.mixer.attention().rope < self.ropes.len()));
        Ok(())
    }

    /// The attention of every layer, as far as its memory goes. [`DecoderSpec::check`] made sure that there is one.
    pub fn attention(&self) -> &SelfAttention {
        self.layers[0].mixer.attention()
    }

    /// Outputs of the widest projection of every feed-forward part.
    pub fn feed_forward_width(&self) -> usize {
        self.layers[0].feed_forward.width()
    }

    /// The sliding window of each layer.
    pub fn windows(&self) -> impl Iterator<Item = Option<usize>> {
        self.layers.iter().map(|layer| layer.mixer.attention().scores.window)
    }

    /// Weights of the largest layer, norms and biases left aside.
    pub fn layer_parameters(&self) -> usize {
        self.layers.iter().map(|layer| layer.parameters(self.hidden)).max().unwrap_or(0)
    }

    /// The KV cache that this model needs.
    pub fn kv_shape(&self, block_size: usize, dtype: DType) -> KvShape {
        let SelfAttention { kv_heads, head_dim, .. } = *self.attention();
        KvShape { layers: self.layers.len(), kv_heads, head_dim, block_size, dtype }
    }
}

impl LayerSpec {
    fn parameters(&self, hidden: usize) -> usize {
        let attention = self.mixer.attention();
        hidden * (2 * attention.query_width() + 2 * attention.kv_width() + 3 * self.feed_forward.width())
    }
}

impl Mixer {
    fn attention(&self) -> &SelfAttention {
        let Mixer::Attention(attention) = self;
        attention
    }
}

impl FeedForward {
    fn width(&self) -> usize {
        let FeedForward::Dense(mlp) = self;
        mlp.width
    }
}

impl SelfAttention {
    /// Width of all query heads.
    pub fn query_width(&self) -> usize {
        self.scores.heads * self.head_dim
    }

    /// Width of all key heads, and of all value heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rope::RopeScaling;

    fn attention() -> SelfAttention {
        SelfAttention {
            scores: AttentionSpec { heads: 4, scale: 0.25, window: None },
            kv_heads: 2,
            head_dim: 16,
            qk_norm: QkNorm::None,
            qkv_bias: Bias::None,
            output_bias: Bias::None,
            rope: 0,
        }
    }

    /// Two layers, the second changed.
    fn spec(change: impl FnOnce(&mut SelfAttention, &mut GatedMlp)) -> DecoderSpec {
        let norm = Norm { eps: 1e-6 };
        let layer = |attention, mlp| LayerSpec {
            mixer_norm: norm,
            mixer: Mixer::Attention(attention),
            feed_forward_norm: norm,
            feed_forward: FeedForward::Dense(mlp),
        };
        let mlp = GatedMlp { width: 80, bias: Bias::None };
        let (mut other, mut other_mlp) = (attention(), mlp.clone());
        change(&mut other, &mut other_mlp);
        DecoderSpec {
            hidden: 64,
            vocab: 130,
            layers: vec![layer(attention(), mlp), layer(other, other_mlp)],
            final_norm: norm,
            head: Head::Own,
            ropes: vec![Rope { theta: 10_000.0, scaling: RopeScaling::None }],
            max_positions: 256,
        }
    }

    #[test]
    fn layers_may_differ_where_they_share_no_memory() {
        spec(|attention, _| (attention.qk_norm, attention.scores.scale) = (QkNorm::PerHead(Norm { eps: 1e-5 }), 1.0))
            .check()
            .unwrap();
    }

    #[test]
    fn layers_that_differ_where_they_share_memory_are_named() {
        type Change = fn(&mut SelfAttention, &mut GatedMlp);
        let cases: [(&str, Change, &str); 4] = [
            ("num_key_value_heads", |attention, _| attention.kv_heads = 4, "4 in layer 1 and 2 in layer 0"),
            ("head_dim", |attention, _| attention.head_dim = 32, "32 in layer 1 and 16 in layer 0"),
            ("num_attention_heads", |attention, _| attention.scores.heads = 8, "8 in layer 1 and 4 in layer 0"),
            ("intermediate_size", |_, mlp| mlp.width = 96, "96 in layer 1 and 80 in layer 0"),
        ];
        for (wanted, change, words) in cases {
            match spec(change).check() {
                Err(Error::UnsupportedModel { setting, value, .. }) => assert_eq!((setting, &*value), (wanted, words)),
                other => panic!("{wanted}: {other:?}"),
            }
        }
    }

    #[test]
    #[should_panic]
    fn a_rope_that_does_not_exist_is_a_bug() {
        let _ = spec(|attention, _| attention.rope = 1).check();
    }
}
