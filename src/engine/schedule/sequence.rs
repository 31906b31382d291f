//! What is one completion of a request on the host? Its tokens, its blocks, and what happens to a token that was sampled for it.
//!
//! Invariant: a sequence that has not run has no memory whose size the request chooses.

use crate::api::prompt::Content;
use crate::api::request::Request;
use crate::api::sampling_params::{Pinning, SamplingParams, StopToken};
use crate::results::output::{Finish, Output};
use crate::results::stop_strings::Complete;
use crate::schedule::blocks::{BlockManager, WindowEntries};
use base::TokenId;
use block_table::{BlockTable, Reuse};
use compute::batch::{BlockId, Chosen, LogitBias, PoolKind, PooledRange, Sampled, Sampling};
use detokenizer::{Detokenizer, StopRule};
use runner::Pool;
use sampler_state::{NextToken, SamplerState};
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use text::structure::{Follower, Standing, Wanted};
use text::tokenizer::Tokenizer;
use thinking::Thinking;
pub use thinking::ThinkingLimit;
pub use window_blocks::WindowBlocks;

/// Generated tokens that memory is reserved for when a sequence begins to run. Beyond that, its vector doubles, which
/// happens too rarely to matter.
const RESERVED_COMPLETION: usize = 4096;

/// Identifies a sequence and orders it: higher priority first, then the older request, then the completions of a request
/// by index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SequenceKey {
    priority: Reverse<i32>,
    id: u64,
    index: u32,
}

impl SequenceKey {
    /// The key of the first completion of request `id`, which also stands for the request.
    pub fn new(priority: i32, id: u64) -> SequenceKey {
        SequenceKey { priority: Reverse(priority), id, index: 0 }
    }

    /// The key of the completion `index` of the same request.
    pub fn completion(self, index: u32) -> SequenceKey {
        SequenceKey { index, ..self }
    }

    /// The id of the request.
    pub fn id(self) -> u64 {
        self.id
    }

    /// The index of the completion, or the slot of the beam.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Whether a sequence continues. Whether it runs or waits for its turn is decided by the scheduler's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SequenceStatus {
    /// It takes part in passes whenever the scheduler lets it.
    Running,
    /// It is a beam that has nothing to do until the search of its request makes a step.
    Paused,
    /// It ends when the pass in flight has been collected, and takes nothing from that pass.
    Cancelled,
    /// Its last output has been written.
    Finished,
}

/// Whether the blocks of a prompt stay when its sequence has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// They do not, or not any more.
    Unwanted,
    /// They are pinned as soon as they are computed.
    Wanted,
    /// They are pinned.
    Made,
}

/// One completion or beam of a request, from its arrival to its last token.
///
/// Invariants: `table.computed() + in_flight + scheduled <= tokens.len() + awaited <= limit`; while it runs, `table` has room
/// for what is in flight.
pub struct Sequence {
    /// Its identity, and its position in the order of all sequences.
    pub key: SequenceKey,
    /// Prompt, then completion. Empty before it has run.
    pub tokens: Vec<TokenId>,
    /// Its KV blocks, and how many tokens they hold.
    pub table: BlockTable,
    /// Tokens after the computed ones that passes in flight compute.
    pub in_flight: usize,
    /// Tokens after these that the pass being formed will compute.
    pub scheduled: usize,
    /// Tokens after the known ones that passes in flight sample.
    pub awaited: usize,
    /// Index of its token among those that the last of these passes samples.
    pub sample: u32,
    /// Completions of its request after this one that do not exist yet: each is created when the one before it runs.
    pub pending_siblings: u32,
    /// Whether it continues.
    pub status: SequenceStatus,
    /// Whether the blocks of its prompt stay. Set on the first completion of a request.
    pub pin: Pin,
    request: Arc<Request>,
    /// The state of the structure that the request asks for, if any.
    matcher: Option<Box<Follower>>,
    /// How long it reasons, if the request limits or counts that.
    thinking: Option<Box<Thinking>>,
    sampler: SamplerState,
    detokenizer: Detokenizer,
    /// Tokens of the prompt that were cached when it first ran; `None` before that.
    cached_tokens: Option<usize>,
    completion_tokens: usize,
    /// Sum of its hidden states. `[hidden]`, or empty before the first
    pooled: Vec<f64>,
    started_at: Option<Instant>,
    last_token_at: Option<Instant>,
    time_to_first_token_us: u64,
}

