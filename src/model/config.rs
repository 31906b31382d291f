//! What the config says of every model, whatever its family: which classes it is, and which tokens begin and end a text.
//!
//! The fields that describe the decoder are read by the family, through [`Fields`].

use crate::fields::Fields;
use crate::gguf::{self, Stored, Translated};
use crate::quantization::Quantization;
use base::TokenId;
use base::error::{Error, Result};
use formats::source::{Source, SourceFile};
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A config.json, or what a GGUF file says in its place.
pub struct HfConfig {
    path: PathBuf,
    value: Value,
    /// Class names of the model, by which the family is chosen.
    pub architectures: Vec<String>,
    /// The token that begins a text.
    pub bos_token: Option<TokenId>,
    /// Tokens that end an answer.
    pub eos_tokens: Vec<TokenId>,
    /// What is different in the tensors of a GGUF file.
    pub gguf: Option<Stored>,
    /// How matrices are coded, where they are.
    pub quantization: Option<Quantization>,
}

impl HfConfig {
    /// Reads the config of `source`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] and [`Error::ModelFile`] when there is no config that can be read, [`Error::UnsupportedModel`] for weights
    /// that are quantized in a way that is not read.
    pub fn read(source: &Source) -> Result<HfConfig> {
        match source {
            Source::Folder(folder) => {
                let SourceFile { path, bytes } = folder.config()?;
                HfConfig::parse(&path, &bytes)
            }
            Source::Gguf(file) => {
                let Translated { config, stored } = gguf::translate(file)?;
                Ok(HfConfig { gguf: Some(stored), ..HfConfig::of(file.path(), Value::Object(config))? })
            }
        }
    }

    pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<HfConfig> {
        let value: Value = serde_json::from_slice(&with_infinity_as_text(bytes))
            .map_err(|e| Error::ModelFile { path: path.into(), reason: format!("is not JSON: {e}") })?;
        HfConfig::of(path, value)
    }

    fn of(path: &Path, value: Value) -> Result<HfConfig> {
        let fields = Fields::new(path, &value)?;
        let architectures = architectures(fields)?;
        let text = fields.object(TEXT_CONFIG)?;
        let described = [Some(fields), text].into_iter().flatten().map(|fields| fields.object("quantization_config"));
        let described = described.collect::<Result<Vec<_>>>()?.into_iter().flatten().next();
        let quantization = described.map(Quantization::of_config).transpose()?;
        // What stands beside text_config is what the whole model was given.
        let token_ids = |name| match (fields.token_ids(name)?, text) {
            (ids, Some(text)) if ids.is_empty() => text.token_ids(name),
            (ids, _) => Ok(ids),
        };
        let bos_token = token_ids("bos_token_id")?.first().copied();
        let eos_tokens = token_ids("eos_token_id")?;
        Ok(HfConfig { path: path.into(), architectures, bos_token, eos_tokens, quantization, value, gguf: None })
    }

    /// The config of the same weights as numbers in f32: factors that a class rounds to the type of its weights are exact then.
    pub fn in_f32(mut self) -> HfConfig {
        let config = self.value.as_object_mut().expect("parse found an object");
        config.insert(DTYPE.into(), "float32".into());
        if let Some(text) = config.get_mut(TEXT_CONFIG).and_then(Value::as_object_mut) {
            text.insert(DTYPE.into(), "float32".into());
        }
        self
    }

    /// Where the config is, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All fields.
    pub fn fields(&self) -> Fields<'_> {
        Fields::new(&self.path, &self.value).expect("parse found an object")
    }

    /// The fields of a config that describes nothing but a decoder.
    pub fn decoder(&self) -> Map<String, Value> {
        self.value.as_object().expect("parse found an object").clone()
    }

    /// The fields of `text_config`, with those from beside it that hold for the whole model.
    ///
    /// # Errors
    ///
    /// [`Error::ModelFile`] if there is no `text_config`, or if only it says that the head is tied.
    pub fn text_decoder(&self) -> Result<Map<String, Value>> {
        let fields = self.fields();
        let mut text = match fields.get(TEXT_CONFIG) {
            Some(Value::Object(text)) => text.clone(),
            _ => return Err(fields.refuse(format!("{TEXT_CONFIG} is missing, but must describe the decoder"))),
        };
        let tied = |value: Option<&Value>| value.and_then(Value::as_bool);
        // The other way round the decoder has a head of its own, and it is missed if it is not there.
        if tied(text.get(TIED)) == Some(true) && tied(fields.get(TIED)) == Some(false) {
            return Err(fields.refuse(format!("{TIED} is false, but true in {TEXT_CONFIG}")));
        }
        for name in [TIED, DTYPE, "torch_dtype"] {
            if let Some(value) = fields.get(name) {
                text.entry(name).or_insert_with(|| value.clone());
            }
        }
        Ok(text)
    }
}

/// The object that describes the decoder of a model that has other parts too.
const TEXT_CONFIG: &str = "text_config";
const DTYPE: &str = "dtype";
const TIED: &str = "tie_word_embeddings";

/// `json` with the word that Python writes for infinity as text, outside of texts. JSON has no such number, but configs with a `time_step_limit` have it.
fn with_infinity_as_text(json: &[u8]) -> Cow<'_, [u8]> {
    const WORD: &[u8] = b"Infinity";
    if !json.windows(WORD.len()).any(|window| window == WORD) {
        return Cow::Borrowed(json);
    }
    let mut written = Vec::with_capacity(json.len() + 2);
    let (mut rest, mut in_text) = (json, false);
    while let Some((&byte, behind)) = rest.split_first() {
        match (in_text, byte, behind.first()) {
            (true, b'\\', Some(&escaped)) => {
                written.extend([byte, escaped]);
                rest = &behind[1..];
                continue;
            }
            (false, b'I', _) if rest.starts_with(WORD) => {
                written.extend(b"\"Infinity\"");
                rest = &rest[WORD.len()..];
                continue;
            }
            (_, b'"', _) => in_text = !in_text,
            _ => {}
        }
        written.push(byte);
        rest = behind;
    }
    Cow::Owned(written)
}

fn architectures(fields: Fields) -> Result<Vec<String>> {
    let names = match fields.get("architectures") {
        None => Some(Vec::new()),
        Some(Value::Array(names)) => names.iter().map(|name| name.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    };
    names.ok_or_else(|| fields.refuse("architectures must be a list of names".into()))
}

#[cfg(test)]
mod tests {
    use super::with_infinity_as_text;

    #[test]
    fn infinity_becomes_text_outside_of_texts_alone() {
        for (json, wanted) in [
            (r#"{"a": [0.0, Infinity]}"#, r#"{"a": [0.0, "Infinity"]}"#),
            (
                r#"{"Infinity": "of \" Infinity \\", "b": Infinity}"#,
                r#"{"Infinity": "of \" Infinity \\", "b": "Infinity"}"#,
            ),
            (r#"{"a": -Infinity}"#, r#"{"a": -"Infinity"}"#),
            (r#"{"a": "Infinity\"#, r#"{"a": "Infinity\"#),
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
        ] {
            assert_eq!(with_infinity_as_text(json.as_bytes()), wanted.as_bytes(), "{json}");
        }
    }
}
