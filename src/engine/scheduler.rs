//! Decides which sequences run in the next pass, and for how many tokens.
//!
//! Policy: first every running sequence that brings one token, then running prompts, then waiting ones in order of their
//! [`Place`], all cut to the token budget. When no block is free, the last running sequence in that order gives its blocks
//! back and waits again. Its place is as before, so that within a priority nobody overtakes it.
//!
//! Nobody starves: the first running sequence is never preempted for another one, so it ends, and then the next one is
//! first. A waiting sequence is never overtaken by one behind it, not even by one that would fit.
//!
//! The scheduler knows no tensor, device or model: it turns a queue into a [`Batch`].
//! Invariants: a live sequence is in exactly one of `waiting` and `running`. What runs of a priority has arrived before
//! what waits of it. A sequence in flight stays in `running` until a pass that it is in ends it.
//!
//! While a pass is in flight, the next one can be scheduled: a sequence whose token is not known yet brings it as
//! [`FROM_PREVIOUS`]. Nobody is preempted then.

use super::block_manager::BlockManager;
use super::options::PrefixCache;
use super::sequence::{Life, Place, Sequence};
use crate::batch::{Batch, BatchLimits, FROM_PREVIOUS, TokenId};
use std::collections::BTreeMap;
use std::ops::Bound;

/// The sequences and the blocks they share out.
pub struct Scheduler {
    limits: BatchLimits,
    waiting: BTreeMap<Place, Sequence>,
    /// In order of their places.
    running: Vec<Sequence>,
    pool: BlockManager,
    preemptions: u64,
    cached_tokens: u64,
}

/// What was put into a batch: one entry a row, in order of their places.
#[derive(Debug, Default)]
pub struct Pass {
    rows: Vec<Row>,
    /// New tokens of all rows.
    pub tokens: usize,
    /// Of these, tokens of prompts.
    pub prompt_tokens: usize,
}

/// A sequence's part of a pass.
#[derive(Clone, Copy, Debug)]
struct Row {
    place: Place,
    tokens: usize,
    asks: Asks,
}

/// Whether a row gets a token back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    ForToken,
    ForNothing,
}

/// What a pass brought for a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// Its next token.
    Token(TokenId),
    /// It was cancelled while the pass was in flight.
    Cancelled,
}

impl Pass {
    /// An empty pass that grows to `limits` without allocating.
    pub fn with_limits(limits: &BatchLimits) -> Pass {
        Pass { rows: Vec::with_capacity(limits.rows), ..Pass::default() }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sequences in it.
    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Forgets all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.rows.clear();
        (self.tokens, self.prompt_tokens) = (0, 0);
    }
}

impl Scheduler {
    /// A scheduler without sequences over `blocks` free blocks.
    pub fn new(limits: BatchLimits, blocks: usize, cache: PrefixCache) -> Scheduler {
        Scheduler {
            limits,
            waiting: BTreeMap::new(),
            running: Vec::with_capacity(limits.rows),
            pool: BlockManager::new(blocks, limits.block_size, cache),
            preemptions: 0,
            cached_tokens: 0,
        }
    }

    /// Sequences that run.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Sequences that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Blocks that sequences hold.
    pub fn used_blocks(&self) -> usize {
        self.pool.total_blocks() - self.pool.free_blocks()
    }

    /// Sequences that had to give their blocks back so far.
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Prompt tokens that were found in the prefix cache so far.
    pub fn cached_tokens(&self) -> u64 {
        self.cached_tokens
    }

    /// Lets a sequence wait for its turn.
    pub fn add(&mut self, sequence: Sequence) {
        self.waiting.insert(sequence.place, sequence);
    }

    /// Removes a sequence that is not in flight and returns it. One in flight ends when its pass is collected. `None` also when there is no such sequence.
    pub fn cancel(&mut self, place: Place) -> Option<Sequence> {
        if let Some(sequence) = self.waiting.remove(&place) {
            return Some(sequence);
        }
        let index = self.running.binary_search_by_key(&place, |sequence| sequence.place).ok()?;
        if self.running[index].in_flight > 0 {
            self.running[index].life = Life::Cancelled;
            return None;
        }
        let mut sequence = self.running.remove(index);
        self.pool.release(&mut sequence.blocks);
        Some(sequence)
    }

