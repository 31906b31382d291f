//! Mistral: the standard decoder, with a sliding window in every layer in the first version of it and none later.

use super::Family;
use crate::fields::Fields;
use crate::names;
use crate::spec::{Bias, DecoderSpec, SelfAttention};
use crate::standard::Standard;
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Mistral 7B, Mistral Nemo, Mistral Small 3",
    classes: &["MistralForCausalLM"],
    model_type: "mistral",
    // One that says `null` has no window.
    defaults: || json!({"sliding_window": 4096}),
    ignores: &[],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let window = fields.count_or_none("sliding_window")?;
    let attention = standard.attention(standard.shared_width());
    let scores = AttentionSpec { window, ..attention.scores };
    let mlp = standard.mlp(Bias::None);
    Ok(standard.decoder(SelfAttention { scores, ..attention }, mlp))
}
