//! ERNIE 4.5, dense: the standard decoder, whose rotation turns neighbouring numbers of a head together.

use super::Family;
use crate::fields::Fields;
use crate::names;
use crate::spec::{DecoderSpec, SelfAttention};
use crate::standard::Standard;
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "ERNIE 4.5, dense",
    classes: &["Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"],
    model_type: "ernie4_5",
    defaults: || {
        json!({
            "head_dim": 128, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
            "tie_word_embeddings": true
        })
    },
    ignores: &[],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?.with_neighbours();
    let attention = attention(fields, &standard)?;
    let mlp = standard.mlp(fields.bias("use_bias")?);
    Ok(standard.decoder(attention, mlp))
}

/// Attention, also of the models with experts.
pub fn attention(fields: Fields, standard: &Standard) -> Result<SelfAttention> {
    let bias = fields.bias("use_bias")?;
    Ok(SelfAttention { qkv_bias: bias, output_bias: bias, ..standard.attention(standard.shared_width()) })
}
