//! GLM-4.7-Flash: latent attention as in DeepSeek-V3, and mixtures of experts as in GLM-4.5.

use super::{Family, deepseek_v3, glm4_moe};
use crate::fields::Fields;
use crate::spec::{DecoderSpec, FeedForward};
use crate::standard::Standard;
use base::error::Result;
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "GLM-4.7-Flash",
    classes: &["Glm4MoeLiteForCausalLM"],
    model_type: "glm4_moe_lite",
    defaults: || {
        json!({
            "rms_norm_eps": 1e-5, "n_shared_experts": 1, "n_routed_experts": 64, "routed_scaling_factor": 1.8,
            "kv_lora_rank": 512, "q_lora_rank": 768, "qk_rope_head_dim": 64, "v_head_dim": 256, "qk_nope_head_dim": 192,
            "num_experts_per_tok": 4, "norm_topk_prob": true, "rope_interleave": true, "moe_intermediate_size": 1536
        })
    },
    ignores: deepseek_v3::IGNORED,
    names: &deepseek_v3::NAMES,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    fields.must_say("topk_method", "noaux_tc")?;
    let standard = Standard::with_ropes(fields, vec![deepseek_v3::rope(fields)?])?;
    let sparse = sparse_layers(fields, standard.layers)?;
    let experts = FeedForward::Experts(glm4_moe::experts(fields, &standard, glm4_moe::COUNTS)?);
    deepseek_v3::decoder(fields, standard, sparse, &experts)
}

/// Which layers have experts: those that `mlp_layer_types` calls so, or else all behind the first.
///
/// transformers does not read `first_k_dense_replace`, which published configs have with the same meaning.
pub fn sparse_layers(fields: Fields, layers: usize) -> Result<Vec<bool>> {
    const NAME: &str = "mlp_layer_types";
    let Some(value) = fields.get(NAME) else { return deepseek_v3::first_dense_layers(fields, 1, layers) };
    let list = value.as_array().filter(|list| list.len() == layers);
    let is_sparse = |kind: &Value| match kind.as_str() {
        Some("sparse") => Some(true),
        Some("dense") => Some(false),
        _ => None,
    };
    let sparse: Option<Vec<bool>> = list.and_then(|list| list.iter().map(is_sparse).collect());
    let sparse = sparse.ok_or_else(|| {
        fields.refuse(format!("{NAME} must be a list of dense or sparse, one for each of the {layers} layers"))
    })?;
    fields.pass_over(&["first_k_dense_replace", "moe_layer_freq"]);
    Ok(sparse)
}