/// The time until a token came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// The first token of a completion.
    First {
        /// From adding the request to its first run.
        queued: Duration,
        /// From adding the request to this token.
        whole: Duration,
    },
    /// From the token before to this one.
    Between(Duration),
}

impl Sequence {
    /// A completion of a request, or a beam, that has not run.
    pub fn new(key: SequenceKey, request: Arc<Request>, pinning: Pinning) -> Sequence {
        let params = &request.options.params;
        debug_assert!(!request.prompt.is_empty() && request.prompt.len() < request.limit);
        Sequence {
            key,
            tokens: Vec::new(),
            table: BlockTable::new(params.cache_salt),
            in_flight: 0,
            scheduled: 0,
            awaited: 0,
            sample: 0,
            pending_siblings: if params.beams.is_some() { 0 } else { params.completions - 1 - key.index },
            // The other beams are forked from the first one.
            status: if key.index > 0 && params.beams.is_some() {
                SequenceStatus::Paused
            } else {
                SequenceStatus::Running
            },
            pin: match pinning {
                Pinning::Pinned if key.index == 0 => Pin::Wanted,
                _ => Pin::Unwanted,
            },
            matcher: None,
            thinking: None,
            sampler: SamplerState::new(key, &request),
            detokenizer: Detokenizer::default(),
            cached_tokens: None,
            completion_tokens: 0,
            pooled: Vec::new(),
            started_at: None,
            last_token_at: None,
            time_to_first_token_us: 0,
            request,
        }
    }

    /// Copies from its request what it needs to run. Does nothing the second time.
    fn begin(&mut self) {
        if !self.tokens.is_empty() {
            return;
        }
        let request = &*self.request;
        self.tokens.extend_from_slice(&request.prompt);
        self.sampler.begin(request);
        self.detokenizer =
            Detokenizer::new(request.options.stop_strings.clone(), request.options.params.special_tokens);
        self.thinking = request.thinking.clone().map(|limit| Box::new(Thinking::new(limit)));
        self.matcher = request.matcher.clone().map(|opening| Box::new(Follower::new(opening)));
    }

    /// Creates the next completion of its request; `None` if it exists or there is none.
    pub fn next_completion(&mut self) -> Option<Sequence> {
        let next = self.key.completion(self.key.index + 1);
        (std::mem::take(&mut self.pending_siblings) > 0)
            .then(|| Sequence::new(next, self.request.clone(), Pinning::Evictable))
    }

    /// The options of its request.
    fn params(&self) -> &SamplingParams {
        &self.request.options.params
    }

    /// EOS and stop tokens, in ascending order.
    fn ending_tokens(&self) -> &[TokenId] {
        &self.request.options.ending_tokens
    }

    /// Its tokens so far, also before it has run.
    pub fn known_tokens(&self) -> &[TokenId] {
        if self.tokens.is_empty() { &self.request.prompt } else { &self.tokens }
    }

    /// Whether its tokens are all that its prompt has.
    pub fn has_tokens_alone(&self) -> bool {
        self.request.embeddings.is_empty()
    }

    /// The id of the request.
    pub fn id(&self) -> u64 {
        self.key.id
    }

    /// Separates prefixes that must not be shared.
    pub fn cache_salt(&self) -> u64 {
        self.params().cache_salt
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.request.prompt.len()
    }

    /// When it has to run by; `None` if it may wait for ever. Only the first completion of a request has a deadline.
    pub fn deadline(&self) -> Option<Instant> {
        // A time too long to be added to the clock never comes.
        self.params().max_wait.filter(|_| self.key.index == 0).and_then(|max| self.request.added_at.checked_add(max))
    }

    /// The full blocks of its prompt that are computed: other completions of the prompt can share them. None where the first ones
    /// were released.
    pub fn prompt_blocks(&self, block_size: usize) -> &[BlockId] {
        match self.table.released() {
            0 => &self.table.blocks()[..self.table.computed().min(self.prompt_tokens()) / block_size],
            _ => &[],
        }
    }

