//! Which part of an engine may any thread use? It queues requests that are valid, cancels them, and reads statistics.
//!
//! Invariant: no call but [`EngineHandle::wait`] waits for a step. The inbox is locked only to move things in and out, never while a prompt is tokenized or
//! a structure compiled.

use crate::adjustments::LogitBiases;
use crate::api::generation_config::GenerationConfig;
use crate::api::inbox::{Cancel, Inbox, Intake};
use crate::api::prompt::{PromptPart, joined};
use crate::api::request::{Arrival, CheckedParams, Request};
use crate::api::sampling_params::SamplingParams;
use crate::api::validation::RequestValidator;
use crate::dry::History;
use crate::options::PrefixCache;
use crate::results::metrics::Metrics;
use crate::results::output::Stats;
use crate::schedule::pins::PinBudget;
use crate::schedule::sequence::SequenceKey;
use crate::{EngineLimits, Prompt};
use base::error::{Error, Result};
use base::log;
use os::lock::{Condvar, Mutex};
use runner::{Due, ModelInfo, Peers};
use std::sync::Arc;
use std::time::Instant;
use text::answer::Format;
use text::chat_template::ChatTemplate;
use text::structure::LateMasks;
use text::tokenizer::Tokenizer;

/// The side of an engine that may be used from any thread.
pub struct EngineHandle {
    validator: RequestValidator,
    max_queue: Option<usize>,
    /// Seed of requests without one.
    seed: u64,
    chat_template: Option<ChatTemplate>,
    answers: Result<Format>,
    default_params: SamplingParams,
    inbox: Mutex<Inbox>,
    /// That those who wait for work look again. Told only while a thread waits.
    told: Condvar,
    /// The other processes, where several compute the model.
    peers: Option<Arc<Peers>>,
    metrics: Metrics,
}

/// How a [wait](EngineHandle::wait) for something to do ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// There is something to do.
    Work,
    /// There is nothing: the deadline came first, or another thread [ended](EngineHandle::wake) the wait.
    InVain,
    /// The leader of this process has closed its engine.
    Closed,
    /// Nobody may wait any more.
    Over,
}

/// The files of a model folder that concern text.
#[derive(Default)]
pub(crate) struct TextFiles {
    pub tokenizer: Option<Arc<Tokenizer>>,
    pub chat_template: Option<ChatTemplate>,
    /// How the model writes its answers; text alone if there is none.
    pub answers: Option<Result<Format>>,
    pub generation: GenerationConfig,
}

impl EngineHandle {
    pub(crate) fn new(
        info: ModelInfo,
        limits: EngineLimits,
        text: TextFiles,
        peers: Option<&Arc<Peers>>,
    ) -> Arc<EngineHandle> {
        let inbox = Inbox::new(PinBudget::new(info.num_kv_blocks, &info.limits, info.windowed), info.num_kv_blocks);
        let handle = Arc::new(EngineHandle {
            validator: RequestValidator::new(info, &limits, &text),
            max_queue: limits.max_queue,
            seed: limits.seed,
            chat_template: text.chat_template,
            answers: text.answers.unwrap_or_else(|| Ok(Format::of_chat_template(""))),
            default_params: text.generation.params,
            inbox: Mutex::new(inbox),
            told: Condvar::new(),
            peers: peers.cloned(),
            metrics: Metrics::default(),
        });
        if let Some(peers) = peers {
            let told = Arc::downgrade(&handle);
            peers.at_news(move || told.upgrade().iter().for_each(|handle| handle.tell()));
        }
        handle
    }

    /// Checks a request, queues it and returns its id. A request that is refused leaves no trace.
    ///
    /// Ids start at 1 and rise. Text is tokenized here, on the caller's thread: special tokens that are spelled out become
    /// tokens, and the tokens that begin and end a text are added unless it begins with them, or with the BOS token, already.
    ///
    /// # Errors
    ///
    /// [`Error::Option`], [`Error::PromptEmpty`], [`Error::PromptTooLong`], [`Error::TokenOutOfRange`],
    /// [`Error::RequestTooLarge`], [`Error::QueueFull`], [`Error::PinsFull`], [`Error::NoTokenizer`], [`Error::Tokenizer`],
    /// [`Error::Structure`], [`Error::Unsupported`].
    pub fn add_request(&self, prompt: Prompt, params: SamplingParams) -> Result<u64> {
        let added_at = Instant::now();
        self.add_checked(prompt, Arc::new(self.check(params)?), added_at)
    }

    /// Refuses options that no prompt can make valid. Does not look at the structure that they may name.
    ///
    /// # Errors
    ///
    /// As [`add_request`](Self::add_request).
    pub fn check(&self, params: SamplingParams) -> Result<CheckedParams> {
        self.validator.check(params)
    }

