//! Nemotron-H, Nemotron Nano 2 and Nemotron 3: layers of one sublayer each, which is Mamba-2, attention without a rotary embedding, an MLP without a gate, or a
//! mixture of such MLPs.
//!
//! Steps of the scan have no bounds, as in single steps of transformers; in a prompt, transformers takes at least `time_step_min`.

mod experts;
mod kinds;

use super::Family;
use super::granite_hybrid::refuse_time_steps;
use crate::fields::Fields;
use crate::names::{AttentionNames, GateUpNames, LLAMA, MlpNames, Names, NormNames, QkvNames, RateNames, ScanNames};
use crate::spec::{
    Branch, Curve, DecoderSpec, FeedForward, GroupNorm, LayerSpec, Mixer, Mlp, MlpForm, Part, Recurrent, ScanScales,
    SelfAttention, StateSpace, StreamScale, Sublayer, SublayerNorms,
};
use crate::standard::Standard;
use base::error::{Error, Result};
use base::limits;
use compute::{GateOrder, ScanHeads};
use kinds::Kind;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Nemotron-H, Nemotron Nano 2, Nemotron 3 Nano and Super",
    classes: &["NemotronHForCausalLM"],
    model_type: "nemotron_h",
    defaults: || {
        json!({
            "num_key_value_heads": 8, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128,
            "conv_kernel": 4, "use_conv_bias": true, "layer_norm_epsilon": 1e-5, "mlp_hidden_act": "relu2",
            "max_position_embeddings": 4096
        })
    },
    ignores: IGNORES,
    names: &NAMES,
    spec,
};

/// Fields of predictors of further tokens, in which order experts are computed, how weights were made, how sums are cut, and an epsilon that the class does not read.
const IGNORES: &[&str] = &[
    "moe_shared_expert_overlap",
    "mtp_layers_block_type",
    "mtp_hybrid_override_pattern",
    "num_nextn_predict_layers",
    "chunk_size",
    "expand",
    "rms_norm_eps",
    "time_step_floor",
    "time_step_max",
    "time_step_min",
    "rescale_prenorm_residual",
    "residual_in_fp32",
    "mamba_proj_bias",
    "mamba_ssm_cache_dtype",
    "use_mamba_kernels",
    "num_logits_to_keep",
    "hidden_dropout",
];

const NORM: NormNames = NormNames { before: "norm", after: "" };

/// Each layer has one part under one name.
pub const NAMES: Names = Names {
    embedding: "embeddings",
    mixer_norms: NORM,
    attention: AttentionNames {
        qkv: QkvNames::Separate { query: "mixer.q_proj", key: "mixer.k_proj", value: "mixer.v_proj" },
        output: "mixer.o_proj",
        ..LLAMA.attention
    },
    scan: ScanNames {
        input: "mixer.in_proj",
        conv: "mixer.conv1d",
        rates: RateNames::Logarithms("mixer.A_log"),
        dt_bias: "mixer.dt_bias",
        skip: "mixer.D",
        norm: "mixer.norm",
        output: "mixer.out_proj",
    },
    feed_forward_norms: NORM,
    mlp: MlpNames { gate_up: GateUpNames::Separate { gate: "", up: "mixer.up_proj" }, down: "mixer.down_proj" },
    experts: experts::NAMES,
    final_norm: "norm_f",
    ..LLAMA
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let kinds = kinds::read(fields)?;
    refuse_other_forms(fields)?;
    // Nothing rotates.
    let standard =
        Standard::of_layers(fields, Vec::new(), kinds.len())?.with_norm_eps(fields.factor("layer_norm_epsilon")?);
    // Under its older name, and the default of the class.
    let head_dim = fields.count_or_none("attention_head_dim")?.unwrap_or(128);
    let attention = SelfAttention { rope: None, ..standard.attention(head_dim) };
    let scan = state_space(fields, &standard)?;
    let mlp = Mlp { form: MlpForm::Ungated(Curve::ReluSquared), ..standard.mlp(fields.bias("mlp_bias")?) };
    let norms = SublayerNorms::before(standard.norm);
    let experts = experts::read(fields, &kinds, &mlp)?;
    let layer = |kind| {
        let parts = match kind {
            Kind::Scan => vec![Part::Mixer(Mixer::Recurrent(Recurrent::StateSpace(scan.clone())))],
            Kind::Attention => vec![Part::Mixer(Mixer::Attention(attention.clone()))],
            Kind::Mlp => vec![Part::FeedForward(FeedForward::Dense(mlp.clone()))],
            Kind::Experts => {
                let parts = experts.clone().expect("read for such layers");
                parts.into_iter().map(Part::FeedForward).collect()
            }
        };
        let branches = parts.into_iter().map(|part| Branch::new(part, 1.0)).collect();
        LayerSpec { sublayers: vec![Sublayer { norms, branches }], stream_scale: StreamScale::One }
    };
    let layers = kinds.into_iter().map(layer).collect();
    Ok(standard.decoder_of(layers))
}

fn state_space(fields: Fields, standard: &Standard) -> Result<StateSpace> {
    refuse_time_steps(fields)?;
    let heads = |name| fields.count_up_to(name, limits::HEADS);
    Ok(StateSpace {
        heads: ScanHeads {
            heads: heads("mamba_num_heads")?,
            groups: heads("n_groups")?,
            head_dim: fields.count("mamba_head_dim")?,
            state_dim: fields.count("ssm_state_size")?,
        },
        taps: fields.count("conv_kernel")?,
        conv_bias: fields.bias("use_conv_bias")?,
        bias: fields.bias("use_bias")?,
        scales: ScanScales::ONE,
        norm: Some(GroupNorm { eps: standard.norm.eps, order: GateOrder::BeforeNorm }),
    })
}

/// Refuses other activations, biases of attention and a tied head: no published model has them, and transformers would not compute the last two.
fn refuse_other_forms(fields: Fields) -> Result<()> {
    for name in ["attention_bias", "tie_word_embeddings"] {
        fields.must_be(name, false)?;
    }
    for (setting, supported) in [("mlp_hidden_act", "relu2"), ("mamba_hidden_act", "silu")] {
        if let Some(other) = fields.text(setting)?.filter(|&found| found != supported) {
            return Err(Error::UnsupportedModel { setting, value: format!("{other:.60}"), supported });
        }
    }
    Ok(())
}
