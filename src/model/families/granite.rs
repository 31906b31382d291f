//! Granite 3, dense: the standard decoder with factors of the embeddings, of the scores, of what each part adds to the stream,
//! and of the logits.

use super::Family;
use crate::fields::Fields;
use crate::names;
use crate::spec::{DecoderSpec, Head, Mlp, SelfAttention};
use crate::standard::Standard;
use base::error::Result;
use compute::AttentionSpec;
use serde_json::{Value, json};

pub const FAMILY: Family = Family {
    models: "Granite 3, dense",
    classes: &["GraniteForCausalLM"],
    model_type: "granite",
    defaults: || with_factors(json!({})),
    ignores: &[],
    names: &names::LLAMA,
    spec,
};

/// The defaults of a class with these factors, and `fields` besides.
pub fn with_factors(mut fields: Value) -> Value {
    for factor in ["embedding_multiplier", "attention_multiplier", "residual_multiplier", "logits_scaling"] {
        fields[factor] = json!(1.0);
    }
    fields
}

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let mlp = standard.mlp(fields.bias("mlp_bias")?);
    decoder(fields, standard, mlp, Some(0))
}

/// The decoder with its factors, of the dense models of both classes.
pub fn decoder(fields: Fields, standard: Standard, mlp: Mlp, rope: Option<usize>) -> Result<DecoderSpec> {
    let bias = fields.bias("attention_bias")?;
    let attention = standard.attention(standard.shared_width());
    let scores = AttentionSpec { scale: fields.factor("attention_multiplier")?, ..attention.scores };
    let attention = SelfAttention { scores, rope, qkv_bias: bias, output_bias: bias, ..attention };
    let layer = standard.layer(attention, mlp).with_scale(fields.factor("residual_multiplier")?);
    let layers = vec![layer; standard.layers];
    let decoder = standard.decoder_of(layers);
    let head = Head { scale: 1.0 / fields.factor("logits_scaling")?, ..decoder.head };
    Ok(DecoderSpec { embedding_scale: fields.factor("embedding_multiplier")?, head, ..decoder })
}
