//! Qwen2 with experts: as Qwen2, with a mixture of experts in the place of the MLP of all layers or of some, and an expert with a gate that computes all
//! tokens.

use super::{Family, qwen2, qwen3_5_moe};
use crate::fields::Fields;
use crate::mixture;
use crate::names;
use crate::spec::{Bias, DecoderSpec, FeedForward, SelfAttention};
use crate::standard::Standard;
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Qwen1.5-MoE, Qwen2-57B-A14B",
    classes: &["Qwen2MoeForCausalLM"],
    model_type: "qwen2_moe",
    defaults: || {
        json!({
            "num_key_value_heads": 16, "sliding_window": 4096, "qkv_bias": true, "num_experts": 60,
            "num_experts_per_tok": 4, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632
        })
    },
    // The window counts only with use_sliding_window.
    ignores: &["sliding_window"],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let attention = standard.attention(standard.shared_width());
    let attention = SelfAttention { qkv_bias: fields.bias("qkv_bias")?, ..attention };
    let mlp = standard.mlp(Bias::None);
    // Qwen2 has windows behind this layer, in each.
    let first = qwen2::max_window_layers(fields)?;
    let windows = standard.switched_windows(fields, |layer| layer < first && layer.is_multiple_of(2))?;
    let router = mixture::router_by_flag(fields, &mixture::COUNTS)?;
    let experts = FeedForward::Experts(qwen3_5_moe::experts(fields, &standard, router)?);
    let sparse = mixture::sparse_layers(fields, standard.layers)?;
    let decoder = standard.decoder_with_windows(windows, attention, mlp);
    Ok(DecoderSpec { layers: mixture::with_experts(decoder.layers, &sparse, &experts), ..decoder })
}
