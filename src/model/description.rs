//! What is a model, before any of its weights is read?
//!
//! Invariant: a [`Description`] can be computed, as far as its numbers go; only tensors may still be missing.

use crate::batch::TokenId;
use crate::error::{Error, Result};
use crate::model::config::HfConfig;
use crate::model::families::{self, Family};
use crate::model::fields::Fields;
use crate::model::names::Names;
use crate::model::settings;
use crate::model::source::Source;
use crate::model::spec::DecoderSpec;

/// A model, as its source describes it.
#[derive(Debug)]
pub struct Description {
    /// What is computed.
    pub spec: DecoderSpec,
    /// What the tensors are called.
    pub names: &'static Names,
    /// The token that begins a text.
    pub bos_token: Option<TokenId>,
    /// Tokens that end an answer.
    pub eos_tokens: Vec<TokenId>,
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
        Description::of(HfConfig::read(source)?)
    }

    fn of(config: HfConfig) -> Result<Description> {
        let family = families::find(&config.architectures)?;
        let fields = config.fields();
        refuse_contradiction(fields, family)?;
        settings::refuse_unread(fields, family)?;
        let spec = (family.spec)(fields)?;
        spec.check()?;
        Ok(Description { spec, names: family.names, bos_token: config.bos_token, eos_tokens: config.eos_tokens })
    }
}

/// Refuses a `model_type` of another family: whoever gave the model its class did not make it one of that class.
fn refuse_contradiction(fields: Fields, family: &Family) -> Result<()> {
    match fields.text("model_type")? {
        Some(found) if found != family.model_type => Err(Error::UnsupportedModel {
            setting: "model_type",
            value: format!("{found:.60} beside {}", family.class),
            supported: family.model_type,
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
