//! The model families: one file each, which says how its config becomes a [`DecoderSpec`].
//!
//! To add one: a file with a `spec` function, a row in [`FAMILIES`], and a checkpoint in `tests/golden`.

mod llama;
mod qwen2;
mod qwen3;

use crate::error::{Error, Result};
use crate::model::config::HfConfig;
use crate::model::spec::DecoderSpec;

type SpecOf = fn(&HfConfig) -> DecoderSpec;

/// The class names that a config.json may give, and what they stand for.
const FAMILIES: &[(&str, SpecOf)] =
    &[("LlamaForCausalLM", llama::spec), ("Qwen2ForCausalLM", qwen2::spec), ("Qwen3ForCausalLM", qwen3::spec)];

/// The names in [`FAMILIES`].
const KNOWN: [&str; FAMILIES.len()] = {
    let mut names = [""; FAMILIES.len()];
    let mut family = 0;
    while family < names.len() {
        names[family] = FAMILIES[family].0;
        family += 1;
    }
    names
};

/// Heads wider than this are not computed: kernels keep a head in registers or on the stack.
const HEAD_DIM_MAX: usize = 512;

/// Fails unless one of the names is that of a known family.
pub fn check_known(architectures: &[String]) -> Result<()> {
    if architectures.iter().any(|name| KNOWN.contains(&name.as_str())) {
        return Ok(());
    }
    let found = if architectures.is_empty() { "(none)".into() } else { architectures.join(", ") };
    Err(Error::Architecture { found, known: &KNOWN })
}

/// The decoder that a config describes.
pub fn spec(config: &HfConfig) -> Result<DecoderSpec> {
    check_known(&config.architectures)?;
    let family = FAMILIES.iter().find(|(name, _)| config.architectures.iter().any(|found| found == name));
    let spec = family.map(|(_, spec)| spec(config)).expect("check_known found it");
    if !spec.head_dim.is_multiple_of(2) || spec.head_dim == 0 || spec.head_dim > HEAD_DIM_MAX {
        return Err(Error::UnsupportedModel {
            setting: "head_dim",
            value: spec.head_dim.to_string(),
            supported: "an even number from 2 to 512",
        });
    }
    Ok(spec)
}
