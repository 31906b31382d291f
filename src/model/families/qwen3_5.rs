//! Qwen3.5, 3.6 and 3.8, dense: three layers with a gated delta rule to one with attention, whose output has a gate of its own that the projection to
//! queries makes too. A quarter of each head rotates; norms have weights stored less one, but for those of the delta rule.

use super::Family;
use crate::fields::Fields;
use crate::names::{DeltaInputNames, DeltaNames, LLAMA, Names, RateNames};
use crate::spec::{
    Bias, DecoderSpec, GatedDelta, LayerSpec, Mixer, Mlp, MlpForm, NormOrder, OutputGate, QkNorm, Recurrent,
    SelfAttention,
};
use crate::standard::{self, Standard, activation, partial_rope};
use base::error::Result;
use base::limits;
use compute::{DeltaHeads, ValueOrder};
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Qwen3.5, Qwen3.6 and Qwen3.8, dense",
    classes: &["Qwen3_5ForCausalLM"],
    model_type: "qwen3_5_text",
    defaults: || {
        json!({
            "vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 32,
            "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6, "partial_rotary_factor": 0.25, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
            "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32
        })
    },
    // Positions of text are the same on each axis. What predicts further tokens is left aside, and the state is always f32.
    ignores: &[
        "mrope_section",
        "mrope_interleaved",
        "mtp_num_hidden_layers",
        "mtp_use_dedicated_embeddings",
        "mamba_ssm_dtype",
        "mlp_only_layers",
    ],
    names: &NAMES,
    spec,
};

/// Names of Qwen3.5's tensors.
pub const NAMES: Names = Names {
    delta: DeltaNames {
        input: DeltaInputNames::Separate {
            qkv: "linear_attn.in_proj_qkv",
            gate: "linear_attn.in_proj_z",
            b: "linear_attn.in_proj_b",
            a: "linear_attn.in_proj_a",
        },
        conv: "linear_attn.conv1d",
        rates: RateNames::Logarithms("linear_attn.A_log"),
        dt_bias: "linear_attn.dt_bias",
        norm: "linear_attn.norm",
        output: "linear_attn.out_proj",
    },
    ..LLAMA
};

/// One layer of this many has attention where the config does not say which.
const INTERVAL: usize = 4;

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let (standard, layers) = layers(fields)?;
    Ok(standard.decoder_of(layers))
}

/// The layers of dense models, and what they have in common with other families.
pub fn layers(fields: Fields) -> Result<(Standard, Vec<LayerSpec>)> {
    let standard = Standard::with_ropes(fields, vec![partial_rope(fields)?])?;
    // The gated norms have the same epsilon, and their weights are stored as they are.
    let norm_eps = standard.norm.eps;
    let standard = standard.with_norms_plus_one();
    fields.must_be("attn_output_gate", true)?;
    let bias = fields.bias("attention_bias")?;
    let attention = SelfAttention {
        qk_norm: QkNorm::PerHead { norm: standard.norm, order: NormOrder::BeforeRope },
        qkv_bias: bias,
        output_bias: bias,
        output_gate: OutputGate::SigmoidInQueries,
        ..standard.attention(standard.shared_width())
    };
    let heads = |name| fields.count_up_to(name, limits::HEADS);
    let delta = GatedDelta {
        heads: DeltaHeads {
            keys: heads("linear_num_key_heads")?,
            values: heads("linear_num_value_heads")?,
            order: ValueOrder::Grouped,
            key_dim: fields.count("linear_key_head_dim")?,
            value_dim: fields.count("linear_value_head_dim")?,
        },
        taps: fields.count("linear_conv_kernel_dim")?,
        norm_eps,
    };
    let mlp = Mlp { form: MlpForm::gated(activation(fields, "hidden_act")?), ..standard.mlp(Bias::None) };
    let recurrent = recurrent_layers(fields, standard.layers)?;
    let layer = |is_recurrent: bool| {
        let layer = standard.layer(attention.clone(), mlp.clone());
        match is_recurrent {
            true => layer.with_mixer(Mixer::Recurrent(Recurrent::GatedDelta(delta.clone()))),
            false => layer,
        }
    };
    let layers = recurrent.into_iter().map(layer).collect();
    Ok((standard, layers))
}

/// Which layers have a gated delta rule: by `layer_types`, or else all but every `full_attention_interval`-th.
///
/// # Errors
///
/// [`Error::ModelFile`] for a list of another length, and where the two contradict each other; [`Error::UnsupportedModel`] for another type of layer.
fn recurrent_layers(fields: Fields, layers: usize) -> Result<Vec<bool>> {
    let interval = fields.count_or_none("full_attention_interval")?;
    let by_interval = |layer: usize| !(layer + 1).is_multiple_of(interval.unwrap_or(INTERVAL));
    let types: (&[_], &[_]) = (&["linear_attention"], &["full_attention"]);
    let given = standard::recurrent_layers(fields, layers, types, "full_attention or linear_attention")?;
    let Some(recurrent) = given else { return Ok((0..layers).map(by_interval).collect()) };
    match interval {
        Some(interval) if (0..layers).any(|layer| recurrent[layer] != by_interval(layer)) => {
            Err(fields
                .refuse(format!("layer_types says something else than full_attention_interval, which is {interval}")))
        }
        _ => Ok(recurrent),
    }
}
