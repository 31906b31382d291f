//! The side of an engine that any thread may use: it checks requests and queues them, and knows which are alive.

use super::block_manager::CacheCounts;
use super::chat_template::ChatTemplate;
use super::generation_config::GenerationConfig;
use super::metrics::Metrics;
use super::options::PrefixCache;
use super::output::Stats;
use super::pins::PinBudget;
use super::sampling_params::{Eos, Pinning, Pooling, SamplingParams};
use super::sequence::{Place, Request, Sequence};
use super::structure::{LateMasks, Opening, Structures};
use super::tokenizer::{AddedTokens, Encoding, SpecialTokens, SpelledTokens, Tokenizer};
use super::{EngineLimits, Prompt};
use crate::batch::{RANKED_MAX, TokenId};
use crate::error::{Error, Result};
use crate::log::{self, Level, log};
use crate::runner::ModelInfo;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// The side of an engine that may be used from any thread.
pub struct Front {
    info: ModelInfo,
    limits: EngineLimits,
    text: TextFiles,
    /// How the BOS token is spelled: a text that begins with it is not given another.
    bos_text: Option<String>,
    structures: Structures,
    inbox: Mutex<Inbox>,
    counters: Counters,
    metrics: Metrics,
}

/// What of a model folder deals with text.
#[derive(Default)]
pub(super) struct TextFiles {
    pub tokenizer: Option<Arc<Tokenizer>>,
    pub chat_template: Option<ChatTemplate>,
    pub generation: GenerationConfig,
}

/// What waits for the next step.
struct Inbox {
    last_id: u64,
    arrivals: Vec<Sequence>,
    cancels: Vec<Place>,
    /// Requests whose prompts are to be evictable again.
    unpins: Vec<Place>,
    pins: PinBudget,
    /// Every request that has not ended.
    alive: HashMap<u64, Alive>,
}

/// A request that has not ended.
struct Alive {
    /// Of its first completion.
    place: Place,
    /// Completions, or beams.
    sequences: u32,
    /// Completions that have not ended.
    left: u32,
    cancel: Cancel,
}

/// Whether a request was asked to end.
#[derive(PartialEq, Eq)]
enum Cancel {
    NotAsked,
    Asked,
}

/// [`Stats`] that one thread writes and any thread reads.
#[derive(Default)]
struct Counters {
    steps: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    generated_tokens: AtomicU64,
    preemptions: AtomicU64,
    step_time_us: AtomicU64,
    running: AtomicU32,
    /// Without those in the inbox.
    waiting: AtomicU32,
    kv_blocks_used: AtomicU32,
    prefix_queries: AtomicU64,
    prefix_hits: AtomicU64,
    prefix_evictions: AtomicU64,
    outputs: AtomicUsize,
}

