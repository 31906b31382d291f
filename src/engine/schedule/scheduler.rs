//! Which sequences run in the next pass, and for how many tokens?
//!
//! Policy: first every running sequence with one pending token, then running prompts, then waiting ones in order of their
//! [`SequenceKey`], all cut to the token budget. When no block is free, the last running sequence in that order gives its
//! blocks back and waits again. It keeps its key, so that within a priority no other sequence overtakes it.
//!
//! No sequence starves: the first running sequence is never preempted for another one, so it ends, and then the next one is
//! first. Alone it has all blocks except those that are [pinned](crate::schedule::pins), which leave enough. A waiting sequence is never
//! overtaken by one behind it, not even by one that would fit.
//!
//! Blocks whose memory was given back get it again when a sequence needs them, before the pass is formed. Where there is none, the
//! sequence waits or is preempted as if no block were free. The one that runs alone, or would, ends with the error.
//!
//! The scheduler knows no tensor, device or model: it turns a queue into a [`Batch`].
//! Invariants: a sequence that has not ended is in exactly one of `waiting` and `running`. Within a priority, the running sequences
//! arrived before the waiting ones. A sequence in flight stays in `running` until one of its passes ends it.
//!
//! While a pass is in flight, the next one can be scheduled: a token that is not known yet is written as [`FROM_PREVIOUS`]. No
//! sequence is preempted then.
//!
//! Beams that wait for one another are paused, in `running` or, where they lost their blocks or never had any, in `waiting`.

use crate::api::beam_search::{Answer, BeamSearch};
use crate::options::PrefixCache;
use crate::results::output::Finish;
use crate::schedule::blocks::{BlockManager, CacheCounts, GetMemory, WindowEntries};
use crate::schedule::pins::Pins;
use crate::schedule::sequence::{Pin, Sequence, SequenceKey, SequenceStatus};
use base::error::{Error, Result, room};
use compute::Windowed;
use compute::batch::{Batch, BatchLimits, BlockCopy, Chosen, FROM_PREVIOUS, Sampled, Sampling, StateCopy, StateSlot};
use runner::StateInfo;
use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// All sequences, and the blocks that they share.
pub struct Scheduler {
    limits: BatchLimits,
    /// Tokens that a token attends to at most, itself included. `None`: all before it.
    window: Option<usize>,
    /// The same of layers with window tables.
    table_window: Option<usize>,
    waiting: BTreeMap<SequenceKey, Sequence>,
    /// Completions that are created when the one before them in `waiting` runs, or in `leaving` ends.
    pending_siblings: usize,
    /// Waiting completions whose request has ended, and how. A request may have a thousand, so each pass ends a few of them.
    leaving: VecDeque<(Sequence, Finish)>,
    /// In the order of their keys.
    running: Vec<Sequence>,
    pool: BlockManager,
    pins: Pins,
    /// The searches of the requests with beams, by request id.
    searches: BTreeMap<u64, BeamSearch>,
    /// Blocks that the next pass copies.
    copies: Vec<BlockCopy>,
    /// Recurrent states that the next pass copies; what they read is locked.
    state_copies: Vec<StateCopy>,
    /// Tokens after which a recurrent state is kept as a checkpoint: whole blocks.
    interval: usize,
    /// Why the last blocks that were asked for got no memory, if they did not since the last pass was formed.
    block_alloc_error: Option<Arc<Error>>,
    preemptions: u64,
    cached_tokens: u64,
}

/// What was put into a batch: one entry per row, in the order of the keys.
#[derive(Debug, Default)]
pub struct Pass {
    rows: Vec<Row>,
    /// New tokens of all rows.
    pub tokens: usize,
    /// Tokens of prompts among `tokens`.
    pub prompt_tokens: usize,
    /// Hidden states that it returns.
    pooled_rows: usize,
    /// Checkpoints that it makes, in the order of the rows.
    saves: Vec<Save>,
    /// States that it reads besides those of its own sequences, locked.
    locks: Vec<StateSlot>,
}

/// A recurrent state that a pass writes for a prefix to be continued from.
#[derive(Clone, Copy, Debug)]
struct Save {
    key: SequenceKey,
    /// Tokens of the prefix: whole blocks.
    position: usize,
    slot: StateSlot,
}

