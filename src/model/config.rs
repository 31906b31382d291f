//! What config.json says of every model, whatever its family: which classes it is, and which tokens begin and end a text.
//!
//! The fields that describe the decoder are read by the family, through [`Fields`].

use crate::batch::TokenId;
use crate::error::{Error, Result};
use crate::model::fields::Fields;
use crate::model::source::{Source, SourceFile};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A config.json.
#[derive(Debug)]
pub struct HfConfig {
    path: PathBuf,
    value: Value,
    /// Class names of the model, by which the family is chosen.
    pub architectures: Vec<String>,
    /// The token that begins a text.
    pub bos_token: Option<TokenId>,
    /// Tokens that end an answer.
    pub eos_tokens: Vec<TokenId>,
}

impl HfConfig {
    /// Reads the config of `source`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::ModelFile`] when there is no config that can be read, [`Error::UnsupportedModel`] for quantized
    /// weights.
    pub fn read(source: &Source) -> Result<HfConfig> {
        let SourceFile { path, bytes } = source.config()?;
        HfConfig::parse(&path, &bytes)
    }

    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<HfConfig> {
        let value: Value = serde_json::from_slice(bytes)
            .map_err(|e| Error::ModelFile { path: path.into(), reason: format!("is not JSON: {e}") })?;
        let fields = Fields::new(path, &value)?;
        let architectures = architectures(fields)?;
        refuse_quantization(fields)?;
        let bos_token = fields.token_ids("bos_token_id")?.first().copied();
        let eos_tokens = fields.token_ids("eos_token_id")?;
        Ok(HfConfig { path: path.into(), architectures, bos_token, eos_tokens, value })
    }

    /// All fields, for the family to read.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(&self.path, &self.value).expect("parse found an object")
    }
}

fn architectures(fields: Fields) -> Result<Vec<String>> {
    let names = match fields.get("architectures") {
        None => Some(Vec::new()),
        Some(Value::Array(names)) => names.iter().map(|name| name.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    };
    names.ok_or_else(|| fields.refuse("architectures must be a list of names".into()))
}

fn refuse_quantization(fields: Fields) -> Result<()> {
    match fields.object("quantization_config")? {
        None => Ok(()),
        Some(quantization) => Err(Error::UnsupportedModel {
            setting: "quantization_config",
            value: quantization.get("quant_method").map_or("set".into(), Fields::shown),
            supported: "absent: weights are read in BF16, F16 and F32",
        }),
    }
}
