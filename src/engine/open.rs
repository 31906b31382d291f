//! Opening an engine on a model folder.

use crate::api::generation_config::GenerationConfig;
use crate::api::handle::TextFiles;
use crate::follower::FollowerEngine;
use crate::options::EngineOptions;
use crate::{Engine, EngineLimits, Opened};
use base::error::Result;
use base::log::{Level, log};
use formats::source::Source;
use os::thread;
use runner::ModelInfo;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;
use text::answer::Format;
use text::chat_template::ChatTemplate;
use text::tokenizer::Tokenizer;

impl Opened {
    /// Loads a model folder: an engine that takes requests, or one that follows process 0 if `options` name another process.
    ///
    /// # Errors
    ///
    /// As [`Engine::open`].
    pub fn new(options: &EngineOptions, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<Opened> {
        if !options.follows() {
            return Ok(Opened::Leader(Box::new(Engine::open(options, progress)?)));
        }
        options.check()?;
        let load = |source: &Source| runner::follow(source, options, progress);
        let ((follower, info), text) = open(options, load)?;
        log_opened(options, &info);
        Ok(Opened::Follower(Box::new(FollowerEngine::new(follower, info, limits(options), text))))
    }
}

impl Engine {
    /// Loads a model folder. `progress` is called on the calling thread with a fraction from 0 to 1, and may cancel.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for settings that make no sense, [`Error::Io`] and [`Error::ModelFile`] for files that cannot be
    /// read or understood, [`Error::NoThread`], [`Error::Cancelled`], [`Error::Peer`] for other processes that did not join, and what
    /// [`runner::load`] refuses.
    ///
    /// # Panics
    ///
    /// If `options` name a process that follows: [`Opened::new`] opens that.
    pub fn open(options: &EngineOptions, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<Engine> {
        assert!(!options.follows(), "process 0 leads");
        options.check()?;
        let (loaded, text) = open(options, |source| runner::load(source, options, progress))?;
        log_opened(options, &loaded.info);
        Engine::assemble(loaded, limits(options), text)
    }
}

/// Opens the files of a model folder, and loads its model by `load`.
fn open<T>(options: &EngineOptions, load: impl FnOnce(&Source) -> Result<T>) -> Result<(T, TextFiles)> {
    runner::check_device(options.device)?;
    let source = Source::open_in(options.files.clone(), &options.model_path)?;
    // A large tokenizer takes as long as mapping the weights, so they are opened side by side.
    let (text, loaded) = thread::beside("text", || open_text_files(&source), || load(&source))?;
    Ok((loaded?, text?))
}

fn limits(options: &EngineOptions) -> EngineLimits {
    EngineLimits {
        max_queue: options.max_queue,
        prefix_cache: options.prefix_cache,
        seed: options.seed.unwrap_or_else(random_seed),
    }
}

fn log_opened(options: &EngineOptions, info: &ModelInfo) {
    let ModelInfo { num_parameters, num_kv_blocks, limits: sizes, num_ranks, .. } = info;
    log(
        Level::Info,
        format_args!(
            "opened {}: {num_parameters} parameters, {num_kv_blocks} KV blocks of {} tokens, sequences up to {}, ranks: {num_ranks}",
            options.model_path.display(),
            sizes.block_size,
            sizes.model_len
        ),
    );
}

fn open_text_files(source: &Source) -> Result<TextFiles> {
    let answers = Format::open(source);
    if let Err(refused) = &answers {
        log(Level::Warn, format_args!("answers cannot be parsed: {refused}"));
    }
    Ok(TextFiles {
        answers: Some(answers),
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
        assert_eq!(
            not_a_folder,
            format!(
                "{}: is neither a model folder nor a GGUF file, which begins with the letters GGUF",
                file.display()
            )
        );
    }

    #[test]
    fn drawn_seeds_differ() {
        assert_ne!(random_seed(), random_seed());
    }
}