/// What still fits into the pass being formed.
struct Room {
    tokens: usize,
    /// Samples beyond the one that each running sequence may need.
    samples: usize,
    pooled_rows: usize,
}

impl Room {
    /// Whether a text of `tokens` tokens that is computed whole may still come into the pass. The first one may exceed a budget of time.
    fn admit_whole(&mut self, tokens: usize, running: &[Sequence], limits: &BatchLimits) -> bool {
        let is_first = running.iter().all(|sequence| sequence.scheduled == 0);
        if is_first && tokens <= limits.tokens {
            self.tokens = self.tokens.max(tokens);
        }
        tokens <= self.tokens
    }
}

/// The part of one sequence in a pass.
#[derive(Clone, Copy, Debug)]
struct Row {
    key: SequenceKey,
    tokens: usize,
    /// Samples that only score tokens of its prompt.
    scored: usize,
    /// Samples behind these that score tokens behind its prompt.
    scored_tokens: usize,
    output: RowOutput,
}

/// What the runner returns for a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowOutput {
    Token,
    Nothing,
    /// The hidden states of its last tokens, after the model's last norm.
    PooledRows {
        count: usize,
    },
}

/// What a pass did for a sequence.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'a> {
    /// It got its next token.
    Token(Chosen<'a>),
    /// It got the last of the hidden states that it pools.
    Pooled,
    /// It is a beam, and the search got the candidates for its next token.
    Candidates,
    /// The search of its request is over: it ends with this answer.
    SearchResult(Answer),
    /// It was cancelled while the pass was in flight.
    Cancelled,
}

impl Pass {
    /// An empty pass with memory for `limits`.
    pub fn with_limits(limits: &BatchLimits) -> Result<Pass> {
        let knob = "max_num_seqs";
        let saves = limits.tokens / limits.block_size + limits.rows;
        Ok(Pass {
            rows: room(limits.rows, "a pass", knob)?,
            saves: room(saves, "a pass", knob)?,
            locks: room(2 * limits.rows, "a pass", knob)?,
            ..Pass::default()
        })
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Number of sequences in it.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        self.saves.clear();
        self.locks.clear();
        (self.tokens, self.prompt_tokens, self.pooled_rows) = (0, 0, 0);
    }
}

impl Scheduler {
    /// A scheduler without sequences over `blocks` free blocks.
    ///
    /// `window` is the number of tokens that a token attends to at most in any layer, where there is such a number: sequences then
    /// release the blocks before.
    pub fn new(limits: BatchLimits, blocks: usize, cache: PrefixCache, window: Option<usize>) -> Result<Scheduler> {
        Ok(Scheduler {
            limits,
            window,
            table_window: None,
            waiting: BTreeMap::new(),
            pending_siblings: 0,
            leaving: VecDeque::new(),
            running: room(limits.rows, "the sequences that run", "max_num_seqs")?,
            pool: BlockManager::new(blocks, limits.block_size, cache)?,
            pins: Pins::default(),
            searches: BTreeMap::new(),
            copies: room(limits.rows * (1 + limits.window_tables), "the sequences that run", "max_num_seqs")?,
            state_copies: room(limits.rows, "the sequences that run", "max_num_seqs")?,
            interval: limits.block_size,
            block_alloc_error: None,
            preemptions: 0,
            cached_tokens: 0,
        })
    }

    /// The same for a model with recurrent states, where `states` says that it has some.
    pub fn with_states(self, states: StateInfo) -> Result<Scheduler> {
        let interval = states.interval.max(1).next_multiple_of(self.limits.block_size);
        Ok(Scheduler { pool: self.pool.with_states(states.slots, self.limits.rows)?, interval, ..self })
    }

    /// The same for a model with window tables, where it has some.
    pub fn with_windows(self, windowed: Option<Windowed>) -> Result<Scheduler> {
        let table_window = windowed.map(|windowed| windowed.window);
        Ok(Scheduler { pool: self.pool.with_windows(windowed)?, table_window, ..self })
    }

