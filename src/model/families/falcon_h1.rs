//! Falcon-H1: Mamba-2 and attention side by side in every layer, then an MLP, with factors of what each of them reads and computes.
//!
//! A factor of what a layer adds to the stream is one of its branch. Factors of queries and keys are one of the scores, and that of values one of the
//! branch. What the projection into the scan makes has a factor for each of its kinds of rows.

use super::Family;
use super::granite_hybrid::refuse_time_steps;
use crate::fields::Fields;
use crate::names::{GateUpNames, LLAMA, MlpNames, Names, NormNames, RateNames, ScanNames};
use crate::spec::{
    Activation, Bias, Branch, DecoderSpec, FeedForward, GroupNorm, Head, LayerSpec, Mixer, Mlp, MlpForm, Part,
    Recurrent, ScanScales, SelfAttention, StateSpace, StreamScale, Sublayer, SublayerNorms,
};
use crate::standard::Standard;
use base::error::Result;
use base::limits;
use compute::{AttentionSpec, GateOrder, ScanHeads};
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "Falcon-H1",
    classes: &["FalconH1ForCausalLM"],
    model_type: "falcon_h1",
    defaults: || {
        json!({
            "rms_norm_eps": 1e-5, "num_key_value_heads": 8, "max_position_embeddings": 8192, "mamba_d_ssm": 1024, "mamba_n_heads": 128,
            "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true,
            "mamba_norm_before_gate": true, "embedding_multiplier": 1.0, "lm_head_multiplier": 1.0, "key_multiplier": 1.0,
            "attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0, "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0
        })
    },
    // How sums are cut; what the class does not read; and the kind of every layer.
    ignores: &[
        "mamba_chunk_size",
        "mamba_use_mlp",
        "mlp_expansion_factor",
        "num_logits_to_keep",
        "layers_block_type",
        "attn_layer_indices",
    ],
    names: &NAMES,
    spec,
};

/// Names of the tensors.
pub const NAMES: Names = Names {
    scan: ScanNames {
        input: "mamba.in_proj",
        conv: "mamba.conv1d",
        rates: RateNames::Logarithms("mamba.A_log"),
        dt_bias: "mamba.dt_bias",
        skip: "mamba.D",
        norm: "mamba.norm",
        output: "mamba.out_proj",
    },
    feed_forward_norms: NormNames { before: "pre_ff_layernorm", after: "" },
    mlp: MlpNames {
        gate_up: GateUpNames::Separate { gate: "feed_forward.gate_proj", up: "feed_forward.up_proj" },
        down: "feed_forward.down_proj",
    },
    final_norm: "final_layernorm",
    ..LLAMA
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    refuse_time_steps(fields)?;
    // What a factor of the input of a layer is to its bias, no op knows.
    for name in ["attention_bias", "mamba_proj_bias", "projectors_bias"] {
        fields.must_be(name, false)?;
    }
    let standard = Standard::read(fields)?;
    let [of_input, of_keys] = ["attention_in_multiplier", "key_multiplier"].map(|name| fields.factor(name));
    let (of_input, of_keys) = (of_input?, of_keys?);
    let attention = standard.attention(standard.shared_width());
    let scale = attention.scores.scale * of_input * of_input * of_keys;
    let attention = SelfAttention { scores: AttentionSpec { scale, ..attention.scores }, ..attention };
    let [gate_scale, of_mlp] = factors(fields, "mlp_multipliers")?;
    let form = MlpForm::Gated { activation: Activation::Silu, gate_scale };
    let mlp = Mlp { form, ..standard.mlp(fields.bias("mlp_bias")?) };
    let scan = state_space(fields, &standard)?;
    let norms = SublayerNorms::before(standard.norm);
    let mixers = [
        (Mixer::Recurrent(Recurrent::StateSpace(scan)), fields.factor("ssm_out_multiplier")?),
        (Mixer::Attention(attention), of_input * fields.factor("attention_out_multiplier")?),
    ];
    let mixers = mixers.map(|(mixer, scale)| Branch::new(Part::Mixer(mixer), scale));
    let feed_forward = Branch::new(Part::FeedForward(FeedForward::Dense(mlp)), of_mlp);
    let sublayers = vec![Sublayer { norms, branches: mixers.into() }, Sublayer { norms, branches: vec![feed_forward] }];
    let layers = vec![LayerSpec { sublayers, stream_scale: StreamScale::One }; standard.layers];
    let decoder = standard.decoder_of(layers);
    let head = Head { scale: fields.factor("lm_head_multiplier")?, ..decoder.head };
    Ok(DecoderSpec { embedding_scale: fields.factor("embedding_multiplier")?, head, ..decoder })
}

fn state_space(fields: Fields, standard: &Standard) -> Result<StateSpace> {
    let heads = fields.count_up_to("mamba_n_heads", limits::HEADS)?;
    let width = match fields.count_or_none("mamba_d_ssm")? {
        Some(width) => width,
        None => fields.count("mamba_expand")? * standard.hidden,
    };
    // "auto" stands for what the other fields say.
    let head_dim = match fields.get("mamba_d_head").filter(|value| !value.is_string()) {
        Some(_) => fields.count("mamba_d_head")?,
        None => width / heads,
    };
    if heads * head_dim != width {
        return Err(fields.refuse(format!(
            "mamba_n_heads is {heads} and mamba_d_head is {head_dim}, but together they must be mamba_d_ssm, {width}"
        )));
    }
    fields.pass_over(&["mamba_expand"]);
    let groups = fields.count_up_to("mamba_n_groups", limits::HEADS)?;
    let of_input = fields.factor("ssm_in_multiplier")?;
    let [gate, x, b, c, step] = factors(fields, "ssm_multipliers")?.map(|factor| of_input * factor);
    let order = match fields.flag("mamba_norm_before_gate")? {
        Some(false) => GateOrder::BeforeNorm,
        _ => GateOrder::AfterNorm,
    };
    let has_norm = fields.flag("mamba_rms_norm")? == Some(true);
    Ok(StateSpace {
        heads: ScanHeads { heads, groups, head_dim, state_dim: fields.count("mamba_d_state")? },
        taps: fields.count("mamba_d_conv")?,
        conv_bias: fields.bias("mamba_conv_bias")?,
        bias: Bias::None,
        scales: ScanScales { gate, x, b, c, step },
        norm: has_norm.then_some(GroupNorm { eps: standard.norm.eps, order }),
    })
}

/// A list of factors, which are ones where there is none.
fn factors<const N: usize>(fields: Fields, name: &str) -> Result<[f32; N]> {
    let Some(value) = fields.get(name) else { return Ok([1.0; N]) };
    let factor =
        |value: &Value| value.as_f64().map(|factor| factor as f32).filter(|factor| factor.is_finite() && *factor > 0.0);
    let list = value.as_array().and_then(|list| list.iter().map(factor).collect::<Option<Vec<_>>>());
    list.and_then(|list| list.try_into().ok()).ok_or_else(|| {
        fields.refuse(format!("{name} is {}, but must be a list of {N} numbers above 0", Fields::shown(value)))
    })
}
