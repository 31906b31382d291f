//! The standard decoder: what do nearly all families have in common, and how do their configs spell it?
//!
//! Every layer is the same: attention with grouped heads and one rotary embedding, then a gated MLP, each behind an RMS
//! norm. A family reads this, changes what it does differently, and makes the list of layers of it.

use crate::backend::AttentionSpec;
use crate::error::Result;
use crate::limits;
use crate::model::fields::Fields;
use crate::model::rope::Rope;
use crate::model::spec::{
    Activation, Bias, DecoderSpec, FeedForward, GatedMlp, Head, HeadWeights, LayerSpec, Mixer, Norm, Order, QkNorm,
    SelfAttention, SublayerNorms,
};

/// The fields of config.json that the families share, checked. Where `null` or absence means a default, it is applied,
/// except where the default depends on the family.
pub struct Standard {
    hidden: usize,
    layers: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: Option<usize>,
    intermediate: usize,
    vocab: usize,
    head: HeadWeights,
    rope: Rope,
    max_positions: usize,
    /// Every norm of the model.
    pub norm: Norm,
}

impl Standard {
    /// Reads the fields that the families share.
    pub fn read(fields: Fields) -> Result<Standard> {
        let heads = fields.count_up_to("num_attention_heads", limits::HEADS)?;
        let kv_heads = fields.count_or_none("num_key_value_heads")?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            return Err(fields.refuse(format!(
                "num_attention_heads is {heads}, but must be a multiple of num_key_value_heads, which is {kv_heads}"
            )));
        }
        let max_position_embeddings = fields.count("max_position_embeddings")?;
        let rope = Rope::from_config(fields, max_position_embeddings)?;
        Ok(Standard {
            hidden: fields.count("hidden_size")?,
            layers: fields.count_up_to("num_hidden_layers", limits::LAYERS)?,
            heads,
            kv_heads,
            head_dim: fields.count_or_none("head_dim")?,
            intermediate: fields.count("intermediate_size")?,
            vocab: fields.count("vocab_size")?,
            head: if fields.flag("tie_word_embeddings")? == Some(true) { HeadWeights::Tied } else { HeadWeights::Own },
            max_positions: rope.scaling.max_positions(max_position_embeddings),
            rope,
            norm: Norm::rms(fields.positive_or_none("rms_norm_eps")?.unwrap_or(1e-6) as f32),
        })
    }

    /// `hidden_size / num_attention_heads`: the numbers per head of a family that leaves `head_dim` out.
    pub fn shared_width(&self) -> usize {
        self.hidden / self.heads
    }

    /// Attention without norms, biases or anything else of a family's own. `head_dim` is the family's default.
    pub fn attention(&self, head_dim: usize) -> SelfAttention {
        let head_dim = self.head_dim.unwrap_or(head_dim);
        SelfAttention {
            scores: AttentionSpec {
                heads: self.heads,
                scale: 1.0 / (head_dim as f32).sqrt(),
                window: None,
                softcap: None,
            },
            kv_heads: self.kv_heads,
            head_dim,
            qk_norm: QkNorm::None,
            qkv_bias: Bias::None,
            output_bias: Bias::None,
            rope: Some(0),
            temperature: None,
        }
    }

    /// The MLP.
    pub fn mlp(&self, bias: Bias) -> GatedMlp {
        GatedMlp { width: self.intermediate, activation: Activation::Silu, bias }
    }

    /// A decoder in which every layer is this one.
    pub fn decoder(self, attention: SelfAttention, mlp: GatedMlp) -> DecoderSpec {
        let layer = LayerSpec {
            order: Order::Sequential,
            mixer_norms: SublayerNorms::before(self.norm),
            mixer: Mixer::Attention(attention),
            feed_forward_norms: SublayerNorms::before(self.norm),
            feed_forward: FeedForward::Dense(mlp),
            residual_scale: 1.0,
        };
        DecoderSpec {
            hidden: self.hidden,
            vocab: self.vocab,
            embedding_scale: 1.0,
            layers: vec![layer; self.layers],
            final_norm: self.norm,
            head: Head::plain(self.head),
            ropes: vec![self.rope],
            max_positions: self.max_positions,
        }
    }
}