    /// Removes a sequence that has never run and returns it; `None` when there is none at `place`.
    pub fn expire(&mut self, place: Place) -> Option<Sequence> {
        if self.waiting.get(&place)?.has_run() { None } else { self.waiting.remove(&place) }
    }

    /// Fills the empty `pass` and `batch` with the next pass. Prompts are cut so that it has `aim` tokens, but get at least
    /// one where there is room. Leaves both empty when there is nothing to do, or not before the passes in flight are
    /// collected.
    pub fn schedule(&mut self, aim: usize, pass: &mut Pass, batch: &mut Batch) {
        if self.must_collect_first() {
            return;
        }
        let mut budget = self.limits.tokens;
        let preemptions_before = self.preemptions;
        self.schedule_decoding(&mut budget);
        let decoding = self.limits.tokens - budget;
        budget = budget.min(aim.saturating_sub(decoding).max(1));
        for sequence in &mut self.running {
            schedule_chunk(sequence, &mut budget);
        }
        // Whoever is let in now would be the next to give its blocks back.
        if self.preemptions == preemptions_before {
            self.start_waiting(&mut budget);
        }
        self.fill(pass, batch);
    }

    /// Whether blocks are lacking while passes are in flight: these may free some, and no sequence in them can give its own
    /// back.
    fn must_collect_first(&self) -> bool {
        let block_size = self.limits.block_size;
        let lacks = |sequence: &&Sequence| {
            sequence.pending_tokens() == 1 && sequence.blocks.len() * block_size < sequence.expected_tokens()
        };
        self.running.iter().any(|sequence| sequence.in_flight > 0)
            && self.running.iter().filter(lacks).count() > self.pool.free_blocks()
    }

    /// Schedules the running sequences that bring one token, and finds them the blocks they need.
    fn schedule_decoding(&mut self, budget: &mut usize) {
        let mut index = 0;
        while index < self.running.len() && *budget > 0 {
            if self.running[index].pending_tokens() == 1 && self.make_room(index) {
                self.running[index].scheduled = 1;
                *budget -= 1;
            }
            index += 1;
        }
    }

    /// Makes sure that a running sequence has a block for its newest token. Answers `false` when it had to give its own
    /// blocks back, as the last in order.
    fn make_room(&mut self, index: usize) -> bool {
        while self.running[index].blocks.len() * self.limits.block_size < self.running[index].expected_tokens() {
            if let Some(block) = self.pool.take() {
                self.running[index].blocks.push(block);
                continue;
            }
            // Requests that the whole pool cannot hold are refused when they are added.
            assert!(self.running.len() > 1, "a sequence that runs alone has all blocks");
            let mut last = self.running.pop().expect("the sequence itself is there");
            last.preempt(&mut self.pool);
            self.preemptions += 1;
            self.waiting.insert(last.place, last);
            if index == self.running.len() {
                return false;
            }
        }
        true
    }

    /// Lets waiting sequences run, in order, while there are rows, tokens and blocks. Completions whose prompt another one
    /// is computing are passed over until they can share it.
    fn start_waiting(&mut self, budget: &mut usize) {
        let block_size = self.limits.block_size;
        let mut from = Bound::Unbounded;
        while *budget > 0 && self.running.len() < self.limits.rows {
            let Some((&place, first)) = self.waiting.range_mut((from, Bound::Unbounded)).next() else { return };
            let sibling = running_completion(&self.running, place);
            if sibling.is_some_and(|sibling| !sibling.prompt_is_shareable(block_size)) {
                from = Bound::Excluded(place.completion(u32::MAX));
                continue;
            }
            let held = sibling.map_or(&[][..], |sibling| sibling.prompt_blocks(block_size));
            // One block for each that runs, or the newcomer would soon have to give its blocks back.
            let spare = self.running.len();
            let Some(cached) = first.try_start(&mut self.pool, held, spare, block_size) else { return };
            let mut sequence = self.waiting.remove(&place).expect("it was found there");
            self.cached_tokens += cached as u64;
            schedule_chunk(&mut sequence, budget);
            let index = self.running.partition_point(|other| other.place < sequence.place);
            self.running.insert(index, sequence);
        }
    }