    /// [`add_request`](Self::add_request) with options that several prompts may share.
    pub(crate) fn add_checked(&self, prompt: Prompt, options: Arc<CheckedParams>, added_at: Instant) -> Result<u64> {
        self.check_leads()?;
        let given = prompt;
        let (prompt, second_text) = self.validator.tokenize(given, &options)?;
        let limit = self.validator.token_limit(&prompt, &options.params)?;
        // A structure is not worth compiling for a request that cannot be queued.
        self.inbox.lock().check_room(options.params.sequences(), self.max_queue)?;
        let matcher = self.validator.matcher(&options, self.answer_format(), given)?;
        let adjustments = LogitBiases::new(&options.params, &options.biases, &prompt);
        let dry = History::new(&options.params, &prompt, self.validator.tokenizer().ok());
        let thinking = self.validator.thinking(&options, self.answer_format(), given)?;
        let engine_seed = self.seed;
        let (prompt, embeddings) = joined(vec![PromptPart::Tokens(prompt)]);
        let request = Arc::new(Request {
            prompt,
            second_text,
            embeddings,
            options,
            adjustments,
            dry,
            matcher,
            thinking,
            limit,
            engine_seed,
            added_at,
        });
        self.change(|inbox| inbox.add(request, self.max_queue))
    }

    /// Changes the inbox, and wakes those that wait if there is work then.
    fn change<T>(&self, change: impl FnOnce(&mut Inbox) -> T) -> T {
        let mut inbox = self.inbox.lock();
        let changed = change(&mut inbox);
        let is_awaited = inbox.waits.waiting > 0 && inbox.has_work();
        drop(inbox);
        if is_awaited {
            self.told.notify_all();
        }
        changed
    }

    /// Waits until a step has something to do, or an output can be polled, at most until `deadline`. Any number of threads may wait.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`]: another process is gone, and the engine cannot be used any more.
    pub fn wait(&self, deadline: Option<Instant>) -> Result<Waited> {
        let (mut inbox, mut is_late) = (self.inbox.lock(), false);
        let wakes = inbox.waits.wakes;
        inbox.waits.waiting += 1;
        let waited = loop {
            if inbox.waits.are_over {
                break Ok(Waited::Over);
            }
            match self.due(&inbox) {
                Ok(Due::Work) => break Ok(Waited::Work),
                Ok(Due::Closed) => break Ok(Waited::Closed),
                Err(lost) => break Err(lost),
                Ok(Due::Nothing) => {}
            }
            if is_late || inbox.waits.wakes != wakes || std::mem::take(&mut inbox.waits.is_woken) {
                break Ok(Waited::InVain);
            }
            (inbox, is_late) = self.told.wait_within(inbox, deadline);
        };
        inbox.waits.waiting -= 1;
        waited
    }

    /// What a step would find to do.
    fn due(&self, inbox: &Inbox) -> Result<Due> {
        match &self.peers {
            Some(leader) if self.follows() => leader.due(),
            _ if inbox.has_work() => Ok(Due::Work),
            // A step that has nothing to do would not find out.
            Some(followers) => followers.error().map_or(Ok(Due::Nothing), Err),
            None => Ok(Due::Nothing),
        }
    }

    /// Ends all calls of [`wait`](Self::wait), and the next one that begins, with [`Waited::InVain`].
    pub fn wake(&self) {
        let waits = &mut self.inbox.lock().waits;
        waits.wakes += 1;
        waits.is_woken = true;
        self.told.notify_all();
    }

    /// Ends all calls of [`wait`](Self::wait), later ones included, with [`Waited::Over`].
    pub fn end_waits(&self) {
        self.inbox.lock().waits.are_over = true;
        self.told.notify_all();
    }

    /// Lets those that wait look again. Whoever has looked before the lock was free waits now, and is told.
    fn tell(&self) {
        let is_awaited = self.inbox.lock().waits.waiting > 0;
        if is_awaited {
            self.told.notify_all();
        }
    }

    /// Asks for a request to end; it ends with [`Finish::Cancelled`](crate::results::output::Finish::Cancelled) at the next step,
    /// unless the pass in flight ends it first.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownRequest`] when it has ended, was cancelled before, or never was.
    pub fn cancel(&self, request_id: u64) -> Result<()> {
        self.check_leads()?;
        self.change(|inbox| inbox.cancel(request_id))
    }

    /// Whether another process takes the requests.
    fn follows(&self) -> bool {
        self.model_info().process > 0
    }

    /// Refuses what concerns requests where another process takes them.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`].
    pub fn check_leads(&self) -> Result<()> {
        match self.model_info().process {
            0 => Ok(()),
            process => Err(Error::Unsupported { what: format!("process {process} follows: requests go to process 0") }),
        }
    }

