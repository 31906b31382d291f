//! How does the metadata of a GGUF file become the config of a family?
//!
//! The keys of an architecture, and what the tensors say, are translated into the fields that a config.json has for the same model. So
//! the families, their defaults and their checks serve both kinds of files. Invariant: a key that changes what is computed is
//! translated, has a value under which it changes nothing, or is refused by its name.
//!
//! Keys and their meaning are those of llama.cpp: src/llama-arch.cpp, src/models, conversion.

mod config;
mod families;
mod names;
mod pooled;
mod rope;
mod settings;

use crate::fields::{Fields, Reads};
use crate::names::Layout;
use crate::spec::{DecoderSpec, Mixer, Norm, NormWeight, Part, QkNorm, Recurrent, Sublayer};
use base::error::{Error, Result};
use base::limits;
use compute::Pairing;
use config::Config;
use families::{FAMILIES, GgufFamily, Mark, Rotation};
use formats::WeightFormat;
use formats::source::gguf::{GgmlType, Gguf};
pub use pooled::pooled;
use serde_json::{Map, Value};

/// A GGUF file, described as a config.json would describe it.
pub struct Translated {
    /// The fields of the config.
    pub config: Map<String, Value>,
    /// What is different in such a file from a folder with this config.
    pub stored: Stored,
}

/// What is different in a GGUF file from a folder.
#[derive(Clone, Copy)]
pub struct Stored {
    family: &'static GgufFamily,
    layout: Layout,
}

/// Translates the metadata of a file.
///
/// # Errors
///
/// [`Error::ModelFile`] for a key that is missing or wrong, and for an architecture or a setting that is not supported.
pub fn translate(file: &Gguf) -> Result<Translated> {
    let wrong = |reason| file.wrong(reason);
    let header = file.header();
    let architecture = header.text("general.architecture").map_err(wrong)?;
    let architecture = architecture.ok_or_else(|| wrong("general.architecture is missing".into()))?;
    let prefix = format!("{architecture}.");
    let mut keys = Map::new();
    for key in header.keys() {
        let Some(name) = key.strip_prefix(&prefix) else { continue };
        if let Some(value) = header.json(key, limits::LAYERS).map_err(wrong)? {
            keys.insert(name.into(), value);
        }
    }
    let keys = Value::Object(keys);
    let reads = Reads::default();
    let keys = Fields::new(file.path(), &keys)?.noting(&reads);
    let family = find(file, architecture, keys)?;
    let mut config = Config::new(file, keys, family.by_layer);
    config.read_shared(family.family)?;
    (family.fields)(&mut config)?;
    settings::refuse_unread(keys, family.ignores).map_err(|error| in_file(file, error))?;
    settings::warn_unread(file.path(), keys);
    let layers = config.layers()?;
    let layout = family.names.layout(layers, |name| file.tensor(name).is_some());
    Ok(Translated { config: config.finish(), stored: Stored { family, layout } })
}

/// An error of the translated config, as one of the file.
pub fn in_file(file: &Gguf, error: Error) -> Error {
    match error {
        Error::UnsupportedModel { setting, value, supported } => {
            file.wrong(format!("{setting} is {value}, which is not supported: it must be {supported}"))
        }
        other => other,
    }
}

fn find(file: &Gguf, architecture: &str, keys: Fields) -> Result<&'static GgufFamily> {
    let mut known = FAMILIES.iter().filter(|family| family.architecture == architecture);
    let layers = keys.count_or_none("block_count").ok().flatten().unwrap_or(0).min(limits::LAYERS);
    let has_mark = |family: &&GgufFamily| match family.mark {
        None => true,
        Some(Mark::Key(key)) => has_effect(keys, key),
        Some(Mark::Tensor(part)) => (0..layers).any(|layer| file.tensor(&format!("blk.{layer}.{part}")).is_some()),
    };
    known.find(has_mark).ok_or_else(|| {
        let mut known: Vec<&str> = FAMILIES.iter().map(|family| family.architecture).collect();
        known.dedup();
        let known = known.join(", ");
        file.wrong(format!(
            "general.architecture is {architecture:.60}, which is not supported; supported architectures: {known}"
        ))
    })
}

/// Whether a key is there and not 0.
fn has_effect(keys: Fields, name: &str) -> bool {
    keys.get(name).is_some_and(|value| value.as_f64() != Some(0.0))
}

impl Stored {
    /// Which tensors of the file the decoder reads.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// What is computed with the tensors as the conversion stores them.
    ///
    /// Weights of norms are complete, and those of queries and keys are there where a folder has none. The rows of queries and keys may be in another order, in which the two numbers that turn
    /// together are neighbours: for each head, row `i` of both halves before the next.
    pub fn spec(&self, mut spec: DecoderSpec) -> DecoderSpec {
        if let Rotation::Neighbours = self.family.rotation {
            spec.ropes.iter_mut().for_each(|rope| rope.pairing = Pairing::Neighbours);
        }
        let complete = |norm: &mut Norm| {
            if norm.weight == NormWeight::PlusOne {
                norm.weight = NormWeight::Plain;
            }
        };
        spec.final_norm.iter_mut().for_each(complete);
        spec.layer_inputs.iter_mut().for_each(|inputs| complete(&mut inputs.norm));
        for layer in &mut spec.layers {
            for Sublayer { norms, .. } in &mut layer.sublayers {
                [&mut norms.before, &mut norms.after, &mut norms.sum].into_iter().flatten().for_each(complete);
            }
            for part in layer.parts_mut() {
                match part {
                    Part::Mixer(Mixer::Attention(attention)) => match &mut attention.qk_norm {
                        QkNorm::PerHead { norm, .. } | QkNorm::Whole(norm) => norm.weight = NormWeight::Plain,
                        QkNorm::None => {}
                    },
                    // One head each is in both orders the same.
                    Part::Mixer(Mixer::Recurrent(Recurrent::GatedDelta(delta)))
                        if delta.heads.values > delta.heads.keys =>
                    {
                        delta.heads.order = self.family.value_order;
                    }
                    Part::Mixer(Mixer::Recurrent(_)) | Part::FeedForward(_) => {}
                }
            }
        }
        spec
    }
}

/// What transformers calls a type of tensors that are not quantized.
fn dtype_name(kind: GgmlType) -> Option<&'static str> {
    match kind.coding() {
        Some(WeightFormat::F32) => Some("float32"),
        Some(WeightFormat::F16) => Some("float16"),
        Some(WeightFormat::Bf16) => Some("bfloat16"),
        _ => None,
    }
}
