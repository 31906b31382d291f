//! Who runs when, with sequences made by hand.

use super::*;
use crate::api::sampling_params::SamplingParams;
use crate::schedule::sequence::tests::sequence;
use base::TokenId;

const ALL: usize = usize::MAX;

/// What a pass brings that asks for tokens alone.
fn tokens(tokens: &[TokenId]) -> Sampled<'_> {
    Sampled { tokens, ..Sampled::default() }
}

fn token_of(event: &Event) -> Option<TokenId> {
    if let Event::Token(chosen) = event { Some(chosen.token) } else { None }
}

/// Takes a token in as the engine does.
fn accept(sequence: &mut Sequence, event: Event) {
    match event {
        Event::Token(chosen) => sequence.accept(&chosen, None, std::time::Instant::now(), &mut Default::default()),
        Event::Pooled | Event::Cancelled => sequence.status = SequenceStatus::Finished,
        Event::Candidates | Event::SearchResult(_) => unreachable!("no request has beams"),
    }
}

fn chosen(token: TokenId) -> Chosen<'static> {
    Chosen { token, ..Chosen::default() }
}

/// A scheduler driven by hand: every sampled token is 1.
struct Bench {
    scheduler: Scheduler,
    pass: Pass,
    batch: Batch,
}

impl Bench {
    fn new(tokens: usize, rows: usize, blocks: usize) -> Bench {
        let limits = BatchLimits { tokens, rows, model_len: 64, block_size: 2, ..BatchLimits::NONE };
        Bench {
            scheduler: Scheduler::new(limits, blocks, PrefixCache::On, None).unwrap(),
            pass: Pass::with_limits(&limits).unwrap(),
            batch: Batch::with_limits(&limits),
        }
    }

    /// A prompt of `prompt` tokens that no other shares, and at most `answer` tokens after it.
    fn add(&mut self, id: u64, priority: i32, prompt: usize, answer: usize) {
        let tokens: Vec<TokenId> = (0..prompt as u32).map(|i| 1 + 100 * id as u32 + i).collect();
        let params = SamplingParams { priority, ..SamplingParams::default() };
        self.scheduler.add(sequence(id, &tokens, prompt + answer, params));
    }

    fn schedule(&mut self, token_budget: usize) {
        self.pass.clear();
        self.batch.clear();
        self.scheduler.schedule(token_budget, &mut |_| Ok(()), &mut self.pass, &mut self.batch).unwrap();
    }

    /// One pass; answers `(id, new tokens)` of each row.
    fn pass(&mut self, token_budget: usize) -> Vec<(u64, usize)> {
        self.schedule(token_budget);
        let rows = self.pass.rows.iter().enumerate();
        let rows = rows.map(|(i, row)| (row.key.id(), self.batch.row(i).len())).collect();
        let sampled = vec![1; self.batch.samples()];
        self.scheduler.collect(&self.pass, &tokens(&sampled), accept);
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
fn a_token_budget_cuts_prompts_but_never_below_one_token() {
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
    assert_eq!((batch.table_width, &batch.sampled_tokens[..]), (4, &[0][..]));
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
    bench.scheduler.collect(&first, &tokens(&[7, 8]), accept);
    assert_eq!(bench.scheduler.running(), 1);
    bench.scheduler.collect(&second, &tokens(&[9]), accept);
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
    bench.scheduler.collect(&first, &tokens(&[5, 6]), |sequence, _| match sequence.id() {
        1 => sequence.status = SequenceStatus::Finished,
        _ => sequence.accept(&chosen(6), None, std::time::Instant::now(), &mut Default::default()),
    });
    let mut events = Vec::new();
    bench
        .scheduler
        .collect(&second, &tokens(&[7, 8]), |sequence, event| events.push((sequence.id(), token_of(&event))));
    assert_eq!(events, [(2, Some(8))]);
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
    assert!(bench.scheduler.cancel_running(SequenceKey::new(0, 1)).is_none());
    assert_eq!(bench.scheduler.used_blocks(), 4);
    let mut events = Vec::new();
    bench.scheduler.collect(&bench.pass, &tokens(&[1, 1]), |sequence, event| {
        events.push((sequence.id(), token_of(&event)));
        if event == Event::Cancelled {
            sequence.status = SequenceStatus::Finished;
        }
    });
    assert_eq!(events, [(1, None), (2, Some(1))]);
    assert_eq!((bench.scheduler.used_blocks(), bench.scheduler.running()), (2, 1));
    assert!(bench.scheduler.cancel_running(SequenceKey::new(0, 2)).is_some(), "not in flight: removed at once");
    assert_eq!((bench.scheduler.used_blocks(), bench.scheduler.running()), (0, 0));
}

#[test]
fn a_waiting_or_unknown_sequence_is_cancelled_without_harm() {
    let mut bench = Bench::new(8, 4, 8);
    bench.add(1, 0, 3, 9);
    let mut leave = |id| {
        let ran = |_, _| panic!("nothing of it runs");
        bench.scheduler.cancel_request(SequenceKey::new(0, id), &Finish::Cancelled, ran);
        bench.scheduler.next_leaving().map(|(sequence, finish)| (sequence.id(), format!("{finish:?}")))
    };
    assert_eq!(leave(2), None);
    assert_eq!(leave(1), Some((1, "Cancelled".to_owned())));
    assert!(bench.pass(ALL).is_empty());
    assert_eq!(bench.scheduler.waiting(), 0);
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
