//! What the layers of Nemotron-H are.

use crate::fields::Fields;
use base::error::{Error, Result};
use base::limits;

/// What a layer is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Mamba-2.
    Scan,
    /// Attention.
    Attention,
    /// An MLP.
    Mlp,
    /// A mixture of experts.
    Experts,
}

/// What each layer is: by `layers_block_type`, or else by `hybrid_override_pattern`.
///
/// # Errors
///
/// [`Error::UnsupportedModel`] for another kind of layer, [`Error::ModelFile`] where neither is given or `num_hidden_layers` says something else.
pub fn read(fields: Fields) -> Result<Vec<Kind>> {
    const LIST: &str = "layers_block_type";
    const PATTERN: &str = "hybrid_override_pattern";
    let list = fields.get(LIST).or(fields.get("layer_types"));
    let pattern = fields.text(PATTERN)?;
    let named: Vec<(&'static str, String)> = match (list, pattern) {
        (Some(list), _) => {
            let list = list.as_array().ok_or_else(|| fields.refuse(format!("{LIST} must be a list")))?;
            list.iter().map(|kind| (LIST, Fields::shown(kind))).collect()
        }
        (None, Some(pattern)) => pattern.chars().map(|kind| (PATTERN, kind.to_string())).collect(),
        (None, None) => return Err(fields.refuse(format!("{PATTERN} is missing"))),
    };
    let count = fields.count_or_none("num_hidden_layers")?.unwrap_or(named.len());
    if named.is_empty() || named.len() > limits::LAYERS || count != named.len() {
        let (at_most, found) = (limits::LAYERS, named.len());
        return Err(fields.refuse(format!(
            "{LIST} or {PATTERN} has {found} layers, but must have num_hidden_layers, {count}, from 1 to {at_most}"
        )));
    }
    let kind = |(setting, kind): (&'static str, String)| match kind.as_str() {
        "M" | "mamba" | "linear_attention" => Ok(Kind::Scan),
        "*" | "attention" | "full_attention" => Ok(Kind::Attention),
        "-" | "mlp" => Ok(Kind::Mlp),
        "E" | "moe" => Ok(Kind::Experts),
        _ => Err(Error::UnsupportedModel {
            setting,
            value: kind,
            supported: "M, *, - and E, or mamba, attention, mlp and moe",
        }),
    };
    named.into_iter().map(kind).collect()
}
