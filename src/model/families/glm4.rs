//! GLM-4-0414: norms around both parts, a fused projection into the MLP, and a rotation of neighbouring numbers in half of each head.

use super::Family;
use crate::fields::Fields;
use crate::names::{FUSED_GATE_UP, LLAMA, MlpNames, Names, NormNames};
use crate::spec::{Bias, DecoderSpec, Norm, SelfAttention, SublayerNorms};
use crate::standard::{Standard, partial_rope};
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "GLM-4-0414, GLM-Z1-0414",
    classes: &["Glm4ForCausalLM"],
    model_type: "glm4",
    defaults: || {
        json!({
            "head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1.5625e-7, "partial_rotary_factor": 0.5,
            "attention_bias": true
        })
    },
    ignores: &[],
    names: &Names {
        mixer_norms: NormNames { before: "input_layernorm", after: "post_self_attn_layernorm" },
        feed_forward_norms: NormNames { before: "post_attention_layernorm", after: "post_mlp_layernorm" },
        ..GLM_NAMES
    },
    spec: |fields| decoder(fields, SublayerNorms::around),
};

/// With norms before both parts alone.
pub const GLM: Family = Family {
    models: "GLM-4-9B and GLM-Edge as transformers has them",
    classes: &["GlmForCausalLM"],
    model_type: "glm",
    names: &GLM_NAMES,
    spec: |fields| decoder(fields, SublayerNorms::before),
    ..FAMILY
};

/// The decoder of GLM-4.1V and GLM-4.6V-Flash. It always has biases, and rotates whole heads where the config does not say.
pub const VISION: Family = Family {
    models: "GLM-4.1V-9B, GLM-4.6V-Flash, their decoders alone",
    classes: &["Glm4vTextModel"],
    model_type: "glm4v_text",
    defaults: || json!({"num_key_value_heads": 2, "rms_norm_eps": 1e-5, "attention_bias": true}),
    ..FAMILY
};

const GLM_NAMES: Names = Names { mlp: MlpNames { gate_up: FUSED_GATE_UP, ..LLAMA.mlp }, ..LLAMA };

fn decoder(fields: Fields, norms: impl Fn(Norm) -> SublayerNorms) -> Result<DecoderSpec> {
    let standard = Standard::with_ropes(fields, vec![partial_rope(fields)?])?.with_neighbours();
    let attention = standard.attention(standard.shared_width());
    let attention = SelfAttention { qkv_bias: fields.bias("attention_bias")?, ..attention };
    let layer = standard.layer(attention, standard.mlp(Bias::None));
    let layers = vec![layer.with_norms(norms(standard.norm)); standard.layers];
    Ok(standard.decoder_of(layers))
}
