//! Qwen2 and Qwen2.5, dense: the standard decoder, whose queries, keys and values always have a bias.

use super::Family;
use crate::fields::Fields;
use crate::names;
use crate::spec::{Bias, DecoderSpec, SelfAttention};
use crate::standard::Standard;
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Qwen2, Qwen2.5; DeepSeek-R1-Distill-Qwen",
    classes: &["Qwen2ForCausalLM"],
    model_type: "qwen2",
    defaults: || json!({"sliding_window": 4096}),
    // The window counts only with use_sliding_window.
    ignores: &["sliding_window"],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let attention = SelfAttention { qkv_bias: Bias::Added, ..standard.attention(standard.shared_width()) };
    let mlp = standard.mlp(Bias::None);
    let windows = windows(fields, &standard)?;
    Ok(standard.decoder_with_windows(windows, attention, mlp))
}

/// The window of each layer, which `use_sliding_window` switches on: by `layer_types`, or else behind the first `max_window_layers`.
pub fn windows(fields: Fields, standard: &Standard) -> Result<Vec<Option<usize>>> {
    let first = max_window_layers(fields)?;
    standard.switched_windows(fields, |layer| layer >= first)
}

/// The layer that divides those with a window from those without, where `layer_types` does not say which they are.
pub fn max_window_layers(fields: Fields) -> Result<usize> {
    const NAME: &str = "max_window_layers";
    let Some(value) = fields.get(NAME) else { return Ok(28) };
    let layer = value.as_u64().map(|layer| layer as usize);
    layer.ok_or_else(|| fields.refuse(format!("{NAME} is {}, but must be a whole number", Fields::shown(value))))
}
