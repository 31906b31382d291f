//! Mixtral: as Mistral, with a mixture of experts in the place of each MLP.

use super::Family;
use crate::fields::Fields;
use crate::mixture;
use crate::names::{ExpertNames, GateUpNames, LLAMA, MlpNames, Names};
use crate::spec::{Bias, DecoderSpec, Experts, FeedForward, Router, SelfAttention};
use crate::standard::Standard;
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Mixtral",
    classes: &["MixtralForCausalLM"],
    model_type: "mixtral",
    defaults: || {
        json!({
            "rms_norm_eps": 1e-5, "num_key_value_heads": 8, "rope_theta": 1e6, "num_experts_per_tok": 2
        })
    },
    ignores: &[],
    names: &NAMES,
    spec,
};

/// The names of families with experts as Mixtral's.
pub const NAMES: Names = Names {
    experts: ExpertNames {
        router: "block_sparse_moe.gate",
        before: "block_sparse_moe.experts.",
        each: MlpNames { gate_up: GateUpNames::Separate { gate: "w1", up: "w3" }, down: "w2" },
        ..LLAMA.experts
    },
    ..LLAMA
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let window = fields.count_or_none("sliding_window")?;
    let attention = standard.attention(standard.shared_width());
    let scores = AttentionSpec { window, ..attention.scores };
    let router = Router { norm: Some(0.0), ..mixture::router(fields, &["num_local_experts", "num_experts"])? };
    let expert = standard.mlp(Bias::None);
    let experts = Experts::plain(router, expert.clone());
    let layer = standard.layer(SelfAttention { scores, ..attention }, expert);
    let layers = vec![layer.with_feed_forward(FeedForward::Experts(experts)); standard.layers];
    Ok(standard.decoder_of(layers))
}