impl Front {
    pub(super) fn new(mut info: ModelInfo, limits: EngineLimits, text: TextFiles) -> Front {
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
        let inbox = Inbox {
            last_id: 0,
            arrivals: Vec::new(),
            cancels: Vec::new(),
            unpins: Vec::new(),
            pins: PinBudget::new(info.num_kv_blocks, &info.limits),
            alive: HashMap::new(),
        };
        Front {
            structures: Structures::new(text.tokenizer.clone(), vocab_size),
            info,
            limits,
            text,
            bos_text: bos_text.filter(|text| !text.is_empty()),
            inbox: Mutex::new(inbox),
            counters: Counters::default(),
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
        params.check(self.info.vocab_size)?;
        if params.pinning == Pinning::Pinned && self.limits.prefix_cache == PrefixCache::Off {
            let wanted = "0 where enable_prefix_cache is 0";
            return Err(Error::Option { field: "pin_prompt", value: "1".to_owned(), wanted });
        }
        if !params.stop_strings.is_empty() {
            self.tokenizer()?;
        }
        let ending_tokens = self.ending_tokens(&params)?;
        if let Some(beams) = params.beams
            && beams.ranked(ending_tokens.len(), params.min_tokens) > RANKED_MAX
        {
            return Err(Error::Option {
                field: "beam_width",
                value: beams.width.to_string(),
                wanted: "small enough for 64 candidates: with one end token up to 32, with each more end token fewer",
            });
        }
        let prompt = match prompt {
            Prompt::Text(text) => self.encode(text)?,
            Prompt::Tokens(tokens) => tokens.to_vec(),
        };
        let limit = self.limit(&prompt, &params)?;
        let (priority, completions, pinning) = (params.priority, params.completions, params.pinning);
        let sequences = params.sequences();
        let prompt_tokens = prompt.len();
        let matcher = self.matcher(&params, &ending_tokens)?;
        let engine_seed = self.limits.seed;
        let first = Request { id: 0, index: 0, prompt, params, ending_tokens, matcher, limit, engine_seed, added_at };
        // Prompts are copied before the lock is held, because a step waits for it.
        let mut requests: Vec<Request> = (1..sequences).map(|index| Request { index, ..first.clone() }).collect();
        requests.push(first);

        let mut inbox = self.inbox.lock();
        let waiting = inbox.arrivals.len() + self.counters.waiting.load(Relaxed) as usize;
        if let Some(limit) = self.limits.max_queue.filter(|&max| waiting >= max) {
            return Err(Error::QueueFull { limit });
        }
        if pinning == Pinning::Pinned {
            inbox.pins.check(prompt_tokens)?;
        }
        inbox.last_id += 1;
        let id = inbox.last_id;
        let place = Place::new(priority, id);
        if pinning == Pinning::Pinned {
            inbox.pins.promise(place, prompt_tokens);
        }
        inbox.alive.insert(id, Alive { place, sequences, left: completions, cancel: Cancel::NotAsked });
        inbox.arrivals.extend(requests.into_iter().map(|request| Sequence::new(Request { id, ..request })));
        Ok(id)
    }

    /// Asks for a request to end; it ends with [`Finish::Cancelled`](super::output::Finish::Cancelled) at the next step,
    /// unless the pass in flight ends it first.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownRequest`] when it has ended, was cancelled before, or never was.
    pub fn cancel(&self, request_id: u64) -> Result<()> {
        let mut inbox = self.inbox.lock();
        match inbox.alive.get_mut(&request_id) {
            Some(Alive { place, sequences, cancel, .. }) if *cancel == Cancel::NotAsked => {
                *cancel = Cancel::Asked;
                let (place, sequences) = (*place, *sequences);
                inbox.cancels.extend((0..sequences).map(|index| place.completion(index)));
                Ok(())
            }
            _ => Err(Error::UnknownRequest { id: request_id }),
        }
    }

    /// Where a live request stands.
    pub(super) fn place(&self, request_id: u64) -> Result<Place> {
        let inbox = self.inbox.lock();
        let alive = inbox.alive.get(&request_id).filter(|alive| alive.cancel == Cancel::NotAsked);
        alive.map(|alive| alive.place).ok_or(Error::UnknownRequest { id: request_id })
    }

    /// Lets the prompt of a request that was added with [`Pinning::Pinned`] be evicted from the next step on.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownPin`] when it was released before, was not to be pinned, or ended before its prompt was computed.
    pub fn release_prefix(&self, request_id: u64) -> Result<()> {
        let mut inbox = self.inbox.lock();
        let place = inbox.pins.release(request_id).ok_or(Error::UnknownPin { id: request_id })?;
        inbox.unpins.push(place);
        Ok(())
    }

    /// Takes the promise back that was made to a request which ended before its prompt was computed.
    pub(super) fn forget_pin(&self, request_id: u64) {
        self.inbox.lock().pins.release(request_id);
    }

    /// Whether nothing waits, runs, or is queued for polling.
    pub fn is_finished(&self) -> bool {
        // An output is counted before its request is forgotten, and both under this lock.
        let inbox = self.inbox.lock();
        inbox.alive.is_empty() && self.counters.outputs.load(Relaxed) == 0
    }

    /// Whether nothing waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        self.inbox.lock().alive.is_empty()
    }

