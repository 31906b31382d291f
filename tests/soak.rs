//! A long run with every option: memory stays flat, every request ends exactly once, and nothing is held at the end.
//!
//! Three threads add and cancel while one steps, with ten times more prompts than the KV cache holds. After each round
//! everything has ended: then the bytes that live are counted, and the resident memory is read. `NVLLM_SOAK_REQUESTS` sets the
//! number of requests, which `make soak` sets to a million.

#[allow(dead_code)]
#[path = "campaign/capi.rs"]
mod capi;
#[allow(dead_code)]
#[path = "campaign/case.rs"]
mod case;
#[allow(dead_code)]
#[path = "campaign/meter.rs"]
mod meter;
#[allow(dead_code)]
#[path = "campaign/random.rs"]
mod random;
mod tree;

use ::capi::requests::*;
use ::capi::state::*;
use ::capi::stats::*;
use capi::{Engine, Good, judge, judge_status};
use random::Rng;
use std::collections::HashMap;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: meter::Counting = meter::Counting;

/// Requests of a run in CI.
const REQUESTS: u64 = 4800;
const ROUNDS: u64 = 12;
/// Rounds until caches and pools have their size.
const WARM_UP: usize = 4;
const THREADS: u64 = 3;
/// Requests that wait at most.
const QUEUE: u32 = 256;
/// What a run may grow by after its warm-up.
const LIVE_BYTES: usize = 1 << 20;
const RESIDENT_BYTES: usize = 16 << 20;

const FINISHES: [&str; 6] = ["none", "stop", "length", "cancelled", "error", "expired"];

/// What is known of requests that have not ended.
#[derive(Default)]
struct Ledger {
    /// Results that the request will have, where its adder has said so, and those that have ended.
    open: Mutex<HashMap<u64, (Option<u32>, u32)>>,
    added: AtomicU64,
    refused: AtomicU64,
    finishes: [AtomicU64; 6],
}

impl Ledger {
    fn add(&self, id: u64, results: u32) {
        self.added.fetch_add(1, Relaxed);
        let mut open = self.open.lock().unwrap();
        let entry = open.entry(id).or_default();
        assert!(entry.0.replace(results).is_none(), "request {id} was added twice");
        if entry.1 == results {
            open.remove(&id);
        }
    }

    fn end(&self, id: u64, finish: i32) {
        self.finishes[finish as usize].fetch_add(1, Relaxed);
        let mut open = self.open.lock().unwrap();
        let entry = open.entry(id).or_default();
        entry.1 += 1;
        assert!(entry.0.is_none_or(|results| entry.1 <= results), "request {id} ended more often than it has results");
        if entry.0 == Some(entry.1) {
            open.remove(&id);
        }
    }
}

/// A thread that adds.
struct Adder<'a> {
    engine: &'a Engine,
    ledger: &'a Ledger,
    rng: Rng,
    pinned: Vec<u64>,
}

