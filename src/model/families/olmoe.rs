//! OLMoE: one norm over all queries of a token and one over all its keys, and a mixture of experts in the place of each MLP, whose weights are not divided
//! by their sum.

use super::{Family, olmo2};
use crate::fields::Fields;
use crate::mixture;
use crate::names;
use crate::spec::{Bias, DecoderSpec, Experts, FeedForward, Norm, QkNorm, SelfAttention, SublayerNorms};
use crate::standard::Standard;
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "OLMoE",
    classes: &["OlmoeForCausalLM"],
    model_type: "olmoe",
    defaults: || json!({"rms_norm_eps": 1e-5, "num_experts_per_tok": 8}),
    ignores: &[],
    names: &names::LLAMA,
    spec: |fields| decoder(fields, SublayerNorms::before),
};

/// With norms after the parts instead of before them, as in OLMo 2.
pub const FLEX: Family = Family {
    models: "FlexOlmo",
    classes: &["FlexOlmoForCausalLM"],
    model_type: "flex_olmo",
    defaults: || json!({"rope_theta": 500000.0, "num_experts": 7, "num_experts_per_tok": 5}),
    names: &olmo2::NAMES,
    spec: |fields| decoder(fields, SublayerNorms::after),
    ..FAMILY
};

fn decoder(fields: Fields, norms: impl Fn(Norm) -> SublayerNorms) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let bias = fields.bias("attention_bias")?;
    let attention = SelfAttention {
        qk_norm: QkNorm::Whole(standard.norm),
        qkv_bias: bias,
        output_bias: bias,
        ..standard.attention(standard.shared_width())
    };
    let router = mixture::router_by_flag(fields, &mixture::COUNTS)?;
    let expert = standard.mlp(Bias::None);
    let experts = Experts::plain(router, expert.clone());
    let layer = standard.layer(attention, expert).with_feed_forward(FeedForward::Experts(experts));
    let layer = layer.with_norms(norms(standard.norm));
    let layers = vec![layer; standard.layers];
    Ok(standard.decoder_of(layers))
}