    /// Counters and gauges.
    pub fn stats(&self) -> Stats {
        let (arrivals, pinned) = {
            let inbox = self.inbox.lock();
            (inbox.arrivals.len() as u32, inbox.pins.promised() as u32)
        };
        let counters = &self.counters;
        Stats {
            steps: counters.steps.load(Relaxed),
            prompt_tokens: counters.prompt_tokens.load(Relaxed),
            cached_tokens: counters.cached_tokens.load(Relaxed),
            generated_tokens: counters.generated_tokens.load(Relaxed),
            preemptions: counters.preemptions.load(Relaxed),
            step_time_us: counters.step_time_us.load(Relaxed),
            running: counters.running.load(Relaxed),
            waiting: counters.waiting.load(Relaxed) + arrivals,
            kv_blocks_total: self.info.num_kv_blocks as u32,
            kv_blocks_used: counters.kv_blocks_used.load(Relaxed),
            kv_blocks_pinned: pinned,
            prefix_cache: CacheCounts {
                queries: counters.prefix_queries.load(Relaxed),
                hits: counters.prefix_hits.load(Relaxed),
                evictions: counters.prefix_evictions.load(Relaxed),
            },
        }
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

    /// Moves what arrived to the engine's own lists, which are empty.
    pub(super) fn drain(&self, arrivals: &mut Vec<Sequence>, cancels: &mut Vec<Place>, unpins: &mut Vec<Place>) {
        let mut inbox = self.inbox.lock();
        std::mem::swap(&mut inbox.arrivals, arrivals);
        std::mem::swap(&mut inbox.cancels, cancels);
        std::mem::swap(&mut inbox.unpins, unpins);
        // They go on waiting, so that `max_queue` counts them without a gap.
        self.counters.waiting.fetch_add(arrivals.len() as u32, Relaxed);
    }

    /// Lets other threads know where the engine stands, and of which requests a completion has ended: once a completion.
    pub(super) fn publish(&self, stats: &Stats, outputs: usize, ended: &mut Vec<u64>) {
        let counters = &self.counters;
        counters.steps.store(stats.steps, Relaxed);
        counters.prompt_tokens.store(stats.prompt_tokens, Relaxed);
        counters.cached_tokens.store(stats.cached_tokens, Relaxed);
        counters.generated_tokens.store(stats.generated_tokens, Relaxed);
        counters.preemptions.store(stats.preemptions, Relaxed);
        counters.step_time_us.store(stats.step_time_us, Relaxed);
        counters.running.store(stats.running, Relaxed);
        counters.waiting.store(stats.waiting, Relaxed);
        counters.kv_blocks_used.store(stats.kv_blocks_used, Relaxed);
        counters.prefix_queries.store(stats.prefix_cache.queries, Relaxed);
        counters.prefix_hits.store(stats.prefix_cache.hits, Relaxed);
        counters.prefix_evictions.store(stats.prefix_cache.evictions, Relaxed);
        let mut inbox = self.inbox.lock();
        counters.outputs.store(outputs, Relaxed);
        for id in ended.drain(..) {
            let request = inbox.alive.get_mut(&id).expect("a request is alive until its last completion has ended");
            request.left -= 1;
            if request.left == 0 {
                inbox.alive.remove(&id);
            }
        }
    }

    /// Lets other threads know how many outputs wait.
    pub(super) fn publish_outputs(&self, outputs: usize) {
        self.counters.outputs.store(outputs, Relaxed);
    }

    /// The tokens that end a request: EOS unless ignored, and its own.
    fn ending_tokens(&self, params: &SamplingParams) -> Result<Vec<TokenId>> {
        let mut tokens = match params.eos {
            Eos::Stops => self.info.eos_tokens.clone(),
            Eos::Ignored => Vec::new(),
        };
        tokens.extend_from_slice(&params.stop_tokens);
        tokens.sort_unstable();
        tokens.dedup();
        let vocab_size = self.info.vocab_size;
        let never = |&&(_, bias): &&(TokenId, f32)| bias == f32::NEG_INFINITY;
        let forbidden = params.logit_bias.iter().filter(never);
        if forbidden.clone().count() >= vocab_size {
            let value = format!("minus infinity for all {vocab_size} tokens");
            return Err(Error::Option { field: "bias_values", value, wanted: "so for fewer than the vocabulary" });
        }
        let banned = tokens.len() + forbidden.filter(|(token, _)| tokens.binary_search(token).is_err()).count();
        if params.min_tokens > 0 && banned >= vocab_size {
            return Err(Error::Option {
                field: "stop_tokens",
                value: format!("with the tokens that a bias forbids all {banned} tokens"),
                wanted: "fewer than the vocabulary, or min_tokens 0",
            });
        }
        Ok(tokens)
    }

    /// Refuses options that make no sense whatever the prompt.
    ///
    /// # Errors
    ///
    /// As [`add_request`](Self::add_request).
    pub fn check(&self, params: &SamplingParams) -> Result<()> {
        params.check(self.info.vocab_size)?;
        self.matcher(params, &[]).map(|_| ())
    }

    /// The masks that come late; `None` before the first request with a structure.
    pub(super) fn late_masks(&self) -> Option<&LateMasks> {
        self.structures.late_masks()
    }

    /// The beginning of the structure that a request asks for.
    fn matcher(&self, params: &SamplingParams, ending_tokens: &[TokenId]) -> Result<Option<Arc<Opening>>> {
        let Some(structure) = params.structure.as_deref().filter(|_| params.pooling == Pooling::None) else {
            return Ok(None);
        };
        let ending = if params.min_tokens == 0 { ending_tokens } else { &[] };
        self.structures.opening(structure, ending).map(Some)
    }

    fn encode(&self, text: &str) -> Result<Vec<TokenId>> {
        let added = match &self.bos_text {
            Some(bos) if text.starts_with(bos) => AddedTokens::Omit,
            _ => AddedTokens::Add,
        };
        self.tokenizer()?.encode(text, Encoding { added, spelled: SpelledTokens::Parse })
    }

    /// Tokens that a request may reach, prompt included.
    fn limit(&self, prompt: &[TokenId], params: &SamplingParams) -> Result<usize> {
        let ModelInfo { vocab_size, num_kv_blocks, limits, .. } = self.info;
        let tokens = prompt.len();
        if tokens == 0 {
            return Err(Error::PromptEmpty);
        }
        if tokens >= limits.model_len {
            return Err(Error::PromptTooLong { tokens, limit: limits.model_len });
        }
        if let Some(index) = prompt.iter().position(|&token| token as usize >= vocab_size) {
            return Err(Error::TokenOutOfRange { token: prompt[index], index, vocab_size });
        }
        let pool_tokens = num_kv_blocks * limits.block_size;
        let (needed, limit) = match params.max_tokens {
            // Nothing is generated, but a sequence has always a place for a token more.
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
