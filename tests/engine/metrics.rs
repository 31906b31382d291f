//! The metrics as text: the format, to the letter, and what they say of requests whose course is known.

use crate::fake_runner;

use base::TokenId;
use compute::batch::BatchLimits;
use engine::options::PrefixCache;
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use fake_runner::{Shape, load};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The samples of a text in the format 0.0.4, by name and labels. Panics where the text breaks its rules.
fn parse(text: &str) -> HashMap<String, f64> {
    assert!(text.ends_with('\n') && text.is_ascii(), "lines end with \\n");
    let mut samples = HashMap::new();
    let mut kinds: HashMap<&str, &str> = HashMap::new();
    let (mut helped, mut family) = ("", "");
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert!(!help.is_empty() && !help.contains('\\'), "{line}");
            helped = name;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a kind");
            assert_eq!(name, helped, "HELP and TYPE of a family stand together");
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            assert_eq!(kinds.insert(name, kind), None, "a family stands in one place");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            family = name;
        } else {
            let (key, value) = line.rsplit_once(' ').expect("a name and a value");
            let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{line}");
            assert!(labels.ends_with('}') && labels.matches('"').count() % 2 == 0, "{line}");
            let suffix = name.strip_prefix(family).unwrap_or_else(|| panic!("{line} is not of {family}"));
            let suffixes: &[&str] = if kinds[family] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}");
            let value: f64 = value.parse().expect("a number");
            assert!(value >= 0.0 && value.is_finite(), "{line}");
            assert_eq!(samples.insert(key.to_owned(), value), None, "{line} is there twice");
        }
    }
    for (name, _) in kinds.iter().filter(|(_, kind)| **kind == "histogram") {
        let mut buckets = Vec::new();
        for line in text.lines().filter_map(|line| line.strip_prefix(&format!("{name}_bucket{{le=\""))) {
            let (bound, count) = line.split_once("\"} ").expect("a bound and a count");
            let bound: f64 = bound.replace("+Inf", "inf").parse().expect("a number");
            buckets.push((bound, count.parse::<f64>().expect("a number")));
        }
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name}: {buckets:?}");
        let last = buckets.last().expect("buckets");
        assert_eq!((last.0, last.1), (f64::INFINITY, samples[&format!("{name}_count")]), "{name}");
    }
    samples
}

fn open(depth: usize) -> Engine {
    let limits = BatchLimits { tokens: 16, rows: 4, model_len: 64, block_size: 4, ..BatchLimits::NONE };
    let settings = EngineLimits { max_queue: None, prefix_cache: PrefixCache::On, seed: 1 };
    Engine::with_runner(
        load(Shape { limits, blocks: 64, vocab: 24, stages: 1, depth, window: None, states: None, windowed: None }),
        settings,
    )
}

fn add(engine: &Engine, prompt: &[TokenId], max_tokens: u32) -> u64 {
    let params = SamplingParams { max_tokens: Some(max_tokens), eos: Eos::Ignored, ..SamplingParams::default() };
    engine.handle().add_request(Prompt::Tokens(prompt), params).unwrap()
}

fn run_to_end(engine: &mut Engine) {
    while !engine.handle().is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while engine.next_output().is_some() {}
    }
}

#[test]
fn a_new_engine_shows_every_metric_as_zero() {
    let samples = parse(&open(1).handle().metrics_text());
    let pool = "nanovllm_kv_blocks";
    assert_eq!(samples[pool], 64.0);
    let others: Vec<_> = samples.iter().filter(|(name, value)| *name != pool && **value != 0.0).collect();
    // What other tests of this process lost is counted for all.
    assert!(others.iter().all(|(name, _)| *name == "nanovllm_log_messages_dropped_total"), "{others:?}");
}

#[test]
fn metrics_tell_what_became_of_each_request() {
    for depth in [1, 2] {
        let mut engine = open(depth);
        for request in 0..3 {
            add(&engine, &[1 + request, 2, 3], 5);
        }
        let cancelled = add(&engine, &[9; 5], 5);
        engine.handle().cancel(cancelled).unwrap();
        let expiring = SamplingParams { max_wait: Some(Duration::from_nanos(1)), ..SamplingParams::default() };
        engine.handle().add_request(Prompt::Tokens(&[7]), expiring).unwrap();
        run_to_end(&mut engine);
        let samples = parse(&engine.handle().metrics_text());
        let value = |name: &str| samples[&format!("nanovllm_{name}")];
        let finished = |reason: &str| value(&format!("finished_total{{reason=\"{reason}\"}}"));
        assert_eq!((finished("length"), finished("cancelled"), finished("expired")), (3.0, 1.0, 1.0));
        assert_eq!((finished("stop"), finished("error")), (0.0, 0.0));
        assert_eq!((value("prompt_tokens_total"), value("generated_tokens_total")), (9.0, 15.0));
        assert_eq!(
            (value("time_to_first_token_seconds_count"), value("time_between_tokens_seconds_count")),
            (3.0, 12.0)
        );
        assert_eq!((value("queue_time_seconds_count"), value("passes_total")), (3.0, value("pass_rows_count")));
        assert!(value("queue_time_seconds_sum") <= value("time_to_first_token_seconds_sum"));
        assert_eq!(value("pass_time_seconds_count"), value("passes_total"));
        assert_eq!(
            (value("pass_rows_bucket{le=\"2\"}"), value("pass_rows_bucket{le=\"4\"}")),
            (0.0, 5.0),
            "three a pass"
        );
        assert_eq!(value("pass_rows_sum"), 15.0);
        assert_eq!((value("requests_running"), value("kv_blocks_used")), (0.0, 0.0));
    }
}

#[test]
fn other_threads_read_whole_histograms_while_one_steps() {
    let mut engine = open(1);
    let handle = engine.handle().clone();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut before = 0.0;
            loop {
                let is_last = done.load(Ordering::Acquire);
                let tokens = parse(&handle.metrics_text())["nanovllm_time_between_tokens_seconds_count"];
                assert!(tokens >= before, "counts only grow");
                before = tokens;
                if is_last {
                    return tokens;
                }
            }
        });
        for request in 0..400 {
            add(&engine, &[1 + request % 20, 2], 20);
        }
        run_to_end(&mut engine);
        done.store(true, Ordering::Release);
        assert_eq!(reader.join().unwrap(), 400.0 * 19.0, "the last read sees all");
    });
}
