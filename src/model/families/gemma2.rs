//! Gemma 2: norms around both parts, whose weights are stored less one, windows in every other layer, caps of scores and logits.

use super::Family;
use crate::fields::Fields;
use crate::names::{LLAMA, Names, NormNames};
use crate::spec::{Bias, DecoderSpec, Head, Mlp, MlpForm, SelfAttention, SublayerNorms};
use crate::standard::{Standard, activation, embedding_scale, score_scale};
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Gemma 2",
    classes: &["Gemma2ForCausalLM"],
    model_type: "gemma2",
    defaults: || {
        json!({
            "head_dim": 256, "num_key_value_heads": 4, "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
            "query_pre_attn_scalar": 256, "sliding_window": 4096, "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0
        })
    },
    ignores: &["hidden_act"],
    names: &NAMES,
    spec,
};

/// The names of both families with norms around both parts.
pub const NAMES: Names = Names {
    mixer_norms: NormNames { before: "input_layernorm", after: "post_attention_layernorm" },
    feed_forward_norms: NormNames { before: "pre_feedforward_layernorm", after: "post_feedforward_layernorm" },
    ..LLAMA
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?.with_norms_plus_one();
    let bias = fields.bias("attention_bias")?;
    let softcap = fields.positive_or_none("attn_logit_softcapping")?.map(|cap| cap as f32);
    let scale = score_scale(fields)?;
    let mlp = Mlp { form: MlpForm::gated(activation(fields, "hidden_activation")?), ..standard.mlp(Bias::None) };
    let norms = SublayerNorms::around(standard.norm);
    let layer = |window| {
        let attention = standard.attention(standard.shared_width());
        let scores = AttentionSpec { window, scale, softcap, ..attention.scores };
        let attention = SelfAttention { scores, qkv_bias: bias, output_bias: bias, ..attention };
        standard.layer(attention, mlp.clone()).with_norms(norms)
    };
    let layers = standard.windows(fields, |layer| layer.is_multiple_of(2))?.into_iter().map(layer).collect();
    let embedding_scale = embedding_scale(fields, standard.hidden)?;
    let decoder = standard.decoder_of(layers);
    let softcap = fields.positive_or_none("final_logit_softcapping")?.map(|cap| cap as f32);
    Ok(DecoderSpec { embedding_scale, head: Head { softcap, ..decoder.head }, ..decoder })
}
