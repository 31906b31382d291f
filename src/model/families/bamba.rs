//! Bamba: Mamba-2 in most layers and attention in those that the config lists, of whose heads a half rotates, each before an MLP.

use super::{Family, falcon_h1, granite_hybrid};
use crate::fields::Fields;
use crate::names::Names;
use crate::spec::{DecoderSpec, Mixer, Recurrent, SelfAttention};
use crate::standard::{Standard, partial_rope};
use base::error::Result;
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "Bamba",
    classes: &["BambaForCausalLM"],
    model_type: "bamba",
    defaults: || {
        json!({
            "rms_norm_eps": 1e-5, "num_key_value_heads": 8, "max_position_embeddings": 262144, "partial_rotary_factor": 0.5,
            "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_conv_bias": true
        })
    },
    // How sums are cut, of training, and the kind of every layer once more.
    ignores: &["mamba_chunk_size", "num_logits_to_keep", "z_loss_coefficient", "layers_block_type", "layer_types"],
    names: &NAMES,
    spec,
};

const NAMES: Names = falcon_h1::NAMES;

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::with_ropes(fields, vec![partial_rope(fields)?])?;
    let bias = fields.bias("attention_bias")?;
    let attention = SelfAttention { qkv_bias: bias, output_bias: bias, ..standard.attention(standard.shared_width()) };
    let rotary = standard.ropes()[0].rotary(attention.head_dim);
    if let Some(other) = fields.count_or_none("attn_rotary_emb")?.filter(|&numbers| numbers != rotary) {
        return Err(fields.refuse(format!("attn_rotary_emb is {other}, but {rotary} numbers of each head rotate")));
    }
    let mlp = standard.mlp(fields.bias("mlp_bias")?);
    let scan = Mixer::Recurrent(Recurrent::StateSpace(granite_hybrid::state_space(fields, &standard)?));
    let with_attention = attention_layers(fields, standard.layers)?;
    let layer = |index| {
        let layer = standard.layer(attention.clone(), mlp.clone());
        if with_attention.contains(&index) { layer } else { layer.with_mixer(scan.clone()) }
    };
    let layers = (0..standard.layers).map(layer).collect();
    Ok(standard.decoder_of(layers))
}

/// The layers with attention. None where the config does not say.
fn attention_layers(fields: Fields, layers: usize) -> Result<Vec<usize>> {
    const NAME: &str = "attn_layer_indices";
    let Some(value) = fields.get(NAME).filter(|value| !value.is_null()) else { return Ok(Vec::new()) };
    let index = |value: &Value| value.as_u64().map(|index| index as usize).filter(|&index| index < layers);
    let indices = value.as_array().and_then(|list| list.iter().map(index).collect());
    indices.ok_or_else(|| {
        let shown = Fields::shown(value);
        fields
            .refuse(format!("{NAME} is {shown}, but must be a list of whole numbers below num_hidden_layers, {layers}"))
    })
}
