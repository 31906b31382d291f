//! Hunyuan with experts: as Hunyuan, with a mixture of experts in the place of each MLP, beside an MLP that computes all tokens.

use super::{Family, hunyuan};
use crate::fields::Fields;
use crate::mixture;
use crate::names::{ExpertNames, GateUpNames, MlpNames, Names};
use crate::spec::{Bias, DecoderSpec, Experts, FeedForward, Router, SharedExpert, SharedGate};
use base::error::Result;
use compute::{CHOSEN_MAX, EXPERTS_MAX};
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "Hunyuan-A13B",
    classes: &["HunYuanMoEV1ForCausalLM"],
    model_type: "hunyuan_v1_moe",
    defaults: || json!({"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "num_experts": 1, "moe_topk": 1}),
    // An older name of the width of a head, and what the shapes of tensors say.
    ignores: &[
        "attention_head_dim",
        "moe_intermediate_size",
        "moe_layer_num_skipped",
        "num_shared_expert",
        "use_mixed_mlp_moe",
    ],
    names: &Names {
        experts: ExpertNames {
            router: "mlp.gate.wg",
            shared: MlpNames {
                gate_up: GateUpNames::Separate { gate: "mlp.shared_mlp.gate_proj", up: "mlp.shared_mlp.up_proj" },
                down: "mlp.shared_mlp.down_proj",
            },
            shared_gate: "",
            ..hunyuan::NAMES.experts
        },
        ..hunyuan::NAMES
    },
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let (standard, layer) = hunyuan::layer(fields)?;
    fields.must_be("norm_topk_prob", true)?;
    let experts = ("num_experts", fields.count_up_to("num_experts", EXPERTS_MAX)?);
    let chosen = ("moe_topk", of_all_layers(fields, "moe_topk", CHOSEN_MAX)?);
    let mlp = standard.mlp(Bias::None);
    let router = Router { norm: Some(0.0), ..mixture::choosing(fields, experts, chosen)? };
    let experts = Experts::plain(router, mlp.clone());
    let experts = Experts { shared: Some(SharedExpert { mlp, gate: SharedGate::None }), ..experts };
    let layers = vec![layer.with_feed_forward(FeedForward::Experts(experts)); standard.layers];
    Ok(standard.decoder_of(layers))
}

/// A count of at most `most`, of which published configs have a list with the same for each layer.
fn of_all_layers(fields: Fields, name: &str, most: usize) -> Result<usize> {
    let Some(list) = fields.get(name).and_then(Value::as_array) else { return fields.count_up_to(name, most) };
    let count = list.first().and_then(Value::as_u64).filter(|&count| count > 0 && count <= most as u64);
    match count.filter(|_| list.iter().all(|other| *other == list[0])) {
        Some(count) => Ok(count as usize),
        None => Err(fields.refuse(format!("{name} must be a whole number from 1 to {most}, the same in every layer"))),
    }
}
