//! Muse Glimmer: norms without weights of embeddings, queries and keys, four norms a layer, a factor of the queries, which is one of the scores, a gate
//! of what attention computed, a scaled and capped head. All layers but every fourth, counted from the last, have a window and rotate.

use super::{Family, gemma2};
use crate::fields::Fields;
use crate::names::{AttentionNames, Names};
use crate::spec::{Bias, SelfAttention, SublayerNorms};
use crate::spec::{DecoderSpec, Head, Mlp, MlpForm, Norm, NormOrder, NormWeight, OutputGate, QkNorm};
use crate::standard::{Standard, activation};
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Muse Glimmer, its decoder alone",
    classes: &["MuseGlimmerTextModel"],
    model_type: "muse_glimmer_text",
    defaults: || {
        json!({
            "vocab_size": 202048, "hidden_size": 6656, "intermediate_size": 19968, "num_hidden_layers": 52,
            "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-5, "post_norm_eps": 1e-8, "sliding_window": 2048, "qk_scale_factor": 3.87,
            "output_multiplier": 0.19611613513818404, "final_logit_softcapping": 20.0
        })
    },
    ignores: &["hidden_act"],
    names: &Names {
        attention: AttentionNames { gate: "self_attn.gate_proj", ..gemma2::NAMES.attention },
        ..gemma2::NAMES
    },
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let by_default = |layer: usize| !(standard.layers - 1 - layer).is_multiple_of(4);
    let rotated = standard.rotated_by_base(fields, by_default)?;
    let windows = standard.windows(fields, by_default)?;
    let bias = fields.bias("attention_bias")?;
    let before = Norm { weight: NormWeight::PlusOne, ..standard.norm };
    let norms = SublayerNorms {
        sum: None,
        before: Some(before),
        after: Some(Norm { eps: fields.factor("post_norm_eps")?, ..before }),
    };
    let without_weights = Norm { weight: NormWeight::Ones, ..standard.norm };
    let qk_norm = QkNorm::PerHead { norm: without_weights, order: NormOrder::BeforeRope };
    let qk_scale = fields.factor("qk_scale_factor")?;
    let mlp = Mlp { form: MlpForm::gated(activation(fields, "hidden_activation")?), ..standard.mlp(Bias::None) };
    let layer = |(window, rotates): (Option<usize>, bool)| {
        let attention = standard.attention(standard.shared_width());
        let scores = AttentionSpec { window, scale: qk_scale * attention.scores.scale, ..attention.scores };
        let (rope, output_gate) = (attention.rope.filter(|_| rotates), OutputGate::Sigmoid);
        let biased = SelfAttention { qkv_bias: bias, output_bias: bias, ..attention };
        let attention = SelfAttention { scores, rope, qk_norm, output_gate, ..biased };
        standard.layer(attention, mlp.clone()).with_norms(norms)
    };
    let layers = windows.into_iter().zip(rotated).map(layer).collect();
    let decoder = standard.decoder_of(layers);
    let softcap = Some(fields.factor("final_logit_softcapping")?);
    let head = Head { scale: fields.factor("output_multiplier")?, softcap, ..decoder.head };
    Ok(DecoderSpec { embedding_norm: Some(without_weights), head, ..decoder })
}
