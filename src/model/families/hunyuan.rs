//! Hunyuan, dense: the standard decoder, whose queries and keys are normalized after the rotation.

use super::Family;
use crate::fields::{Fields, is_positive};
use crate::names::{AttentionNames, LLAMA, Names};
use crate::rope::{Rope, RopeScaling};
use crate::spec::{Bias, DecoderSpec, LayerSpec, NormOrder, QkNorm, SelfAttention};
use crate::standard::{Standard, max_position_embeddings, rope_fields};
use base::error::Result;
use compute::Pairing;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Hunyuan, dense",
    classes: &["HunYuanDenseV1ForCausalLM"],
    model_type: "hunyuan_v1_dense",
    defaults: || json!({"rms_norm_eps": 1e-5, "rope_theta": 10000.0}),
    ignores: &["attention_head_dim"],
    names: &NAMES,
    spec,
};

/// The names of the models with experts, too.
pub const NAMES: Names = Names {
    attention: AttentionNames {
        query_norm: "self_attn.query_layernorm",
        key_norm: "self_attn.key_layernorm",
        ..LLAMA.attention
    },
    ..LLAMA
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let (standard, layer) = layer(fields)?;
    let layers = vec![layer; standard.layers];
    Ok(standard.decoder_of(layers))
}

/// A layer with an MLP.
pub fn layer(fields: Fields) -> Result<(Standard, LayerSpec)> {
    let standard = Standard::with_ropes(fields, vec![rope(fields)?])?;
    fields.must_be("use_qk_norm", true)?;
    fields.must_be("mlp_bias", false)?;
    let bias = fields.bias("attention_bias")?;
    let attention = SelfAttention {
        qk_norm: QkNorm::PerHead { norm: standard.norm, order: NormOrder::AfterRope },
        qkv_bias: bias,
        output_bias: bias,
        ..standard.attention(standard.shared_width())
    };
    let layer = standard.layer(attention, standard.mlp(Bias::None));
    Ok((standard, layer))
}

/// Published models scale the base of the rotation by `alpha`, whatever the length of a context, and call that dynamic.
fn rope(fields: Fields) -> Result<Rope> {
    let plain = || Rope::from_config(fields, max_position_embeddings(fields)?);
    let Some(scaling) = rope_fields(fields)?.filter(|rope| rope.get("alpha").is_some()) else { return plain() };
    if ![scaling.text("rope_type")?, scaling.text("type")?].contains(&Some("dynamic")) {
        return plain();
    }
    let head_dim = fields.count("head_dim")? as f64;
    let base = scaling.positive_or_none("rope_theta")?.map_or_else(|| fields.positive("rope_theta"), Ok)?;
    let theta = base * scaling.positive("alpha")?.powf(head_dim / (head_dim - 2.0));
    if !(theta as f32 > 1.0 && is_positive(theta)) {
        return Err(fields.refuse(format!("alpha makes a base of {theta} of rope_theta, which is {base}")));
    }
    scaling.pass_over(&["factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"]);
    Ok(Rope { theta, scaling: RopeScaling::None, rotary_factor: 1.0, pairing: Pairing::Halves })
}
