//! What is a model, before any of its weights is read?
//!
//! Invariant: a [`Description`] can be computed, as far as its numbers go; only tensors may still be missing.

use crate::config::HfConfig;
use crate::family::{self, Class, Family};
use crate::fields::{Fields, Reads};
use crate::gguf;
use crate::names::Layout;
use crate::pooled::Pooled;
use crate::quantization::Quantization;
use crate::settings;
use crate::spec::DecoderSpec;
use crate::wrappers::Wrapper;
use base::TokenId;
use base::error::{Error, Result};
use formats::DType;
use formats::source::Source;
use serde_json::{Map, Value};

/// A model, as its source describes it.
#[derive(Clone, Debug)]
pub struct Description {
    /// What is computed.
    pub spec: DecoderSpec,
    /// What the tensors are called, and where they are.
    pub layout: Layout,
    /// The token that begins a text.
    pub bos_token: Option<TokenId>,
    /// Tokens that end an answer.
    pub eos_tokens: Vec<TokenId>,
    /// How matrices are coded, by config.json; `None` where it says nothing.
    pub quantization: Option<Quantization>,
    /// What becomes of the states of a text.
    pub pooled: Pooled,
}

impl Description {
    /// Reads and checks the config of `source`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::ModelFile`] for a config that
    /// cannot be read or says what no model is; [`Error::Architecture`] and
    /// [`Error::UnsupportedModel`] for a model that this library does not compute.
    pub fn read(source: &Source) -> Result<Description> {
        Description::read_as(source, None)
    }

    /// As [`read`](Description::read), of a model that is computed in `dtype`, or in the type of its weights: nothing of it is rounded to another type.
    ///
    /// # Errors
    ///
    /// As there.
    pub fn read_as(source: &Source, dtype: Option<DType>) -> Result<Description> {
        let config = HfConfig::read(source).map(|config| match dtype {
            Some(DType::F32) => config.in_f32(),
            _ => config,
        });
        let described = match (source, config) {
            (Source::Folder(_), Ok(config)) => {
                let (fields, class) = (config.fields(), config.architectures.first());
                Description::of(&config).and_then(|mut described| {
                    let class = class.map_or("", String::as_str);
                    described.pooled = Pooled::read(source, fields, class, &mut described.spec)?;
                    Ok(described)
                })
            }
            (Source::Gguf(file), Ok(config)) => Description::of(&config).and_then(|mut described| {
                described.pooled = gguf::pooled(file, &mut described.spec)?;
                Ok(described)
            }),
            (Source::Gguf(_), Err(error)) => Err(error),
            (Source::Folder(_), Err(error)) => Err(error),
        };
        match source {
            Source::Folder(_) => described,
            Source::Gguf(file) => described.map_err(|error| gguf::in_file(file, error)),
        }
    }

    fn of(config: &HfConfig) -> Result<Description> {
        let (description, unread) = Description::and_unread(config)?;
        // Of a GGUF file, the translation names the keys that nothing read.
        if config.gguf.is_none() {
            settings::warn_unread(config.path(), &unread);
        }
        Ok(description)
    }

    /// The description, and the fields of the config that nothing read and that are not known to be harmless.
    fn and_unread(config: &HfConfig) -> Result<(Description, Vec<String>)> {
        let class = family::find(&config.architectures)?;
        let reads = Reads::default();
        let fields = config.fields().noting(&reads);
        refuse_other_model_type(fields, class)?;
        let (family, decoder, mut unread) = match class {
            Class::Decoder(family) => (family, config.decoder(), Vec::new()),
            Class::Wrapper(wrapper) if wrapper.is_flat && fields.get("text_config").is_none() => {
                let mut decoder = config.decoder();
                decoder.retain(|name, _| !wrapper.harmless.contains(&&**name));
                (wrapper.prepare)(&mut decoder, fields);
                (wrapper.families[0].1, decoder, Vec::new())
            }
            Class::Wrapper(wrapper) => {
                let mut decoder = config.text_decoder()?;
                (wrapper.prepare)(&mut decoder, fields);
                let family = decoder_family(config, wrapper)?;
                settings::refuse_unread(fields, &[])?;
                let known = |name: &str, value: &Value| {
                    ["text_config", "tie_word_embeddings"].contains(&name)
                        || wrapper.harmless.contains(&name)
                        || settings::is_harmless(name, value)
                };
                (family, decoder, fields.unread(&known))
            }
        };
        let (spec, unread_by_family) = read_decoder(config, family, decoder)?;
        spec.check()?;
        unread.extend(unread_by_family);
        let (spec, layout) = match &config.gguf {
            // Of some models, the layers that predict further tokens are numbered on behind the others.
            None => {
                let layers = fields.get("num_nextn_predict_layers").map(|_| spec.layers.len());
                (spec, Layout { layers, ..class.layout(family) })
            }
            Some(stored) => (stored.spec(spec), stored.layout()),
        };
        let (bos_token, eos_tokens) = (config.bos_token, config.eos_tokens.clone());
        let quantization = config.quantization.clone();
        let pooled = Pooled::default();
        Ok((Description { spec, layout, bos_token, eos_tokens, quantization, pooled }, unread))
    }
}

/// The family that `text_config` names.
fn decoder_family(config: &HfConfig, wrapper: &Wrapper) -> Result<&'static Family> {
    let families = wrapper.families;
    let text = config.fields().object("text_config")?;
    let named = text.map(|text| text.text("model_type")).transpose()?.flatten();
    let Some(named) = named else { return Ok(families[0].1) };
    let found = families.iter().find(|(model_type, _)| *model_type == named);
    found.map(|(_, family)| *family).ok_or_else(|| Error::UnsupportedModel {
        setting: "model_type of text_config",
        value: format!("{named:.60} in {}", wrapper.class),
        supported: wrapper.decoders,
    })
}

/// What `family` makes of the fields of a decoder, and those that it did not read.
fn read_decoder(
    config: &HfConfig,
    family: &Family,
    mut decoder: Map<String, Value>,
) -> Result<(DecoderSpec, Vec<String>)> {
    let defaults = family.complete(&mut decoder);
    let (reads, decoder) = (Reads::default(), Value::Object(decoder));
    let fields = Fields::new(config.path(), &decoder)?.noting(&reads);
    let mut spec = (family.spec)(fields)?;
    // Where no layer attends, nothing rotates, and no head says how wide a table would be.
    if spec.attentions().next().is_none() {
        spec.ropes.clear();
    }
    settings::refuse_unread(fields, family.ignores)?;
    let harmless = |name: &str, value: &Value| {
        defaults.iter().any(|default| default == name) || settings::is_harmless(name, value)
    };
    Ok((spec, fields.unread(&harmless)))
}

/// Refuses a `model_type` of another family: whoever gave the model its class did not make it one of that class.
fn refuse_other_model_type(fields: Fields, class: Class) -> Result<()> {
    match fields.text("model_type")? {
        Some(found) if found != class.model_type() => Err(Error::UnsupportedModel {
            setting: "model_type",
            value: format!("{found:.60} beside {}", class.name()),
            supported: class.model_type(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod encoder_tests;
#[cfg(test)]
mod family_configs;
#[cfg(test)]
mod family_tests;
#[cfg(test)]
mod mixture_configs;
#[cfg(test)]
mod mixture_tests;
#[cfg(test)]
mod recurrent_configs;
#[cfg(test)]
mod recurrent_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wrapper_configs;
