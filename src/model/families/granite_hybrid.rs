//! Granite 4, dense: as Granite 3, with a fused projection into the MLP, and without a rotary embedding unless the config says "rope". Models of
//! this class with recurrent layers or experts are not read.

use super::{Family, granite};
use crate::fields::Fields;
use crate::names::{GateUpNames, LLAMA, MlpNames, Names};
use crate::spec::{Bias, DecoderSpec, GatedMlp};
use crate::standard::Standard;
use base::error::{Error, Result};
use serde_json::Value;

pub const FAMILY: Family = Family {
    models: "Granite 4, dense",
    classes: &["GraniteMoeHybridForCausalLM"],
    model_type: "granitemoehybrid",
    defaults: granite::factors,
    ignores: IGNORES,
    names: &Names {
        mlp: MlpNames { gate_up: GateUpNames::Fused("shared_mlp.input_linear"), down: "shared_mlp.output_linear" },
        ..LLAMA
    },
    spec,
};

/// Fields of recurrent layers and of experts, and of training.
const IGNORES: &[&str] = &[
    "num_experts_per_tok",
    "mamba_chunk_size",
    "mamba_conv_bias",
    "mamba_d_conv",
    "mamba_d_head",
    "mamba_d_state",
    "mamba_expand",
    "mamba_n_groups",
    "mamba_n_heads",
    "mamba_proj_bias",
    "time_step_limit",
    "init_method",
    "normalization_function",
];

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let is_attention = |kind: &Value| ["attention", "full_attention"].map(Some).contains(&kind.as_str());
    let types = fields.get("layer_types").and_then(Value::as_array).filter(|types| types.len() == standard.layers);
    let has_experts = fields.get("num_local_experts").and_then(Value::as_u64) != Some(0);
    for (setting, is_other, supported) in [
        ("num_local_experts", has_experts, "0"),
        ("layer_types", !types.is_some_and(|types| types.iter().all(is_attention)), "attention for every layer"),
    ] {
        if is_other {
            let value = fields.get(setting).map_or("absent".into(), Fields::shown);
            return Err(Error::UnsupportedModel { setting, value, supported });
        }
    }
    let rope = (fields.text("position_embedding_type")? == Some("rope")).then_some(0);
    let mlp = GatedMlp { width: fields.count("shared_intermediate_size")?, ..standard.mlp(Bias::None) };
    granite::decoder(fields, standard, mlp, rope)
}
