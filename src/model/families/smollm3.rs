//! SmolLM3: the standard decoder, of which every fourth layer has no rotary embedding. Those layers may have a window.

use super::Family;
use crate::fields::Fields;
use crate::names;
use crate::spec::{DecoderSpec, SelfAttention};
use crate::standard::Standard;
use base::error::Result;
use compute::AttentionSpec;
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "SmolLM3",
    classes: &["SmolLM3ForCausalLM"],
    model_type: "smollm3",
    defaults: || json!({"tie_word_embeddings": true, "rope_theta": 2000000.0, "num_key_value_heads": 4}),
    ignores: &[],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let rotates = rotated_layers(fields, standard.layers)?;
    let uses_window = fields.flag("use_sliding_window")? == Some(true) && fields.get("sliding_window").is_some();
    let windows = standard.windows(fields, |layer| uses_window && !rotates[layer])?;
    if !uses_window && windows.iter().any(Option::is_some) {
        return Err(fields.refuse("layer_types has sliding_attention, but use_sliding_window is not true".into()));
    }
    let bias = fields.bias("attention_bias")?;
    let mlp = standard.mlp(fields.bias("mlp_bias")?);
    let layer = |(window, rotates): (Option<usize>, bool)| {
        let attention = standard.attention(standard.shared_width());
        let scores = AttentionSpec { window, ..attention.scores };
        let rope = attention.rope.filter(|_| rotates);
        standard.layer(SelfAttention { scores, rope, qkv_bias: bias, output_bias: bias, ..attention }, mlp.clone())
    };
    let layers = windows.into_iter().zip(rotates).map(layer).collect();
    Ok(standard.decoder_of(layers))
}

/// Which layers have a rotary embedding: those with a 1 in `no_rope_layers`, or else all but every `no_rope_layer_interval`-th.
fn rotated_layers(fields: Fields, layers: usize) -> Result<Vec<bool>> {
    let interval = fields.count_or_none("no_rope_layer_interval")?.unwrap_or(4);
    let Some(list) = fields.get("no_rope_layers") else {
        return Ok((1..=layers).map(|layer| !layer.is_multiple_of(interval)).collect());
    };
    let flags = list.as_array().filter(|list| list.len() >= layers);
    let flag = |value: &Value| value.as_u64().filter(|&flag| flag <= 1).map(|flag| flag == 1);
    let rotates = flags.and_then(|flags| flags.iter().take(layers).map(flag).collect());
    rotates.ok_or_else(|| {
        fields.refuse(format!("no_rope_layers must be a list of 0 and 1 for each of the {layers} layers"))
    })
}
