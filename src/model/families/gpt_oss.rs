//! gpt-oss: experts in every layer, whose gates and ups have bounds, windows in every second layer, and a number for each query head that joins the softmax of
//! its scores.

use super::Family;
use crate::fields::Fields;
use crate::mixture;
use crate::names::{AttentionNames, ExpertNames, GateUpNames, LLAMA, MlpNames, Names, StackedMatrices};
use crate::rope::Rope;
use crate::spec::{
    Activation, Bias, DecoderSpec, Experts, FeedForward, Logits, Mlp, MlpForm, Router, SelfAttention, Sinks,
};
use crate::standard::{Standard, max_position_embeddings};
use base::error::{Error, Result};
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "gpt-oss 20B and 120B",
    classes: &["GptOssForCausalLM"],
    model_type: "gpt_oss",
    defaults: || {
        json!({
            "num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "sliding_window": 128,
            "attention_bias": true, "num_experts_per_tok": 4,
            "rope_parameters": {
                "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "truncate": false, "original_max_position_embeddings": 4096,
            },
        })
    },
    // The second name of the number of chosen experts, and what another program does with the first context length.
    ignores: &["experts_per_token", "initial_context_length"],
    names: &NAMES,
    spec,
};

const NAMES: Names = Names {
    attention: AttentionNames { sinks: "self_attn.sinks", ..LLAMA.attention },
    experts: ExpertNames {
        router: "mlp.router",
        before: "",
        each: MlpNames::NONE,
        stacked: MlpNames { gate_up: GateUpNames::Alternating("mlp.experts.gate_up_proj"), ..LLAMA.experts.stacked },
        matrices: StackedMatrices::Columns,
        ..LLAMA.experts
    },
    ..LLAMA
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let rope = Rope::from_config(fields, max_position_embeddings(fields)?)?;
    let standard = Standard::with_ropes(fields, vec![rope])?;
    refuse_other_activations(fields)?;
    let bias = fields.bias("attention_bias")?;
    let expert = Mlp { form: MlpForm::gated(Activation::ClampedSwiglu), ..standard.mlp(Bias::Added) };
    let router = Router { norm: Some(0.0), ..mixture::router(fields, &["num_local_experts", "num_experts"])? };
    let logits = Logits { bias: Bias::Added, ..Logits::PLAIN };
    let experts = FeedForward::Experts(Experts { logits, ..Experts::plain(router, expert) });
    let layer = |window| {
        let attention = standard.attention(standard.shared_width());
        let attention = SelfAttention {
            scores: AttentionSpec { window, ..attention.scores },
            qkv_bias: bias,
            output_bias: bias,
            sinks: Sinks::Stored,
            ..attention
        };
        standard.layer(attention, standard.mlp(Bias::None)).with_feed_forward(experts.clone())
    };
    let layers = standard.windows(fields, |layer| layer.is_multiple_of(2))?.into_iter().map(layer).collect();
    Ok(standard.decoder_of(layers))
}

/// Refuses bounds and factors of the activation that are not those of the published models.
fn refuse_other_activations(fields: Fields) -> Result<()> {
    for (setting, only, supported) in [("swiglu_limit", 7.0, "7"), ("swiglu_alpha", 1.702, "1.702")] {
        if let Some(value) = fields.positive_or_none(setting)?.filter(|&value| value != only) {
            return Err(Error::UnsupportedModel { setting, value: value.to_string(), supported });
        }
    }
    Ok(())
}
