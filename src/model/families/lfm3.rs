//! LFM3, dense: as LFM2, with windows in some layers of attention, whose rotary embedding is another, a gate per head of what attention computed,
//! norms behind the parts too, and longer convolutions.

use super::{Family, lfm2};
use crate::fields::Fields;
use crate::names::{AttentionNames, LLAMA, Names, NormNames};
use crate::spec::{
    Bias, DecoderSpec, GatedShortConv, Mixer, NormOrder, OutputGate, QkNorm, Recurrent, SelfAttention, SublayerNorms,
};
use crate::standard::{FULL, SLIDING, Standard, ropes_of_bases};
use base::error::{Error, Result};
use compute::AttentionSpec;
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "LFM3, dense",
    classes: &["Lfm3ForCausalLM"],
    model_type: "lfm3",
    defaults: || {
        json!({
            "vocab_size": 128_000, "hidden_size": 2048, "intermediate_size": 7680, "num_hidden_layers": 24, "num_attention_heads": 16,
            "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 128_000, "norm_eps": 1e-5,
            "tie_word_embeddings": true, "conv_L_cache": 7, "sliding_window": 256, "use_sandwich_norm": true,
            "use_attention_gate": true,
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": THETA},
            },
        })
    },
    ignores: &[],
    names: &Names {
        mixer_norms: NormNames { after: "post_operator_norm", ..lfm2::NAMES.mixer_norms },
        feed_forward_norms: NormNames { after: "post_ffn_norm", ..lfm2::NAMES.feed_forward_norms },
        attention: AttentionNames { gate: "self_attn.gate_proj", ..LLAMA.attention },
        ..lfm2::NAMES
    },
    spec,
};

/// Base of a rotary embedding that is described without one.
const THETA: f64 = 1_000_000.0;

/// What a layer mixes tokens with.
#[derive(Clone, Copy)]
enum Kind {
    Conv,
    Attention { window: Option<usize> },
}

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::with_ropes(fields, ropes_of_bases(fields, [THETA; 2])?)?;
    let standard = standard.with_norm_eps(fields.factor("norm_eps")?);
    let bias = fields.bias("attention_bias")?;
    let output_gate = match fields.flag("use_attention_gate")? {
        Some(true) => OutputGate::SigmoidPerHead,
        Some(false) | None => OutputGate::None,
    };
    let norms = match fields.flag("use_sandwich_norm")? {
        Some(true) => SublayerNorms::around(standard.norm),
        Some(false) | None => SublayerNorms::before(standard.norm),
    };
    let conv = GatedShortConv { taps: fields.count("conv_L_cache")?, bias: fields.bias("conv_bias")? };
    let layer = |kind: Kind| {
        let attention = standard.attention(standard.shared_width());
        let (window, is_conv) = match kind {
            Kind::Conv => (None, true),
            Kind::Attention { window } => (window, false),
        };
        let attention = SelfAttention {
            scores: AttentionSpec { window, ..attention.scores },
            rope: Some(if window.is_some() { SLIDING } else { FULL }),
            qk_norm: QkNorm::PerHead { norm: standard.norm, order: NormOrder::BeforeRope },
            qkv_bias: bias,
            output_bias: bias,
            output_gate,
            ..attention
        };
        let layer = standard.layer(attention, standard.mlp(Bias::None)).with_norms(norms);
        if is_conv { layer.with_mixer(Mixer::Recurrent(Recurrent::ShortConv(conv.clone()))) } else { layer }
    };
    let layers = kinds(fields, standard.layers)?.into_iter().map(layer).collect();
    Ok(standard.decoder_of(layers))
}

/// What each layer is: by `layer_types`, or else two of four are convolutions.
fn kinds(fields: Fields, layers: usize) -> Result<Vec<Kind>> {
    let window = fields.count_or_none("sliding_window")?;
    let sliding = |layer: usize| match window {
        Some(_) => Ok(Kind::Attention { window }),
        None => Err(fields.refuse(format!(
            "sliding_window is missing, but layer {layer} has a window by layer_types or its default"
        ))),
    };
    let full = Kind::Attention { window: None };
    let Some(value) = fields.get("layer_types") else {
        let by_default = |layer: usize| match layer % 4 {
            2 => Ok(full),
            0 if layer > 0 => sliding(layer),
            _ => Ok(Kind::Conv),
        };
        return (0..layers).map(by_default).collect();
    };
    let types = value.as_array().filter(|types| types.len() == layers).ok_or_else(|| {
        fields.refuse(format!("layer_types must be a list with an entry for each of the {layers} layers"))
    })?;
    let kind = |(layer, kind): (usize, &Value)| match kind.as_str() {
        Some("conv") => Ok(Kind::Conv),
        Some("full_attention") => Ok(full),
        Some("sliding_attention") => sliding(layer),
        _ => Err(Error::UnsupportedModel {
            setting: "layer_types",
            value: Fields::shown(kind),
            supported: "conv, full_attention or sliding_attention",
        }),
    };
    types.iter().enumerate().map(kind).collect()
}
