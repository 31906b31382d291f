//! The experts of Gemma 4 26B-A4B: a mixture beside the MLP of each layer, each with norms of its own. The router reads the stream itself.

use super::super::gemma2;
use crate::fields::Fields;
use crate::mixture;
use crate::names::{BranchNorms, ExpertNames, GateUpNames, MlpNames, Names, NormNames};
use crate::spec::{
    Bias, Branch, ExpertScales, Experts, FeedForward, LayerSpec, Logits, Mlp, Norm, Part, Router, SublayerNorms,
};
use base::error::Result;

/// Those of Gemma 2, and of experts.
pub const NAMES: Names = Names {
    branch_norms: BranchNorms {
        dense: NormNames { before: "", after: "post_feedforward_layernorm_1" },
        experts: NormNames { before: "pre_feedforward_layernorm_2", after: "post_feedforward_layernorm_2" },
    },
    experts: ExpertNames {
        router: "router.proj",
        router_norm: "router.scale",
        scales: "router.per_expert_scale",
        before: "",
        each: MlpNames::NONE,
        stacked: MlpNames { gate_up: GateUpNames::Fused("experts.gate_up_proj"), down: "experts.down_proj" },
        ..gemma2::NAMES.experts
    },
    ..gemma2::NAMES
};

/// The experts, where `enable_moe_block` says that there are any. `mlp` is that beside them.
pub fn experts(fields: Fields, mlp: &Mlp, eps: f32) -> Result<Option<Experts>> {
    if fields.flag("enable_moe_block")? != Some(true) {
        fields.pass_over(&["num_experts", "top_k_experts", "moe_intermediate_size"]);
        return Ok(None);
    }
    let router = Router { norm: Some(0.0), ..mixture::router_of(fields, &["num_experts"], "top_k_experts")? };
    let expert = Mlp { width: fields.count("moe_intermediate_size")?, ..mlp.clone() };
    let logits = Logits { bias: Bias::None, norm: Some(eps), expert_scales: ExpertScales::Stored };
    Ok(Some(Experts { logits, ..Experts::plain(router, expert) }))
}

/// The layer with the experts beside its MLP.
pub fn beside(mut layer: LayerSpec, experts: &Experts, norm: Norm) -> LayerSpec {
    if let Some(last) = layer.sublayers.last_mut() {
        last.branches.iter_mut().for_each(|dense| dense.norms = SublayerNorms::after(norm));
        let part = Part::FeedForward(FeedForward::Experts(experts.clone()));
        last.branches.push(Branch { norms: SublayerNorms::around(norm), ..Branch::new(part, 1.0) });
    }
    layer
}
