//! The keys that files of models with experts have besides those that all share.

use super::{
    QKV_BIASES, biases_of_attention, ernie_fields, exaone4_fields, granite_fields, lfm2_fields, mistral_fields,
    qwen3_5_fields,
};
use crate::gguf::config::Config;
use base::error::Result;
use serde_json::Value;

/// How many experts there are, and how many compute a token. llama.cpp scales weights only by a key of some families.
fn experts(config: &mut Config) -> Result<()> {
    config.set("num_experts", config.keys.count("expert_count")?);
    config.set("num_experts_per_tok", config.keys.count("expert_used_count")?);
    Ok(())
}

pub fn mixtral_fields(config: &mut Config) -> Result<()> {
    experts(config)?;
    mistral_fields(config)
}

/// llama.cpp has experts in every layer and does not divide their weights.
pub fn qwen2_moe_fields(config: &mut Config) -> Result<()> {
    experts(config)?;
    for (key, field) in [
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("expert_shared_feed_forward_length", "shared_expert_intermediate_size"),
    ] {
        config.set(field, config.keys.count(key)?);
    }
    config.set("norm_topk_prob", false);
    config.set_bias("qkv_bias", QKV_BIASES);
    Ok(())
}

pub fn granite_moe_fields(config: &mut Config) -> Result<()> {
    config.set("num_local_experts", config.keys.count("expert_count")?);
    config.set("num_experts_per_tok", config.keys.count("expert_used_count")?);
    let shared = config.positive("expert_shared_feed_forward_length")?.unwrap_or(0.0);
    config.set("shared_intermediate_size", shared as u64);
    granite_fields(config)
}

/// llama.cpp divides the weights of experts by their sum.
pub fn minimax_m2_fields(config: &mut Config) -> Result<()> {
    gating(config, SIGMOIDS)?;
    config.set("num_local_experts", config.keys.count("expert_count")?);
    config.set("num_experts_per_tok", config.keys.count("expert_used_count")?);
    config.set("intermediate_size", config.keys.count("expert_feed_forward_length")?);
    Ok(())
}

pub fn dots1_fields(config: &mut Config) -> Result<()> {
    config.set("sliding_window", Value::Null);
    sigmoid_experts_and_shared(config, "first_k_dense_replace", "n_shared_experts")?;
    config.set("n_routed_experts", config.keys.count("expert_count")?);
    config.remove("num_experts");
    biases_of_attention(config)
}

pub fn exaone_moe_fields(config: &mut Config) -> Result<()> {
    sigmoid_experts_and_shared(config, "first_k_dense_replace", "num_shared_experts")?;
    exaone4_fields(config)
}

/// llama.cpp multiplies the embeddings by the root of their width.
pub fn afmoe_fields(config: &mut Config) -> Result<()> {
    sigmoid_experts_and_shared(config, "num_dense_layers", "num_shared_experts")?;
    let normed = config.keys.flag("expert_weights_norm")?.unwrap_or(false);
    config.set("route_norm", normed);
    config.remove("norm_topk_prob");
    config.set("route_scale", config.positive("expert_weights_scale")?.unwrap_or(1.0));
    config.remove("routed_scaling_factor");
    config.set("mup_enabled", true);
    config.read_windows(4)?;
    biases_of_attention(config)
}

/// llama.cpp divides the weights of experts by their sum.
pub fn hunyuan_moe_fields(config: &mut Config) -> Result<()> {
    config.set("num_experts", config.keys.count("expert_count")?);
    config.set("moe_topk", config.keys.count("expert_used_count")?);
    biases_of_attention(config)
}

/// The same as [`sigmoid_experts`], with a scale, groups, and the number of experts that compute all tokens.
fn sigmoid_experts_and_shared(config: &mut Config, dense: &str, shared: &str) -> Result<()> {
    sigmoid_experts(config, dense)?;
    config.set(shared, config.keys.count("expert_shared_count")?);
    config.set("norm_topk_prob", config.keys.flag("expert_weights_norm")?.unwrap_or(false));
    expert_scale_and_groups(config);
    Ok(())
}

/// llama.cpp has experts in every layer and divides their weights by their sum.
pub fn qwen3_moe_fields(config: &mut Config) -> Result<()> {
    experts(config)?;
    config.set("moe_intermediate_size", config.keys.count("expert_feed_forward_length")?);
    config.set("norm_topk_prob", true);
    biases_of_attention(config)
}

/// llama.cpp does not divide the weights of experts.
pub fn olmoe_fields(config: &mut Config) -> Result<()> {
    experts(config)?;
    config.set("norm_topk_prob", false);
    biases_of_attention(config)
}