    /// Sequences that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Sequences that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len() + self.leaving.len() + self.pending_siblings
    }

    /// Blocks that sequences hold, or that are pinned.
    pub fn used_blocks(&self) -> usize {
        self.pool.used_blocks()
    }

    /// Preemptions so far.
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Prompt tokens that were found in the prefix cache so far.
    pub fn cached_tokens(&self) -> u64 {
        self.cached_tokens
    }

    /// What the prefix cache has done so far.
    pub fn cache_counts(&self) -> CacheCounts {
        self.pool.counts()
    }

    /// Removes from the cache all prefixes that no sequence and no pin holds.
    pub fn reset_prefix_cache(&mut self) {
        self.pool.reset();
    }

    /// Lets the prompt of the request with `key` be evicted, now or when the request has ended.
    pub fn unpin(&mut self, key: SequenceKey) {
        if self.pins.release(key.id(), &mut self.pool) {
            return;
        }
        if let Some(sequence) = self.find_mut(key) {
            sequence.pin = Pin::Unwanted;
        }
    }

    /// The sequence with `key`. `None` for one in `running` that does not continue or is paused.
    pub fn find(&self, key: SequenceKey) -> Option<&Sequence> {
        if let Some(sequence) = self.waiting.get(&key) {
            return Some(sequence);
        }
        if let Ok(index) = self.running.binary_search_by_key(&key, |sequence| sequence.key) {
            return Some(&self.running[index]).filter(|sequence| sequence.status == SequenceStatus::Running);
        }
        // A completion that does not exist yet has the tokens of the one before it, which has not run.
        let (_, before) = self.waiting.range(key.completion(0)..key).next_back()?;
        Some(before).filter(|before| before.pending_siblings as usize >= key.index() - before.key.index())
    }

    /// The pool of blocks, for prefixes that are saved and restored without a sequence.
    pub fn pool(&mut self) -> &mut BlockManager {
        &mut self.pool
    }

    fn find_mut(&mut self, key: SequenceKey) -> Option<&mut Sequence> {
        if let Some(sequence) = self.waiting.get_mut(&key) {
            return Some(sequence);
        }
        let index = self.running.binary_search_by_key(&key, |sequence| sequence.key).ok()?;
        Some(&mut self.running[index])
    }

    /// Adds a sequence to those that wait.
    pub fn add(&mut self, sequence: Sequence) {
        if let Some(search) = sequence.beam_search() {
            self.searches.insert(sequence.id(), search);
        }
        self.pending_siblings += sequence.pending_siblings as usize;
        self.waiting.insert(sequence.key, sequence);
    }

    /// Ends the request with `key`: hands its completions that run to `end`, and those that wait to
    /// [`next_leaving`](Self::next_leaving). One in flight ends when its pass is collected.
    pub fn cancel_request(&mut self, key: SequenceKey, finish: &Finish, mut end: impl FnMut(Sequence, Finish)) {
        let request = key.completion(0)..=key.completion(u32::MAX);
        let running = self.running.iter().map(|sequence| sequence.key).filter(|key| request.contains(key));
        for key in running.collect::<Vec<_>>() {
            if let Some(sequence) = self.cancel_running(key) {
                end(sequence, finish.clone());
            }
        }
        while let Some((&key, _)) = self.waiting.range(request.clone()).next() {
            let sequence = self.waiting.remove(&key).expect("it was found there");
            self.forget_search(&sequence);
            self.leaving.push_back((sequence, finish.clone()));
        }
    }

    /// The next completion of a request that has ended, and how it has.
    pub fn next_leaving(&mut self) -> Option<(Sequence, Finish)> {
        let (mut sequence, finish) = self.leaving.pop_front()?;
        if let Some(next) = sequence.next_completion() {
            self.pending_siblings -= 1;
            self.leaving.push_front((next, finish.clone()));
        }
        Some((sequence, finish))
    }

    /// Removes a running sequence that is not in flight and returns it. `None` also when there is no such sequence.
    fn cancel_running(&mut self, key: SequenceKey) -> Option<Sequence> {
        let index = self.running.binary_search_by_key(&key, |sequence| sequence.key).ok()?;
        if self.running[index].in_flight > 0 {
            self.running[index].status = SequenceStatus::Cancelled;
            self.searches.remove(&key.id());
            return None;
        }
        let mut sequence = self.running.remove(index);
        self.forget_search(&sequence);
        sequence.table.release(&mut self.pool);
        Some(sequence)
    }

    /// Ends a request of which no completion has run. `key` is that of the first.
    pub fn expire(&mut self, key: SequenceKey) {
        if self.waiting.get(&key).is_some_and(|first| !first.has_run()) {
            self.cancel_request(key, &Finish::Expired, |_, _| unreachable!("nothing of it runs"));
        }
    }

    /// Fills the empty `pass` and `batch` with the next pass. Prompts are cut so that the pass has at most `token_budget`
    /// tokens, but at least one prompt token is scheduled where there is room. Leaves both empty when there is nothing to do,
    /// or nothing before the passes in flight are collected. `memory` is asked for withdrawn blocks where others do not suffice.
    ///
    /// # Errors
    ///
    /// Those of `memory` but for [`Error::OutOfMemory`].
    pub fn schedule(
        &mut self,
        token_budget: usize,
        memory: &mut GetMemory,
        pass: &mut Pass,
        batch: &mut Batch,
    ) -> Result<()> {
        self.block_alloc_error = None;
        if self.must_collect_first(memory)? {
            return Ok(());
        }
        let mut room = Room { tokens: self.limits.tokens, samples: 0, pooled_rows: self.limits.pooled_rows() };
        let preemptions_before = self.preemptions;
        self.make_window_room(memory)?;
        self.schedule_decoding(memory, &mut room)?;
        let decoding = self.limits.tokens - room.tokens;
        room.tokens = room.tokens.min(token_budget.saturating_sub(decoding).max(1));
        room.samples = self.limits.samples() - self.running.len();
        let mut has_blocks = true;
        for index in 0..self.running.len() {
            // None overtakes one that gets fewer blocks of window tables than it wants.
            if has_blocks {
                has_blocks = self.extend_window(index, memory, &room)?;
                schedule_chunk(&mut self.running[index], &mut self.pool, &mut room);
            }
        }
        // A sequence started now would be the next one to be preempted.
        if self.preemptions == preemptions_before && has_blocks {
            self.start_waiting(memory, &mut room)?;
        }
        self.preempt_paused(memory, &mut room)?;
        self.fill(pass, batch);
        Ok(())
    }

    /// Ensures that each running sequence has blocks of the window tables for its next token: those of a prompt are taken while it is computed. In order, so that no
    /// sequence waits for blocks that one behind it takes.
    fn make_window_room(&mut self, memory: &mut GetMemory) -> Result<()> {
        let mut index = 0;
        while self.table_window.is_some() && index < self.running.len() {
            if self.running[index].pending_tokens() > 0 {
                self.make_room(index, memory)?;
            }
            index += 1;
        }
        Ok(())
    }

    /// Gets memory for the blocks of window tables that a running sequence needs in this pass. `false` where too few are free.
    fn extend_window(&mut self, index: usize, memory: &mut GetMemory, room: &Room) -> Result<bool> {
        let sequence = &self.running[index];
        if self.table_window.is_none() || sequence.scheduled > 0 {
            return Ok(true);
        }
        let tokens = sequence.scheduled_end() + sequence.pending_tokens().min(room.tokens);
        let lacking = sequence.table.missing(tokens, &self.pool).saturating_sub(self.pool.free_blocks());
        Ok(lacking == 0 || self.grow(lacking, memory)?)
    }

    /// Schedules the running sequences that have one pending token, and allocates the blocks that they need.
    fn schedule_decoding(&mut self, memory: &mut GetMemory, room: &mut Room) -> Result<()> {
        let mut index = 0;
        while index < self.running.len() && room.tokens > 0 {
            if self.running[index].pending_tokens() == 1 && self.make_room(index, memory)? {
                schedule_chunk(&mut self.running[index], &mut self.pool, room);
            }
            index += 1;
        }
        Ok(())
    }

    /// Starts waiting sequences, in order, while there are rows, tokens and blocks. Skips completions whose prompt is being
    /// computed by another completion, until they can share it.
    fn start_waiting(&mut self, memory: &mut GetMemory, room: &mut Room) -> Result<()> {
        let block_size = self.limits.block_size;
        let mut from = Bound::Unbounded;
        let mut rows: usize = self.running.iter().map(Sequence::rows).sum();
        while room.tokens > 0 && room.samples > 0 && self.running.len() < self.limits.rows {
            let Some((&key, first)) = self.waiting.range_mut((from, Bound::Unbounded)).next() else { break };
            if first.status == SequenceStatus::Paused {
                from = Bound::Excluded(key);
                continue;
            }
            if first.is_whole() && !room.admit_whole(first.prompt_tokens(), &self.running, &self.limits) {
                break;
            }
            let sibling = running_completion(&self.running, key);
            if sibling.is_some_and(|sibling| !sibling.prompt_is_shareable(block_size)) {
                from = Bound::Excluded(key.completion(u32::MAX));
                continue;
            }
            let held = sibling.map_or((&[][..], WindowEntries::default()), |sibling| {
                (sibling.prompt_blocks(block_size), sibling.table.window().entries())
            });
            // A search starts only with rows for all its beams, or its first beam would have to be computed again.
            if rows > 0 && rows + first.rows() > self.limits.rows {
                break;
            }
            // One block per running sequence stays free, or the new one would soon be preempted.
            let spare = self.running.iter().filter(|sequence| sequence.status != SequenceStatus::Paused).count();
            let Some(cached) = first.try_start(&mut self.pool, held, spare) else {
                let lacking = first.table.lacking(&self.pool, spare);
                if self.grow(lacking, memory)? {
                    continue;
                }
                if let Some(error) = self.block_alloc_error.clone().filter(|_| self.running.is_empty()) {
                    self.give_up(key, error);
                }
                break;
            };
            let mut sequence = self.waiting.remove(&key).expect("it was found there");
            self.cached_tokens += cached as u64;
            if let Some(next) = sequence.next_completion() {
                // One of the completions that did not exist exists now.
                self.pending_siblings -= 1;
                self.waiting.insert(next.key, next);
            }
            rows += sequence.rows();
            room.samples -= 1;
            let index = self.running.partition_point(|other| other.key < sequence.key);
            self.running.insert(index, sequence);
            let has_blocks = self.extend_window(index, memory, room)?;
            schedule_chunk(&mut self.running[index], &mut self.pool, room);
            if !has_blocks {
                break;
            }
        }
        Ok(())
    }

    /// Writes what was scheduled to `pass` and `batch`.
    fn fill(&mut self, pass: &mut Pass, batch: &mut Batch) {
        let block_size = self.limits.block_size;
        // A table as wide as the longest row of this batch: a table for the longest possible sequence would be zeroed for each
        // row in each pass, which costs more than everything else.
        let longest = self
            .running
            .iter()
            .filter(|sequence| sequence.scheduled > 0)
            .map(Sequence::scheduled_end)
            .max()
            .unwrap_or(0);
        batch.table_width = longest.div_ceil(block_size);
        for sequence in self.running.iter_mut().filter(|sequence| sequence.scheduled > 0) {
            let end = sequence.scheduled_end();
            let start = end - sequence.scheduled;
            let known = end.min(sequence.tokens.len());
            batch.token_ids.extend_from_slice(&sequence.tokens[start.min(known)..known]);
            // An awaited token comes from the pass before this one: no more than two are in flight.
            batch.token_ids.extend((known..end).map(|_| FROM_PREVIOUS | sequence.sample));
            batch.positions.extend(start as u32..end as u32);
            if sequence.is_whole() {
                batch.token_types.extend((start..end).map(|position| u32::from(position >= sequence.second_text())));
            }
            batch.slots.extend((start..end).map(|position| sequence.table.slot(position, block_size)));
            batch.row_starts.push(batch.token_ids.len() as u32);
            batch.context_lens.push(end as u32);
            batch.block_tables.extend_from_slice(&sequence.table.blocks()[..end.div_ceil(block_size)]);
            batch.block_tables.resize(batch.rows() * batch.table_width, 0);
            let (entries, filled) = (end.div_ceil(block_size), batch.block_tables.len());
            let (window, tables) = (sequence.table.window(), batch.window_tables.len());
            for (index, table) in batch.window_tables.iter_mut().enumerate() {
                table.slots.extend((start..end).map(|position| window.slot(index, tables, position, block_size)));
                table.block_tables.extend(window.table(index, tables, entries));
                table.block_tables.resize(filled, 0);
            }
            states::write_states(sequence, start..end, self.interval, &mut self.pool, pass, batch);
            let (scored, scored_tokens) =
                (ask_for_scores(sequence, start..end, batch), ask_for_tokens(sequence, batch));
            let output = match sequence.pooled_rows_of(sequence.scheduled) {
                0 if sequence.is_pooled() || end < sequence.expected_tokens() => RowOutput::Nothing,
                0 => RowOutput::Token,
                count => RowOutput::PooledRows { count },
            };
            match output {
                RowOutput::Nothing => {}
                RowOutput::Token => ask_for_token(sequence, batch),
                RowOutput::PooledRows { .. } if sequence.is_whole() => {
                    let tokens = batch.row(batch.rows() - 1);
                    batch.pooled_ranges.extend(sequence.pooled_ranges(tokens));
                }
                RowOutput::PooledRows { count } => {
                    let tokens = batch.tokens() as u32;
                    batch.pooled_tokens.extend(tokens - count as u32..tokens);
                }
            }
            let tokens = std::mem::take(&mut sequence.scheduled);
            sequence.in_flight += tokens;
            pass.rows.push(Row { key: sequence.key, tokens, scored, scored_tokens, output });
            let prompt = sequence.prompt_tokens();
            pass.prompt_tokens += end.min(prompt) - start.min(prompt);
        }
        (pass.tokens, pass.pooled_rows) = (batch.tokens(), batch.pooled_rows());
        if !pass.is_empty() {
            batch.copies.append(&mut self.copies);
            pass.locks.extend(self.state_copies.iter().map(|copy| copy.from));
            batch.state_copies.append(&mut self.state_copies);
        }
    }

    /// Applies the results of the oldest pass in flight, and calls `on_event` for each sequence with what the pass did for
    /// it. Sequences that `on_event` finishes are removed. `sampled` has the outputs of all rows.
    ///
    /// A sequence that ends may have a row in the next pass as well: that row is computed for nothing. Its blocks are free at
    /// once, because their next owner writes to them in a later pass.
    pub fn collect(&mut self, pass: &Pass, sampled: &Sampled, mut on_event: impl FnMut(&mut Sequence, Event)) {
        let mut samples = 0..sampled.tokens.len();
        let width = sampled.hidden_states.len() / pass.pooled_rows.max(1);
        let mut hidden_states = sampled.hidden_states;
        // Requests all of whose beams are paused.
        let mut searches_to_step = Vec::new();
        let mut running = self.running.iter_mut().peekable();
        let mut saves = pass.saves.iter().peekable();
        pass.locks.iter().for_each(|&slot| self.pool.states().unlock(slot));
        for row in &pass.rows {
            let scores = samples.start..samples.start + row.scored;
            let token_scores = scores.end..scores.end + row.scored_tokens;
            samples.start = token_scores.end;
            let mut states = &hidden_states[..0];
            let sample = match row.output {
                RowOutput::Token => Some(samples.next().expect("the runner answers each sample")),
                RowOutput::PooledRows { count } => {
                    (states, hidden_states) = hidden_states.split_at(count * width);
                    None
                }
                RowOutput::Nothing => None,
            };
            while running.next_if(|sequence| sequence.key < row.key).is_some() {}
            let Some(sequence) = running.next_if(|sequence| sequence.key == row.key) else {
                // Its sequence has ended, so its last tokens were computed for nothing.
                while let Some(save) = saves.next_if(|save| save.key == row.key) {
                    self.pool.states().give_up(save.slot);
                }
                continue;
            };
            sequence.collect(row.tokens, &mut self.pool);
            while let Some(save) = saves.next_if(|save| save.key == row.key) {
                sequence.table.hang_checkpoint(save.position, save.slot, &mut self.pool);
            }
            if sequence.is_to_be_pinned() {
                self.pins.add(sequence.id(), sequence.prompt_blocks(self.limits.block_size), &mut self.pool);
                sequence.pin = Pin::Made;
            }
            if let Some(window) = self.window {
                sequence.release_out_of(window, &mut self.pool);
            }
            if let Some(window) = self.table_window {
                sequence.release_window(window, &mut self.pool);
            }
            scores.for_each(|score| sequence.score_prompt(sampled, score));
            token_scores.for_each(|score| sequence.score_token(sampled, score));
            sequence.awaited -= usize::from(sample.is_some());
            if sequence.status == SequenceStatus::Cancelled {
                on_event(sequence, Event::Cancelled);
            } else if let Some(sample) = sample {
                let chosen = sampled.chosen(sample, sequence.sampling_logprobs());
                match self.searches.get_mut(&sequence.id()) {
                    None => on_event(sequence, Event::Token(chosen)),
                    Some(search) => {
                        sequence.status = SequenceStatus::Paused;
                        on_event(sequence, Event::Candidates);
                        if search.add_candidates(sequence.key.index(), &chosen) {
                            searches_to_step.push(sequence.key);
                        }
                    }
                }
            } else if !states.is_empty() || row.scored_tokens > 0 {
                if !states.is_empty() {
                    sequence.pool(states, width);
                }
                if sequence.pooling_is_done() {
                    on_event(sequence, Event::Pooled);
                }
            }
            if sequence.status == SequenceStatus::Finished {
                sequence.table.release(&mut self.pool);
            }
        }
        assert!(samples.next().is_none(), "the runner answers no more than the samples");
        self.running.retain(|sequence| sequence.status != SequenceStatus::Finished);
        for key in searches_to_step {
            self.step_search(key, &mut on_event);
        }
    }
}

