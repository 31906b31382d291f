//! Granite 4: as Granite 3, with a fused projection into the MLP, without a rotary embedding unless the config says "rope", and with Mamba-2 in
//! place of attention in the layers that say so. Models with experts have them beside the MLP of all tokens.

use super::{Family, granite, granite_moe};
use crate::fields::Fields;
use crate::names::{
    ExpertLatentNames, ExpertNames, GateUpNames, LLAMA, MlpNames, Names, RateNames, ScanNames, StackedMatrices,
};
use crate::spec::{Bias, DecoderSpec, GroupNorm, LayerSpec, Mixer, Mlp, Recurrent, ScanScales, StateSpace};
use crate::standard::{self, Standard};
use base::error::{Error, Result};
use base::limits;
use compute::{GateOrder, ScanHeads};
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "Granite 4 and Granite 4 H",
    classes: &["GraniteMoeHybridForCausalLM"],
    model_type: "granitemoehybrid",
    defaults,
    ignores: IGNORES,
    names: &NAMES,
    spec,
};

/// The MLP of all tokens, whether there are experts besides or not.
const SHARED_MLP: MlpNames =
    MlpNames { gate_up: GateUpNames::Fused("shared_mlp.input_linear"), down: "shared_mlp.output_linear" };

/// The names of the models with experts, too.
pub const NAMES: Names = Names {
    mlp: SHARED_MLP,
    experts: ExpertNames {
        router: "block_sparse_moe.router.layer",
        router_norm: "",
        scales: "",
        correction: "",
        latent: ExpertLatentNames::NONE,
        before: "",
        each: MlpNames::NONE,
        stacked_in: "",
        matrices: StackedMatrices::Rows,
        stacked: MlpNames {
            gate_up: GateUpNames::Fused("block_sparse_moe.input_linear"),
            down: "block_sparse_moe.output_linear",
        },
        shared: SHARED_MLP,
        shared_gate: "",
    },
    scan: ScanNames {
        input: "mamba.in_proj",
        conv: "mamba.conv1d",
        rates: RateNames::Logarithms("mamba.A_log"),
        dt_bias: "mamba.dt_bias",
        skip: "mamba.D",
        norm: "mamba.norm",
        output: "mamba.out_proj",
    },
    ..LLAMA
};

/// Fields of experts, of chunks whose sums are the same in one piece, and of training.
const IGNORES: &[&str] = &["num_experts_per_tok", "mamba_chunk_size", "init_method", "normalization_function"];

fn defaults() -> Value {
    granite::with_factors(json!({
        "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2,
        "mamba_conv_bias": true
    }))
}

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let types: (&[_], &[_]) = (&["mamba", "linear_attention"], &["attention", "full_attention"]);
    let recurrent = standard::recurrent_layers(fields, standard.layers, types, "attention or mamba")?;
    let recurrent = recurrent.unwrap_or(vec![true; standard.layers]);
    let rope = (fields.text("position_embedding_type")? == Some("rope")).then_some(0);
    let mlp = Mlp { width: fields.count("shared_intermediate_size")?, ..standard.mlp(Bias::None) };
    let scan = state_space(fields, &standard)?;
    let mut decoder = granite::decoder(fields, standard, mlp.clone(), rope)?;
    let scan = Mixer::Recurrent(Recurrent::StateSpace(scan));
    let layer =
        |(layer, is_recurrent): (LayerSpec, bool)| if is_recurrent { layer.with_mixer(scan.clone()) } else { layer };
    decoder.layers = decoder.layers.into_iter().zip(recurrent).map(layer).collect();
    if fields.get("num_local_experts").and_then(Value::as_u64) != Some(0) {
        decoder.layers = granite_moe::with_experts(fields, decoder.layers, &mlp, Some(mlp.clone()))?;
    }
    Ok(decoder)
}

/// Mamba-2, whose fields a model without it may have or not.
pub fn state_space(fields: Fields, standard: &Standard) -> Result<StateSpace> {
    refuse_time_steps(fields)?;
    let width = fields.count("mamba_expand")? * standard.hidden;
    let heads = fields.count_up_to("mamba_n_heads", limits::HEADS)?;
    // "auto" stands for what the other fields say.
    let head_dim = match fields.get("mamba_d_head").filter(|value| !value.is_string()) {
        Some(_) => fields.count("mamba_d_head")?,
        None => width / heads,
    };
    if heads * head_dim != width {
        return Err(fields.refuse(format!(
            "mamba_n_heads is {heads} and mamba_d_head is {head_dim}, but together they must be mamba_expand * hidden_size, {width}"
        )));
    }
    let groups = fields.count_up_to("mamba_n_groups", limits::HEADS)?;
    Ok(StateSpace {
        heads: ScanHeads { heads, groups, head_dim, state_dim: fields.count("mamba_d_state")? },
        taps: fields.count("mamba_d_conv")?,
        conv_bias: fields.bias("mamba_conv_bias")?,
        bias: fields.bias("mamba_proj_bias")?,
        scales: ScanScales::ONE,
        norm: Some(GroupNorm { eps: standard.norm.eps, order: GateOrder::BeforeNorm }),
    })
}

/// Refuses limits of the time step that are not those of all published models, nothing below and nothing above.
pub fn refuse_time_steps(fields: Fields) -> Result<()> {
    const NAME: &str = "time_step_limit";
    let Some(value) = fields.get(NAME).filter(|value| !value.is_null()) else { return Ok(()) };
    let is_lowest = |value: &Value| value.as_f64() == Some(0.0);
    // Infinity is no JSON: some write it as text, and some as a number that no step reaches.
    let is_highest = |value: &Value| match value {
        Value::String(text) => text.to_lowercase().starts_with("inf"),
        value => value.as_f64().is_none_or(|limit| limit >= 1e9),
    };
    match value.as_array().map(Vec::as_slice) {
        Some([low, high]) if is_lowest(low) && is_highest(high) => Ok(()),
        _ => {
            Err(Error::UnsupportedModel { setting: NAME, value: Fields::shown(value), supported: "from 0 to infinity" })
        }
    }
}
