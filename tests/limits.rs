//! Requests at their limits: what a caller may choose the size of takes memory once, and time in no step.

mod fake_runner;
mod processor_time;

use base::TokenId;
use base::error::Error;
use base::limits;
use compute::batch::BatchLimits;
use engine::options::PrefixCache;
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::{Shape, load};
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Bytes that are allocated, in this test program.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

// SAFETY: the system's allocator does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size() as isize, Relaxed) + layout.size() as isize;
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: handed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const MIB: isize = 1 << 20;

/// One test at a time, because memory is counted for the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What `work` makes, and the most bytes that were allocated at once meanwhile, beyond those from before.
fn peak_of<T>(work: impl FnOnce() -> T) -> (T, isize) {
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let made = work();
    (made, PEAK.load(Relaxed) - before)
}

fn open(rows: usize, model_len: usize, max_queue: Option<usize>) -> Engine {
    let limits = BatchLimits { tokens: 4096, rows, model_len, block_size: 16, ..BatchLimits::NONE };
    let shape = Shape {
        limits,
        blocks: 4 * model_len / 16,
        vocab: 24,
        stages: 1,
        depth: 1,
        window: None,
        states: None,
        windowed: None,
    };
    Engine::with_runner(load(shape), EngineLimits { max_queue, prefix_cache: PrefixCache::On, seed: 7 })
}

fn greedy(max_tokens: u32) -> SamplingParams {
    SamplingParams { max_tokens: Some(max_tokens), eos: Eos::Ignored, ..SamplingParams::default() }
}

/// The ids and finishes of all outputs that wait.
fn poll(engine: &mut Engine) -> Vec<(u64, u32, String)> {
    let mut seen = Vec::new();
    while let Some(output) = engine.next_output() {
        if let Some(finish) = &output.finish {
            seen.push((output.request_id, output.index, format!("{finish:?}")));
        }
    }
    seen
}

#[test]
fn completions_that_wait_share_what_their_request_brought() {
    let _alone = alone();
    let mut engine = open(4, 8192, None);
    let prompt: Vec<TokenId> = vec![3; 4000];
    let params = SamplingParams {
        completions: 1024,
        logit_bias: (1..20).map(|token| (token, 1.0)).collect(),
        stop_tokens: vec![2; 1024],
        ..greedy(2)
    };
    let ((), peak) = peak_of(|| {
        for _ in 0..100 {
            engine.handle().add_request(Prompt::Tokens(&prompt), params.clone()).unwrap();
        }
        for _ in 0..8 {
            engine.step(Budget::OnePass).unwrap();
        }
    });
    assert!(peak < 16 * MIB, "100 requests of 1,024 completions each took {peak} bytes");
    let stats = engine.handle().stats();
    assert!(stats.waiting > 102_000, "{} wait", stats.waiting);
    (1..=100).for_each(|id| engine.handle().cancel(id).unwrap());
    let mut ended = Vec::new();
    while !engine.handle().is_finished() {
        engine.step(Budget::OnePass).unwrap();
        ended.extend(poll(&mut engine));
    }
    ended.sort();
    let all: Vec<(u64, u32)> = ended.iter().map(|(id, index, _)| (*id, *index)).collect();
    let wanted: Vec<(u64, u32)> = (1..=100).flat_map(|id| (0..1024).map(move |index| (id, index))).collect();
    assert!(all == wanted, "each completion ends once");
    assert_eq!(engine.handle().stats().kv_blocks_used, 0);
}

#[test]
fn a_queue_has_room_for_whole_requests_only() {
    let _alone = alone();
    let engine = open(4, 64, Some(8));
    let add =
        |completions| engine.handle().add_request(Prompt::Tokens(&[1, 2]), SamplingParams { completions, ..greedy(2) });
    assert!(matches!(add(9), Err(Error::Limit { field: "n", found: 9, limit: 8, name: "max_queue" })));
    add(5).unwrap();
    assert!(matches!(add(4), Err(Error::QueueFull { limit: 8, waiting: 5, wanted: 4 })));
    add(3).unwrap();
    assert_eq!(engine.handle().stats().waiting, 8);
}

#[test]
fn more_completions_than_the_library_bears_are_refused_by_name() {
    let _alone = alone();
    let mut engine = open(4, 64, None);
    let params = SamplingParams { completions: 1024, ..greedy(2) };
    for _ in 0..limits::QUEUED_COMPLETIONS / 1024 {
        engine.handle().add_request(Prompt::Tokens(&[1, 2]), params.clone()).unwrap();
    }
    let full = engine.handle().add_request(Prompt::Tokens(&[1, 2]), greedy(1)).expect_err("one too many");
    assert!(full.to_string().contains("NVLLM_MAX_QUEUED_COMPLETIONS"), "{full}");
    let prompts = vec![Prompt::Tokens(&[1, 2]); 30_000];
    let (refused, peak) = peak_of(|| engine.generate(&prompts, &[params], &mut |_| ControlFlow::Continue(())));
    let refused = refused.expect_err("30,720,000 results").to_string();
    assert!(refused.contains("30720000") && refused.contains("NVLLM_MAX_QUEUED_COMPLETIONS"), "{refused}");
    assert!(peak < 16 * MIB, "{peak} bytes");
}

/// The time budget of a step, of which it may take five times as much before a test fails: caches that other programs use, too, make
/// the processor slower.
const BUDGET: Duration = Duration::from_millis(4);

