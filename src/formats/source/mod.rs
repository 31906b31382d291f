//! Where does a model come from, and what does it bring?
//!
//! A [`Source`] gives the config, the tensors by name, the tokenizer, the chat templates and the generation config: it is a folder as
//! Hugging Face has it, or a GGUF file. Invariant: nothing else knows a file of the model by its name, and every file is read up to its
//! limit.

mod chat_templates;
mod folder;
pub mod gguf;
mod tensors;
mod weight_index;

pub use chat_templates::{ChatTemplates, DEFAULT_TEMPLATE};
pub use folder::ModelFolder;
pub use tensors::{Tensor, TensorType, Tensors};

use base::error::Result;
use base::limits;
use gguf::Gguf;
use os::Files;
use std::path::{Path, PathBuf};

const TOKENIZER: &str = "tokenizer.json";
const GENERATION_CONFIG: &str = "generation_config.json";

/// Where a model comes from.
pub enum Source {
    /// A folder as Hugging Face has it.
    Folder(ModelFolder),
    /// A GGUF file, or the first of the parts of one. Files of Hugging Face's beside it that are about text win over what it says.
    Gguf(Box<Gguf>),
}

/// A file of a source, for messages, and what is in it.
pub struct SourceFile {
    /// Where it is.
    pub path: PathBuf,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Source {
    /// The model at `path`. No file of a folder is read, and the headers of a GGUF file.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](base::error::Error::Io) where there is nothing, and those of [`Gguf::open`] where there is no folder.
    pub fn open(path: &Path) -> Result<Source> {
        Source::open_in(Files::OnDisk, path)
    }

    /// The model at `path` among `files`. As [`Source::open`].
    ///
    /// # Errors
    ///
    /// As there; [`Error::ModelFile`](base::error::Error::ModelFile) where the path is not among files that were given.
    pub fn open_in(files: Files, path: &Path) -> Result<Source> {
        match files.is_folder(path)? {
            true => Ok(Source::Folder(ModelFolder::new(files, path))),
            false => Ok(Source::Gguf(Box::new(Gguf::open(files, path)?))),
        }
    }

    /// Where the files are.
    fn files(&self) -> &Files {
        match self {
            Source::Folder(folder) => folder.files(),
            Source::Gguf(file) => file.files(),
        }
    }

    /// Where the model is.
    pub fn path(&self) -> &Path {
        match self {
            Source::Folder(folder) => folder.path(),
            Source::Gguf(file) => file.path(),
        }
    }

    /// The folder with the files that are about text.
    fn text_folder(&self) -> &Path {
        match self {
            Source::Folder(folder) => folder.path(),
            Source::Gguf(file) => file.path().parent().unwrap_or(Path::new("")),
        }
    }

    /// tokenizer.json, if the model has one.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](base::error::Error::Io) when it cannot be read, [`Error::ModelFile`](base::error::Error::ModelFile) when it is no regular file or too long, and for a tokenizer of a
    /// GGUF file that is not known.
    pub fn tokenizer(&self) -> Result<Option<SourceFile>> {
        self.text_file(TOKENIZER, limits::TOKENIZER_FILE_BYTES, Gguf::tokenizer_json)
    }

    /// generation_config.json, if the model has one. Errors as [`Source::tokenizer`].
    pub fn generation_config(&self) -> Result<Option<SourceFile>> {
        self.text_file(GENERATION_CONFIG, limits::CONFIG_FILE_BYTES, Gguf::generation_config_json)
    }

    /// A file of the folder, or what a GGUF file says in its place.
    fn text_file(
        &self,
        name: &str,
        bytes_max: u64,
        of_gguf: impl Fn(&Gguf) -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<SourceFile>> {
        match (file(self.files(), self.text_folder(), name, bytes_max)?, self) {
            (None, Source::Gguf(file)) => {
                let bytes = of_gguf(file)?;
                Ok(bytes.map(|bytes| SourceFile { path: file.path().into(), bytes }))
            }
            (found, _) => Ok(found),
        }
    }

    /// The file `name` in the folder `module` within that of the model, or with an empty name in that of the model itself. `None` where there is none, and of a GGUF
    /// file.
    ///
    /// # Errors
    ///
    /// As [`Source::tokenizer`].
    pub fn module_file(&self, module: &str, name: &str) -> Result<Option<SourceFile>> {
        match self {
            Source::Folder(folder) => {
                file(folder.files(), &folder.path().join(module), name, limits::CONFIG_FILE_BYTES)
            }
            Source::Gguf(_) => Ok(None),
        }
    }

    /// The folder `module` within that of the model.
    pub fn module(&self, module: &str) -> Source {
        Source::Folder(ModelFolder::new(self.files().clone(), &self.text_folder().join(module)))
    }

    /// The file that describes quantized weights where the config does not, if the model has one. Errors as [`Source::tokenizer`].
    pub fn quantization_config(&self) -> Result<Option<SourceFile>> {
        match self {
            Source::Folder(folder) => folder.quantization_config(),
            Source::Gguf(_) => Ok(None),
        }
    }
}

fn file(files: &Files, folder: &Path, name: &str, bytes_max: u64) -> Result<Option<SourceFile>> {
    let path = folder.join(name);
    Ok(files.read(&path, bytes_max)?.map(|bytes| SourceFile { path, bytes }))
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}
