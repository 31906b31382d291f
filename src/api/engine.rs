//! The side of an engine that works, used by one thread at a time.

use super::EngineHandle;
use base::TokenId;
use base::error::{Error, Result};
use engine::options::EngineOptions;
use engine::output::{Output, StepReport};
use engine::sampling_params::SamplingParams;
use engine::{Budget, Progress, Prompt};
use std::ops::ControlFlow;

/// An open model, and the requests that it serves.
///
/// It computes only inside [`step`](Self::step) and [`generate`](Self::generate), on the calling thread and on threads that sleep otherwise. It may
/// move to another thread between calls. Dropping it ends its requests and frees everything.
///
/// After an error of `step` or `generate` that says so, an engine cannot be used any more; others of the process are not affected. A failure of
/// one request is no error of these calls: it is the [`Finish`](engine::output::Finish) of that request.
pub struct Engine {
    engine: engine::Engine,
    handle: EngineHandle,
}

impl Engine {
    /// Opens a model: its path, or options that name one.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for options that make no sense, [`Error::Io`] and [`Error::ModelFile`] for files that cannot be read or understood,
    /// [`Error::UnsupportedModel`], [`Error::OutOfMemory`], and [`Error::Unsupported`] for a device that is not there.
    ///
    /// ```
    /// use nanovllm::options::Device;
    /// use nanovllm::{Engine, EngineOptions};
    ///
    /// let options = EngineOptions { device: Device::Cpu, num_threads: Some(2), ..EngineOptions::new("models/demo") };
    /// let engine = Engine::open(options)?;
    /// assert!(engine.handle().model_info().num_kv_blocks > 0);
    ///
    /// let error = Engine::open("/no/such/folder").err().expect("there is none");
    /// assert!(error.to_string().starts_with("/no/such/folder: "));
    /// # Ok::<(), nanovllm::Error>(())
    /// ```
    pub fn open(options: impl Into<EngineOptions>) -> Result<Engine> {
        Engine::open_with_progress(options, |_| ControlFlow::Continue(()))
    }

