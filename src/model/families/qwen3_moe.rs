//! Qwen3 with experts: as Qwen3, with a mixture of experts in the place of the MLP of all layers or of some.

use super::{Family, qwen3};
use crate::fields::Fields;
use crate::mixture;
use crate::names::{ExpertNames, LLAMA, Names, StackedMatrices};
use crate::spec::{Bias, DecoderSpec, Experts, FeedForward, Mlp, Router};
use crate::standard::Standard;
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Qwen3-30B-A3B, Qwen3-235B-A22B, Qwen3-Coder",
    classes: &["Qwen3MoeForCausalLM"],
    model_type: "qwen3_moe",
    defaults: || json!({"num_key_value_heads": 4, "sliding_window": 4096}),
    // The window counts only with use_sliding_window.
    ignores: &["sliding_window"],
    names: &LLAMA,
    spec,
};

/// The decoder of Qwen3-VL with experts, whose weights are always divided by their sum, and whose matrices have outputs in columns.
pub const VISION: Family = Family {
    models: "Qwen3-VL with experts, its decoder alone",
    classes: &["Qwen3VLMoeTextModel"],
    model_type: "qwen3_vl_moe_text",
    defaults: || json!({"num_key_value_heads": 16, "rope_theta": 500000.0}),
    ignores: &["sliding_window", "norm_topk_prob"],
    names: &VISION_NAMES,
    spec: |fields| {
        let standard = Standard::read(fields)?;
        let windows = vec![None; standard.layers];
        let router = Router { norm: Some(0.0), ..mixture::router(fields, &mixture::COUNTS)? };
        decoder(fields, standard, windows, router)
    },
};

const VISION_NAMES: Names =
    Names { experts: ExpertNames { matrices: StackedMatrices::Columns, before: "", ..LLAMA.experts }, ..LLAMA };

fn spec(fields: Fields) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let windows = standard.switched_windows(fields, |_| true)?;
    decoder(fields, standard, windows, mixture::router_by_flag(fields, &mixture::COUNTS)?)
}

fn decoder(fields: Fields, standard: Standard, windows: Vec<Option<usize>>, router: Router) -> Result<DecoderSpec> {
    let mlp = standard.mlp(Bias::None);
    let expert = Mlp { width: fields.count("moe_intermediate_size")?, ..mlp.clone() };
    let experts = FeedForward::Experts(Experts::plain(router, expert));
    let attention = qwen3::attention(fields, &standard, standard.shared_width())?;
    let sparse = mixture::sparse_layers(fields, standard.layers)?;
    let decoder = standard.decoder_with_windows(windows, attention, mlp);
    Ok(DecoderSpec { layers: mixture::with_experts(decoder.layers, &sparse, &experts), ..decoder })
}
