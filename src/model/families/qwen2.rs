//! Qwen2 and Qwen2.5, dense: the standard decoder, whose queries, keys and values always have a bias.

use super::Family;
use crate::error::Result;
use crate::model::fields::Fields;
use crate::model::names;
use crate::model::spec::{Bias, DecoderSpec, SelfAttention};
use crate::model::standard::Standard;

pub const FAMILY: Family = Family {
    class: "Qwen2ForCausalLM",
    model_type: "qwen2",
    // The window counts only with use_sliding_window, which is refused.
    reads: &["sliding_window"],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let attention = SelfAttention { qkv_bias: Bias::Added, ..standard.attention(standard.shared_width()) };
    let mlp = standard.mlp(Bias::None);
    Ok(standard.decoder(attention, mlp))
}
