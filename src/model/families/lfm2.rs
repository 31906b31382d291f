//! LFM2 and LFM2.5, dense: gated short convolutions in most layers, and attention with normalized queries and keys in the others.

use super::Family;
use crate::fields::Fields;
use crate::names::{AttentionNames, ConvNames, GateUpNames, LLAMA, LatentNames, MlpNames, Names, NormNames, QkvNames};
use crate::spec::{
    Bias, DecoderSpec, GatedShortConv, HeadWeights, LayerSpec, Mixer, Mlp, NormOrder, QkNorm, Recurrent, SelfAttention,
};
use crate::standard::{self, Standard};
use base::error::Result;
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "LFM2, LFM2.5, dense",
    classes: &["Lfm2ForCausalLM"],
    model_type: "lfm2",
    defaults: || {
        json!({
            "vocab_size": 65536, "hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 128000, "norm_eps": 1e-5, "rope_theta": 1e6,
            "tie_word_embeddings": true, "intermediate_size": 12288, "conv_L_cache": 3, "block_multiple_of": 256
        })
    },
    ignores: IGNORES,
    names: &NAMES,
    spec,
};

/// How weights were made, what other fields or tensors say, and what counts only where a width is adjusted.
const IGNORES: &[&str] = &[
    "block_dim",
    "block_ffn_dim_multiplier",
    "block_mlp_init_scale",
    "block_multiple_of",
    "block_norm_eps",
    "block_out_init_scale",
    "block_use_swiglu",
    "block_use_xavier_init",
    "conv_dim",
    "conv_dim_out",
    "conv_use_xavier_init",
    "num_heads",
    "theta",
    "use_pos_enc",
];

/// Names of LFM2's tensors.
pub const NAMES: Names = Names {
    mixer_norms: NormNames { before: "operator_norm", after: "" },
    attention: AttentionNames {
        qkv: QkvNames::Separate { query: "self_attn.q_proj", key: "self_attn.k_proj", value: "self_attn.v_proj" },
        output: "self_attn.out_proj",
        latent: LatentNames::NONE,
        gate: "",
        query_norm: "self_attn.q_layernorm",
        key_norm: "self_attn.k_layernorm",
        sinks: "",
    },
    short_conv: ConvNames { input: "conv.in_proj", conv: "conv.conv", output: "conv.out_proj" },
    feed_forward_norms: NormNames { before: "ffn_norm", after: "" },
    mlp: MlpNames {
        gate_up: GateUpNames::Separate { gate: "feed_forward.w1", up: "feed_forward.w3" },
        down: "feed_forward.w2",
    },
    final_norm: "embedding_norm",
    ..LLAMA
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = standard(fields)?;
    let mlp = Mlp { width: mlp_width(fields)?, ..standard.mlp(Bias::None) };
    let layers = layers(fields, &standard, mlp)?;
    Ok(standard.decoder_of(layers))
}

/// What LFM2 has in common with other families, under its names.
pub fn standard(fields: Fields) -> Result<Standard> {
    let standard = Standard::read(fields)?.with_norm_eps(fields.factor("norm_eps")?);
    Ok(match fields.flag("tie_embedding")? {
        Some(true) => standard.with_head(HeadWeights::Tied),
        Some(false) => standard.with_head(HeadWeights::Own),
        None => standard,
    })
}

/// The layers, with this MLP in each.
pub fn layers(fields: Fields, standard: &Standard, mlp: Mlp) -> Result<Vec<LayerSpec>> {
    let attention = SelfAttention {
        qk_norm: QkNorm::PerHead { norm: standard.norm, order: NormOrder::BeforeRope },
        ..standard.attention(standard.shared_width())
    };
    let conv = GatedShortConv { taps: fields.count("conv_L_cache")?, bias: fields.bias("conv_bias")? };
    let layer = |is_conv: bool| {
        let layer = standard.layer(attention.clone(), mlp.clone());
        match is_conv {
            true => layer.with_mixer(Mixer::Recurrent(Recurrent::ShortConv(conv.clone()))),
            false => layer,
        }
    };
    Ok(conv_layers(fields, standard.layers)?.into_iter().map(layer).collect())
}

/// Which layers have a convolution: by `layer_types`, or else all but those of `full_attn_idxs`, or none where neither is given.
fn conv_layers(fields: Fields, layers: usize) -> Result<Vec<bool>> {
    let types: (&[_], &[_]) = (&["conv"], &["full_attention"]);
    if let Some(convs) = standard::recurrent_layers(fields, layers, types, "full_attention or conv")? {
        return Ok(convs);
    }
    let Some(value) = fields.get("full_attn_idxs") else { return Ok(vec![false; layers]) };
    let indices = value.as_array().and_then(|list| list.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>());
    let indices = indices.filter(|list| list.iter().all(|&index| index < layers as u64)).ok_or_else(|| {
        fields.refuse(format!("full_attn_idxs must be a list of layers, whole numbers below {layers}"))
    })?;
    Ok((0..layers as u64).map(|layer| !indices.contains(&layer)).collect())
}

/// Outputs of the gate: two thirds of what the config says, a factor applied, in whole blocks, unless `block_auto_adjust_ff_dim` is false.
fn mlp_width(fields: Fields) -> Result<usize> {
    let given = match fields.count_or_none("block_ff_dim")? {
        Some(width) => width,
        None => fields.count("intermediate_size")?,
    };
    if fields.flag("block_auto_adjust_ff_dim")? == Some(false) {
        return Ok(given);
    }
    let shared = 2 * given / 3;
    // transformers applies neither without a factor that is there.
    if fields.get("block_ffn_dim_multiplier").is_some_and(Value::is_null) {
        return Ok(shared);
    }
    let factor = fields.positive_or_none("block_ffn_dim_multiplier")?.unwrap_or(1.0);
    let width = (factor * shared as f64) as usize;
    Ok(width.next_multiple_of(fields.count("block_multiple_of")?))
}