    /// Writes what was scheduled to `pass` and `batch`.
    fn fill(&mut self, pass: &mut Pass, batch: &mut Batch) {
        let block_size = self.limits.block_size;
        let end_of = |sequence: &Sequence| sequence.computed + sequence.in_flight + sequence.scheduled;
        // A table as wide as the longest row of this batch: that of the longest sequence would have to be zeroed for
        // each row in each pass, which costs more than all the rest.
        let longest = self.running.iter().filter(|sequence| sequence.scheduled > 0).map(end_of).max().unwrap_or(0);
        batch.table_width = longest.div_ceil(block_size);
        for sequence in self.running.iter_mut().filter(|sequence| sequence.scheduled > 0) {
            let end = end_of(sequence);
            let start = end - sequence.scheduled;
            let known = end.min(sequence.tokens.len());
            batch.token_ids.extend_from_slice(&sequence.tokens[start.min(known)..known]);
            // An awaited token comes from the pass before this one: no more than two are in flight.
            batch.token_ids.extend((known..end).map(|_| FROM_PREVIOUS | sequence.sample));
            batch.positions.extend(start as u32..end as u32);
            batch.slots.extend((start..end).map(|position| {
                (sequence.blocks[position / block_size] as usize * block_size + position % block_size) as u32
            }));
            batch.row_starts.push(batch.token_ids.len() as u32);
            batch.context_lens.push(end as u32);
            batch.block_tables.extend_from_slice(&sequence.blocks[..end.div_ceil(block_size)]);
            batch.block_tables.resize(batch.rows() * batch.table_width, 0);
            let asks = if end == sequence.expected_tokens() { Asks::ForToken } else { Asks::ForNothing };
            if asks == Asks::ForToken {
                ask_for_token(sequence, batch);
            }
            let tokens = std::mem::take(&mut sequence.scheduled);
            sequence.in_flight += tokens;
            pass.rows.push(Row { place: sequence.place, tokens, asks });
            let prompt = sequence.prompt_tokens();
            pass.prompt_tokens += end.min(prompt) - start.min(prompt);
        }
        pass.tokens = batch.tokens();
    }

    /// Takes in the oldest pass in flight, and tells `hear` what it brought, sequence by sequence. Those that `hear` ends
    /// are removed. `sampled` has one token for each row that asked for one.
    ///
    /// A sequence that ends may have a row in the next pass as well: it is computed for nothing. Its blocks may be given
    /// away at once, because whoever gets them writes to them in a later pass.
    pub fn collect(&mut self, pass: &Pass, sampled: &[TokenId], mut hear: impl FnMut(&mut Sequence, News)) {
        let mut sampled = sampled.iter();
        let mut running = self.running.iter_mut().peekable();
        for row in &pass.rows {
            let token = match row.asks {
                Asks::ForToken => Some(*sampled.next().expect("the runner answers each sample")),
                Asks::ForNothing => None,
            };
            while running.next_if(|sequence| sequence.place < row.place).is_some() {}
            let Some(sequence) = running.next_if(|sequence| sequence.place == row.place) else { continue };
            sequence.collect(row.tokens, &mut self.pool, self.limits.block_size);
            sequence.awaited -= usize::from(token.is_some());
            if sequence.life == Life::Cancelled {
                hear(sequence, News::Cancelled);
            } else if let Some(token) = token {
                hear(sequence, News::Token(token));
            }
            if sequence.life == Life::Ended {
                self.pool.release(&mut sequence.blocks);
            }
        }
        assert!(sampled.next().is_none(), "the runner answers no more than the samples");
        self.running.retain(|sequence| sequence.life != Life::Ended);
    }
}

/// The first completion of the request at `place` that runs.
fn running_completion(running: &[Sequence], place: Place) -> Option<&Sequence> {
    let first = running.partition_point(|sequence| sequence.place < place.completion(0));
    running.get(first).filter(|sequence| sequence.id() == place.id())
}

/// Schedules as many pending tokens of a sequence as the budget allows, if it is not scheduled yet.
fn schedule_chunk(sequence: &mut Sequence, budget: &mut usize) {
    if sequence.scheduled == 0 {
        sequence.scheduled = sequence.pending_tokens().min(*budget);
        *budget -= sequence.scheduled;
    }
}

