//! Ministral 3: the standard decoder, whose queries grow with their position.

use super::Family;
use crate::fields::Fields;
use crate::names;
use crate::rope::{PositionSettings, RopeDefaults};
use crate::spec::{Bias, DecoderSpec, SelfAttention};
use crate::standard::{Standard, max_position_embeddings};
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Ministral 3",
    classes: &["Ministral3ForCausalLM"],
    model_type: "ministral3",
    defaults: || json!({"head_dim": 128, "num_key_value_heads": 8, "rms_norm_eps": 1e-5}),
    ignores: &[],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let max_positions = max_position_embeddings(fields)?;
    let PositionSettings { rope, temperature } =
        PositionSettings::read(fields, max_positions, RopeDefaults::default())?;
    // The class has defaults for all of it together, which no published model relies on.
    let temperature =
        temperature.ok_or_else(|| fields.refuse("llama_4_scaling_beta is missing from rope_parameters".into()))?;
    let standard = Standard::with_ropes(fields, vec![rope])?;
    let attention = standard.attention(standard.shared_width());
    let scores = AttentionSpec { window: fields.count_or_none("sliding_window")?, ..attention.scores };
    let mlp = standard.mlp(Bias::None);
    Ok(standard.decoder(SelfAttention { scores, temperature: Some(temperature), ..attention }, mlp))
}
