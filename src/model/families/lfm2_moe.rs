//! LFM2 with experts: the mixers of LFM2, MLPs in the first layers, and then mixtures of experts, which are chosen by sigmoids and a correction of them.

use super::{Family, lfm2};
use crate::fields::Fields;
use crate::mixture;
use crate::names::{ExpertLatentNames, ExpertNames, GateUpNames, MlpNames, Names, StackedMatrices};
use crate::spec::{Bias, Correction, DecoderSpec, Experts, FeedForward, Mlp, Router, Scores};
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "LFM2-8B-A1B",
    classes: &["Lfm2MoeForCausalLM"],
    model_type: "lfm2_moe",
    defaults: || {
        json!({
            "vocab_size": 65536, "hidden_size": 2048, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 128000, "norm_eps": 1e-5, "rope_theta": 1e6,
            "tie_word_embeddings": true, "intermediate_size": 7168, "moe_intermediate_size": 1792, "conv_L_cache": 3,
            "num_experts_per_tok": 4, "use_expert_bias": true, "routed_scaling_factor": 1.0, "norm_topk_prob": true
        })
    },
    ignores: lfm2::FAMILY.ignores,
    names: &NAMES,
    spec,
};

const NAMES: Names = Names {
    experts: ExpertNames {
        router: "feed_forward.gate",
        router_norm: "",
        scales: "",
        correction: "feed_forward.expert_bias",
        latent: ExpertLatentNames::NONE,
        before: "feed_forward.experts.",
        each: MlpNames { gate_up: GateUpNames::Separate { gate: "w1", up: "w3" }, down: "w2" },
        stacked_in: "",
        matrices: StackedMatrices::Rows,
        stacked: MlpNames {
            gate_up: GateUpNames::Fused("feed_forward.experts.gate_up_proj"),
            down: "feed_forward.experts.down_proj",
        },
        shared: MlpNames::NONE,
        shared_gate: "",
    },
    ..lfm2::NAMES
};

/// What is added to the sum of weights.
const NORM_EPS: f32 = 1e-6;

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = lfm2::standard(fields)?;
    let mlp = standard.mlp(Bias::None);
    let layers = lfm2::layers(fields, &standard, mlp.clone())?;
    let norm = (fields.flag("norm_topk_prob")? == Some(true)).then_some(NORM_EPS);
    let router = Router {
        scores: Scores::Sigmoid,
        norm,
        scale: fields.factor("routed_scaling_factor")?,
        ..mixture::router(fields, &mixture::COUNTS)?
    };
    let correction = match fields.flag("use_expert_bias")? {
        Some(true) => Correction::Stored,
        _ => Correction::None,
    };
    let expert = Mlp { width: fields.count("moe_intermediate_size")?, ..mlp };
    let experts = FeedForward::Experts(Experts { correction, ..Experts::plain(router, expert) });
    let dense = mixture::first_dense_layers(fields, "num_dense_layers", 2, standard.layers)?;
    let sparse: Vec<bool> = (0..standard.layers).map(|layer| layer >= dense).collect();
    let layers = mixture::with_experts(layers, &sparse, &experts);
    Ok(standard.decoder_of(layers))
}
