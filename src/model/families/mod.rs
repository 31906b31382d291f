//! The model families: one file each, which says how its config becomes a [`DecoderSpec`].
//!
//! To add one: a file with a [`Family`], its row in [`FAMILIES`], and a checkpoint in `tests/golden`.

mod llama;
mod mistral;
mod qwen2;
mod qwen3;

use crate::error::{Error, Result};
use crate::model::fields::Fields;
use crate::model::names::Names;
use crate::model::spec::DecoderSpec;

/// Models that are described by the same fields and computed from the same tensors.
pub struct Family {
    /// What `architectures` of a config.json has to name.
    pub class: &'static str,
    /// What `model_type` has to be where it is given.
    pub model_type: &'static str,
    /// Settings of [`settings`](crate::model::settings) that `spec` reads or that change nothing in this class.
    pub reads: &'static [&'static str],
    /// What its tensors are called.
    pub names: &'static Names,
    /// Reads the fields of a config.json.
    pub spec: fn(Fields) -> Result<DecoderSpec>,
}

const FAMILIES: &[&Family] = &[&llama::FAMILY, &mistral::FAMILY, &qwen2::FAMILY, &qwen3::FAMILY];

/// The family of a model whose config.json names these classes: the first of [`FAMILIES`] that knows one of them.
///
/// # Errors
///
/// [`Error::Architecture`] with the known classes when none is known.
pub fn find(architectures: &[String]) -> Result<&'static Family> {
    let is_named = |family: &&&Family| architectures.iter().any(|name| family.class == name);
    FAMILIES.iter().find(is_named).copied().ok_or_else(|| Error::Architecture {
        found: if architectures.is_empty() { "(none)".into() } else { architectures.join(", ") },
        known: FAMILIES.iter().map(|family| family.class).collect(),
    })
}
