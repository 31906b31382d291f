//! Llama 2 and 3: the standard decoder, whose biases the config may switch on.

use super::{Family, no_defaults};
use crate::fields::Fields;
use crate::names;
use crate::spec::{DecoderSpec, SelfAttention};
use crate::standard::Standard;
use base::error::Result;

pub const FAMILY: Family = Family {
    models: "Llama 2, 3, 3.1, 3.2, 3.3; SmolLM2; DeepSeek-R1-Distill-Llama",
    classes: &["LlamaForCausalLM"],
    model_type: "llama",
    defaults: no_defaults,
    ignores: &[],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let bias = fields.bias("attention_bias")?;
    let attention = SelfAttention { qkv_bias: bias, output_bias: bias, ..standard.attention(standard.shared_width()) };
    let mlp = standard.mlp(fields.bias("mlp_bias")?);
    Ok(standard.decoder(attention, mlp))
}