    /// Whether its prompt is computed and is to be pinned now.
    pub fn is_to_be_pinned(&self) -> bool {
        self.pin == Pin::Wanted
            && self.status == SequenceStatus::Running
            && self.table.computed() >= self.prompt_tokens()
    }

    /// Whether nothing is gained by waiting until it has computed more of its prompt: [`prompt_blocks`](Self::prompt_blocks) are complete,
    /// given that the last token of a prompt is always computed, or will never be.
    pub fn prompt_is_shareable(&self, block_size: usize) -> bool {
        self.table.released() > 0 || self.prompt_blocks(block_size).len() >= (self.prompt_tokens() - 1) / block_size
    }

    /// Whether it runs or has run before.
    pub fn has_run(&self) -> bool {
        self.cached_tokens.is_some()
    }

    /// Tokens it has once the passes in flight are collected, if none of them ends it.
    pub fn expected_tokens(&self) -> usize {
        self.tokens.len() + self.awaited
    }

    /// Tokens that are computed once the passes in flight and the pass being formed are collected.
    pub fn scheduled_end(&self) -> usize {
        self.table.computed() + self.in_flight + self.scheduled
    }

    /// Known and awaited tokens that are in no pass yet. 0 if a pass in flight certainly ends it, or must be collected before
    /// its next token can be sampled.
    pub fn pending_tokens(&self) -> usize {
        // Before a pass is collected, neither the tokens of a beam are known nor those that a structure allows, a limit forces, or DRY penalizes.
        let may_be_forced = self.thinking.as_ref().is_some_and(|thinking| thinking.may_be_over(self.awaited));
        let must_wait = may_be_forced
            || self.matcher.is_some()
            || self.sampler.awaits_tokens()
            || self.params().beams.is_some()
            || self.expected_tokens() >= self.request.limit;
        match self.status != SequenceStatus::Running || self.is_late() || (self.awaited > 0 && must_wait) {
            true => 0,
            false => self.expected_tokens() - self.scheduled_end(),
        }
    }

    /// Hidden states that it pools from the next `tokens` after those in flight.
    pub fn pooled_rows_of(&self, tokens: usize) -> usize {
        match self.pools() {
            None => 0,
            Some(Pool::Tokens) => tokens,
            Some(_) if self.is_whole() => usize::from(tokens > 0),
            // The first is that of a text that is computed whole.
            Some(Pool::First | Pool::Last) => {
                usize::from(tokens > 0 && self.table.computed() + self.in_flight + tokens == self.prompt_tokens())
            }
            Some(Pool::Mean | Pool::MeanSqrtLen | Pool::WeightedMean | Pool::Max) => tokens,
        }
    }

    /// Whether a pass has all of its tokens or none.
    pub fn is_whole(&self) -> bool {
        self.request.options.result.is_whole
    }

    /// The tokens whose states become one, of those of a text that is computed whole, state after state.
    pub fn pooled_ranges(&self, tokens: Range<usize>) -> impl Iterator<Item = PooledRange> {
        let (pooled, size) = match self.pools() {
            Some(Pool::First) => (tokens.start..tokens.start + 1, 1),
            Some(Pool::Last) => (tokens.end - 1..tokens.end, 1),
            Some(Pool::Tokens) => (tokens, 1),
            _ => (tokens.clone(), tokens.len()),
        };
        let kind = self.pool_kind();
        pooled.step_by(size).map(move |first| PooledRange { first: first as u32, end: (first + size) as u32, kind })
    }

    /// Which of its states become one.
    fn pools(&self) -> Option<Pool> {
        self.request.options.result.pool
    }

    fn pool_kind(&self) -> PoolKind {
        match self.pools() {
            None | Some(Pool::First | Pool::Last | Pool::Mean | Pool::Tokens) => PoolKind::Mean,
            Some(Pool::MeanSqrtLen) => PoolKind::MeanSqrtLen,
            Some(Pool::WeightedMean) => PoolKind::WeightedMean,
            Some(Pool::Max) => PoolKind::Max,
        }
    }

    /// Whether it pools the states of all tokens, also of those that come from the prefix cache, which has no states.
    fn pools_all(&self) -> bool {
        !matches!(self.pools(), None | Some(Pool::First | Pool::Last))
    }

    /// The first token of the second text of a pair, or the number of tokens.
    pub fn second_text(&self) -> usize {
        self.request.second_text
    }