impl Adder<'_> {
    fn run(mut self, requests: u64) {
        for _ in 0..requests {
            self.add();
            if self.rng.one_in(12) {
                let newest = self.ledger.added.load(Relaxed);
                let id = newest.saturating_sub(self.rng.below(300) as u64);
                // SAFETY: the engine is live.
                judge_status("nvllm_cancel", unsafe { nvllm_cancel(self.engine.pointer(), id) }, "");
            }
            if self.pinned.len() > 3 {
                self.unpin();
            }
            if self.rng.one_in(20) {
                let question = format!(r#"[{{"role":"user","content":"{}"}}]"#, self.rng.word());
                let text = self.engine.chat(question.as_bytes(), b"").expect("the template is good");
                assert!(text.contains("user"));
            }
        }
        while !self.pinned.is_empty() {
            self.unpin();
        }
    }

    /// Lets the oldest pin go. It may be gone: a cancelled request has none.
    fn unpin(&mut self) {
        let id = self.pinned.remove(0);
        // SAFETY: the engine is live.
        judge_status("nvllm_release_prefix", unsafe { nvllm_release_prefix(self.engine.pointer(), id) }, "");
    }

    /// Adds one request; waits for a place in the queue.
    fn add(&mut self) {
        let rng = &mut self.rng;
        let mut options = capi::options();
        options.max_tokens = rng.between(2, 7) as u32;
        let mut results = 1;
        let stops = [c"the".as_ptr(), c"zq".as_ptr()];
        let (biased, biases) = ([5u32, 9, 100], [1.5f32, -4.0, f32::NEG_INFINITY]);
        let stop_tokens = [17u32, 300];
        let structure = CString::new(match rng.below(5) {
            0 => format!("[a-{}]{{1,{}}}", (b'c' + rng.below(20) as u8) as char, rng.between(2, 9)),
            1 => "[0-9]{1,6}".to_owned(),
            _ => "(yes|no|maybe)".to_owned(),
        })
        .unwrap();
        if rng.one_in(2) {
            (options.temperature, options.seed) = (0.8, rng.next());
            options.top_p = *rng.pick(&[1.0, 0.9]);
            options.top_k = *rng.pick(&[0, 5, 50]);
            options.min_p = *rng.pick(&[0.0, 0.05]);
            options.top_n_sigma = *rng.pick(&[0.0, 1.5]);
            options.xtc_probability = *rng.pick(&[0.0, 0.5]);
        }
        options.priority = rng.below(3) as i32;
        options.cache_salt = rng.below(3) as u64;
        match rng.below(15) {
            0 => (options.n, results) = (3, 3),
            1 => (options.n, options.beam_width, options.temperature, results) = (2, 4, 0.0, 2),
            2 => (options.num_logprobs, options.num_prompt_logprobs) = (4, 2),
            3 => (options.stop, options.num_stop) = (stops.as_ptr(), stops.len()),
            4 => (options.stop_tokens, options.num_stop_tokens) = (stop_tokens.as_ptr(), stop_tokens.len()),
            5 => (options.bias_tokens, options.bias_values, options.num_bias) = (biased.as_ptr(), biases.as_ptr(), 3),
            6 => (options.repetition_penalty, options.presence_penalty, options.frequency_penalty) = (1.2, 0.3, 0.2),
            7 => options.pooling = rng.between(1, 2) as u32,
            8 => options.pin_prompt = 1,
            9 => options.max_wait_us = rng.between(1, 2000) as u64,
            10 => (options.structure, options.structure_kind) = (structure.as_ptr(), 2),
            11 => (options.structure, options.structure_kind) = (c"{\"type\":\"integer\"}".as_ptr(), 1),
            12 => (options.min_tokens, options.ignore_eos, options.include_stop) = (2, 1, 1),
            13 => {
                (options.dry_multiplier, options.dry_allowed_length) = (0.8, 1);
                (options.dry_sequence_breakers, options.num_dry_sequence_breakers) = (stops.as_ptr(), stops.len());
            }
            _ => {}
        }
        if options.beam_width > 0 {
            (options.top_p, options.top_k, options.min_p, options.seed) = (1.0, 0, 0.0, 0);
        }
        let text =
            format!("{} {} {}", rng.pick(&["Once upon a time", "The list of primes", "A"]), rng.word(), rng.word());
        let tokens: Vec<u32> = (0..rng.between(1, 120) as u32).map(|i| 3 + i % 40).collect();
        let is_text = rng.one_in(2);
        loop {
            let added = match is_text {
                true => self.engine.add(&text, &options),
                false => self.engine.add_tokens(&tokens, &options),
            };
            match added {
                Ok(id) => {
                    self.ledger.add(id, results);
                    if options.pin_prompt == 1 {
                        self.pinned.push(id);
                    }
                    return;
                }
                // The queue is full.
                Err((-12, _)) => std::thread::sleep(Duration::from_micros(200)),
                // All pins together are too many.
                Err((-6, _)) if options.pin_prompt == 1 => {
                    self.ledger.refused.fetch_add(1, Relaxed);
                    return;
                }
                Err((status, message)) => panic!("refused with {status}: {message}"),
            }
        }
    }
}

