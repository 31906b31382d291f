//! OLMo: the standard decoder, whose norms subtract the mean and have no weights.

use super::{Family, no_defaults};
use crate::fields::Fields;
use crate::names;
use crate::spec::{Bias, DecoderSpec, Norm, NormKind, NormWeight, SelfAttention, SublayerNorms};
use crate::standard::Standard;
use base::error::Result;

pub const FAMILY: Family = Family {
    models: "OLMo 1B and 7B of 2024",
    classes: &["OlmoForCausalLM"],
    model_type: "olmo",
    defaults: no_defaults,
    ignores: &[],
    names: &names::LLAMA,
    spec,
};

const NORM: Norm = Norm { kind: NormKind::Layer, eps: 1e-5, weight: NormWeight::Ones };

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let bias = fields.bias("attention_bias")?;
    let attention = standard.attention(standard.shared_width());
    let attention = SelfAttention { qkv_bias: bias, output_bias: bias, ..attention };
    let layer = standard.layer(attention, standard.mlp(Bias::None)).with_norms(SublayerNorms::before(NORM));
    let layers = vec![layer; standard.layers];
    Ok(DecoderSpec { final_norm: Some(NORM), ..standard.decoder_of(layers) })
}
