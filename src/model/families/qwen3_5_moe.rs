//! Qwen3.5, 3.6 and 3.8 with experts: the layers of Qwen3.5, with a mixture of experts in the place of each MLP, and an expert with a gate that computes
//! all tokens.

use super::{Family, qwen3_5};
use crate::fields::Fields;
use crate::mixture;
use crate::spec::{Bias, DecoderSpec, Experts, FeedForward, LayerSpec, Mlp, MlpForm, Router, SharedExpert, SharedGate};
use crate::standard::{Standard, activation};
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Qwen3.5, Qwen3.6 and Qwen3.8 with experts",
    classes: &["Qwen3_5MoeForCausalLM"],
    model_type: "qwen3_5_moe_text",
    defaults: || {
        json!({
            "vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40, "num_attention_heads": 16,
            "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 32768, "rms_norm_eps": 1e-6,
            "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
            "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
            "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 8,
            // Of no layer.
            "intermediate_size": 512
        })
    },
    ignores: qwen3_5::FAMILY.ignores,
    names: &qwen3_5::NAMES,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let (standard, layers) = qwen3_5::layers(fields)?;
    let router = Router { norm: Some(0.0), ..mixture::router(fields, &mixture::COUNTS)? };
    let experts = FeedForward::Experts(experts(fields, &standard, router)?);
    let layers = layers.into_iter().map(|layer: LayerSpec| layer.with_feed_forward(experts.clone())).collect();
    Ok(standard.decoder_of(layers))
}

/// The experts of a layer, with one that computes all tokens.
pub fn experts(fields: Fields, standard: &Standard, router: Router) -> Result<Experts> {
    let form = MlpForm::gated(activation(fields, "hidden_act")?);
    let mlp = |name| Ok(Mlp { width: fields.count(name)?, form, ..standard.mlp(Bias::None) });
    let shared = SharedExpert { mlp: mlp("shared_expert_intermediate_size")?, gate: SharedGate::Sigmoid };
    let expert = mlp("moe_intermediate_size")?;
    Ok(Experts { shared: Some(shared), ..Experts::plain(router, expert) })
}