    /// [`open`](Self::open), telling `progress` a fraction from 0 to 1 as the model is loaded. `Break` ends it with [`Error::Cancelled`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn open_with_progress(
        options: impl Into<EngineOptions>,
        mut progress: impl FnMut(f32) -> ControlFlow<()>,
    ) -> Result<Engine> {
        match engine::Opened::new(&options.into(), &mut progress)? {
            engine::Opened::Leader(engine) => {
                Ok(Engine { handle: EngineHandle(engine.handle().clone()), engine: *engine })
            }
            engine::Opened::Follower(_) => Err(Error::Unsupported {
                what: "a process with process_index above 0 is opened by the C API: nvllm_engine_new".to_owned(),
            }),
        }
    }

    /// The side of this engine that any thread may use. It may be cloned, and outlive the engine.
    pub fn handle(&self) -> &EngineHandle {
        &self.handle
    }

    /// Takes in new requests, runs forward passes for `budget`, and queues outputs. Returns at once if there is nothing to do.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] and [`Error::PassLost`]: a pass was not computed, and the engine cannot be used any more.
    ///
    /// ```
    /// use nanovllm::{Budget, Engine, Prompt, SamplingParams};
    /// use std::time::Duration;
    ///
    /// // A frame of a game: at most two milliseconds of it, and a pass that takes longer goes on in the next frame.
    /// let mut engine = Engine::open("models/demo")?;
    /// engine.handle().add(Prompt::Text("introduce yourself"), SamplingParams { max_tokens: Some(4), ..SamplingParams::default() })?;
    /// while !engine.handle().is_finished() {
    ///     engine.step(Budget::Time(Duration::from_millis(2)))?;
    ///     while let Some(output) = engine.poll() {
    ///         print!("{}", output.text);
    ///     }
    /// }
    /// # Ok::<(), nanovllm::Error>(())
    /// ```
    pub fn step(&mut self, budget: Budget) -> Result<StepReport> {
        self.engine.step(budget)
    }

    /// The oldest output that waits, valid until the next call: new tokens and text of one completion, and how it ended if it did.
    pub fn poll(&mut self) -> Option<&Output> {
        self.engine.next_output()
    }

    /// Completes all `prompts` and returns the whole completions, those of the first prompt before those of the next. `params` has no entry
    /// (the defaults of the model), one for all prompts, or one for each.
    ///
    /// A prompt that is refused has outputs that say why, and the others continue. Requests that are in the engine already run as well, and their
    /// outputs wait to be polled.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] for another number of `params`; [`Error::Limit`] for more than 2^20 completions; those of [`step`](Self::step).
    ///
    /// ```
    /// use nanovllm::{Engine, Prompt, SamplingParams};
    ///
    /// let mut engine = Engine::open("models/demo")?;
    /// let params = SamplingParams { max_tokens: Some(8), ..SamplingParams::default() };
    /// let outputs = engine.generate(&[Prompt::Text("introduce yourself"), Prompt::Tokens(&[5, 6, 7])], &[params])?;
    /// assert_eq!(outputs.len(), 2);
    /// assert!(outputs.iter().all(|output| output.completion_tokens > 0));
    /// # Ok::<(), nanovllm::Error>(())
    /// ```
    pub fn generate(&mut self, prompts: &[Prompt], params: &[SamplingParams]) -> Result<Vec<Output>> {
        self.engine.generate(prompts, params, &mut |_| ControlFlow::Continue(()))
    }

    /// [`generate`](Self::generate), calling `progress` after each pass. On `Break` the prompts that have not ended keep what they have, and end
    /// with [`Finish::Cancelled`](engine::output::Finish::Cancelled).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn generate_with_progress(
        &mut self,
        prompts: &[Prompt],
        params: &[SamplingParams],
        mut progress: impl FnMut(&Progress) -> ControlFlow<()>,
    ) -> Result<Vec<Output>> {
        self.engine.generate(prompts, params, &mut progress)
    }

    /// Adds a request that continues completion `index` of a request that runs: its prompt is all tokens of that one so far, whose KV blocks it shares.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownRequest`] if that completion has ended; those of [`EngineHandle::add`].
    pub fn fork(&mut self, request_id: u64, index: u32, params: SamplingParams) -> Result<u64> {
        self.engine.fork(request_id, index, params)
    }

    /// The keys and values of the longest prefix of `tokens` that is cached for requests with `cache_salt`: bytes that
    /// [`restore_prefix`](Self::restore_prefix) takes, in this process or another. Whole blocks alone are cached.
    ///
    /// # Errors
    ///
    /// [`Error::NotCached`] if not one block is, [`Error::OutOfMemory`], and [`Error::Unsupported`] without a prefix cache.
    ///
    /// ```
    /// use nanovllm::{Engine, Prompt, SamplingParams};
    ///
    /// let (mut engine, tokens) = (Engine::open("models/demo")?, Vec::from_iter(1..100));
    /// let params = SamplingParams { max_tokens: Some(1), ..SamplingParams::default() };
    /// engine.generate(&[Prompt::Tokens(&tokens)], &[params.clone()])?;
    /// let saved = engine.save_prefix(&tokens, 0)?;
    ///
    /// let mut another = Engine::open("models/demo")?;
    /// let restored = another.restore_prefix(&saved)?;
    /// let outputs = another.generate(&[Prompt::Tokens(&tokens)], &[params])?;
    /// assert_eq!(outputs[0].cached_tokens as usize, restored);
    /// # Ok::<(), nanovllm::Error>(())
    /// ```
    pub fn save_prefix(&mut self, tokens: &[TokenId], cache_salt: u64) -> Result<Vec<u8>> {
        let prefix = self.engine.find_prefix(tokens, cache_salt)?;
        let mut bytes = base::error::filled(0, prefix.bytes(), "a saved prefix", "the number of tokens")?;
        self.engine.save_prefix(&prefix, &mut bytes)?;
        Ok(bytes)
    }

    /// Puts a saved prefix into the cache, where requests that begin with it find it. Returns the number of its tokens.
    ///
    /// # Errors
    ///
    /// [`Error::SavedPrefix`] for bytes that are damaged or of another model, [`Error::NoFreeBlocks`], and [`Error::Unsupported`] without a prefix
    /// cache. The cache is unchanged then.
    pub fn restore_prefix(&mut self, bytes: &[u8]) -> Result<usize> {
        self.engine.restore_prefix(bytes)
    }

    /// Forgets all cached prefixes that no request and no pin holds.
    pub fn reset_prefix_cache(&mut self) {
        self.engine.reset_prefix_cache();
    }

    /// Gives memory of the KV cache that no request and no pin holds back to the system; returns the bytes. It is taken again when requests need
    /// it.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] where several ranks compute, and [`Error::Device`].
    pub fn trim(&mut self) -> Result<u64> {
        self.engine.trim()
    }

    /// How many tokens each expert of a layer was chosen for since the engine was opened with
    /// [`expert_counting`](crate::EngineOptions::expert_counting); none for a layer without experts.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] where the engine does not count or there is no such layer, and [`Error::Device`].
    pub fn expert_tokens(&mut self, layer: usize) -> Result<Vec<u64>> {
        self.engine.expert_tokens(layer)
    }
}
