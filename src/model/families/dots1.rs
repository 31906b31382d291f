//! dots.llm1: attention as in Qwen3, MLPs in the first layers, and then mixtures of experts as in GLM-4.5.

use super::{Family, deepseek_v3, glm4_moe, qwen2, qwen3};
use crate::fields::Fields;
use crate::mixture;
use crate::spec::{Bias, DecoderSpec, FeedForward};
use crate::standard::Standard;
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "dots.llm1",
    classes: &["Dots1ForCausalLM"],
    model_type: "dots1",
    defaults: || {
        json!({
            "num_key_value_heads": 32, "sliding_window": 4096, "max_window_layers": 62, "routed_scaling_factor": 1.0
        })
    },
    // Both say what holds for all of these models.
    ignores: &["scoring_func", "topk_method"],
    names: &glm4_moe::NAMES,
    spec,
};

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let attention = qwen3::attention(fields, &standard, standard.shared_width())?;
    let first = qwen2::max_window_layers(fields)?;
    let has_windows = fields.get("sliding_window").is_some();
    let windows = standard.windows(fields, |layer| has_windows && layer >= first)?;
    let sparse = deepseek_v3::first_dense_layers(fields, 0, standard.layers)?;
    let experts = FeedForward::Experts(glm4_moe::experts(fields, &standard, glm4_moe::COUNTS)?);
    let mlp = standard.mlp(Bias::None);
    let decoder = standard.decoder_with_windows(windows, attention, mlp);
    Ok(DecoderSpec { layers: mixture::with_experts(decoder.layers, &sparse, &experts), ..decoder })
}
