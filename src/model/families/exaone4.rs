//! EXAONE 4: norms after the parts instead of before them, normalized queries and keys, and in the larger models windows in three of four
//! layers, the fourth of which has no rotary embedding.

use super::{Family, olmo2};
use crate::fields::Fields;
use crate::spec::{Bias, DecoderSpec, NormOrder, QkNorm, SelfAttention, SublayerNorms};
use crate::standard::Standard;
use base::error::Result;
use compute::AttentionSpec;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "EXAONE 4",
    classes: &["Exaone4ForCausalLM"],
    model_type: "exaone4",
    defaults: || json!({"rms_norm_eps": 1e-5, "sliding_window": 4096, "num_key_value_heads": 32}),
    ignores: &[],
    names: &olmo2::NAMES,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let norms = SublayerNorms::after(standard.norm);
    let layer = |attention| standard.layer(attention, standard.mlp(Bias::None)).with_norms(norms);
    let layers = attentions(fields, &standard)?.into_iter().map(layer).collect();
    Ok(standard.decoder_of(layers))
}

/// The attention of each layer.
pub fn attentions(fields: Fields, standard: &Standard) -> Result<Vec<SelfAttention>> {
    let has_windows = fields.get("sliding_window").is_some();
    // transformers writes 0 where there is no window.
    let pattern = fields.get("sliding_window_pattern").filter(|pattern| pattern.as_u64() != Some(0));
    if let (Some(pattern), false) = (pattern, has_windows) {
        return Err(fields
            .refuse(format!("sliding_window_pattern is {}, but sliding_window is missing", Fields::shown(pattern))));
    }
    let windows = match has_windows {
        true => standard.windows_by_pattern(fields, 4)?,
        false => standard.windows(fields, |_| false)?,
    };
    let attention = |window: Option<usize>| {
        let attention = standard.attention(standard.shared_width());
        SelfAttention {
            scores: AttentionSpec { window, ..attention.scores },
            rope: attention.rope.filter(|_| window.is_some() || !has_windows),
            qk_norm: QkNorm::PerHead { norm: standard.norm, order: NormOrder::BeforeRope },
            ..attention
        }
    };
    Ok(windows.into_iter().map(attention).collect())
}
