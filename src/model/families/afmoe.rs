//! Trinity: normalized queries and keys, a gate of what attention computed, four norms a layer, windows and a rotation in three of four layers, MLPs in
//! the first layers, and then mixtures of experts, which are chosen by sigmoids and a correction of them.

use super::{Family, gemma2, glm4_moe};
use crate::fields::Fields;
use crate::mixture;
use crate::names::{AttentionNames, ExpertNames, LLAMA, Names, NormNames};
use crate::spec::{
    Bias, Correction, DecoderSpec, Experts, FeedForward, NormOrder, OutputGate, QkNorm, Router, Scores, SelfAttention,
    SublayerNorms,
};
use crate::standard::Standard;
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Trinity Nano, Mini and Large",
    classes: &["AfmoeForCausalLM"],
    model_type: "afmoe",
    defaults: || {
        json!({
            "head_dim": 128, "rms_norm_eps": 1e-5, "sliding_window": 1024, "global_attn_every_n_layers": 4,
            "num_experts": 64, "num_experts_per_tok": 6, "num_shared_experts": 2, "moe_intermediate_size": 1408,
            "route_scale": 1.0
        })
    },
    // Of training and of how another program runs it. There is one group.
    ignores: &["load_balance_coeff", "num_expert_groups", "num_limited_groups", "use_grouped_mm"],
    names: &NAMES,
    spec,
};

const NAMES: Names = Names {
    attention: AttentionNames { gate: "self_attn.gate_proj", ..LLAMA.attention },
    mixer_norms: gemma2::NAMES.mixer_norms,
    feed_forward_norms: NormNames { before: "pre_mlp_layernorm", after: "post_mlp_layernorm" },
    experts: ExpertNames { router: "mlp.router.gate", correction: "mlp.expert_bias", ..glm4_moe::NAMES.experts },
    ..LLAMA
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    fields.must_be("route_norm", true)?;
    fields.must_say("score_func", "sigmoid")?;
    let standard = Standard::read(fields)?;
    let bias = fields.bias("attention_bias")?;
    let layer = |window: Option<usize>| {
        let attention = standard.attention(standard.shared_width());
        let attention = SelfAttention {
            scores: AttentionSpec { window, ..attention.scores },
            rope: attention.rope.filter(|_| window.is_some()),
            qk_norm: QkNorm::PerHead { norm: standard.norm, order: NormOrder::BeforeRope },
            output_gate: OutputGate::Sigmoid,
            qkv_bias: bias,
            output_bias: bias,
            ..attention
        };
        standard.layer(attention, standard.mlp(Bias::None)).with_norms(SublayerNorms::around(standard.norm))
    };
    let interval = fields.count("global_attn_every_n_layers")?;
    let windows = standard.windows(fields, |layer| !(layer + 1).is_multiple_of(interval))?;
    let layers = windows.into_iter().map(layer).collect();
    let router = Router {
        scores: Scores::Sigmoid,
        norm: Some(1e-20),
        scale: fields.factor("route_scale")?,
        ..mixture::router(fields, &mixture::COUNTS)?
    };
    let experts = glm4_moe::mlps(fields, &standard, router, "num_shared_experts")?;
    let experts = FeedForward::Experts(Experts { correction: Correction::Stored, ..experts });
    let dense = mixture::first_dense_layers(fields, "num_dense_layers", 1, standard.layers)?;
    let sparse: Vec<bool> = (0..standard.layers).map(|layer| layer >= dense).collect();
    let embedding_scale = match fields.flag("mup_enabled")? {
        Some(true) => (standard.hidden as f64).sqrt() as f32,
        _ => 1.0,
    };
    let decoder = standard.decoder_of(mixture::with_experts(layers, &sparse, &experts));
    Ok(DecoderSpec { embedding_scale, ..decoder })
}
