//! Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: the standard decoder with fused projections, whose heads may rotate in part, by factors that
//! depend on the length of the context, and which may have a window in every layer.

use super::Family;
use crate::fields::Fields;
use crate::names::{AttentionNames, FUSED_GATE_UP, FUSED_QKV, LLAMA, MlpNames, Names};
use crate::rope::{Rope, RopeScaling};
use crate::spec::{Bias, DecoderSpec, SelfAttention};
use crate::standard::{Standard, partial_rope};
use base::error::{Error, Result};
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Phi-3, Phi-3.5-mini, Phi-4, Phi-4-mini",
    classes: &["Phi3ForCausalLM"],
    model_type: "phi3",
    defaults: || json!({"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096}),
    // Of other programs for the same models: they say what holds for all of them.
    ignores: &["full_attn_mod", "interpolate_factor"],
    names: &Names {
        attention: AttentionNames { qkv: FUSED_QKV, ..LLAMA.attention },
        mlp: MlpNames { gate_up: FUSED_GATE_UP, ..LLAMA.mlp },
        ..LLAMA
    },
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::with_ropes(fields, vec![rope(fields)?])?;
    for bias in ["attention_bias", "mlp_bias", "lm_head_bias"] {
        fields.must_be(bias, false)?;
    }
    let attention = standard.attention(standard.shared_width());
    let scores = AttentionSpec { window: fields.count_or_none("sliding_window")?, ..attention.scores };
    let mlp = standard.mlp(Bias::None);
    Ok(standard.decoder(SelfAttention { scores, ..attention }, mlp))
}

fn rope(fields: Fields) -> Result<Rope> {
    let rope = partial_rope(fields)?;
    match rope.scaling {
        RopeScaling::None | RopeScaling::LongRope { .. } => Ok(rope),
        // transformers takes yarn for longrope in this class.
        _ => Err(Error::UnsupportedModel {
            setting: "rope_scaling",
            value: "neither default nor longrope".into(),
            supported: "default or longrope in a model of this class",
        }),
    }
}
