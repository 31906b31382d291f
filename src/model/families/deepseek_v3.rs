//! DeepSeek-V3: latent attention, MLPs in the first layers, and then mixtures of experts as in GLM-4.5.

use super::{Family, glm4_moe};
use crate::fields::Fields;
use crate::mixture;
use crate::names::{AttentionNames, LLAMA, LatentNames, LatentUpNames, Names};
use crate::rope::{Rope, RopeDefaults, RopeScaling, sharpness};
use crate::spec::{Bias, DecoderSpec, FeedForward, Latent, Norm, SelfAttention};
use crate::standard::{Standard, rope_fields, rope_with_defaults};
use base::error::{Error, Result};
use compute::Pairing;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "DeepSeek-V3, V3.1, R1, Moonlight-16B-A3B",
    classes: &["DeepseekV3ForCausalLM"],
    model_type: "deepseek_v3",
    defaults: || {
        json!({
            "n_shared_experts": 1, "n_routed_experts": 256, "routed_scaling_factor": 2.5, "kv_lora_rank": 512,
            "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128, "n_group": 8,
            "topk_group": 4, "num_experts_per_tok": 8, "norm_topk_prob": true, "rope_interleave": true,
            "moe_intermediate_size": 2048
        })
    },
    ignores: IGNORED,
    names: &NAMES,
    spec,
};

/// The layers that predict further tokens are left aside. Heads have the sizes of latent attention, and all share what is cached.
pub const IGNORED: &[&str] =
    &["num_nextn_predict_layers", "num_mtp_layers", "head_dim", "qk_head_dim", "num_key_value_heads"];

pub const NAMES: Names = Names {
    attention: AttentionNames {
        latent: LatentNames {
            query_down: "self_attn.q_a_proj",
            query_norm: "self_attn.q_a_layernorm",
            query_up: "self_attn.q_b_proj",
            query: "self_attn.q_proj",
            down: "self_attn.kv_a_proj_with_mqa",
            norm: "self_attn.kv_a_layernorm",
            up: LatentUpNames::ByHead("self_attn.kv_b_proj"),
        },
        ..LLAMA.attention
    },
    ..glm4_moe::NAMES
};

/// Added to the mean of squares of latents, whatever `rms_norm_eps` is.
const LATENT_EPS: f32 = 1e-6;

fn spec(fields: Fields) -> Result<DecoderSpec> {
    fields.must_say("scoring_func", "sigmoid")?;
    fields.must_say("topk_method", "noaux_tc")?;
    let standard = Standard::with_ropes(fields, vec![rope(fields)?])?;
    let dense = first_dense_layers(fields, 3, standard.layers)?;
    let experts = FeedForward::Experts(glm4_moe::experts(fields, &standard, glm4_moe::COUNTS)?);
    decoder(fields, standard, dense, &experts)
}

/// A decoder with latent attention, and experts in the layers that are `sparse`.
pub fn decoder(fields: Fields, standard: Standard, sparse: Vec<bool>, experts: &FeedForward) -> Result<DecoderSpec> {
    let attention = attention(fields, &standard)?;
    decoder_of(standard, attention, &sparse, experts)
}

/// The same with this attention.
pub fn decoder_of(
    standard: Standard,
    attention: SelfAttention,
    sparse: &[bool],
    experts: &FeedForward,
) -> Result<DecoderSpec> {
    let layer = standard.layer(attention, standard.mlp(Bias::None));
    let layers = mixture::with_experts(vec![layer; standard.layers], sparse, experts);
    Ok(standard.decoder_of(layers))
}

/// Which layers have experts: those behind the first ones.
pub fn first_dense_layers(fields: Fields, by_default: usize, layers: usize) -> Result<Vec<bool>> {
    if let Some(every) = fields.count_or_none("moe_layer_freq")?.filter(|&every| every != 1) {
        return Err(Error::UnsupportedModel { setting: "moe_layer_freq", value: every.to_string(), supported: "1" });
    }
    let dense = mixture::first_dense_layers(fields, "first_k_dense_replace", by_default, layers)?;
    Ok((0..layers).map(|layer| layer >= dense).collect())
}

/// The rotation of the first numbers of each head.
pub fn rope(fields: Fields) -> Result<Rope> {
    let rope = rope_with_defaults(fields, RopeDefaults { pairing: pairing(fields)?, ..RopeDefaults::default() })?;
    Ok(first_numbers(rope, &latent(fields)?))
}

/// Which numbers turn together.
pub fn pairing(fields: Fields) -> Result<Pairing> {
    let neighbours = fields.flag("rope_interleave")? != Some(false);
    Ok(if neighbours { Pairing::Neighbours } else { Pairing::Halves })
}

/// The same rotation of those numbers of a key of the cache that turn.
pub fn first_numbers(rope: Rope, latent: &Latent) -> Rope {
    // The share of a head is rounded down to the numbers that turn.
    Rope { rotary_factor: (latent.rope as f64 + 0.5) / latent.head_dim() as f64, ..rope }
}

/// The sizes of latent attention.
pub fn latent(fields: Fields) -> Result<Latent> {
    let of_head = |name: &'static str| match fields.count(name)? {
        count if count.is_multiple_of(8) => Ok(count),
        count => {
            let supported = "a multiple of 8";
            Err(Error::UnsupportedModel { setting: name, value: count.to_string(), supported })
        }
    };
    Ok(Latent {
        query_rank: fields.count_or_none("q_lora_rank")?,
        rank: of_head("kv_lora_rank")?,
        nope: of_head("qk_nope_head_dim")?,
        rope: of_head("qk_rope_head_dim")?,
        value: of_head("v_head_dim")?,
        norm: Norm::rms(LATENT_EPS),
    })
}

/// Latent attention, whose scores YaRN sharpens by the square of what `mscale_all_dim` says.
pub fn attention(fields: Fields, standard: &Standard) -> Result<SelfAttention> {
    let latent = latent(fields)?;
    let bias = fields.bias("attention_bias")?;
    let sharper = match (rope_fields(fields)?, &standard.ropes()[0].scaling) {
        (Some(scaling), RopeScaling::Yarn { factor, .. }) => {
            scaling.get("mscale_all_dim").and_then(|weight| weight.as_f64()).map_or(1.0, |all| sharpness(*factor, all))
        }
        _ => 1.0,
    };
    let attention = standard.attention(latent.head_dim());
    let scale = (sharper * sharper / (latent.key() as f64).sqrt()) as f32;
    Ok(SelfAttention {
        scores: compute::AttentionSpec { scale, ..attention.scores },
        kv_heads: 1,
        head_dim: latent.head_dim(),
        latent: Some(latent),
        qkv_bias: bias,
        output_bias: bias,
        ..attention
    })
}