    /// Whether it generates no token.
    pub fn is_pooled(&self) -> bool {
        !self.params().generates()
    }

    /// Tokens whose log-probabilities after the prompt are asked for with the `tokens` after those in flight. None before the last ones.
    pub fn scored_tokens_of(&self, tokens: usize) -> &[TokenId] {
        let is_last = tokens > 0 && self.table.computed() + self.in_flight + tokens == self.prompt_tokens();
        if is_last { &self.params().score_tokens } else { &[] }
    }

    /// Takes in the log-probability of the next one of these tokens.
    pub fn score_token(&mut self, sampled: &Sampled, sample: usize) {
        self.pooled.push(f64::from(sampled.chosen(sample, 1).logprob));
    }

    /// Adds hidden states. `[states, hidden]`
    pub fn pool(&mut self, states: &[f32], hidden: usize) {
        if self.pools() == Some(Pool::Tokens) {
            let width = self.request.options.result.width;
            let numbers = states.chunks_exact(hidden).flat_map(|state| &state[..width]);
            return self.pooled.extend(numbers.map(|&number| f64::from(number)));
        }
        let kind = if self.is_whole() { PoolKind::Mean } else { self.pool_kind() };
        self.pooled.resize(hidden, if kind == PoolKind::Max { f64::NEG_INFINITY } else { 0.0 });
        let first = self.table.computed() - (states.len() / hidden).min(self.table.computed());
        for (place, state) in (first..).zip(states.chunks_exact(hidden)) {
            let states = self.pooled.iter_mut().zip(state.iter().map(|&x| f64::from(x)));
            match kind {
                PoolKind::Mean | PoolKind::MeanSqrtLen => states.for_each(|(sum, x)| *sum += x),
                PoolKind::WeightedMean => states.for_each(|(sum, x)| *sum += (place + 1) as f64 * x),
                PoolKind::Max => states.for_each(|(sum, x)| *sum = sum.max(x)),
            }
        }
    }

    /// Whether it has all the hidden states that it pools.
    pub fn pooling_is_done(&self) -> bool {
        self.is_pooled() && self.table.computed() == self.prompt_tokens()
    }

    /// Finds blocks for all known tokens. Returns the prompt tokens that are not computed because they were cached, the first
    /// time it runs, and 0 later; `None` while too few blocks are free. `held` are the [`prompt_blocks`](Self::prompt_blocks)
    /// of another completion of the same prompt, where one runs.
    pub fn try_start(
        &mut self,
        pool: &mut BlockManager,
        (held, held_window): (&[BlockId], WindowEntries),
        spare: usize,
    ) -> Option<usize> {
        if !self.table.may_fit(pool, spare) {
            return None;
        }
        self.begin();
        self.table.reserve(self.request.limit, pool);
        // Cached tokens are not computed, so that they have neither logits nor hidden states.
        let reuse = match self.unscored_prompt_tokens() > 0 || self.pools_all() {
            true => Reuse::Nothing,
            false => Reuse::Prefix { held, held_window },
        };
        let content = Content { tokens: &self.tokens, embeddings: &self.request.embeddings };
        self.table.try_allocate(content, reuse, spare, pool)?;
        let reserved = (self.request.limit - self.tokens.len()).min(RESERVED_COMPLETION);
        self.tokens.reserve(reserved);
        self.sampler.reserve(reserved);
        let newly_cached = match self.cached_tokens {
            Some(_) => 0,
            None => self.table.computed(),
        };
        self.cached_tokens.get_or_insert(self.table.computed());
        self.started_at.get_or_insert_with(Instant::now);
        Some(newly_cached)
    }

    /// Releases all blocks. What was generated stays, and is computed again when the sequence next runs.
    pub fn preempt(&mut self, pool: &mut BlockManager) {
        debug_assert_eq!((self.in_flight, self.awaited), (0, 0), "a pass in flight still uses the blocks");
        self.table.release(pool);
        self.pooled.clear();
    }

    /// Records that a pass with `tokens` of its tokens was collected, and caches the blocks that the pass filled.
    pub fn collect(&mut self, tokens: usize, pool: &mut BlockManager) {
        self.in_flight -= tokens;
        let content = Content { tokens: &self.tokens, embeddings: &self.request.embeddings };
        self.table.advance(tokens, content, pool);
    }

