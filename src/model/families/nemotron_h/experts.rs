//! The experts of Nemotron 3: MLPs without a gate, which are chosen as GLM's, beside one that computes all tokens. Those of Nemotron 3 Super read a latent.

use super::kinds::Kind;
use crate::families::glm4_moe;
use crate::fields::Fields;
use crate::mixture;
use crate::names::{ExpertLatentNames, ExpertNames, GateUpNames, LLAMA, MlpNames};
use crate::spec::{
    Bias, Correction, ExpertLatent, Experts, FeedForward, Logits, Mlp, Router, Scores, SharedExpert, SharedGate,
};
use base::error::Result;

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
    latent: ExpertLatentNames { down: "mixer.fc1_latent_proj", up: "mixer.fc2_latent_proj" },
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

/// The branches of a layer with experts, where there is one. `mlp` is that of the other layers.
pub fn read(fields: Fields, kinds: &[Kind], mlp: &Mlp) -> Result<Option<Vec<FeedForward>>> {
    if !kinds.contains(&Kind::Experts) {
        fields.pass_over(FIELDS);
        return Ok(None);
    }
    // One beside the other, of which the class computes one whatever this says.
    fields.pass_over(&["n_shared_experts"]);
    let latent = fields.count_or_none("moe_latent_size")?.map(|width| ExpertLatent { width, bias: mlp.bias });
    let router = mixture::router(fields, &["n_routed_experts"])?;
    let router = Router {
        scores: Scores::Sigmoid,
        groups: glm4_moe::groups(fields, &router, 2)?,
        norm: (fields.flag("norm_topk_prob")? != Some(false)).then_some(1e-20),
        scale: fields.factor("routed_scaling_factor")?,
        ..router
    };
    let of_width = |name| Ok(Mlp { width: fields.count(name)?, ..mlp.clone() });
    let shared = of_width("moe_shared_expert_intermediate_size")?;
    let experts = Experts {
        router,
        correction: Correction::Stored,
        logits: Logits::PLAIN,
        latent,
        // Only the expert that computes all tokens has biases.
        expert: Mlp { bias: Bias::None, down_bias: Bias::None, ..of_width("moe_intermediate_size")? },
        shared: None,
    };
    Ok(Some(match latent {
        Some(_) => vec![FeedForward::Experts(experts), FeedForward::Shared(shared)],
        None => {
            let shared = Some(SharedExpert { mlp: shared, gate: SharedGate::None });
            vec![FeedForward::Experts(Experts { shared, ..experts })]
        }
    }))
}
