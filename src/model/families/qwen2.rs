//! Qwen2 and Qwen2.5, dense: the standard decoder, whose queries, keys and values always have a bias.

use super::{Family, no_defaults};
use crate::fields::Fields;
use crate::names;
use crate::spec::{Bias, DecoderSpec, SelfAttention};
use crate::standard::Standard;
use base::error::Result;

pub const FAMILY: Family = Family {
    models: "Qwen2, Qwen2.5; DeepSeek-R1-Distill-Qwen",
    classes: &["Qwen2ForCausalLM"],
    model_type: "qwen2",
    defaults: no_defaults,
    // The window counts only with use_sliding_window, which is refused.
    ignores: &["sliding_window"],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let attention = SelfAttention { qkv_bias: Bias::Added, ..standard.attention(standard.shared_width()) };
    let mlp = standard.mlp(Bias::None);
    Ok(standard.decoder(attention, mlp))
}
