//! Cohere 2 (Command R7B, Command A): one layer norm before both parts, which run side by side, windows in three of four layers, the fourth of
//! which has no rotary embedding, and a factor of the logits.

use super::Family;
use crate::fields::Fields;
use crate::names;
use crate::spec::{Bias, DecoderSpec, Head, Norm, NormKind, SelfAttention, SublayerNorms};
use crate::standard::Standard;
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Command R7B, Command A",
    classes: &["Cohere2ForCausalLM"],
    model_type: "cohere2",
    defaults: || json!({"layer_norm_eps": 1e-5, "logit_scale": 0.0625, "sliding_window": 4096, "tie_word_embeddings": true}),
    // The same as the pattern, the tied head and the rotation, for another program.
    ignores: &["layer_switch", "use_embedding_sharing", "position_embedding_type", "rms_norm_eps"],
    names: &names::LLAMA,
    spec,
};

/// A rotation and no window in each layer.
pub const COHERE: Family = Family {
    models: "Command R, Aya 23",
    classes: &["CohereForCausalLM"],
    model_type: "cohere",
    defaults: || json!({"layer_norm_eps": 1e-5, "logit_scale": 0.0625, "rope_theta": 500000.0, "tie_word_embeddings": true}),
    ignores: &["rms_norm_eps"],
    names: &names::LLAMA,
    spec: |fields| {
        let standard = Standard::read(fields)?.with_neighbours();
        let attentions = vec![standard.attention(standard.shared_width()); standard.layers];
        decoder(fields, standard, attentions)
    },
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    for name in ["use_parallel_block", "use_gated_activation"] {
        fields.must_be(name, true)?;
    }
    let standard = Standard::read(fields)?.with_neighbours();
    let attention = |window: Option<usize>| {
        let attention = standard.attention(standard.shared_width());
        let scores = AttentionSpec { window, ..attention.scores };
        SelfAttention { scores, rope: attention.rope.filter(|_| window.is_some()), ..attention }
    };
    let attentions = standard.windows_by_pattern(fields, 4)?.into_iter().map(attention).collect();
    decoder(fields, standard, attentions)
}

/// A decoder with these attentions, each beside an MLP behind the same norm.
fn decoder(fields: Fields, standard: Standard, attentions: Vec<SelfAttention>) -> Result<DecoderSpec> {
    let norm = Norm { kind: NormKind::Layer, eps: fields.factor("layer_norm_eps")?, ..standard.norm };
    let bias = fields.bias("attention_bias")?;
    let layer = |attention| {
        let attention = SelfAttention { qkv_bias: bias, output_bias: bias, ..attention };
        standard.layer(attention, standard.mlp(Bias::None)).in_parallel(SublayerNorms::before(norm))
    };
    let layers = attentions.into_iter().map(layer).collect();
    let decoder = standard.decoder_of(layers);
    let head = Head { scale: fields.factor("logit_scale")?, ..decoder.head };
    Ok(DecoderSpec { final_norm: Some(norm), head, ..decoder })
}
