//! Requests that wait: far more of them than the KV cache holds, some only for so long, and some cancelled before they end. And threads that wait for work.

use crate::fake_runner;

use base::TokenId;
use compute::batch::BatchLimits;
use engine::options::PrefixCache;
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt, Waited};
use fake_runner::oracle::{SEED, oracle};
use fake_runner::{Shape, load};
use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

fn shape(tokens: usize, rows: usize, model_len: usize, blocks: usize) -> Shape {
    Shape {
        limits: BatchLimits { tokens, rows, model_len, block_size: 4, ..BatchLimits::NONE },
        blocks,
        vocab: 24,
        stages: 3,
        depth: 1,
        window: None,
        windowed: None,
        states: None,
    }
}

fn open(shape: Shape, prefix_cache: PrefixCache) -> Engine {
    Engine::with_runner(load(shape), EngineLimits { max_queue: None, prefix_cache, seed: SEED })
}

fn greedy(max_tokens: u32) -> SamplingParams {
    SamplingParams { max_tokens: Some(max_tokens), eos: Eos::Ignored, ..SamplingParams::default() }
}

/// Polls all that waits: tokens and, in words, the finish of each request.
fn poll(engine: &mut Engine, heard: &mut HashMap<u64, (Vec<TokenId>, String)>) {
    while let Some(output) = engine.next_output() {
        let (tokens, finish) = heard.entry(output.request_id).or_default();
        assert!(finish.is_empty(), "request {} ended twice", output.request_id);
        tokens.extend(&output.token_ids);
        *finish = output.finish.as_ref().map_or(String::new(), |finish| format!("{finish:?}"));
    }
}

#[test]
fn ten_times_more_requests_than_blocks_all_end_with_their_own_answers() {
    const BLOCKS: usize = 24;
    for (name, cache, depth, budget) in [
        ("whole passes", PrefixCache::On, 1, Budget::OnePass),
        ("two passes in flight", PrefixCache::On, 2, Budget::OnePass),
        ("no prefix cache", PrefixCache::Off, 1, Budget::OnePass),
        ("cut passes", PrefixCache::On, 1, Budget::Time(Duration::ZERO)),
    ] {
        let shape = Shape { depth, ..shape(32, 8, 96, BLOCKS) };
        let mut engine = open(shape, cache);
        let handle = engine.handle().clone();
        let mut wanted = HashMap::new();
        let mut heard = HashMap::new();
        for i in 0..10 * BLOCKS as u32 {
            // From a few tokens to all that the pool holds, a third of them beginning alike.
            let prompt: Vec<TokenId> =
                (0..1 + i * 7 % 40).map(|j| 1 + if i % 3 == 0 { j } else { i + j } % 23).collect();
            let params = SamplingParams { priority: i as i32 % 3, ..greedy(1 + i * 11 % 50) };
            let id = handle.add_request(Prompt::Tokens(&prompt), params.clone()).unwrap();
            wanted.insert(id, (oracle(id, 0, &prompt, &params, &shape).0, "Length".to_owned()));
            if i % 5 == 0 {
                engine.step(budget).unwrap();
                poll(&mut engine, &mut heard);
            }
        }
        let mut steps = 0;
        while !handle.is_finished() {
            engine.step(budget).unwrap();
            poll(&mut engine, &mut heard);
            steps += 1;
            assert!(steps < 100_000, "{name}: somebody starves");
        }
        assert!(heard == wanted, "{name}");
        assert!(handle.stats().preemptions > 10, "{name}: the pool was full {} times", handle.stats().preemptions);
        assert_eq!(handle.stats().kv_blocks_used, 0, "{name}");
    }
}

#[test]
fn a_request_that_waits_for_longer_than_it_may_ends_with_its_own_reason() {
    let mut engine = open(shape(16, 1, 64, 16), PrefixCache::On);
    let handle = engine.handle().clone();
    let add = |max_wait| handle.add_request(Prompt::Tokens(&[1, 2]), SamplingParams { max_wait, ..greedy(4) }).unwrap();
    let runs = add(Some(Duration::from_secs(3600)));
    let expires = add(Some(Duration::from_micros(1)));
    let patient = add(Some(Duration::MAX));
    let silent = add(None);
    let cancelled = add(Some(Duration::from_micros(1)));
    handle.cancel(cancelled).unwrap();
    thread::sleep(Duration::from_millis(1));
    let mut heard = HashMap::new();
    engine.step(Budget::OnePass).unwrap();
    poll(&mut engine, &mut heard);
    assert_eq!(heard[&expires], (vec![], "Expired".to_owned()));
    assert!(handle.cancel(expires).is_err(), "it is no more");
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        poll(&mut engine, &mut heard);
    }
    assert_eq!(heard[&cancelled].1, "Cancelled");
    for id in [runs, patient, silent] {
        assert_eq!((heard[&id].0.len(), &heard[&id].1[..]), (4, "Length"), "request {id}");
    }
}

