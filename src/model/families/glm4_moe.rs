//! GLM-4.5 and GLM-4.6: a rotation of half of each head, MLPs in the first layers, and then mixtures of experts, which are chosen by sigmoids and a
//! correction of them, beside an expert that computes all tokens.

use super::Family;
use crate::fields::Fields;
use crate::mixture;
use crate::names::{ExpertNames, GateUpNames, LLAMA, MlpNames, Names};
use crate::spec::{
    Bias, Correction, DecoderSpec, Experts, FeedForward, Groups, Mlp, NormOrder, QkNorm, Router, Scores, SelfAttention,
    SharedExpert, SharedGate,
};
use crate::standard::{Standard, partial_rope};
use base::error::Result;
use compute::GROUPS_MAX;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "GLM-4.5, GLM-4.5-Air, GLM-4.6",
    classes: &["Glm4MoeForCausalLM"],
    model_type: "glm4_moe",
    defaults: || {
        json!({
            "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.5, "num_experts_per_tok": 8,
            "n_shared_experts": 1, "moe_intermediate_size": 1408, "routed_scaling_factor": 1.0,
            "norm_topk_prob": true
        })
    },
    // The layers that predict further tokens are left aside.
    ignores: &["num_nextn_predict_layers", "num_mtp_layers"],
    names: &NAMES,
    spec,
};

/// The decoder of GLM-4.5V and GLM-4.6V.
pub const VISION: Family = Family {
    models: "GLM-4.5V, GLM-4.6V, their decoders alone",
    classes: &["Glm4vMoeTextModel"],
    model_type: "glm4v_moe_text",
    defaults: || {
        let mut fields = (FAMILY.defaults)();
        fields["attention_bias"] = json!(true);
        fields["n_routed_experts"] = json!(128);
        fields
    },
    ..FAMILY
};

/// Experts in every layer, and queries and keys as projected.
pub const SOLAR_OPEN: Family = Family {
    models: "Solar-Open-100B",
    classes: &["SolarOpenForCausalLM"],
    model_type: "solar_open",
    defaults: || {
        json!({
            "num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
            "num_experts_per_tok": 8, "n_routed_experts": 128, "n_shared_experts": 1, "moe_intermediate_size": 1280,
            "routed_scaling_factor": 1.0, "norm_topk_prob": true,
            // Of no layer.
            "intermediate_size": 1280
        })
    },
    ignores: &["first_k_dense_replace", "num_nextn_predict_layers"],
    spec: |fields| {
        let standard = Standard::read(fields)?;
        decoder(fields, standard, QkNorm::None, 0)
    },
    ..FAMILY
};

pub const NAMES: Names = Names { experts: ExpertNames { shared: SHARED, shared_gate: "", ..LLAMA.experts }, ..LLAMA };

/// The expert that computes all tokens, as GLM and ERNIE call it.
pub const SHARED: MlpNames = MlpNames {
    gate_up: GateUpNames::Separate { gate: "mlp.shared_experts.gate_proj", up: "mlp.shared_experts.up_proj" },
    down: "mlp.shared_experts.down_proj",
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::with_ropes(fields, vec![partial_rope(fields)?])?;
    let qk_norm = match fields.flag("use_qk_norm")? {
        Some(true) => QkNorm::PerHead { norm: standard.norm, order: NormOrder::BeforeRope },
        _ => QkNorm::None,
    };
    let dense = mixture::first_dense_layers(fields, "first_k_dense_replace", 1, standard.layers)?;
    decoder(fields, standard, qk_norm, dense)
}

/// A decoder with experts behind its first `dense` layers.
fn decoder(fields: Fields, standard: Standard, qk_norm: QkNorm, dense: usize) -> Result<DecoderSpec> {
    let attention = standard.attention(standard.shared_width());
    let attention = SelfAttention { qk_norm, qkv_bias: fields.bias("attention_bias")?, ..attention };
    let layer = standard.layer(attention, standard.mlp(Bias::None));
    let experts = FeedForward::Experts(experts(fields, &standard, COUNTS)?);
    let sparse: Vec<bool> = (0..standard.layers).map(|layer| layer >= dense).collect();
    let layers = mixture::with_experts(vec![layer; standard.layers], &sparse, &experts);
    Ok(standard.decoder_of(layers))
}

/// The names of the number of experts that are chosen from, and of those that compute all tokens.
pub const COUNTS: [&str; 2] = ["n_routed_experts", "n_shared_experts"];

/// The mixtures, of which `correction` is stored. `counts` are the names of the numbers of experts, as [`COUNTS`].
pub fn experts(fields: Fields, standard: &Standard, counts: [&str; 2]) -> Result<Experts> {
    let norm = (fields.flag("norm_topk_prob")? == Some(true)).then_some(1e-20);
    let router = mixture::router(fields, &counts[..1])?;
    let router = Router {
        scores: Scores::Sigmoid,
        groups: groups(fields, &router, 2)?,
        norm,
        scale: fields.factor("routed_scaling_factor")?,
        ..router
    };
    Ok(Experts { correction: Correction::Stored, ..mlps(fields, standard, router, counts[1])? })
}

/// The mixtures that `router` chooses from, which nothing corrects. `shared` is the name of the number of experts that compute all tokens.
pub fn mlps(fields: Fields, standard: &Standard, router: Router, shared: &str) -> Result<Experts> {
    let mlp = |width| Mlp { width, ..standard.mlp(Bias::None) };
    let width = fields.count("moe_intermediate_size")?;
    let shared = SharedExpert { mlp: mlp(width * fields.count(shared)?), gate: SharedGate::None };
    Ok(Experts { shared: Some(shared), ..Experts::plain(router, mlp(width)) })
}

/// The groups that experts are chosen from: those with the greatest sums of `best`.
pub fn groups(fields: Fields, router: &Router, best: usize) -> Result<Option<Groups>> {
    let count = |name| match fields.get(name) {
        None => Ok(1),
        Some(_) => fields.count_up_to(name, GROUPS_MAX),
    };
    let (groups, experts) = (Groups { count: count("n_group")?, kept: count("topk_group")?, best }, router.experts);
    let is_whole = groups == Groups { count: 1, kept: 1, best };
    match is_whole || (Router { groups: Some(groups), ..*router }).is_valid() {
        true => Ok(Some(groups).filter(|_| !is_whole)),
        false => Err(fields.refuse(format!(
            "n_group and topk_group must divide {experts} experts into groups of at least {best}, of which as many are kept as the {} chosen experts need",
            router.chosen
        ))),
    }
}
