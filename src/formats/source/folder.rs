//! A model folder as Hugging Face has it: config.json and safetensors files.

use super::{SourceFile, file, is_gguf, weight_index};
use base::error::{Error, Result};
use base::limits;
use os::Files;
use std::path::{Path, PathBuf};

const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// Where AutoGPTQ and AutoAWQ describe what they did to the weights, unless config.json does.
const QUANTIZATION: [&str; 2] = ["quantize_config.json", "quant_config.json"];

/// Entries of a folder that are looked at for a message.
const ENTRIES_MAX: usize = 1024;

/// A model folder as Hugging Face has it.
pub struct ModelFolder {
    files: Files,
    folder: PathBuf,
}

impl ModelFolder {
    /// The folder at `path` among `files`. No file is read.
    pub(super) fn new(files: Files, path: &Path) -> ModelFolder {
        ModelFolder { files, folder: path.into() }
    }

    /// Where its files are.
    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// config.json.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] when it cannot be read, [`Error::ModelFile`] when it is missing, no regular file or too long.
    pub fn config(&self) -> Result<SourceFile> {
        let config = file(&self.files, &self.folder, CONFIG, limits::CONFIG_FILE_BYTES)?;
        config.ok_or_else(|| {
            let reason = match self.gguf() {
                Some(name) => {
                    format!(
                        "is missing from the model folder, which holds {name}: give the path of that file to open it"
                    )
                }
                None => "is missing from the model folder".into(),
            };
            Error::ModelFile { path: self.folder.join(CONFIG), reason }
        })
    }

    /// The file that describes quantized weights where config.json does not, if there is one.
    pub(super) fn quantization_config(&self) -> Result<Option<SourceFile>> {
        for name in QUANTIZATION {
            if let Some(file) = file(&self.files, &self.folder, name, limits::CONFIG_FILE_BYTES)? {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// The safetensors files.
    pub(super) fn weight_files(&self) -> Result<Vec<PathBuf>> {
        let single = self.folder.join(SINGLE);
        if self.files.exists(&single) {
            return Ok(vec![single]);
        }
        let Some(SourceFile { path, bytes }) = file(&self.files, &self.folder, INDEX, limits::INDEX_FILE_BYTES)? else {
            let reason = format!("has neither {SINGLE} nor {INDEX}");
            return Err(Error::ModelFile { path: self.folder.clone(), reason });
        };
        let names = weight_index::file_names(&bytes).map_err(|reason| Error::ModelFile { path, reason })?;
        let paths: Vec<PathBuf> = names.iter().map(|name| self.folder.join(name)).collect();
        match paths.iter().find(|path| !self.files.exists(path)) {
            Some(path) => {
                Err(Error::ModelFile { path: path.clone(), reason: format!("is missing, but {INDEX} names it") })
            }
            None => Ok(paths),
        }
    }

    /// The name of a GGUF file in the folder.
    fn gguf(&self) -> Option<String> {
        let names = self.files.entries(&self.folder).take(ENTRIES_MAX).filter(|path| is_gguf(path));
        names.min().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
    }
}
