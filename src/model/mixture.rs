//! Mixtures of experts: how do configs spell them?

use crate::fields::Fields;
use crate::spec::{FeedForward, LayerSpec, Router, Scores};
use base::error::Result;
use compute::{CHOSEN_MAX, EXPERTS_MAX};
use serde_json::Value;

/// The names of the number of experts: that of published configs of most families, and that under which transformers writes them.
pub const COUNTS: [&str; 2] = ["num_experts", "num_local_experts"];

/// A router that chooses `num_experts_per_tok` of the experts by a softmax over all of them. Their number is under the first of `counts` that is there.
///
/// # Errors
///
/// [`ModelFile`](base::error::Error::ModelFile) for a number that is missing or too large, and where more are chosen than there are.
pub fn router(fields: Fields, counts: &[&str]) -> Result<Router> {
    router_of(fields, counts, "num_experts_per_tok")
}

/// The same, of a family that has another name for the number of those that are chosen.
pub fn router_of(fields: Fields, counts: &[&str], of_token: &str) -> Result<Router> {
    let named = counts.iter().find(|name| fields.get(name).is_some()).unwrap_or(&counts[0]);
    let experts = fields.count_up_to(named, EXPERTS_MAX)?;
    choosing(fields, (named, experts), (of_token, fields.count_up_to(of_token, CHOSEN_MAX)?))
}

/// The same of numbers that were read, each with the name of its field.
pub fn choosing(fields: Fields, (named, experts): (&str, usize), (of_token, chosen): (&str, usize)) -> Result<Router> {
    if chosen > experts {
        return Err(fields.refuse(format!("{of_token} is {chosen}, but must be at most {named}, which is {experts}")));
    }
    Ok(Router { experts, chosen, scores: Scores::Softmax, groups: None, norm: None, scale: 1.0 })
}

/// The same, with weights that are divided by their sum where `norm_topk_prob` says so.
pub fn router_by_flag(fields: Fields, counts: &[&str]) -> Result<Router> {
    let is_normed = fields.flag("norm_topk_prob")? == Some(true);
    Ok(Router { norm: is_normed.then_some(0.0), ..router(fields, counts)? })
}

/// Which layers have experts: every `decoder_sparse_step`-th, but for those that `mlp_only_layers` lists.
///
/// # Errors
///
/// [`ModelFile`](base::error::Error::ModelFile) for a list of something else than layers.
pub fn sparse_layers(fields: Fields, layers: usize) -> Result<Vec<bool>> {
    const DENSE: &str = "mlp_only_layers";
    let step = fields.count_or_none("decoder_sparse_step")?.unwrap_or(1);
    let dense = match fields.get(DENSE) {
        None => Vec::new(),
        Some(value) => {
            let layer = |value: &Value| value.as_u64().filter(|&layer| layer < layers as u64);
            let list = value.as_array().and_then(|list| list.iter().map(layer).collect::<Option<Vec<u64>>>());
            list.ok_or_else(|| fields.refuse(format!("{DENSE} must be a list of layers below {layers}")))?
        }
    };
    Ok((0..layers).map(|layer| (layer + 1).is_multiple_of(step) && !dense.contains(&(layer as u64))).collect())
}

/// How many of the first layers have none, by a field that may be 0. `by_default`: where it is not there.
///
/// # Errors
///
/// [`ModelFile`](base::error::Error::ModelFile) for something else than a number of layers.
pub fn first_dense_layers(fields: Fields, name: &str, by_default: usize, layers: usize) -> Result<usize> {
    let Some(value) = fields.get(name) else { return Ok(by_default) };
    let dense = value.as_u64().filter(|&dense| dense <= layers as u64);
    dense.map(|dense| dense as usize).ok_or_else(|| {
        fields.refuse(format!("{name} is {}, but must be a whole number of at most {layers}", Fields::shown(value)))
    })
}

/// Layers of which some have experts in the place of their MLP.
pub fn with_experts(layers: Vec<LayerSpec>, sparse: &[bool], experts: &FeedForward) -> Vec<LayerSpec> {
    let layer = |(layer, &is_sparse): (LayerSpec, &bool)| match is_sparse {
        true => layer.with_feed_forward(experts.clone()),
        false => layer,
    };
    layers.into_iter().zip(sparse).map(layer).collect()
}