/// The third longest of the steps with this budget until `done`: the memory that grows in one of them is not looked at.
fn third_longest_step(engine: &mut Engine, mut done: impl FnMut(&mut Engine) -> bool) -> Duration {
    let mut steps = Vec::new();
    while !done(engine) {
        let begun = processor_time::of_thread();
        engine.step(Budget::Time(BUDGET)).unwrap();
        steps.push(processor_time::of_thread() - begun);
        poll(engine);
    }
    steps.sort();
    steps.iter().rev().nth(2).copied().unwrap_or_default()
}

#[test]
fn a_burst_of_arrivals_and_cancels_is_spread_over_steps() {
    let _alone = alone();
    let mut engine = open(4, 64, None);
    let handle = engine.handle().clone();
    let ids: Vec<u64> =
        (0..100_000).map(|_| handle.add_request(Prompt::Tokens(&[1, 2]), greedy(30)).unwrap()).collect();
    assert_eq!(handle.stats().waiting, 100_000);
    // Higher priority comes first although it arrived last.
    let urgent = handle.add_request(Prompt::Tokens(&[5]), SamplingParams { priority: 1, ..greedy(1) }).unwrap();
    engine.step(Budget::OnePass).unwrap();
    assert_eq!(poll(&mut engine), [(urgent, 0, "Length".to_owned())]);

    let mut taken = 0;
    let longest = third_longest_step(&mut engine, |_| {
        taken += 1;
        taken > 40
    });
    assert!(longest < 5 * BUDGET, "a step took {longest:?}");
    let ((), peak) = peak_of(|| ids.iter().for_each(|&id| drop(handle.cancel(id))));
    assert!(peak < 64 * MIB, "{peak} bytes");
    let longest = third_longest_step(&mut engine, |engine| engine.handle().is_finished());
    println!("longest {longest:?}");
    assert!(longest < 5 * BUDGET, "a step took {longest:?}");
    assert_eq!((handle.stats().waiting, handle.stats().kv_blocks_used), (0, 0));
}

#[test]
fn a_thousand_completions_end_over_several_steps_when_their_request_does() {
    let _alone = alone();
    let mut engine = open(4, 64, None);
    let handle = engine.handle().clone();
    let many = |max_wait| SamplingParams { completions: 1024, temperature: 1.0, max_wait, ..greedy(30) };
    let cancelled = handle.add_request(Prompt::Tokens(&[1, 2]), many(None)).unwrap();
    let expired = handle.add_request(Prompt::Tokens(&[1, 2]), many(Some(Duration::from_micros(1)))).unwrap();
    let mut ends: BTreeMap<(u64, String), Vec<u32>> = BTreeMap::new();
    let mut steps = 0;
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        if steps == 0 {
            handle.cancel(cancelled).unwrap();
        }
        let ended = poll(&mut engine);
        assert!(ended.len() <= 128 + 4, "{} ended in a step", ended.len());
        ended.into_iter().for_each(|(id, index, finish)| ends.entry((id, finish)).or_default().push(index));
        steps += 1;
    }
    assert!(steps >= 16, "{steps} steps");
    ends.values_mut().for_each(|indices| indices.sort_unstable());
    let all: Vec<u32> = (0..1024).collect();
    assert_eq!(ends[&(cancelled, "Cancelled".to_owned())], all);
    assert_eq!(ends[&(expired, "Expired".to_owned())], all);
    assert_eq!((handle.stats().waiting, handle.stats().kv_blocks_used), (0, 0));
}

#[test]
fn a_request_that_no_step_has_seen_is_cancelled_released_and_expires_like_any_other() {
    let _alone = alone();
    let mut engine = open(4, 64, None);
    let handle = engine.handle().clone();
    let pinned = SamplingParams { pinning: engine::sampling_params::Pinning::Pinned, ..greedy(2) };
    // More than a step takes in stand before them.
    for _ in 0..2_000 {
        handle.add_request(Prompt::Tokens(&[1, 2]), SamplingParams { priority: 1, ..greedy(1) }).unwrap();
    }
    let cancelled = handle.add_request(Prompt::Tokens(&[3; 40]), SamplingParams { completions: 3, ..pinned.clone() });
    let released = handle.add_request(Prompt::Tokens(&[4; 40]), pinned).unwrap();
    let max_wait = Some(Duration::from_micros(1));
    let expired = handle.add_request(Prompt::Tokens(&[5]), SamplingParams { max_wait, completions: 2, ..greedy(2) });
    let (cancelled, expired) = (cancelled.unwrap(), expired.unwrap());
    engine.step(Budget::OnePass).unwrap();
    handle.cancel(cancelled).unwrap();
    assert!(matches!(handle.cancel(cancelled), Err(Error::UnknownRequest { .. })));
    handle.release_prefix(released).unwrap();
    let mut ended = poll(&mut engine);
    while !handle.is_finished() {
        engine.step(Budget::OnePass).unwrap();
        ended.extend(poll(&mut engine));
    }
    let of = |id| ended.iter().filter(|(other, ..)| *other == id).map(|(_, index, how)| (*index, &how[..])).collect();
    let (of_cancelled, of_expired, of_released): (Vec<_>, Vec<_>, Vec<_>) = (of(cancelled), of(expired), of(released));
    assert_eq!(of_cancelled, [(0, "Cancelled"), (1, "Cancelled"), (2, "Cancelled")]);
    assert_eq!(of_expired, [(0, "Expired"), (1, "Expired")]);
    assert_eq!(of_released, [(0, "Length")]);
    let stats = handle.stats();
    assert_eq!((stats.kv_blocks_pinned, stats.kv_blocks_used), (0, 0), "no pin is left");
    assert!(matches!(handle.release_prefix(cancelled), Err(Error::UnknownPin { .. })), "its pin went with it");
}
