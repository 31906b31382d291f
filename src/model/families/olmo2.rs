//! OLMo 2: norms after the parts instead of before them, and one norm over all queries of a token and one over all its keys.

use super::Family;
use crate::fields::Fields;
use crate::names::{LLAMA, NORMS_AFTER, Names};
use crate::spec::{Bias, DecoderSpec, QkNorm, SelfAttention, SublayerNorms};
use crate::standard::Standard;
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "OLMo 2",
    classes: &["Olmo2ForCausalLM"],
    model_type: "olmo2",
    defaults: || json!({"rms_norm_eps": 1e-5}),
    ignores: &[],
    names: &NAMES,
    spec,
};

/// The names of families with norms after the parts alone.
pub const NAMES: Names = Names { mixer_norms: NORMS_AFTER.0, feed_forward_norms: NORMS_AFTER.1, ..LLAMA };

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let bias = fields.bias("attention_bias")?;
    let norms = SublayerNorms::after(standard.norm);
    let attention = SelfAttention {
        qk_norm: QkNorm::Whole(standard.norm),
        qkv_bias: bias,
        output_bias: bias,
        ..standard.attention(standard.shared_width())
    };
    let layer = standard.layer(attention, standard.mlp(Bias::None));
    let layers = vec![layer.with_norms(norms); standard.layers];
    Ok(standard.decoder_of(layers))
}
