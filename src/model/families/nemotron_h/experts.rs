//! The experts of Nemotron 3 Nano: MLPs without a gate, which are chosen as GLM's, beside one that computes all tokens.

use super::kinds::Kind;
use crate::families::glm4_moe;
use crate::fields::Fields;
use crate::mixture;
use crate::names::{ExpertNames, GateUpNames, LLAMA, MlpNames};
use crate::spec::{Bias, Correction, Experts, Logits, Mlp, Router, Scores, SharedExpert, SharedGate};
use base::error::{Error, Result};

/// Their fields, which only models with experts read.
const FIELDS: &[&str] = &[
    "n_routed_experts",
    "n_shared_experts",
    "n_group",
    "topk_group",
    "num_experts_per_tok",
    "norm_topk_prob",
    "routed_scaling_factor",
    "moe_intermediate_size",
    "moe_latent_size",
    "moe_shared_expert_intermediate_size",
];

pub const NAMES: ExpertNames = ExpertNames {
    router: "mixer.gate",
    correction: "mixer.gate.e_score_correction_bias",
    before: "mixer.experts.",
    each: MlpNames { gate_up: GateUpNames::Separate { gate: "", up: "up_proj" }, down: "down_proj" },
    stacked: MlpNames {
        gate_up: GateUpNames::Separate { gate: "", up: "mixer.experts.up_proj" },
        down: "mixer.experts.down_proj",
    },
    shared: MlpNames {
        gate_up: GateUpNames::Separate { gate: "", up: "mixer.shared_experts.up_proj" },
        down: "mixer.shared_experts.down_proj",
    },
    shared_gate: "",
    ..LLAMA.experts
};

/// The experts, where a layer has some. `mlp` is that of the other layers.
pub fn read(fields: Fields, kinds: &[Kind], mlp: &Mlp) -> Result<Option<Experts>> {
    if !kinds.contains(&Kind::Experts) {
        fields.pass_over(FIELDS);
        return Ok(None);
    }
    // One beside the other, of which the class computes one whatever this says.
    fields.pass_over(&["n_shared_experts"]);
    const LATENT: &str = "moe_latent_size";
    if let Some(value) = fields.get(LATENT) {
        let (value, supported) = (Fields::shown(value), "absent: experts read the stream as wide as it is");
        return Err(Error::UnsupportedModel { setting: LATENT, value, supported });
    }
    let router = mixture::router(fields, &["n_routed_experts"])?;
    let router = Router {
        scores: Scores::Sigmoid,
        groups: glm4_moe::groups(fields, &router, 2)?,
        norm: (fields.flag("norm_topk_prob")? != Some(false)).then_some(1e-20),
        scale: fields.factor("routed_scaling_factor")?,
        ..router
    };
    let of_width = |name| Ok(Mlp { width: fields.count(name)?, ..mlp.clone() });
    let shared = SharedExpert { mlp: of_width("moe_shared_expert_intermediate_size")?, gate: SharedGate::None };
    Ok(Some(Experts {
        router,
        correction: Correction::Stored,
        logits: Logits::PLAIN,
        // Only the expert that computes all tokens has biases.
        expert: Mlp { bias: Bias::None, down_bias: Bias::None, ..of_width("moe_intermediate_size")? },
        shared: Some(shared),
    }))
}