/// The first completion of the request with `key` that runs.
fn running_completion(running: &[Sequence], key: SequenceKey) -> Option<&Sequence> {
    let first = running.partition_point(|sequence| sequence.key < key.completion(0));
    running.get(first).filter(|sequence| sequence.id() == key.id())
}

/// Schedules as many pending tokens of a sequence as there is room for, if it is not scheduled yet. Each token of a prompt whose
/// log-probability is asked for takes a sample.
fn schedule_chunk(sequence: &mut Sequence, pool: &mut BlockManager, room: &mut Room) {
    if sequence.scheduled > 0 {
        return;
    }
    let mut tokens = sequence.pending_tokens().min(room.tokens);
    if sequence.unscored_prompt_tokens() > 0 {
        tokens = tokens.min(room.samples + 1);
    }
    if sequence.pooled_rows_of(tokens) > room.pooled_rows {
        // Either every token needs one, or only the last token does and there is no room at all.
        tokens = room.pooled_rows;
    }
    // Blocks of window tables are taken when they are needed.
    let start = sequence.scheduled_end();
    // One sample is that which each row has.
    if sequence.scored_tokens_of(tokens).len() > room.samples + 1 {
        tokens -= 1;
    }
    tokens = tokens.min(sequence.table.extend_window(start + tokens, pool).saturating_sub(start));
    if sequence.unscored_prompt_tokens() > 0 {
        room.samples -= tokens.saturating_sub(1);
    }
    room.samples -= sequence.scored_tokens_of(tokens).len().saturating_sub(1);
    room.tokens -= tokens;
    room.pooled_rows -= sequence.pooled_rows_of(tokens);
    sequence.scheduled = tokens;
}