    /// Releases the blocks that no token after the computed ones attends to, where each attends to `window` tokens. Those of a prompt
    /// that is to be pinned stay until it is.
    pub fn release_out_of(&mut self, window: usize, pool: &mut BlockManager) {
        if self.pin != Pin::Wanted {
            self.table.release_before((self.table.computed() + 1).saturating_sub(window), pool);
        }
    }

    /// The same for window tables. A pin keeps the last window of a prompt, which is cached.
    pub fn release_window(&mut self, window: usize, pool: &mut BlockManager) {
        self.table.release_window_before((self.table.computed() + 1).saturating_sub(window), pool);
    }

    /// Tokens that must not be next, because they would end it before `min_tokens`.
    pub fn banned_tokens(&self) -> &[TokenId] {
        match self.completion_tokens + self.awaited < self.params().min_tokens as usize {
            // A beam search skips them itself.
            true if self.params().beams.is_none() => self.ending_tokens(),
            _ => &[],
        }
    }

    /// One bit per token, set if its structure allows the token next; `None` without a structure. `[vocab / 32, rounded up]`
    pub fn mask(&self) -> Option<&[u32]> {
        self.matcher.as_ref().map(|matcher| matcher.mask())
    }

    /// Tokens of the prompt whose log-probabilities are asked for and not known yet.
    pub fn unscored_prompt_tokens(&self) -> usize {
        self.sampler.unscored_prompt_tokens()
    }

    /// How the token at `position` of its prompt is scored; `None` where its log-probability is not asked for or known.
    pub fn scoring(&self, position: usize) -> Option<Sampling> {
        self.sampler.scoring(&self.request, position)
    }

    /// How its next token is sampled. Its penalties and biases are appended to `entries`.
    pub fn sampling(&self, entries: &mut Vec<LogitBias>) -> Sampling {
        let next = NextToken {
            position: self.expected_tokens(),
            awaited_sample: (self.awaited > 0).then_some(self.sample),
            banned: self.banned_tokens(),
        };
        let mut sampling = self.sampler.sampling(&self.request.options, next, entries);
        if let Some(token) = self.thinking.as_ref().and_then(|thinking| thinking.next()) {
            debug_assert_eq!(self.awaited, 0, "what is forced is known");
            sampling.forced = token;
        }
        sampling
    }

    /// [`Sampling::logprobs`] of its tokens.
    pub fn sampling_logprobs(&self) -> u32 {
        self.request.options.sampling_logprobs()
    }

    /// Takes in the log-probability of the next token of its prompt.
    pub fn score_prompt(&mut self, sampled: &Sampled, sample: usize) {
        self.sampler.score_prompt(&self.request.options, sampled, sample);
    }

    /// Records when a token came; returns the time since the token before or, for the first one, since it was added.
    pub fn note_token(&mut self, now: Instant) -> Interval {
        match self.last_token_at.replace(now) {
            Some(before) => Interval::Between(now.duration_since(before)),
            None => Interval::First {
                queued: self.started_at.unwrap_or(now).duration_since(self.request.added_at),
                whole: now.duration_since(self.request.added_at),
            },
        }
    }

    /// Takes in the token that was sampled for it, and writes what is new to `output`.
    pub fn accept(&mut self, chosen: &Chosen, tokenizer: Option<&Tokenizer>, now: Instant, output: &mut Output) {
        let token = chosen.token;
        self.completion_tokens += 1;
        if self.completion_tokens == 1 {
            self.time_to_first_token_us = now.duration_since(self.request.added_at).as_micros() as u64;
            output.prompt_logprobs.extend(self.sampler.prompt_logprobs());
        }
        let mut stops = self.ending_tokens().binary_search(&token).is_ok();
        if !stops || self.params().stop_token == StopToken::Kept {
            self.tokens.push(token);
            self.sampler.accept(&self.request.options, chosen, tokenizer, &mut output.logprobs);
            output.token_ids.push(token);
            if let Some(tokenizer) = tokenizer {
                if let Some(thinking) = &mut self.thinking {
                    thinking.accept(tokenizer, token);
                }
                stops |= self.detokenizer.push(tokenizer, token, self.stop_rule(), &mut output.text);
            }
        }
        match if stops { Some(Err(Finish::Stop)) } else { self.follow() } {
            Some(Err(finish)) => self.end(finish, tokenizer, output),
            // A late structure may end it later, without another token.
            Some(Ok(())) | None => self.describe(output),
        }
    }

