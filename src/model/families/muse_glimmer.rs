//! Muse Glimmer: embeddings, queries and keys that are normalized without weights, norms around both parts, windows and a rotary embedding in
//! three of four layers counted from the last, a gate of what attention computed, a factor and a cap of the logits.

use super::{Family, gemma2};
use crate::fields::Fields;
use crate::names::{AttentionNames, Names};
use crate::rope::Rope;
use crate::spec::{
    Bias, DecoderSpec, GatedMlp, Head, LayerSpec, Norm, NormOrder, NormWeight, OutputGate, QkNorm, SelfAttention,
    SublayerNorms,
};
use crate::standard::{Standard, activation, max_position_embeddings};
use base::error::Result;
use compute::AttentionSpec;
use serde_json::{Value, json};

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

/// Every layer of this number, counted from the last, has neither a window nor a rotary embedding where the config is silent.
const INTERVAL: usize = 4;

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let rope = Rope::from_config(fields, max_position_embeddings(fields)?)?;
    let theta = rope.theta;
    let standard = Standard::with_ropes(fields, vec![rope])?;
    let bias = fields.bias("attention_bias")?;
    let by_default = |layer: usize| !(standard.layers - 1 - layer).is_multiple_of(INTERVAL);
    let rotated = rotated_layers(fields, theta, standard.layers, by_default)?;
    let windows = standard.windows(fields, by_default)?;

    let without_weights = Norm { weight: NormWeight::Ones, ..standard.norm };
    let before = Norm { weight: NormWeight::PlusOne, ..standard.norm };
    let after = Norm { eps: fields.factor("post_norm_eps")?, ..before };
    let norms = SublayerNorms { before: Some(before), after: Some(after) };
    let qk_norm = QkNorm::PerHead { norm: without_weights, order: NormOrder::BeforeRope };
    let qk_scale = fields.factor("qk_scale_factor")?;
    let mlp = GatedMlp { activation: activation(fields, "hidden_activation")?, ..standard.mlp(Bias::None) };
    let layer = |(window, rotates): (Option<usize>, bool)| {
        let attention = standard.attention(standard.shared_width());
        // A factor of the queries is one of the scores.
        let scores = AttentionSpec { window, scale: qk_scale * attention.scores.scale, ..attention.scores };
        let attention = SelfAttention {
            scores,
            rope: attention.rope.filter(|_| rotates),
            qk_norm,
            qkv_bias: bias,
            output_bias: bias,
            output_gate: OutputGate::Sigmoid,
            ..attention
        };
        LayerSpec { mixer_norms: norms, feed_forward_norms: norms, ..standard.layer(attention, mlp.clone()) }
    };
    let layers = windows.into_iter().zip(rotated).map(layer).collect();
    let decoder = standard.decoder_of(layers);
    let softcap = Some(fields.factor("final_logit_softcapping")?);
    let head = Head { scale: fields.factor("output_multiplier")?, softcap, ..decoder.head };
    Ok(DecoderSpec { embedding_norm: Some(without_weights), head, ..decoder })
}

/// Which layers have a rotary embedding: those whose entry of `layer_rope_theta` is not 0, or else those of `by_default`.
///
/// The class reads an entry as a flag: each layer that rotates does so with `rope_theta`.
fn rotated_layers(fields: Fields, theta: f64, layers: usize, by_default: impl Fn(usize) -> bool) -> Result<Vec<bool>> {
    let Some(list) = fields.get("layer_rope_theta") else { return Ok((0..layers).map(by_default).collect()) };
    let bases = list.as_array().filter(|list| list.len() == layers);
    let base = |value: &Value| value.as_f64().filter(|&base| base >= 0.0);
    let bases: Option<Vec<f64>> = bases.and_then(|list| list.iter().map(base).collect());
    let bases = bases.ok_or_else(|| {
        fields.refuse(format!(
            "layer_rope_theta must be a list of numbers of at least 0, one for each of the {layers} layers"
        ))
    })?;
    if let Some(layer) = bases.iter().position(|&base| base != 0.0 && base != theta) {
        fields.warn(format_args!(
            "layer_rope_theta is {} in layer {layer}, which rotates with rope_theta, {theta}, as in transformers",
            bases[layer]
        ));
    }
    Ok(bases.iter().map(|&base| base != 0.0).collect())
}