/// What an `expert_gating_func` of sigmoids is.
const SIGMOIDS: u64 = 2;
/// And one of softmaxes.
const SOFTMAXES: u64 = 1;

/// Sets the width of experts, and how many of the first layers have none, and refuses experts that are not scored by sigmoids.
fn sigmoid_experts(config: &mut Config, dense: &str) -> Result<()> {
    experts(config)?;
    config.set("moe_intermediate_size", config.keys.count("expert_feed_forward_length")?);
    let layers = config.keys.get("leading_dense_block_count").cloned();
    config.set(dense, layers.unwrap_or_else(|| 0.into()));
    match config.keys.get("expert_gating_func").map(Value::as_u64) {
        Some(Some(SIGMOIDS)) => Ok(()),
        _ => Err(config.keys.refuse(format!("expert_gating_func must be {SIGMOIDS} in a file of this architecture"))),
    }
}

pub fn glm4_moe_fields(config: &mut Config) -> Result<()> {
    sigmoid_experts_and_shared(config, "first_k_dense_replace", "n_shared_experts")?;
    config.set("n_routed_experts", config.keys.count("expert_count")?);
    config.remove("num_experts");
    config.set_bias("use_qk_norm", &["attn_q_norm.weight"]);
    biases_of_attention(config)
}

/// Latent attention. Files of llama.cpp before May 2025 have the heads that it is computed with under the keys that all share.
fn latent(config: &mut Config) -> Result<()> {
    let keys = config.keys;
    let of_head = |now: &str, before: &str| match keys.count_or_none(now)? {
        Some(count) => Ok(count),
        None => keys.count(before),
    };
    let key = of_head("attention.key_length_mla", "attention.key_length")?;
    let (rope, rank) = (keys.count("rope.dimension_count")?, keys.count("attention.kv_lora_rank")?);
    if rope >= key {
        return Err(
            keys.refuse(format!("rope.dimension_count is {rope}, but must be less than a key, which has {key}"))
        );
    }
    config.set("qk_rope_head_dim", rope);
    config.set("qk_nope_head_dim", key - rope);
    config.set("v_head_dim", of_head("attention.value_length_mla", "attention.value_length")?);
    config.set("kv_lora_rank", rank);
    config.set("q_lora_rank", keys.count_or_none("attention.q_lora_rank")?);
    config.set_bias("attention_bias", &["attn_kv_a_mqa.bias"]);
    ["head_dim", "partial_rotary_factor"].iter().for_each(|field| config.remove(field));
    // Its key has a tenth of the number that other architectures have under it, and both numbers of a folder are the same. 0 is none, as in folders.
    if let Some(tenth) = config.positive("rope.scaling.yarn_log_multiplier")? {
        let rope = config.rope_scaling();
        for field in ["mscale", "mscale_all_dim"] {
            rope.insert(field.into(), (10.0 * tenth).into());
        }
    }
    Ok(())
}

