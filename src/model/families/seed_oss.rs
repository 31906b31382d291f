//! Seed-OSS: the standard decoder, whose attention has a bias on its way in and may have one on its way out.

use super::Family;
use crate::fields::Fields;
use crate::names;
use crate::spec::{DecoderSpec, SelfAttention};
use crate::standard::Standard;
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Seed-OSS",
    classes: &["SeedOssForCausalLM"],
    model_type: "seed_oss",
    defaults: || json!({"attention_bias": true, "head_dim": 128, "num_key_value_heads": 8}),
    ignores: &[],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let attention = SelfAttention {
        qkv_bias: fields.bias("attention_bias")?,
        output_bias: fields.bias("attention_out_bias")?,
        ..standard.attention(standard.shared_width())
    };
    let mlp = standard.mlp(fields.bias("mlp_bias")?);
    Ok(standard.decoder(attention, mlp))
}
