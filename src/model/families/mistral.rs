//! Mistral: the standard decoder, with a sliding window in every layer in the first version of it and none later.

use super::Family;
use crate::backend::AttentionSpec;
use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::names;
use crate::model::spec::{Bias, DecoderSpec, SelfAttention};
use crate::model::standard::Standard;

/// Tokens of the window where the config does not say. One that says `null` has no window.
const WINDOW: usize = 4096;

pub const FAMILY: Family = Family {
    class: "MistralForCausalLM",
    model_type: "mistral",
    reads: &["sliding_window"],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let window = match fields.is_absent("sliding_window") {
        true => Some(WINDOW),
        false => fields.count_or_none("sliding_window")?,
    };
    let attention = standard.attention(standard.shared_width());
    let scores = AttentionSpec { window, ..attention.scores };
    let mlp = standard.mlp(Bias::None);
    Ok(standard.decoder(SelfAttention { scores, ..attention }, mlp))
}
