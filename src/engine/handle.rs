//! The side of an engine that any thread may use: it checks requests, and hands them to the thread that steps.

use super::adjustments::Adjustments;
use super::chat_template::ChatTemplate;
use super::generation_config::GenerationConfig;
use super::inbox::{Cancel, Inbox, Intake};
use super::metrics::Metrics;
use super::options::PrefixCache;
use super::output::Stats;
use super::pins::PinBudget;
use super::request::{Arrival, CheckedParams, Request};
use super::sampling_params::{Pinning, Pooling, SamplingParams};
use super::sequence::SequenceKey;
use super::structure::{LateMasks, Opening, Structures};
use super::tokenizer::{AddedTokens, Encoding, SpecialTokens, SpelledTokens, Tokenizer};
use super::{EngineLimits, Prompt};
use crate::backend::lock::Mutex;
use crate::batch::TokenId;
use crate::error::{Error, Result};
use crate::log::{self, Level, log};
use crate::runner::ModelInfo;
use std::sync::Arc;
use std::time::Instant;

/// The side of an engine that may be used from any thread.
pub struct EngineHandle {
    info: ModelInfo,
    limits: EngineLimits,
    text: TextFiles,
    /// How the BOS token is spelled: a text that begins with it is not given another.
    bos_text: Option<String>,
    structures: Structures,
    inbox: Mutex<Inbox>,
    metrics: Metrics,
}

/// What of a model folder deals with text.
#[derive(Default)]
pub(super) struct TextFiles {
    pub tokenizer: Option<Arc<Tokenizer>>,
    pub chat_template: Option<ChatTemplate>,
    pub generation: GenerationConfig,
}

impl EngineHandle {
    pub(super) fn new(mut info: ModelInfo, limits: EngineLimits, text: TextFiles) -> EngineHandle {
        if let Some(eos_tokens) = &text.generation.eos_tokens {
            info.eos_tokens.clone_from(eos_tokens);
        }
        info.bos_token = text.generation.bos_token.or(info.bos_token);
        let vocab_size = info.vocab_size;
        info.eos_tokens.retain(|&token| {
            let known = (token as usize) < vocab_size;
            if !known {
                log(Level::Warn, format_args!("EOS token {token} is beyond the vocabulary of {vocab_size}: left out"));
            }
            known
        });
        let bos_text = match (&text.tokenizer, info.bos_token) {
            (Some(tokenizer), Some(bos)) => tokenizer.decode(&[bos], SpecialTokens::Keep).ok(),
            _ => None,
        };
        let inbox = Inbox::new(PinBudget::new(info.num_kv_blocks, &info.limits), info.num_kv_blocks);
        EngineHandle {
            structures: Structures::new(text.tokenizer.clone(), vocab_size),
            info,
            limits,
            text,
            bos_text: bos_text.filter(|text| !text.is_empty()),
            inbox: Mutex::new(inbox),
            metrics: Metrics::default(),
        }
    }

    /// Checks a request and queues it; its id is the answer. Fails without a trace when it can never run.
    ///
    /// Ids start at 1 and rise. Text is tokenized here, on the caller's thread: special tokens that are spelled out become
    /// tokens, and the tokens that begin and end a text are added unless it begins with the BOS token already.
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

    /// Refuses options that make no sense whatever the prompt. The structure that they may name is not looked at.
    ///
    /// # Errors
    ///
    /// As [`add_request`](Self::add_request).
    pub fn check(&self, params: SamplingParams) -> Result<CheckedParams> {
        let options = CheckedParams::new(params, &self.info)?;
        let params = &options.params;
        if params.pinning == Pinning::Pinned && self.limits.prefix_cache == PrefixCache::Off {
            let wanted = "0 where enable_prefix_cache is 0";
            return Err(Error::Option { field: "pin_prompt", value: "1".to_owned(), wanted });
        }
        if !params.stop_strings.is_empty() {
            self.tokenizer()?;
        }
        Ok(options)
    }

    /// [`add_request`](Self::add_request) with options that several prompts may share.
    pub(super) fn add_checked(&self, prompt: Prompt, options: Arc<CheckedParams>, added_at: Instant) -> Result<u64> {
        let prompt = match prompt {
            Prompt::Text(text) => self.encode(text)?,
            Prompt::Tokens(tokens) => {
                self.check_length(tokens.len())?;
                tokens.to_vec()
            }
        };
        let limit = self.limit(&prompt, &options.params)?;
        // What can not be queued is not worth compiling a structure for.
        self.inbox.lock().check_room(options.params.sequences(), self.limits.max_queue)?;
        let matcher = self.matcher(&options)?;
        let adjustments = Adjustments::new(&options.params, &options.biases, &prompt);
        let engine_seed = self.limits.seed;
        let request = Request { prompt, options, adjustments, matcher, limit, engine_seed, added_at };
        self.inbox.lock().add(Arc::new(request), self.limits.max_queue)
    }

    /// Asks for a request to end; it ends with [`Finish::Cancelled`](super::output::Finish::Cancelled) at the next step,
    /// unless the pass in flight ends it first.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownRequest`] when it has ended, was cancelled before, or never was.
    pub fn cancel(&self, request_id: u64) -> Result<()> {
        self.inbox.lock().cancel(request_id)
    }

    /// Where a live request stands.
    pub(super) fn key(&self, request_id: u64) -> Result<SequenceKey> {
        self.inbox.lock().key(request_id)
    }

    /// Lets the prompt of a request that was added with [`Pinning::Pinned`] be evicted from the next step on.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownPin`] when it was released before, was not to be pinned, or ended before its prompt was computed.
    pub fn release_prefix(&self, request_id: u64) -> Result<()> {
        self.inbox.lock().release(request_id)
    }

