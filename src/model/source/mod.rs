//! Where does a model come from, and what does it bring?
//!
//! A [`Source`] gives the config, the tensors by name, the tokenizer, the chat templates and the generation config. Today it is a folder as
//! Hugging Face has it. Invariant: nothing else knows a file of the model by its name, and every file is read up to its limit.

mod chat_templates;
mod tensors;
mod weight_index;

pub use chat_templates::{ChatTemplates, DEFAULT_TEMPLATE};
pub use tensors::{Tensor, Tensors};

use crate::backend::read_file;
use crate::error::{Error, Result};
use crate::limits;
use std::fs;
use std::path::{Path, PathBuf};

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
const GENERATION_CONFIG: &str = "generation_config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Where AutoGPTQ and AutoAWQ describe what they did to the weights, unless config.json does.
const QUANTIZATION: [&str; 2] = ["quantize_config.json", "quant_config.json"];

/// Entries of a folder that are looked at for a message.
const ENTRIES_MAX: usize = 1024;

/// A model folder as Hugging Face has it.
pub struct Source {
    folder: PathBuf,
}

/// A file of a source, for messages, and what is in it.
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Source {
    /// The model at `path`. No file is read.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] where there is nothing, and [`Error::ModelFile`] where there is no folder.
    pub fn open(path: &Path) -> Result<Source> {
        let facts = fs::metadata(path).map_err(|source| Error::Io { path: path.into(), source })?;
        if facts.is_dir() {
            return Ok(Source { folder: path.into() });
        }
        let reason = match is_gguf(path) {
            true => {
                "is a GGUF file, but must be a model folder as Hugging Face has it, with config.json and *.safetensors"
            }
            false => "is a file, but must be a model folder",
        };
        Err(Error::ModelFile { path: path.into(), reason: reason.into() })
    }

    /// Where the model is.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// config.json.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when it cannot be read, [`Error::ModelFile`] when it is missing, no regular file or too long.
    pub fn config(&self) -> Result<SourceFile> {
        let config = self.file(CONFIG, limits::CONFIG_FILE_BYTES)?;
        config.ok_or_else(|| {
            let reason = match self.gguf() {
                Some(name) => format!(
                    "is missing from the model folder, which holds {name}: GGUF files are not read, only folders with config.json and *.safetensors"
                ),
                None => "is missing from the model folder".into(),
            };
            Error::ModelFile { path: self.folder.join(CONFIG), reason }
        })
    }

    /// tokenizer.json, if the model has one. Errors as [`Source::config`].
    pub fn tokenizer(&self) -> Result<Option<SourceFile>> {
        self.file(TOKENIZER, limits::TOKENIZER_FILE_BYTES)
    }

    /// generation_config.json, if the model has one. Errors as [`Source::config`].
    pub fn generation_config(&self) -> Result<Option<SourceFile>> {
        self.file(GENERATION_CONFIG, limits::CONFIG_FILE_BYTES)
    }

    /// The file that describes quantized weights, where config.json does not.
    pub fn quantization_file(&self) -> Option<&'static str> {
        QUANTIZATION.into_iter().find(|name| self.folder.join(name).exists())
    }

    /// The safetensors files.
    fn weight_files(&self) -> Result<Vec<PathBuf>> {
        let single = self.folder.join(SINGLE);
        if single.exists() {
            return Ok(vec![single]);
        }
        let Some(SourceFile { path, bytes }) = self.file(INDEX, limits::INDEX_FILE_BYTES)? else {
            let reason = format!("has neither {SINGLE} nor {INDEX}");
            return Err(Error::ModelFile { path: self.folder.clone(), reason });
        };
        let names = weight_index::file_names(&bytes).map_err(|reason| Error::ModelFile { path, reason })?;
        let paths: Vec<PathBuf> = names.iter().map(|name| self.folder.join(name)).collect();
        match paths.iter().find(|path| !path.exists()) {
            Some(path) => {
                Err(Error::ModelFile { path: path.clone(), reason: format!("is missing, but {INDEX} names it") })
            }
            None => Ok(paths),
        }
    }

    fn file(&self, name: &str, bytes_max: u64) -> Result<Option<SourceFile>> {
        let path = self.folder.join(name);
        Ok(read_file(&path, bytes_max)?.map(|bytes| SourceFile { path, bytes }))
    }

    /// The name of a GGUF file in the folder.
    fn gguf(&self) -> Option<String> {
        let entries = fs::read_dir(&self.folder).ok()?.take(ENTRIES_MAX).flatten();
        let names = entries.map(|entry| entry.path()).filter(|path| is_gguf(path));
        names.min().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
    }
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}
