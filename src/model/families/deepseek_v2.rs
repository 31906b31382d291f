//! DeepSeek-V2: latent attention as in DeepSeek-V3, and experts that are chosen by a softmax, of the groups with the best expert where there are groups.

use super::{Family, deepseek_v3, glm4_moe};
use crate::fields::Fields;
use crate::mixture;
use crate::spec::{DecoderSpec, Experts, FeedForward, Router, Scores};
use crate::standard::Standard;
use base::error::{Error, Result};
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "DeepSeek-V2, V2-Lite, DeepSeek-Coder-V2",
    classes: &["DeepseekV2ForCausalLM"],
    model_type: "deepseek_v2",
    defaults: || {
        json!({
            "n_shared_experts": 2, "n_routed_experts": 64, "routed_scaling_factor": 1.0, "kv_lora_rank": 512,
            "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
            "moe_intermediate_size": 1407, "topk_method": "greedy"
        })
    },
    ignores: deepseek_v3::IGNORED,
    names: &deepseek_v3::NAMES,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    fields.must_say("scoring_func", "softmax")?;
    // transformers does not divide the weights, whatever the field says.
    fields.must_be("norm_topk_prob", false)?;
    fields.must_be("mlp_bias", false)?;
    fields.must_be("rope_interleave", true)?;
    let standard = Standard::with_ropes(fields, vec![deepseek_v3::rope(fields)?])?;
    let dense = deepseek_v3::first_dense_layers(fields, 0, standard.layers)?;
    let experts = FeedForward::Experts(experts(fields, &standard)?);
    deepseek_v3::decoder(fields, standard, dense, &experts)
}

fn experts(fields: Fields, standard: &Standard) -> Result<Experts> {
    let router = mixture::router(fields, &["n_routed_experts"])?;
    let groups = match fields.text("topk_method")? {
        Some("greedy") => {
            fields.pass_over(&["n_group", "topk_group"]);
            None
        }
        Some("group_limited_greedy") => glm4_moe::groups(fields, &router, 1)?,
        other => {
            let value = other.unwrap_or("null").chars().take(60).collect();
            let supported = "greedy or group_limited_greedy in a model of this class";
            return Err(Error::UnsupportedModel { setting: "topk_method", value, supported });
        }
    };
    let scale = fields.factor("routed_scaling_factor")?;
    let router = Router { scores: Scores::Softmax, groups, norm: None, scale, ..router };
    glm4_moe::mlps(fields, standard, router, glm4_moe::COUNTS[1])
}