/// The experts of a model with latent attention.
fn deepseek_experts(config: &mut Config) -> Result<()> {
    for (key, field) in [
        ("expert_count", "n_routed_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("expert_shared_count", "n_shared_experts"),
    ] {
        config.set(field, config.keys.count(key)?);
    }
    let dense = config.keys.get("leading_dense_block_count").cloned();
    config.set("first_k_dense_replace", dense.unwrap_or_else(|| 0.into()));
    config.set("routed_scaling_factor", config.positive("expert_weights_scale")?.unwrap_or(1.0));
    config.set("norm_topk_prob", config.keys.flag("expert_weights_norm")?.unwrap_or(false));
    latent(config)
}

/// Refuses experts that are scored otherwise than those of the family. Old files do not say it.
fn gating(config: &Config, wanted: u64) -> Result<()> {
    match config.keys.get("expert_gating_func").map(Value::as_u64) {
        None => Ok(()),
        Some(found) if found == Some(wanted) => Ok(()),
        _ => Err(config.keys.refuse(format!("expert_gating_func must be {wanted} in a file of such a model"))),
    }
}

pub fn deepseek_v3_fields(config: &mut Config) -> Result<()> {
    gating(config, SIGMOIDS)?;
    for field in ["n_group", "topk_group"] {
        config.set(field, 1);
    }
    expert_scale_and_groups(config);
    deepseek_experts(config)
}

pub fn deepseek_v2_fields(config: &mut Config) -> Result<()> {
    gating(config, SOFTMAXES)?;
    if config.positive("expert_group_count")?.is_some_and(|groups| groups > 1.0) {
        config.set("topk_method", "group_limited_greedy");
        expert_scale_and_groups(config);
    }
    deepseek_experts(config)
}

/// Conversions of folders leave out how queries grow; then they do not, as in llama.cpp.
pub fn mistral4_fields(config: &mut Config) -> Result<()> {
    gating(config, SOFTMAXES)?;
    for field in ["n_group", "topk_group"] {
        config.set(field, 1);
    }
    expert_scale_and_groups(config);
    deepseek_experts(config)?;
    let beta = config.positive("attention.temperature_scale")?.unwrap_or(0.0);
    let original = match config.keys.count_or_none("rope.scaling.original_context_length")? {
        Some(original) => original,
        None => config.keys.count("context_length")?,
    };
    let rope = config.rope_scaling();
    rope.insert("llama_4_scaling_beta".into(), beta.into());
    rope.insert("original_max_position_embeddings".into(), original.into());
    Ok(())
}

pub fn lfm2_moe_fields(config: &mut Config) -> Result<()> {
    sigmoid_experts(config, "num_dense_layers")?;
    let layers = config.layers()?;
    config.set("use_expert_bias", (0..layers).any(|layer| config.layer_has(layer, "exp_probs_b.bias")));
    lfm2_fields(config)
}

pub fn ernie_moe_fields(config: &mut Config) -> Result<()> {
    for (key, field) in [
        ("expert_count", "moe_num_experts"),
        ("expert_used_count", "moe_k"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("interleave_moe_layer_step", "moe_layer_interval"),
    ] {
        config.set(field, config.keys.count(key)?);
    }
    for (key, field) in
        [("leading_dense_block_count", "moe_layer_start_index"), ("expert_shared_count", "moe_num_shared_experts")]
    {
        config.set(field, config.keys.get(key).cloned().unwrap_or_else(|| 0.into()));
    }
    ernie_fields(config)
}

pub fn qwen3_5_moe_fields(config: &mut Config) -> Result<()> {
    experts(config)?;
    config.set("moe_intermediate_size", config.keys.count("expert_feed_forward_length")?);
    config.set("shared_expert_intermediate_size", config.keys.count("expert_shared_feed_forward_length")?);
    qwen3_5_fields(config)
}

/// llama.cpp has experts in every layer and divides their weights by their sum.
pub fn qwen3_next_fields(config: &mut Config) -> Result<()> {
    config.set("norm_topk_prob", true);
    qwen3_5_moe_fields(config)
}

/// The numbers of yarn are exact, which no key says.
pub fn gpt_oss_fields(config: &mut Config) -> Result<()> {
    config.set("num_local_experts", config.keys.count("expert_count")?);
    config.set("num_experts_per_tok", config.keys.count("expert_used_count")?);
    config.set("intermediate_size", config.keys.count("expert_feed_forward_length")?);
    config.read_windows(2)?;
    let rope = config.rope_scaling();
    if rope.get("rope_type").is_some_and(|kind| kind == "yarn") {
        rope.insert("truncate".into(), false.into());
    }
    biases_of_attention(config)
}

/// Those beside the MLPs of Gemma 4, where it has any.
pub fn gemma4_experts(config: &mut Config) -> Result<()> {
    if config.positive("expert_count")?.is_none() {
        return Ok(());
    }
    config.set("enable_moe_block", true);
    for (key, field) in [
        ("expert_count", "num_experts"),
        ("expert_used_count", "top_k_experts"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
    ] {
        config.set(field, config.keys.count(key)?);
    }
    Ok(())
}

/// Those of Nemotron-H, where a layer has any.
pub fn nemotron_experts(config: &mut Config) -> Result<()> {
    if config.positive("expert_count")?.is_none() {
        return Ok(());
    }
    for (key, field) in [
        ("expert_count", "n_routed_experts"),
        ("expert_shared_count", "n_shared_experts"),
        ("expert_used_count", "num_experts_per_tok"),
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("expert_shared_feed_forward_length", "moe_shared_expert_intermediate_size"),
    ] {
        config.set(field, config.keys.count(key)?);
    }
    if let Some(width) = config.keys.get("moe_latent_size").cloned() {
        config.set("moe_latent_size", width);
    }
    config.set("norm_topk_prob", config.keys.flag("expert_weights_norm")?.unwrap_or(false));
    expert_scale_and_groups(config);
    Ok(())
}

/// What multiplies the weights of experts, and the groups that these are chosen from, where the file says so.
fn expert_scale_and_groups(config: &mut Config) {
    for (key, field) in [
        ("expert_weights_scale", "routed_scaling_factor"),
        ("expert_group_count", "n_group"),
        ("expert_group_used_count", "topk_group"),
    ] {
        if let Some(value) = config.keys.get(key).cloned() {
            config.set(field, value);
        }
    }
}
