//! Mamba-2: every layer is a selective scan behind a norm, and none has attention or an MLP.

use super::granite_hybrid::refuse_time_steps;
use super::{Family, nemotron_h};
use crate::fields::Fields;
use crate::spec::{
    Branch, DecoderSpec, GroupNorm, LayerSpec, Mixer, Part, Recurrent, ScanScales, StateSpace, StreamScale, Sublayer,
    SublayerNorms,
};
use crate::standard::Standard;
use base::error::Result;
use base::limits;
use compute::{GateOrder, ScanHeads};
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Mamba-2, Mamba-Codestral",
    classes: &["Mamba2ForCausalLM"],
    model_type: "mamba2",
    defaults: || {
        json!({
            "vocab_size": 32768, "hidden_size": 4096, "num_hidden_layers": 64, "num_heads": 128, "head_dim": 64, "state_size": 128,
            "n_groups": 8, "conv_kernel": 4, "expand": 2, "use_conv_bias": true, "layer_norm_epsilon": 1e-5,
            // Of parts that no layer has, and positions that no layer reads.
            "num_attention_heads": 1, "intermediate_size": 1, "max_position_embeddings": 1_048_576
        })
    },
    // How weights were made, how sums are cut, and an older name of an epsilon. The stream is always f32.
    ignores: &[
        "chunk_size",
        "time_step_rank",
        "time_step_floor",
        "time_step_max",
        "time_step_min",
        "rescale_prenorm_residual",
        "residual_in_fp32",
        "norm_before_gate",
        "rms_norm",
    ],
    names: &nemotron_h::NAMES,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::with_ropes(fields, Vec::new())?.with_norm_eps(fields.factor("layer_norm_epsilon")?);
    let scan = Part::Mixer(Mixer::Recurrent(Recurrent::StateSpace(state_space(fields, &standard)?)));
    let norms = SublayerNorms::before(standard.norm);
    let sublayers = vec![Sublayer { norms, branches: vec![Branch::new(scan, 1.0)] }];
    let layers = vec![LayerSpec { sublayers, stream_scale: StreamScale::One }; standard.layers];
    Ok(standard.decoder_of(layers))
}

fn state_space(fields: Fields, standard: &Standard) -> Result<StateSpace> {
    refuse_time_steps(fields)?;
    let (heads, head_dim) = (fields.count_up_to("num_heads", limits::HEADS)?, fields.count("head_dim")?);
    let width = fields.count("expand")? * standard.hidden;
    if heads * head_dim != width {
        return Err(fields.refuse(format!(
            "num_heads is {heads} and head_dim is {head_dim}, but together they must be expand * hidden_size, {width}"
        )));
    }
    Ok(StateSpace {
        heads: ScanHeads {
            heads,
            groups: fields.count_up_to("n_groups", limits::HEADS)?,
            head_dim,
            state_dim: fields.count("state_size")?,
        },
        taps: fields.count("conv_kernel")?,
        conv_bias: fields.bias("use_conv_bias")?,
        bias: fields.bias("use_bias")?,
        scales: ScanScales::ONE,
        norm: Some(GroupNorm { eps: standard.norm.eps, order: GateOrder::BeforeNorm }),
    })
}