/// Adds a sample for the row that was added last.
fn ask_for_token(sequence: &mut Sequence, batch: &mut Batch) {
    let mut sampling = sequence.sampling();
    sampling.banned_start = batch.banned_tokens.len() as u32;
    batch.banned_tokens.extend_from_slice(sequence.banned_tokens());
    sampling.banned_end = batch.banned_tokens.len() as u32;
    sequence.sample = batch.samples() as u32;
    sequence.awaited += 1;
    batch.sampled_rows.push(batch.rows() as u32 - 1);
    batch.sampling.push(sampling);
}

#[cfg(test)]
mod tests {
    use super::super::sampling_params::SamplingParams;
    use super::super::sequence::tests::sequence;
    use super::*;

    const ALL: usize = usize::MAX;

    /// A scheduler driven by hand: every sampled token is 1.
    struct Bench {
        scheduler: Scheduler,
        pass: Pass,
        batch: Batch,
    }

    impl Bench {
        fn new(tokens: usize, rows: usize, blocks: usize) -> Bench {
            let limits = BatchLimits { tokens, rows, model_len: 64, block_size: 2 };
            Bench {
                scheduler: Scheduler::new(limits, blocks, PrefixCache::On),
                pass: Pass::with_limits(&limits),
                batch: Batch::with_limits(&limits),
            }
        }

        /// A prompt of `prompt` tokens that no other shares, and at most `answer` tokens after it.
        fn add(&mut self, id: u64, priority: i32, prompt: usize, answer: usize) {
            let tokens: Vec<TokenId> = (0..prompt as u32).map(|i| 1 + 100 * id as u32 + i).collect();
            let params = SamplingParams { priority, ..SamplingParams::default() };
            self.scheduler.add(sequence(id, &tokens, prompt + answer, params));
        }

        fn schedule(&mut self, aim: usize) {
            self.pass.clear();
            self.batch.clear();
            self.scheduler.schedule(aim, &mut self.pass, &mut self.batch);
        }

        /// One pass; answers `(id, new tokens)` of each row.
        fn pass(&mut self, aim: usize) -> Vec<(u64, usize)> {
            self.schedule(aim);
            let rows = self.pass.rows.iter().enumerate();
            let rows = rows.map(|(i, row)| (row.place.id(), self.batch.row(i).len())).collect();
            let sampled = vec![1; self.batch.samples()];
            self.scheduler.collect(&self.pass, &sampled, |sequence, news| match news {
                News::Token(token) => sequence.accept(token, None, std::time::Instant::now(), &mut Default::default()),
                News::Cancelled => sequence.life = Life::Ended,
            });
            rows
        }
    }

    #[test]
    fn decoding_rows_come_first_and_prompts_fill_the_budget() {
        let mut bench = Bench::new(8, 4, 64);
        bench.add(1, 0, 3, 9);
        assert_eq!(bench.pass(ALL), [(1, 3)]);
        bench.add(2, 0, 20, 9);
        bench.add(3, 0, 2, 9);
        assert_eq!(bench.pass(ALL), [(1, 1), (2, 7)]);
        assert_eq!(bench.pass(ALL), [(1, 1), (2, 7)]);
        assert_eq!(bench.pass(ALL), [(1, 1), (2, 6), (3, 1)]);
        assert_eq!(bench.pass(ALL), [(1, 1), (2, 1), (3, 1)]);
        assert_eq!(bench.pass(ALL), [(1, 1), (2, 1), (3, 1)]);
    }

    #[test]
    fn an_aim_cuts_prompts_but_never_below_one_token() {
        let mut bench = Bench::new(8, 4, 64);
        bench.add(1, 0, 5, 9);
        assert_eq!(bench.pass(4), [(1, 4)]);
        assert_eq!(bench.pass(4), [(1, 1)]);
        bench.add(2, 0, 5, 9);
        assert_eq!(bench.pass(4), [(1, 1), (2, 3)]);
        assert_eq!(bench.pass(0), [(1, 1), (2, 1)]);
    }

