//! OLMo 3: as OLMo 2, with windows in three of four layers, whose rotary embedding is not scaled.

use super::{Family, olmo2};
use crate::fields::Fields;
use crate::spec::{Bias, DecoderSpec, QkNorm, SelfAttention, SublayerNorms};
use crate::standard::{FULL, SLIDING, Standard, ropes_by_layer_type};
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "OLMo 3",
    classes: &["Olmo3ForCausalLM"],
    model_type: "olmo3",
    defaults: || json!({"rms_norm_eps": 1e-5, "rope_theta": 500000.0, "sliding_window": 4096}),
    ignores: &[],
    names: &olmo2::NAMES,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::with_ropes(fields, ropes_by_layer_type(fields, fields.positive("rope_theta")?)?)?;
    let bias = fields.bias("attention_bias")?;
    let norms = SublayerNorms::after(standard.norm);
    let layer = |window: Option<usize>| {
        let attention = standard.attention(standard.shared_width());
        let attention = SelfAttention {
            scores: AttentionSpec { window, ..attention.scores },
            rope: Some(if window.is_some() { SLIDING } else { FULL }),
            qk_norm: QkNorm::Whole(standard.norm),
            qkv_bias: bias,
            output_bias: bias,
            ..attention
        };
        let layer = standard.layer(attention, standard.mlp(Bias::None));
        layer.with_norms(norms)
    };
    let layers = standard.windows(fields, |layer| !(layer + 1).is_multiple_of(4))?.into_iter().map(layer).collect();
    Ok(standard.decoder_of(layers))
}
