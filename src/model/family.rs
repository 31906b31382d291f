//! What is a family, and which one does a config name?
//!
//! A class is a decoder of a family, or holds one among other parts. The families themselves are data: `src/model/families`.

use crate::families::{FAMILIES, nomic_bert};
use crate::fields::Fields;
use crate::names::{Layout, Names, Root};
use crate::spec::DecoderSpec;
use crate::wrappers::{WRAPPERS, Wrapper};
use base::error::{Error, Result};
use serde_json::{Value, json};

/// Models that are described by the same fields and computed from the same tensors.
pub struct Family {
    /// What people call these models. docs/models.md has it.
    #[cfg_attr(not(test), expect(dead_code))]
    pub models: &'static str,
    /// What `architectures` of a config.json may name.
    pub classes: &'static [&'static str],
    /// What `model_type` has to be where it is given.
    pub model_type: &'static str,
    /// Values of fields that a config.json leaves out: those of the class in transformers where they are not those of
    /// [`Standard`](crate::standard::Standard). A field that is `null` is not left out.
    pub defaults: fn() -> Value,
    /// Settings of [`settings`](crate::settings) that change nothing in this class, whatever they are.
    pub ignores: &'static [&'static str],
    /// What its tensors are called.
    pub names: &'static Names,
    /// Reads the fields of a config.json. What it does not read it does not support.
    pub spec: fn(Fields) -> Result<DecoderSpec>,
}

/// The roots of a checkpoint that holds a decoder and nothing else: with its head, and without.
const ROOTS: &[Root] = &[
    Root { body: "model.", head: "" },
    Root { body: "backbone.", head: "" },
    Root { body: "", head: "" },
    Root { body: "bert.", head: "" },
    Root { body: "roberta.", head: "" },
    Root { body: "nomic_bert.", head: "" },
    Root { body: "new.", head: "" },
    Root { body: "gte.", head: "" },
];

/// Beginnings of the names of tensors that a model does not need: the layers that predict further tokens, the poolers and heads of encoders, and positions as
/// numbers.
const IGNORED: &[&str] = &[
    "mtp.",
    "model.mtp.",
    "pooler.",
    "bert.pooler.",
    "roberta.pooler.",
    "nomic_bert.pooler.",
    "new.pooler.",
    "gte.pooler.",
    "cls.",
    "embeddings.position_ids",
    "bert.embeddings.position_ids",
    "roberta.embeddings.position_ids",
];

/// How the names of classifiers end.
pub const CLASSIFIER: &str = "ForSequenceClassification";
/// The end of the class name of an encoder that classifies each token.
pub const TOKEN_CLASSIFIER: &str = "ForTokenClassification";

/// What a class name stands for.
#[derive(Clone, Copy)]
pub enum Class {
    /// A decoder.
    Decoder(&'static Family),
    /// A decoder among other parts, described by `text_config`.
    Wrapper(&'static Wrapper),
}

/// The class that a config.json names: the first that is known.
///
/// # Errors
///
/// [`Error::Architecture`] with the known classes when none is known.
pub fn find(architectures: &[String]) -> Result<Class> {
    // `Qwen3Model` is what `Qwen3ForCausalLM` has below its head, and `Qwen3ForSequenceClassification` has another head above it.
    let is_of = |family: &&Family, name: &String| {
        let known = |name: &str| family.classes.contains(&name);
        let model = name.strip_suffix("Model").or(name.strip_suffix(CLASSIFIER));
        let others = |model: &str| ["ForCausalLM", "Model"].iter().any(|ending| known(&format!("{model}{ending}")));
        known(name) || model.is_some_and(others)
    };
    let decoders = FAMILIES.iter().copied().find(|family| architectures.iter().any(|name| is_of(family, name)));
    let wrappers = WRAPPERS.iter().find(|wrapper| architectures.iter().any(|name| name == wrapper.class));
    match (decoders, wrappers) {
        (Some(family), _) => Ok(Class::Decoder(family)),
        (None, Some(wrapper)) => Ok(Class::Wrapper(wrapper)),
        (None, None) => Err(Error::Architecture {
            found: if architectures.is_empty() { "(none)".into() } else { architectures.join(", ") },
            known: classes().collect(),
        }),
    }
}

/// All classes that are known.
fn classes() -> impl Iterator<Item = &'static str> {
    let decoders = FAMILIES.iter().flat_map(|family| family.classes);
    decoders.copied().chain(WRAPPERS.iter().map(|wrapper| wrapper.class))
}

/// The defaults of a family that has those of the standard decoder.
pub(super) fn no_defaults() -> Value {
    json!({})
}

impl Class {
    /// What `model_type` has to be where it is given.
    pub fn model_type(&self) -> &'static str {
        match self {
            Class::Decoder(family) => family.model_type,
            Class::Wrapper(wrapper) => wrapper.model_type,
        }
    }

    /// The name of the class, for messages.
    pub fn name(&self) -> &'static str {
        match self {
            Class::Decoder(family) => family.classes[0],
            Class::Wrapper(wrapper) => wrapper.class,
        }
    }

    /// Where the tensors of a decoder of `family` are.
    pub fn layout(&self, family: &Family) -> Layout {
        match self {
            Class::Decoder(_) => Layout { names: family.names, roots: ROOTS, ignored: IGNORED, layers: None },
            Class::Wrapper(wrapper) => {
                Layout { names: family.names, roots: wrapper.roots, ignored: wrapper.ignored, layers: None }
            }
        }
    }
}

impl Family {
    /// Adds what `fields` leaves out, and says which fields these are.
    pub fn complete(&self, fields: &mut serde_json::Map<String, Value>) -> Vec<String> {
        if self.model_type == nomic_bert::FAMILY.model_type {
            for (old, new) in nomic_bert::RENAMED {
                if let Some(value) = fields.remove(*old) {
                    fields.entry(*new).or_insert(value);
                }
            }
        }
        let Value::Object(defaults) = (self.defaults)() else { unreachable!("defaults are an object") };
        let missing = defaults.into_iter().filter(|(name, _)| !fields.contains_key(name)).collect::<Vec<_>>();
        let names = missing.iter().map(|(name, _)| name.clone()).collect();
        fields.extend(missing);
        names
    }
}

#[cfg(test)]
mod models_page;