    /// The key of a request that has not ended.
    pub(crate) fn key(&self, request_id: u64) -> Result<SequenceKey> {
        self.inbox.lock().key(request_id)
    }

    /// Lets the prompt of a request that was added with [`Pinning::Pinned`](crate::api::sampling_params::Pinning::Pinned) be
    /// evicted from the next step on.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownPin`] when it was released before, was not to be pinned, or ended before its prompt was computed.
    pub fn release_prefix(&self, request_id: u64) -> Result<()> {
        self.check_leads()?;
        self.change(|inbox| inbox.release(request_id))
    }

    /// Releases the blocks promised to a pinned request that ended before its prompt was computed.
    pub(crate) fn forget_pin(&self, request_id: u64) {
        self.inbox.lock().forget_pin(request_id);
    }

    /// Whether nothing waits, runs, or is queued for polling.
    pub fn is_finished(&self) -> bool {
        self.inbox.lock().is_finished()
    }

    /// Whether nothing waits or runs.
    pub(crate) fn is_idle(&self) -> bool {
        self.inbox.lock().is_idle()
    }

    /// Whether a request of `sequences` sequences can be queued.
    pub(crate) fn has_room(&self, sequences: u32) -> bool {
        self.inbox.lock().check_room(sequences, self.max_queue).is_ok()
    }

    /// Sequences that wait, including those that no step has taken from the inbox.
    pub(crate) fn waiting(&self) -> usize {
        self.inbox.lock().waiting()
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        Stats { gpu_memory_bytes: self.model_info().gpu_bytes, ..self.inbox.lock().stats() }
    }

    /// Counters, gauges and histograms in Prometheus' text format 0.0.4.
    pub fn metrics_text(&self) -> String {
        self.metrics.text(&self.stats(), log::dropped())
    }

    /// Whether there is a prefix cache.
    pub(crate) fn prefix_cache(&self) -> PrefixCache {
        self.validator.prefix_cache()
    }

    /// The metrics, which the stepping thread counts.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Facts about the model. `bos_token` and `eos_tokens` have generation_config.json applied.
    pub fn model_info(&self) -> &ModelInfo {
        self.validator.model_info()
    }

    /// The request options that generation_config.json implies, else: greedy.
    pub fn default_params(&self) -> SamplingParams {
        self.default_params.clone()
    }

    /// The tokenizer.
    ///
    /// # Errors
    ///
    /// [`Error::NoTokenizer`] when the model folder has none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.validator.tokenizer()
    }

    /// The chat template.
    ///
    /// # Errors
    ///
    /// [`Error::NoChatTemplate`] when the model folder has none.
    pub fn chat_template(&self) -> Result<&ChatTemplate> {
        self.chat_template.as_ref().ok_or_else(|| Error::NoChatTemplate { named: Vec::new() })
    }

    /// How the model writes its answers: content, reasoning and tool calls.
    ///
    /// # Errors
    ///
    /// [`Error::ModelFile`] when the `response_template` of the model folder cannot be used.
    pub fn answer_format(&self) -> Result<&Format> {
        self.answers.as_ref().map_err(|error| match error {
            Error::ModelFile { path, reason } => Error::ModelFile { path: path.clone(), reason: reason.clone() },
            other => Error::Unsupported { what: other.to_string() },
        })
    }

    /// Moves what a pass takes in from the inbox to the lists of the engine, which are empty.
    pub(crate) fn drain(
        &self,
        intake: Intake,
        arrivals: &mut Vec<Arrival>,
        cancels: &mut Vec<Cancel>,
        unpins: &mut Vec<SequenceKey>,
    ) {
        self.inbox.lock().drain(intake, arrivals, cancels, unpins);
    }

    /// Publishes the state of the engine to other threads. `ended` has the request of each completion that ended.
    pub(crate) fn publish(&self, stats: &Stats, outputs: usize, in_flight: usize, ended: &mut Vec<u64>) {
        self.change(|inbox| inbox.publish(stats, outputs, in_flight, ended));
    }

    /// Publishes to other threads how many outputs wait.
    pub(crate) fn publish_outputs(&self, outputs: usize) {
        self.inbox.lock().publish_outputs(outputs);
    }

    /// Refuses a structure that cannot be compiled or supported.
    ///
    /// # Errors
    ///
    /// As [`add_request`](Self::add_request).
    pub fn check_structure(&self, options: &CheckedParams) -> Result<()> {
        self.validator.matcher(options, self.answer_format(), Prompt::Text("")).map(|_| ())
    }

    /// The masks that come late; `None` before the first request with a structure.
    pub(crate) fn late_masks(&self) -> Option<&LateMasks> {
        self.validator.late_masks()
    }
}