    #[test]
    fn a_batch_says_where_everything_is() {
        let mut bench = Bench::new(8, 4, 64);
        bench.add(1, 0, 3, 9);
        bench.pass(ALL);
        bench.add(2, 0, 9, 9);
        bench.schedule(ALL);
        let batch = &bench.batch;
        assert_eq!(batch.token_ids, [1, 201, 202, 203, 204, 205, 206, 207]);
        assert_eq!(batch.positions, [3, 0, 1, 2, 3, 4, 5, 6]);
        assert_eq!((&batch.row_starts[..], &batch.context_lens[..]), (&[0, 1, 8][..], &[4, 7][..]));
        assert_eq!((batch.table_width, &batch.sampled_rows[..]), (4, &[0][..]));
        assert_eq!(batch.sampling[0].position, 4);
        let (first, second) = (batch.block_table(0), batch.block_table(1));
        assert_eq!(first[2..], [0, 0]);
        assert_eq!(batch.slots[0], first[1] * 2 + 1);
        let expected: Vec<u32> = (0..7).map(|position| second[position as usize / 2] * 2 + position % 2).collect();
        assert_eq!(batch.slots[1..], expected);
    }

    #[test]
    fn rows_are_bounded_and_the_rest_gets_its_turn() {
        let mut bench = Bench::new(8, 2, 64);
        for id in 1..=3 {
            bench.add(id, 0, 1, 2);
        }
        assert_eq!(bench.pass(ALL), [(1, 1), (2, 1)]);
        assert_eq!(bench.pass(ALL), [(1, 1), (2, 1)]);
        assert_eq!(bench.pass(ALL), [(3, 1)]);
    }

    #[test]
    fn higher_priority_first_and_order_of_arrival_within_it() {
        let mut bench = Bench::new(3, 3, 64);
        for (id, priority) in [(1, -1), (2, 0), (3, 5), (4, 0)] {
            bench.add(id, priority, 1, 1);
        }
        assert_eq!(bench.pass(ALL), [(3, 1), (2, 1), (4, 1)]);
        assert_eq!(bench.pass(ALL), [(1, 1)]);
    }

    #[test]
    fn without_a_free_block_the_youngest_of_the_lowest_priority_gives_way() {
        let mut bench = Bench::new(16, 4, 7);
        bench.add(1, -1, 2, 8);
        bench.add(2, 0, 2, 8);
        bench.add(3, 0, 2, 8);
        bench.add(4, -1, 2, 8);
        let order = |bench: &mut Bench| bench.pass(ALL).iter().map(|row| row.0).collect::<Vec<_>>();
        assert_eq!(order(&mut bench), [2, 3, 1, 4]);
        // Each takes its second block, but only three are left for four.
        assert_eq!(order(&mut bench), [2, 3, 1]);
        assert_eq!((bench.scheduler.preemptions(), bench.scheduler.waiting()), (1, 1));
        assert_eq!(order(&mut bench), [2, 3, 1]);
        // A third block each: one is free, the second comes from request 1, who has nobody to take from.
        assert_eq!(order(&mut bench), [2, 3]);
        let mut first_seen = Vec::new();
        while bench.scheduler.running() + bench.scheduler.waiting() > 0 {
            for id in order(&mut bench) {
                if !first_seen.contains(&id) {
                    first_seen.push(id);
                }
            }
        }
        assert_eq!(first_seen, [2, 3, 1, 4], "the older one comes back first");
        assert_eq!(bench.scheduler.used_blocks(), 0);
    }

    #[test]
    fn ahead_of_a_pass_in_flight_rows_bring_the_tokens_it_will_sample() {
        let mut bench = Bench::new(8, 4, 64);
        bench.add(1, 0, 3, 9);
        bench.add(2, 0, 2, 1);
        bench.schedule(ALL);
        let first = std::mem::take(&mut bench.pass);
        assert_eq!(bench.batch.token_ids, [101, 102, 103, 201, 202]);
        // Request 2 ends with the token that is on its way.
        bench.schedule(ALL);
        let second = std::mem::take(&mut bench.pass);
        assert_eq!((&bench.batch.token_ids[..], bench.batch.positions[0]), (&[FROM_PREVIOUS][..], 3));
        assert_eq!((bench.batch.samples(), bench.batch.sampling[0].position), (1, 4));
        let accept = |sequence: &mut Sequence, news| match news {
            News::Token(token) => sequence.accept(token, None, std::time::Instant::now(), &mut Default::default()),
            News::Cancelled => sequence.life = Life::Ended,
        };
        bench.scheduler.collect(&first, &[7, 8], accept);
        assert_eq!(bench.scheduler.running(), 1);
        bench.scheduler.collect(&second, &[9], accept);
        bench.schedule(ALL);
        assert_eq!((&bench.batch.token_ids[..], bench.batch.positions[0]), (&[9][..], 4));
    }