/// Adds a sample for each token of the last row whose successor in the prompt is to be scored; returns how many. `positions`
/// are the positions of the tokens of the row.
fn ask_for_scores(sequence: &Sequence, positions: Range<usize>, batch: &mut Batch) -> usize {
    if sequence.unscored_prompt_tokens() == 0 {
        return 0;
    }
    let before = batch.samples();
    let first = batch.tokens() - positions.len();
    for (token, position) in (first..).zip(positions) {
        if let Some(scoring) = sequence.scoring(position + 1) {
            batch.sampled_tokens.push(token as u32);
            batch.sampling.push(scoring);
        }
    }
    batch.samples() - before
}

/// Adds a sample for each token whose log-probability behind the last row is asked for; returns how many.
fn ask_for_tokens(sequence: &Sequence, batch: &mut Batch) -> usize {
    let tokens = sequence.scored_tokens_of(sequence.scheduled);
    for &token in tokens {
        batch.sampled_tokens.push(batch.tokens() as u32 - 1);
        batch.sampling.push(Sampling { forced: token, logprobs: 1, ..Sampling::GREEDY });
    }
    tokens.len()
}

/// Adds a sample for the last token of the last row.
fn ask_for_token(sequence: &mut Sequence, batch: &mut Batch) {
    let mut sampling = sequence.sampling(&mut batch.adjustments);
    if let Some(mask) = sequence.mask() {
        sampling.mask = batch.masks.len() as u32;
        batch.masks.extend_from_slice(mask);
    }
    sequence.sample = batch.samples() as u32;
    sequence.awaited += 1;
    batch.sampled_tokens.push(batch.tokens() as u32 - 1);
    batch.sampling.push(sampling);
}

mod beams;
mod late;
mod preempt;
mod states;
#[cfg(test)]
mod tests;