    /// Whether it waits until its structure has taken in its newest token.
    pub fn is_late(&self) -> bool {
        self.matcher.as_ref().is_some_and(|matcher| matcher.is_late())
    }

    /// Advances its structure by the newest token. Returns how the sequence ends if it does, and `None` while it
    /// [is late](Self::is_late): then the caller calls this again before the sequence is in a pass.
    pub fn follow(&mut self) -> Option<Result<(), Finish>> {
        let is_full = self.tokens.len() >= self.request.limit;
        let Some(mut matcher) = self.matcher.take() else {
            return Some(if is_full { Err(Finish::Length) } else { Ok(()) });
        };
        // Before `min_tokens` the sampler bans the ending tokens, so the structure must not offer them as the only choice.
        let ending = if self.banned_tokens().is_empty() { self.ending_tokens() } else { &[] };
        let wanted = if is_full { Wanted::Standing } else { Wanted::Mask };
        let standing = matcher.advance(self.completion(), wanted, ending);
        let is_complete = matcher.is_complete();
        self.matcher = Some(matcher);
        Some(match standing? {
            Err(error) => Err(Finish::Error(Arc::new(error))),
            Ok(_) if is_complete => Err(Finish::Stop),
            Ok(_) if is_full => Err(Finish::Length),
            Ok(Standing::Complete) => Err(Finish::Stop),
            Ok(Standing::Open) => Ok(()),
        })
    }

    /// Ends it with its embedding, which it writes to `output`.
    pub fn embed(&mut self, now: Instant, output: &mut Output) {
        let states = match self.pools_all() && !self.is_whole() {
            true => self.pool_kind().divisor(self.prompt_tokens()),
            false => 1.0,
        };
        let state = self.pooled.iter().map(|sum| (sum / states) as f32);
        self.request.options.result.write(state, output);
        if !self.params().score_tokens.is_empty() {
            self.sampler.cumulative_logprob = self.pooled.iter().map(|logprob| logprob.exp()).sum::<f64>().ln() as f32;
        }
        self.time_to_first_token_us = now.duration_since(self.request.added_at).as_micros() as u64;
        self.end(Finish::Stop, None, output);
    }

    /// Ends it, and writes the rest of its text to `output`. Does not release its blocks.
    pub fn end(&mut self, finish: Finish, tokenizer: Option<&Tokenizer>, output: &mut Output) {
        let rule = self.stop_rule();
        let stops = tokenizer.is_some_and(|tokenizer| self.detokenizer.finish(tokenizer, rule, &mut output.text));
        self.describe(output);
        output.finish = match finish {
            // The rest of the text, an incomplete character, may complete a stop string.
            Finish::Length if stops => Some(Finish::Stop),
            finish => Some(finish),
        };
        self.status = SequenceStatus::Finished;
    }

    /// What a stop string does to its text now: as with stop tokens, `min_tokens` come first.
    fn stop_rule(&self) -> StopRule {
        let complete = match self.completion_tokens > self.params().min_tokens as usize {
            true => Complete::Ends,
            false => Complete::Passes,
        };
        StopRule { complete, kept: self.params().stop_token }
    }

    fn describe(&self, output: &mut Output) {
        output.request_id = self.id();
        output.index = self.key.index;
        output.tag = self.params().tag;
        output.prompt_tokens = self.prompt_tokens() as u32;
        output.cached_tokens = self.cached_tokens.unwrap_or(0) as u32;
        output.completion_tokens = self.completion_tokens as u32;
        output.reasoning_tokens = self.thinking.as_ref().map_or(0, |thinking| thinking.tokens());
        output.time_to_first_token_us = self.time_to_first_token_us;
        output.logprobs.alternatives = self.params().num_logprobs as usize;
        output.cumulative_logprob = self.sampler.cumulative_logprob;
    }
}

mod beam;
mod block_table;
mod detokenizer;
mod sampler_state;
#[cfg(test)]
pub mod tests;
mod thinking;
mod window_blocks;