    #[test]
    fn a_row_of_a_sequence_that_ended_one_pass_earlier_is_ignored() {
        let mut bench = Bench::new(8, 4, 64);
        bench.add(1, 0, 1, 9);
        bench.add(2, 0, 1, 9);
        bench.schedule(ALL);
        let first = std::mem::take(&mut bench.pass);
        bench.schedule(ALL);
        let second = std::mem::take(&mut bench.pass);
        bench.scheduler.collect(&first, &[5, 6], |sequence, _| match sequence.id() {
            1 => sequence.life = Life::Ended,
            _ => sequence.accept(6, None, std::time::Instant::now(), &mut Default::default()),
        });
        let mut heard = Vec::new();
        bench.scheduler.collect(&second, &[7, 8], |sequence, news| heard.push((sequence.id(), news)));
        assert_eq!(heard, [(2, News::Token(8))]);
    }

    #[test]
    fn where_blocks_are_lacking_the_pass_in_flight_is_collected_first() {
        // Blocks of 2: a prompt of 2 takes one and its next token another.
        let mut bench = Bench::new(8, 4, 3);
        bench.add(1, 0, 2, 4);
        bench.add(2, 0, 2, 4);
        bench.schedule(ALL);
        bench.pass.clear();
        bench.schedule(ALL);
        assert!(bench.pass.is_empty() && bench.scheduler.preemptions() == 0);
    }

    #[test]
    fn nobody_overtakes_a_prompt_that_waits_for_blocks() {
        let mut bench = Bench::new(32, 4, 9);
        bench.add(1, 0, 6, 4);
        bench.pass(ALL);
        bench.add(2, 0, 14, 1);
        bench.add(3, 0, 1, 1);
        for _ in 0..3 {
            assert_eq!(bench.pass(ALL), [(1, 1)]);
        }
        assert_eq!(bench.pass(ALL), [(2, 14), (3, 1)]);
    }

    #[test]
    fn a_sequence_cancelled_in_flight_keeps_its_blocks_until_the_pass_is_collected() {
        let mut bench = Bench::new(8, 4, 8);
        bench.add(1, 0, 3, 9);
        bench.add(2, 0, 3, 9);
        bench.schedule(ALL);
        assert!(bench.scheduler.cancel(Place::new(0, 1)).is_none());
        assert_eq!(bench.scheduler.used_blocks(), 4);
        let mut heard = Vec::new();
        bench.scheduler.collect(&bench.pass, &[1, 1], |sequence, news| {
            heard.push((sequence.id(), news));
            if news == News::Cancelled {
                sequence.life = Life::Ended;
            }
        });
        assert_eq!(heard, [(1, News::Cancelled), (2, News::Token(1))]);
        assert_eq!((bench.scheduler.used_blocks(), bench.scheduler.running()), (2, 1));
        assert!(bench.scheduler.cancel(Place::new(0, 2)).is_some(), "not in flight: removed at once");
        assert_eq!((bench.scheduler.used_blocks(), bench.scheduler.running()), (0, 0));
    }

    #[test]
    fn a_waiting_or_unknown_sequence_is_cancelled_without_harm() {
        let mut bench = Bench::new(8, 4, 8);
        bench.add(1, 0, 3, 9);
        assert!(bench.scheduler.cancel(Place::new(0, 2)).is_none());
        assert!(bench.scheduler.cancel(Place::new(0, 1)).is_some());
        assert!(bench.pass(ALL).is_empty());
    }

    #[test]
    fn a_prompt_seen_before_takes_over_its_blocks() {
        let mut bench = Bench::new(16, 4, 16);
        bench.add(1, 0, 7, 1);
        bench.pass(ALL);
        let again: Vec<TokenId> = (0..7).map(|i| 101 + i).collect();
        bench.scheduler.add(sequence(2, &again, 9, SamplingParams::default()));
        assert_eq!(bench.pass(ALL), [(2, 1)]);
        assert_eq!(bench.scheduler.cached_tokens(), 6);
    }
}