/// Steps, polls, saves, restores and forks until the adders are done and all has ended.
fn drive(engine: &Engine, ledger: &Ledger, adding: &AtomicUsize, rng: &mut Rng) {
    let tokens: Vec<u32> = (0..96).map(|i| 3 + i % 40).collect();
    let mut saved = Vec::new();
    while adding.load(Relaxed) > 0 || !engine.is_finished() {
        assert_eq!(engine.step(), capi::OK);
        let mut newest = 0;
        while let Some((id, answer)) = engine.poll() {
            if answer.finish > 0 {
                assert!(answer.finish != 4, "request {id} failed: {}", answer.message);
                ledger.end(id, answer.finish);
            } else {
                newest = id;
            }
        }
        match rng.below(150) {
            0 => saved = save(engine, &tokens).unwrap_or(saved),
            1 if !saved.is_empty() => restore(engine, &saved),
            2 if newest > 0 => fork(engine, ledger, newest),
            3 => reset(engine),
            _ => {}
        }
    }
}

fn save(engine: &Engine, tokens: &[u32]) -> Option<Vec<u8>> {
    let (mut bytes, mut needed, mut saved, mut error) = (vec![0u8; 1 << 20], 0, 0, capi::no_error());
    // SAFETY: all pointers are of live values of these lengths.
    let status = unsafe {
        let (at, len, to, room) = (tokens.as_ptr(), tokens.len(), bytes.as_mut_ptr(), bytes.len());
        nvllm_save_prefix(engine.pointer(), at, len, 0, to, room, &mut needed, &mut saved, Some(&mut error))
    };
    let message = judge("nvllm_save_prefix", status, &error);
    assert!([capi::OK, -5].contains(&status), "{message}");
    bytes.truncate(needed);
    (status == capi::OK).then_some(bytes)
}

fn restore(engine: &Engine, bytes: &[u8]) {
    let (mut restored, mut error) = (0, capi::no_error());
    // SAFETY: all pointers are of live values of these lengths.
    let status =
        unsafe { nvllm_restore_prefix(engine.pointer(), bytes.as_ptr(), bytes.len(), &mut restored, Some(&mut error)) };
    let message = judge("nvllm_restore_prefix", status, &error);
    assert!([capi::OK, -6].contains(&status), "{message}");
}

fn fork(engine: &Engine, ledger: &Ledger, id: u64) {
    let (mut new, mut error, mut options) = (0, capi::no_error(), capi::options());
    options.max_tokens = 2;
    // SAFETY: all pointers are of live values.
    let status = unsafe { nvllm_fork(engine.pointer(), id, 0, &options, &mut new, Some(&mut error)) };
    let message = judge("nvllm_fork", status, &error);
    // It may have ended meanwhile, or the queue may be full.
    assert!([capi::OK, -5, -12].contains(&status), "{message}");
    if status == capi::OK {
        ledger.add(new, 1);
    }
}

fn reset(engine: &Engine) {
    // SAFETY: the engine is live.
    let status = unsafe { nvllm_reset_prefix_cache(engine.pointer(), None) };
    assert_eq!(status, capi::OK);
}

fn stats(engine: &Engine) -> nvllm_stats {
    let mut stats = MaybeUninit::<nvllm_stats>::zeroed();
    // SAFETY: zero is a value of the struct, and its size is set.
    unsafe {
        (*stats.as_mut_ptr()).struct_size = size_of::<nvllm_stats>();
        assert_eq!(nvllm_get_stats(engine.pointer(), stats.as_mut_ptr(), None), capi::OK);
        stats.assume_init()
    }
}