#[test]
fn a_request_waits_for_its_first_run_only() {
    // Both fit at first and not at last, so that the second is preempted and waits again, beyond its time.
    let mut engine = open(shape(16, 2, 32, 8), PrefixCache::On);
    let handle = engine.handle().clone();
    handle.add_request(Prompt::Tokens(&[1; 8]), greedy(20)).unwrap();
    const MAX_WAIT: Duration = Duration::from_secs(3600);
    let max_wait = Some(MAX_WAIT);
    let second = handle.add_request(Prompt::Tokens(&[2; 8]), SamplingParams { max_wait, ..greedy(20) }).unwrap();
    let mut heard = HashMap::new();
    while handle.stats().preemptions == 0 {
        engine.step(Budget::OnePass).unwrap();
    }
    engine.advance_max_wait(2 * MAX_WAIT);
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        poll(&mut engine, &mut heard);
    }
    assert_eq!((heard[&second].0.len(), &heard[&second].1[..]), (20, "Length"));
}

#[test]
fn a_cancel_takes_effect_with_the_next_step_also_inside_a_long_prompt() {
    let mut engine = open(shape(16, 4, 256, 64), PrefixCache::On);
    let handle = engine.handle().clone();
    let other = handle.add_request(Prompt::Tokens(&[9, 9]), greedy(40)).unwrap();
    let long = handle.add_request(Prompt::Tokens(&[7; 200]), greedy(40)).unwrap();
    let mut heard = HashMap::new();
    for _ in 0..5 {
        engine.step(Budget::OnePass).unwrap();
    }
    poll(&mut engine, &mut heard);
    assert!(!heard.contains_key(&long), "its prompt takes 14 passes");
    let held = handle.stats().kv_blocks_used;
    assert!(held > 15, "{held} blocks are in use");

    handle.cancel(long).unwrap();
    let report = engine.step(Budget::OnePass).unwrap();
    assert_eq!((report.passes, report.prefill_tokens, report.running), (1, 0, 1), "no more of it is computed");
    poll(&mut engine, &mut heard);
    assert_eq!(heard[&long], (vec![], "Cancelled".to_owned()));
    assert!(handle.stats().kv_blocks_used <= 2, "its blocks are free");

    // In the middle of a pass its rows are written to until that pass ends: the step that ends it ends the request.
    let late = handle.add_request(Prompt::Tokens(&[5; 100]), greedy(40)).unwrap();
    engine.step(Budget::OnePass).unwrap();
    assert_eq!(engine.step(Budget::Time(Duration::ZERO)).unwrap().in_flight, 1);
    handle.cancel(late).unwrap();
    let report = engine.step(Budget::OnePass).unwrap();
    assert_eq!((report.passes, report.in_flight, report.running), (1, 0, 1));
    poll(&mut engine, &mut heard);
    assert_eq!(heard[&late], (vec![], "Cancelled".to_owned()));
    assert!(handle.stats().kv_blocks_used <= 3, "its blocks are free");
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        poll(&mut engine, &mut heard);
    }
    assert_eq!(heard[&other].0.len(), 40, "the other one lost nothing");
    assert_eq!(handle.stats().kv_blocks_used, 0);
}

#[test]
fn a_pass_in_flight_is_work_although_every_request_has_ended() {
    let mut engine = open(Shape { depth: 2, ..shape(16, 4, 64, 32) }, PrefixCache::On);
    let handle = engine.handle().clone();
    let look = || handle.wait(Some(Instant::now())).unwrap();
    assert_eq!(look(), Waited::InVain);
    // Whatever the first token is, the request ends with it, and the next pass has begun.
    let params = SamplingParams { stop_tokens: (0..24).collect(), ..greedy(9) };
    handle.add_request(Prompt::Tokens(&[1, 2]), params).unwrap();
    assert_eq!(look(), Waited::Work);
    assert_eq!(engine.step(Budget::OnePass).unwrap().in_flight, 1);
    assert_eq!(look(), Waited::Work, "an output waits");
    while engine.next_output().is_some() {}
    assert!(handle.is_finished());
    assert_eq!(look(), Waited::Work);
    assert_eq!(engine.step(Budget::OnePass).unwrap().in_flight, 0);
    assert_eq!(look(), Waited::InVain);
}
