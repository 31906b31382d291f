//! Granite 3 with experts: as Granite 3, with a mixture of experts in the place of each MLP, beside which there may be an MLP of all tokens.

use super::{Family, granite, granite_hybrid};
use crate::fields::Fields;
use crate::mixture;
use crate::spec::{Bias, DecoderSpec, Experts, FeedForward, LayerSpec, Mlp, Router, SharedExpert, SharedGate};
use crate::standard::Standard;
use base::error::Result;
use serde_json::json;

pub const FAMILY: Family = Family {
    models: "Granite 3 with experts: 1B-A400M, 3B-A800M",
    classes: &["GraniteMoeForCausalLM"],
    model_type: "granitemoe",
    defaults: || granite::with_factors(json!({"num_local_experts": 8, "num_experts_per_tok": 2})),
    ignores: &[],
    names: &granite_hybrid::NAMES,
    spec: |fields| decoder(fields, None),
};

/// With an MLP of all tokens.
pub const SHARED: Family = Family {
    models: "Granite with experts and an MLP of all tokens",
    classes: &["GraniteMoeSharedForCausalLM"],
    model_type: "granitemoeshared",
    spec: |fields| {
        const WIDTH: &str = "shared_intermediate_size";
        let is_missing = fields.get(WIDTH).is_none_or(|width| width.as_u64() == Some(0));
        decoder(fields, if is_missing { None } else { Some(fields.count(WIDTH)?) })
    },
    ..FAMILY
};

fn decoder(fields: Fields, shared: Option<usize>) -> Result<DecoderSpec> {
    let standard = Standard::read(fields)?;
    let mlp = standard.mlp(Bias::None);
    let decoder = granite::decoder(fields, standard, mlp.clone(), Some(0))?;
    let shared = shared.map(|width| Mlp { width, ..mlp.clone() });
    Ok(DecoderSpec { layers: with_experts(fields, decoder.layers, &mlp, shared)?, ..decoder })
}

/// The same layers with mixtures of experts, which have the form of `mlp`, beside one that computes all tokens.
pub fn with_experts(fields: Fields, layers: Vec<LayerSpec>, mlp: &Mlp, shared: Option<Mlp>) -> Result<Vec<LayerSpec>> {
    let router = Router { norm: Some(0.0), ..mixture::router(fields, &["num_local_experts"])? };
    let expert = Mlp { width: fields.count("intermediate_size")?, ..mlp.clone() };
    let shared = shared.map(|mlp| SharedExpert { mlp, gate: SharedGate::None });
    let experts = FeedForward::Experts(Experts { shared, ..Experts::plain(router, expert) });
    Ok(layers.into_iter().map(|layer| layer.with_feed_forward(experts.clone())).collect())
}
