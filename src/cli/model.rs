//! How is the engine of a command opened? With the options of the command line, a bar while it loads, and help where there is no model.

use crate::engine::{Engine, ProcessOfJob};
use crate::failure::Failure;
use crate::terminal::Bar;
use nanovllm_cli::{EngineOptions, When};
use std::path::Path;

/// A model, and how it is to be computed.
pub struct Model<'a> {
    pub path: &'a Path,
    pub options: &'a EngineOptions,
    pub place: &'a ProcessOfJob,
}

impl Model<'_> {
    /// Opens an engine; `progress` says when a bar is drawn meanwhile.
    pub fn open(&self, progress: When) -> Result<Engine, Failure> {
        check(self.path)?;
        let mut bar = Bar::new("loading", progress, true);
        let mut show = |fraction: f32| bar.show(fraction.into(), String::new);
        Ok(Engine::open(self.path, self.options, self.place, &mut show)?)
    }

    /// Computes what process 0 schedules, until that ends.
    pub fn follow(&self) -> Result<(), Failure> {
        let index = self.place.index;
        self.open(When::Never)?.follow().map_err(|error| {
            let message = error.message;
            Failure::Other(format!("process {index}: {message}"))
        })
    }
}

/// Whoever names a model of the Hugging Face Hub is told how to download it. The library says what else is wrong.
pub fn check(path: &Path) -> Result<(), Failure> {
    match (path.exists(), path.to_str().and_then(name_on_the_hub)) {
        (false, Some(name)) => {
            let folder = path.display();
            Err(Failure::Other(format!(
                "{folder}: no such folder or file\n\n  if it is a model of the Hugging Face Hub, download it, and pass the folder:\n  hf download {folder} --local-dir {name}"
            )))
        }
        _ => Ok(()),
    }
}

/// The second part of `owner/name`, if a path has that form.
fn name_on_the_hub(path: &str) -> Option<&str> {
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphanumeric())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let (owner, name) = path.split_once('/')?;
    (is_word(owner) && is_word(name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_hub_have_an_owner() {
        assert_eq!(name_on_the_hub("Qwen/Qwen3-0.6B"), Some("Qwen3-0.6B"));
        for path in ["Qwen3-0.6B", "./model", "/models/demo", "../a", "a/b/c", "a/", "my models/demo", "a\\b"] {
            assert_eq!(name_on_the_hub(path), None, "{path}");
        }
    }

    #[test]
    fn a_missing_model_with_such_a_name_gets_the_download_command() {
        let Err(Failure::Other(message)) = check(Path::new("Qwen/Qwen3-0.6B")) else { panic!("it exists") };
        assert!(message.contains("hf download Qwen/Qwen3-0.6B --local-dir Qwen3-0.6B"), "{message}");
        assert!(check(Path::new("/no/such/folder")).is_ok(), "the library has a message for it");
    }
}
