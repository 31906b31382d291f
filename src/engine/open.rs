//! Opening an engine on a model folder.

use super::chat_template::ChatTemplate;
use super::generation_config::GenerationConfig;
use super::handle::TextFiles;
use super::options::EngineOptions;
use super::tokenizer::Tokenizer;
use super::{Engine, EngineLimits};
use crate::backend::thread;
use crate::error::Result;
use crate::log::{Level, log};
use crate::runner::source::Source;
use crate::runner::{self, ModelInfo};
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;

impl Engine {
    /// Loads a model folder. `progress` is called on the calling thread with a fraction from 0 to 1, and may cancel.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for settings that make no sense, [`Error::Io`] and [`Error::ModelFile`] for files that cannot be
    /// read or understood, [`Error::NoThread`], [`Error::Cancelled`], and what [`runner::load`] refuses.
    pub fn open(options: &EngineOptions, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<Engine> {
        let config = options.runner_config()?;
        runner::check_device(config.device)?;
        let source = Source::open(&options.model_path)?;
        // A large tokenizer takes as long as mapping the weights, so they are opened side by side.
        let (text, loaded) =
            thread::beside("text", || open_text_files(&source), || runner::load(&source, &config, progress))?;
        let limits = EngineLimits {
            max_queue: options.max_queue,
            prefix_cache: options.prefix_cache,
            seed: options.seed.unwrap_or_else(random_seed),
        };
        let (loaded, text) = (loaded?, text?);
        let ModelInfo { num_parameters, num_kv_blocks, limits: sizes, num_ranks, .. } = &loaded.info;
        log(
            Level::Info,
            format_args!(
                "opened {}: {num_parameters} parameters, {num_kv_blocks} KV blocks of {} tokens, sequences up to {}, ranks: {num_ranks}",
                source.path().display(),
                sizes.block_size,
                sizes.model_len
            ),
        );
        Engine::assemble(loaded, limits, text)
    }
}

fn open_text_files(source: &Source) -> Result<TextFiles> {
    Ok(TextFiles {
        generation: GenerationConfig::open(source)?,
        tokenizer: Tokenizer::open(source)?.map(Arc::new),
        chat_template: ChatTemplate::open(source)?,
    })
}

/// A seed from the system: the standard library keys its hash maps with the system's random numbers.
fn random_seed() -> u64 {
    RandomState::new().hash_one(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: &EngineOptions) -> String {
        Engine::open(options, &mut |_| ControlFlow::Continue(())).err().expect("refused").to_string()
    }

    #[test]
    fn a_path_that_is_missing_or_not_a_folder_is_named() {
        let missing = refusal(&EngineOptions::new("/no/such/folder"));
        assert!(missing.starts_with("/no/such/folder: "), "{missing}");
        let file = std::env::current_exe().unwrap();
        let not_a_folder = refusal(&EngineOptions::new(&file));
        assert_eq!(not_a_folder, format!("{}: is a file, but must be a model folder", file.display()));
    }

    #[test]
    fn drawn_seeds_differ() {
        assert_ne!(random_seed(), random_seed());
    }
}
