//! A decoder as data: everything in which the families differ.

use crate::backend::{DType, KvShape};
use crate::model::rope::Rope;

/// A decoder-only transformer with RMS norms, rotary positions and a gated MLP.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads, of which `heads` is a multiple.
    pub kv_heads: usize,
    /// Numbers in a head, even.
    pub head_dim: usize,
    /// Width of the MLP.
    pub intermediate: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Added to the mean of squares in every norm.
    pub norm_eps: f32,
    /// Whether queries and keys are normalized.
    pub qk_norm: QkNorm,
    /// Of the projections to queries, keys and values.
    pub qkv_bias: Bias,
    /// Of the projection out of attention.
    pub output_bias: Bias,
    /// Of all projections of the MLP.
    pub mlp_bias: Bias,
    /// Where the weights of the head come from.
    pub head: Head,
    /// Rotary position embedding.
    pub rope: Rope,
    /// Positions the model was made for.
    pub max_positions: usize,
}

/// Whether queries and keys are normalized before the rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    /// Each head on its own, with weights that all heads of a layer share.
    PerHead,
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
    /// Width of all query heads.
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Width of all key heads, and of all value heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    /// Weights of a layer, norms and biases left aside.
    pub fn layer_parameters(&self) -> usize {
        self.hidden * (2 * self.query_width() + 2 * self.kv_width() + 3 * self.intermediate)
    }

    /// The KV cache this model needs.
    pub fn kv_shape(&self, block_size: usize, dtype: DType) -> KvShape {
        KvShape { layers: self.layers, kv_heads: self.kv_heads, head_dim: self.head_dim, block_size, dtype }
    }
}
