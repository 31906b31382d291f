//! Which settings of a config.json change what a model computes, and does its family compute that?
//!
//! A config says far more than a family reads, and most of it is for training or for other programs. The settings listed here are not: a
//! model that has one of them computes something else than its class says, whether it was made so or was given the name of
//! another class. Invariant: a setting of this table that the family does not read is absent, null or neutral.

use crate::error::{Error, Result};
use crate::model::families::Family;
use crate::model::fields::Fields;
use serde_json::Value;

/// Under which values a setting changes nothing, besides `null` and absence.
enum Neutral {
    /// None.
    Absence,
    /// `false`.
    False,
    /// 1.
    One,
    /// `true`.
    True,
    /// `"silu"`.
    Silu,
    /// A list of nothing else than `"full_attention"`.
    FullAttention,
    /// A list of nothing else than 1.
    OneInEveryLayer,
    /// Any value where `use_sliding_window` is `false`.
    WindowOff,
}

/// The settings, and the models that they come from.
const SETTINGS: &[(&str, Neutral)] = &[
    // The activation of the MLP. Gemma has it under the second name.
    ("hidden_act", Neutral::Silu),
    ("hidden_activation", Neutral::Silu),
    // Which tokens attend to which: Mistral, Phi-3, Qwen2, Gemma, Llama 4.
    ("use_sliding_window", Neutral::False),
    ("sliding_window", Neutral::WindowOff),
    ("sliding_window_pattern", Neutral::Absence),
    ("_sliding_window_pattern", Neutral::Absence),
    ("interleaved_sliding_window", Neutral::Absence),
    ("layer_types", Neutral::FullAttention),
    ("attention_chunk_size", Neutral::Absence),
    ("use_bidirectional_attention", Neutral::False),
    ("is_causal", Neutral::True),
    // Scores: Gemma 2, Llama 4, OLMo.
    ("query_pre_attn_scalar", Neutral::Absence),
    ("attn_logit_softcapping", Neutral::Absence),
    ("attn_temperature_tuning", Neutral::False),
    ("clip_qkv", Neutral::Absence),
    // Scales: Granite, Falcon-H1, MiniCPM, Cohere.
    ("attention_multiplier", Neutral::Absence),
    ("embedding_multiplier", Neutral::One),
    ("residual_multiplier", Neutral::One),
    ("logits_scaling", Neutral::One),
    ("attention_in_multiplier", Neutral::One),
    ("attention_out_multiplier", Neutral::One),
    ("key_multiplier", Neutral::One),
    ("lm_head_multiplier", Neutral::One),
    ("scale_emb", Neutral::One),
    ("scale_depth", Neutral::Absence),
    ("dim_model_base", Neutral::Absence),
    ("logit_scale", Neutral::One),
    ("final_logit_softcapping", Neutral::Absence),
    // Positions: SmolLM3, Gemma 3, GPT-NeoX, Falcon, GLM. `partial_rotary_factor` is read with the rope.
    ("no_rope_layers", Neutral::OneInEveryLayer),
    ("no_rope_layer_interval", Neutral::Absence),
    ("rope_local_base_freq", Neutral::Absence),
    ("rotary_pct", Neutral::One),
    ("rotary_dim", Neutral::Absence),
    ("rope_interleave", Neutral::False),
    ("rope_interleaved", Neutral::False),
    ("alibi", Neutral::False),
    // The order of the parts of a layer: Falcon, GPT-NeoX, ChatGLM.
    ("parallel_attn", Neutral::False),
    ("use_parallel_residual", Neutral::False),
    ("apply_residual_connection_post_layernorm", Neutral::False),
    // An older name of quantization_config.
    ("compression_config", Neutral::Absence),
];

/// Refuses a setting that changes what is computed and that `family` does not read.
///
/// # Errors
///
/// [`Error::UnsupportedModel`] that names the setting, and [`Error::ModelFile`] for one of the wrong type.
pub fn refuse_unread(fields: Fields, family: &Family) -> Result<()> {
    for (name, neutral) in SETTINGS.iter().filter(|(name, _)| !family.reads.contains(name)) {
        let Some(value) = fields.get(name) else { continue };
        if !neutral.holds(fields, name, value)? {
            let supported = neutral.words();
            return Err(Error::UnsupportedModel { setting: name, value: Fields::shown(value), supported });
        }
    }
    Ok(())
}

impl Neutral {
    fn holds(&self, fields: Fields, name: &str, value: &Value) -> Result<bool> {
        Ok(match self {
            Neutral::Absence => false,
            Neutral::False => fields.flag(name)? == Some(false),
            Neutral::One => value.as_f64() == Some(1.0),
            Neutral::True => fields.flag(name)? == Some(true),
            Neutral::Silu => fields.text(name)? == Some("silu"),
            Neutral::FullAttention => in_every_layer(value, |entry| entry.as_str() == Some("full_attention")),
            Neutral::OneInEveryLayer => in_every_layer(value, |entry| entry.as_u64() == Some(1)),
            Neutral::WindowOff => fields.flag("use_sliding_window")? == Some(false),
        })
    }

    fn words(&self) -> &'static str {
        match self {
            Neutral::Absence => "absent in a model of this class",
            Neutral::False => "false in a model of this class",
            Neutral::One => "1 in a model of this class",
            Neutral::True => "true in a model of this class",
            Neutral::Silu => "silu",
            Neutral::FullAttention => "full_attention in every layer",
            Neutral::OneInEveryLayer => "1 in every layer of a model of this class",
            Neutral::WindowOff => "absent in a model of this class, or use_sliding_window false",
        }
    }
}

fn in_every_layer(value: &Value, holds: impl Fn(&Value) -> bool) -> bool {
    value.as_array().is_some_and(|entries| entries.iter().all(holds))
}