/// Bytes of this process that are in memory.
fn resident_bytes() -> usize {
    let words = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = words.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn memory_stays_flat_and_every_request_ends_once() {
    let requests = std::env::var("NVLLM_SOAK_REQUESTS").map_or(REQUESTS, |text| text.parse().unwrap());
    let engine = Engine::open(&case::root().join("models/demo"), |config| {
        config.max_model_len = 256;
        config.max_num_seqs = 16;
        config.max_batched_tokens = 128;
        config.kv_block_size = 16;
        config.max_queue = QUEUE;
        config.kv_cache_bytes = 3 << 18;
        config.num_threads = 0;
    })
    .expect("the demo model opens");
    let good = Good::of(&engine);
    let ledger = Ledger::default();
    let began = Instant::now();
    let mut samples: Vec<(usize, usize)> = Vec::new();
    let mut last_steps = 0;
    let mut rng = Rng::of_case(1, "soak", u64::MAX);
    for round in 0..ROUNDS {
        let adding = AtomicUsize::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (engine, ledger, adding) = (&engine, &ledger, &adding);
                let rng = Rng::of_case(1, "soak", round * THREADS + thread);
                let adder = Adder { engine, ledger, rng, pinned: Vec::new() };
                scope.spawn(move || {
                    // Also when it panics, so that the other side ends.
                    struct Done<'a>(&'a AtomicUsize);
                    impl Drop for Done<'_> {
                        fn drop(&mut self) {
                            self.0.fetch_sub(1, Relaxed);
                        }
                    }
                    let _done = Done(adding);
                    adder.run(requests / ROUNDS / THREADS);
                });
            }
            drive(&engine, &ledger, &adding, &mut rng);
        });
        // Releases that came last are taken in by a step, and what is cached is not held.
        assert_eq!(engine.step(), capi::OK);
        reset(&engine);
        good.check(&engine);
        reset(&engine);
        let now = stats(&engine);
        assert_eq!((now.running, now.waiting, now.kv_blocks_used, now.kv_blocks_pinned), (0, 0, 0, 0), "round {round}");
        assert!(now.steps > last_steps);
        last_steps = now.steps;
        let open = ledger.open.lock().unwrap();
        assert!(open.is_empty(), "{} requests have not ended: {:?}", open.len(), open.iter().next());
        samples.push((meter::live_bytes(), resident_bytes()));
    }
    let violations = case::take_violations();
    assert!(violations.is_empty(), "{violations:#?}");
    let now = stats(&engine);
    let counts: Vec<String> =
        FINISHES.iter().zip(&ledger.finishes).skip(1).map(|(name, n)| format!("{} {name}", n.load(Relaxed))).collect();
    let live: Vec<usize> = samples.iter().map(|sample| sample.0 >> 10).collect();
    let resident: Vec<usize> = samples.iter().map(|sample| sample.1 >> 20).collect();
    println!(
        "{} requests in {:.1} s: {}; {} pins refused, {} preemptions, {} KV blocks, {} steps; KiB that live after each round: {live:?}; \
         resident MiB: {resident:?}",
        ledger.added.load(Relaxed),
        began.elapsed().as_secs_f64(),
        counts.join(", "),
        ledger.refused.load(Relaxed),
        now.preemptions,
        now.kv_blocks_total,
        now.steps,
    );
    for finish in [1, 2, 3, 5] {
        assert!(ledger.finishes[finish].load(Relaxed) > 0, "no request ended as {}", FINISHES[finish]);
    }
    assert!(now.preemptions > 0 && now.prefix_cache_hits > 0 && now.prefix_cache_evictions > 0);
    let (before, after) = (samples[WARM_UP], samples[samples.len() - 1]);
    assert!(after.0 < before.0 + LIVE_BYTES, "{} bytes live, {} after the warm-up", after.0, before.0);
    assert!(after.1 < before.1 + RESIDENT_BYTES, "{} bytes resident, {} after the warm-up", after.1, before.1);
}
