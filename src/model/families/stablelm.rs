//! StableLM 2: layer norms with biases, a rotation of a quarter of each head, and parts that may run side by side.

use super::Family;
use crate::fields::Fields;
use crate::names;
use crate::rope::RopeDefaults;
use crate::spec::{Bias, DecoderSpec, Norm, NormKind, SelfAttention, SublayerNorms};
use crate::standard::{Standard, partial_rope_with};
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "StableLM 3B, StableLM 2 1.6B, Stable Code 3B",
    classes: &["StableLmForCausalLM"],
    model_type: "stablelm",
    defaults: || json!({"num_key_value_heads": 32, "layer_norm_eps": 1e-5}),
    ignores: &[],
    names: &names::LLAMA,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    fields.must_be("qk_layernorm", false)?;
    let rope = partial_rope_with(fields, RopeDefaults { rotary_factor: 0.25, ..RopeDefaults::default() })?;
    let standard = Standard::with_ropes(fields, vec![rope])?;
    let norm = Norm { kind: NormKind::LayerBiased, eps: fields.factor("layer_norm_eps")?, ..standard.norm };
    let attention = standard.attention(standard.shared_width());
    let attention = SelfAttention { qkv_bias: fields.bias("use_qkv_bias")?, ..attention };
    let (layer, norms) = (standard.layer(attention, standard.mlp(Bias::None)), SublayerNorms::before(norm));
    let layer = match fields.flag("use_parallel_residual")? {
        Some(true) => layer.in_parallel(norms),
        _ => layer.with_norms(norms),
    };
    let layers = vec![layer; standard.layers];
    Ok(DecoderSpec { final_norm: Some(norm), ..standard.decoder_of(layers) })
}
