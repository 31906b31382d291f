//! Qwen3-Next: as Qwen3.5 with experts, with MLPs in the layers that say so, and projections into the gated delta rule that have the rows of one key head
//! after those of another.

use super::{Family, qwen3_5, qwen3_5_moe};
use crate::fields::Fields;
use crate::mixture;
use crate::names::{DeltaInputNames, DeltaNames, Names};
use crate::spec::{DecoderSpec, FeedForward};
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Qwen3-Next",
    classes: &["Qwen3NextForCausalLM"],
    model_type: "qwen3_next",
    defaults: || {
        json!({
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 48,
            "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6, "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
            "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
            "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10,
            "norm_topk_prob": true
        })
    },
    ignores: &[],
    names: &NAMES,
    spec,
};

const NAMES: Names = Names {
    delta: DeltaNames {
        input: DeltaInputNames::ByKeyHead { qkvz: "linear_attn.in_proj_qkvz", ba: "linear_attn.in_proj_ba" },
        ..qwen3_5::NAMES.delta
    },
    ..qwen3_5::NAMES
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let (standard, layers) = qwen3_5::layers(fields)?;
    let router = mixture::router_by_flag(fields, &mixture::COUNTS)?;
    let experts = FeedForward::Experts(qwen3_5_moe::experts(fields, &standard, router)?);
    let sparse = mixture::sparse_layers(fields, standard.layers)?;
    let layers = mixture::with_experts(layers, &sparse, &experts);
    Ok(standard.decoder_of(layers))
}