    /// Takes the promise back that was made to a request which ended before its prompt was computed.
    pub(super) fn forget_pin(&self, request_id: u64) {
        self.inbox.lock().forget_pin(request_id);
    }

    /// Whether nothing waits, runs, or is queued for polling.
    pub fn is_finished(&self) -> bool {
        self.inbox.lock().is_finished()
    }

    /// Whether nothing waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.inbox.lock().is_idle()
    }

    /// Whether a request of so many sequences finds room.
    pub(super) fn has_room(&self, sequences: u32) -> bool {
        self.inbox.lock().check_room(sequences, self.limits.max_queue).is_ok()
    }

    /// Sequences that wait, those that no step has taken in included.
    pub(super) fn waiting(&self) -> usize {
        self.inbox.lock().waiting()
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        self.inbox.lock().stats()
    }

    /// Counters, gauges and histograms in Prometheus' text format 0.0.4.
    pub fn metrics_text(&self) -> String {
        self.metrics.text(&self.stats(), log::dropped())
    }

    /// Whether there is a prefix cache.
    pub(super) fn prefix_cache(&self) -> PrefixCache {
        self.limits.prefix_cache
    }

    /// Where the thread that steps counts.
    pub(super) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Facts about the model. `bos_token` and `eos_tokens` have generation_config.json applied.
    pub fn model_info(&self) -> &ModelInfo {
        &self.info
    }

    /// The request options that generation_config.json implies, else: greedy.
    pub fn default_params(&self) -> SamplingParams {
        self.text.generation.params.clone()
    }

    /// The tokenizer.
    ///
    /// # Errors
    ///
    /// [`Error::NoTokenizer`] when the model folder brings none.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.text.tokenizer.as_deref().ok_or(Error::NoTokenizer)
    }

    /// The chat template.
    ///
    /// # Errors
    ///
    /// [`Error::NoChatTemplate`] when the model folder brings none.
    pub fn chat_template(&self) -> Result<&ChatTemplate> {
        self.text.chat_template.as_ref().ok_or(Error::NoChatTemplate)
    }

    /// Moves what a pass is to take in to the engine's own lists, which are empty.
    pub(super) fn drain(
        &self,
        intake: Intake,
        arrivals: &mut Vec<Arrival>,
        cancels: &mut Vec<Cancel>,
        unpins: &mut Vec<SequenceKey>,
    ) {
        self.inbox.lock().drain(intake, arrivals, cancels, unpins);
    }

    /// Lets other threads know where the engine stands, and of which requests a completion has ended: once a completion.
    pub(super) fn publish(&self, stats: &Stats, outputs: usize, ended: &mut Vec<u64>) {
        self.inbox.lock().publish(stats, outputs, ended);
    }

    /// Lets other threads know how many outputs wait.
    pub(super) fn publish_outputs(&self, outputs: usize) {
        self.inbox.lock().publish_outputs(outputs);
    }

    /// Refuses a structure that cannot be used.
    ///
    /// # Errors
    ///
    /// As [`add_request`](Self::add_request).
    pub fn check_structure(&self, options: &CheckedParams) -> Result<()> {
        self.matcher(options).map(|_| ())
    }

    /// The masks that come late; `None` before the first request with a structure.
    pub(super) fn late_masks(&self) -> Option<&LateMasks> {
        self.structures.late_masks()
    }

    /// The beginning of the structure that a request asks for.
    fn matcher(&self, options: &CheckedParams) -> Result<Option<Arc<Opening>>> {
        let CheckedParams { params, ending_tokens, .. } = options;
        let Some(structure) = params.structure.as_deref().filter(|_| params.pooling == Pooling::None) else {
            return Ok(None);
        };
        let ending = if params.min_tokens == 0 { &ending_tokens[..] } else { &[] };
        self.structures.opening(structure, ending).map(Some)
    }

    fn encode(&self, text: &str) -> Result<Vec<TokenId>> {
        let added = match &self.bos_text {
            Some(bos) if text.starts_with(bos) => AddedTokens::Omit,
            _ => AddedTokens::Add,
        };
        let encoding = Encoding { added, spelled: SpelledTokens::Parse };
        self.tokenizer()?.encode_within(text, encoding, self.info.limits.model_len)
    }

    /// Refuses a prompt of a length that the model cannot take.
    fn check_length(&self, tokens: usize) -> Result<()> {
        let limit = self.info.limits.model_len;
        match tokens {
            0 => Err(Error::PromptEmpty),
            _ if tokens >= limit => Err(Error::PromptTooLong { tokens, limit }),
            _ => Ok(()),
        }
    }

    /// Tokens that a request may reach, prompt included.
    fn limit(&self, prompt: &[TokenId], params: &SamplingParams) -> Result<usize> {
        let ModelInfo { vocab_size, num_kv_blocks, limits, .. } = self.info;
        let tokens = prompt.len();
        self.check_length(tokens)?;
        if let Some(index) = prompt.iter().position(|&token| token as usize >= vocab_size) {
            return Err(Error::TokenOutOfRange { token: prompt[index], index, vocab_size });
        }
        let pool_tokens = num_kv_blocks * limits.block_size;
        let (needed, limit) = match params.max_tokens {
            // Nothing is generated, but a sequence always has room for one more token.
            _ if params.pooling != Pooling::None => (tokens, tokens + 1),
            Some(max) => {
                let reach = limits.model_len.min(tokens.saturating_add(max as usize));
                (reach, reach)
            }
            None => (tokens + 1, limits.model_len.min(pool_tokens)),
        };
        if needed > pool_tokens {
            return Err(Error::RequestTooLarge { tokens: needed, pool_tokens });
        }
        Ok(limit)
    }
}
