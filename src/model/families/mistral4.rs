//! Mistral 4: latent attention as in DeepSeek-V3, whose queries grow with their position, and mixtures of experts that are chosen by a softmax.

use super::{Family, deepseek_v3, glm4_moe};
use crate::fields::Fields;
use crate::mixture;
use crate::rope::{PositionSettings, RopeDefaults};
use crate::spec::{DecoderSpec, Experts, FeedForward, Router, SelfAttention};
use crate::standard::{Standard, max_position_embeddings, rope_fields};
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Mistral Small 4",
    classes: &["Mistral4ForCausalLM"],
    model_type: "mistral4",
    defaults: || {
        json!({
            "vocab_size": 131_072, "hidden_size": 4096, "intermediate_size": 12288, "moe_intermediate_size": 2048,
            "num_hidden_layers": 36, "num_attention_heads": 32, "n_shared_experts": 1, "n_routed_experts": 128,
            "routed_scaling_factor": 1.0, "kv_lora_rank": 256, "q_lora_rank": 1024, "qk_rope_head_dim": 64, "v_head_dim": 128,
            "qk_nope_head_dim": 64, "num_experts_per_tok": 4, "norm_topk_prob": true, "rope_interleave": true,
            "max_position_embeddings": 1_048_576,
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 10_000.0, "factor": 128.0, "original_max_position_embeddings": 8192,
                "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0, "mscale": 1.0, "llama_4_scaling_beta": 0.1,
            },
        })
    },
    ignores: deepseek_v3::IGNORED,
    names: &deepseek_v3::NAMES,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let PositionSettings { rope, temperature } = positions(fields)?;
    let standard = Standard::with_ropes(fields, vec![rope])?;
    let attention = SelfAttention { temperature, ..deepseek_v3::attention(fields, &standard)? };
    let sparse = deepseek_v3::first_dense_layers(fields, 0, standard.layers)?;
    let experts = FeedForward::Experts(experts(fields, &standard)?);
    deepseek_v3::decoder_of(standard, attention, &sparse, &experts)
}

/// The rotation, and how queries grow, which a number of 0 switches off.
fn positions(fields: Fields) -> Result<PositionSettings> {
    let defaults = RopeDefaults { pairing: deepseek_v3::pairing(fields)?, ..RopeDefaults::default() };
    let found = PositionSettings::read(fields, max_position_embeddings(fields)?, defaults)?;
    if rope_fields(fields)?.is_none_or(|rope| rope.get("llama_4_scaling_beta").is_none()) {
        return Err(fields.refuse("llama_4_scaling_beta is missing from rope_parameters".into()));
    }
    let latent = deepseek_v3::latent(fields)?;
    let rotary = (latent.key() as f64 * found.rope.rotary_factor) as usize;
    // Where it is left out, the numbers of a head that are there to be rotated turn.
    if found.rope.rotary_factor != 1.0 && rotary != latent.rope {
        return Err(fields.refuse(format!(
            "partial_rotary_factor is {}, which is {rotary} of the {} numbers of a key, but must be qk_rope_head_dim, {}",
            found.rope.rotary_factor,
            latent.key(),
            latent.rope
        )));
    }
    Ok(PositionSettings { rope: deepseek_v3::first_numbers(found.rope, &latent), ..found })
}

fn experts(fields: Fields, standard: &Standard) -> Result<Experts> {
    let norm = (fields.flag("norm_topk_prob")? == Some(true)).then_some(1e-20);
    let router = mixture::router(fields, &["n_routed_experts"])?;
    let groups = glm4_moe::groups(fields, &router, 2)?;
    let scale = fields.factor("routed_scaling_factor")?;
    glm4_moe::mlps(fields, standard, Router { groups, norm, scale, ..router }, glm4_moe::COUNTS[1])
}
