//! What an engine shows to whoever watches it: how its requests ended, how long they took, and all of it as text.
//!
//! The thread that steps counts, any thread reads; nothing is locked or allocated on the way in.

use crate::results::histogram::Histogram;
use crate::results::output::{Finish, Stats};
use crate::schedule::sequence::Interval;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Bounds of times, in microseconds: 100 us to 100 s.
const TIMES_US: &[u64] = &[
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
];
/// Bounds of rows in a pass.
const ROWS: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];

/// How a request can end, as a label.
const REASONS: [&str; 5] = ["stop", "length", "cancelled", "error", "expired"];

/// Counts and histograms since the engine opened.
#[derive(Debug)]
pub struct Metrics {
    time_to_first_token: Histogram,
    time_between_tokens: Histogram,
    queue_time: Histogram,
    pass_time: Histogram,
    pass_rows: Histogram,
    /// By reason, in the order of `REASONS`.
    finished: [AtomicU64; REASONS.len()],
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            time_to_first_token: Histogram::new(TIMES_US),
            time_between_tokens: Histogram::new(TIMES_US),
            queue_time: Histogram::new(TIMES_US),
            pass_time: Histogram::new(TIMES_US),
            pass_rows: Histogram::new(ROWS),
            finished: Default::default(),
        }
    }
}

impl Metrics {
    /// Counts a pass of `rows` sequences.
    pub fn count_pass(&self, rows: usize, took: Duration) {
        self.pass_rows.observe(rows as u64);
        self.pass_time.observe(microseconds(took));
    }

    /// Counts a token by the time it took.
    pub fn count_token(&self, interval: Interval) {
        match interval {
            Interval::First { queued, whole } => {
                self.queue_time.observe(microseconds(queued));
                self.time_to_first_token.observe(microseconds(whole));
            }
            Interval::Between(time) => self.time_between_tokens.observe(microseconds(time)),
        }
    }

    /// Counts a request that ended.
    pub fn count_finish(&self, finish: &Finish) {
        let reason = match finish {
            Finish::Stop => 0,
            Finish::Length => 1,
            Finish::Cancelled => 2,
            Finish::Error(_) => 3,
            Finish::Expired => 4,
        };
        self.finished[reason].fetch_add(1, Relaxed);
    }

    /// All of it and `stats` in Prometheus' text format 0.0.4.
    pub fn text(&self, stats: &Stats, log_messages_dropped: u64) -> String {
        let mut text = String::with_capacity(8 << 10);
        self.write(stats, log_messages_dropped, &mut text).expect("a String takes all");
        text
    }

    fn write(&self, stats: &Stats, log_messages_dropped: u64, out: &mut String) -> fmt::Result {
        let gauges = [
            ("requests_running", "Sequences that run.", stats.running),
            ("requests_waiting", "Sequences that wait.", stats.waiting),
            ("kv_blocks", "Blocks of the KV cache.", stats.kv_blocks_total),
            ("kv_blocks_used", "Blocks of the KV cache that sequences hold, or that are pinned.", stats.kv_blocks_used),
            ("kv_blocks_pinned", "Blocks promised to pinned prompts.", stats.kv_blocks_pinned),
        ];
        for (name, help, value) in gauges {
            header(name, help, "gauge", out)?;
            writeln!(out, "nanovllm_{name} {value}")?;
        }
        let counters = [
            ("passes_total", "Forward passes.", stats.steps),
            ("prompt_tokens_total", "Prompt tokens computed.", stats.prompt_tokens),
            ("cached_tokens_total", "Prompt tokens taken over from the prefix cache.", stats.cached_tokens),
            ("generated_tokens_total", "Tokens generated.", stats.generated_tokens),
            ("preemptions_total", "Sequences that had to give their blocks back.", stats.preemptions),
            ("prefix_cache_queries_total", "Tokens looked up in the prefix cache.", stats.prefix_cache.queries),
            ("prefix_cache_hits_total", "Tokens found in the prefix cache.", stats.prefix_cache.hits),
            (
                "prefix_cache_recomputed_total",
                "Tokens found in the prefix cache and computed again, without a recurrent state after them.",
                stats.prefix_cache.recomputed,
            ),
            ("prefix_cache_evictions_total", "Blocks that the prefix cache lost.", stats.prefix_cache.evictions),
            ("log_messages_dropped_total", "Log messages lost by the whole process.", log_messages_dropped),
        ];
        for (name, help, value) in counters {
            header(name, help, "counter", out)?;
            writeln!(out, "nanovllm_{name} {value}")?;
        }
        header("finished_total", "Completions that ended, by reason.", "counter", out)?;
        for (reason, count) in REASONS.iter().zip(&self.finished) {
            writeln!(out, "nanovllm_finished_total{{reason=\"{reason}\"}} {}", count.load(Relaxed))?;
        }
        let times = [
            ("time_to_first_token_seconds", "From adding a request to its first token.", &self.time_to_first_token),
            ("time_between_tokens_seconds", "From one token of a completion to the next.", &self.time_between_tokens),
            ("queue_time_seconds", "From adding a request to its first run.", &self.queue_time),
            ("pass_time_seconds", "Work on a forward pass.", &self.pass_time),
        ];
        for (name, help, histogram) in times {
            header(name, help, "histogram", out)?;
            histogram.write(&format!("nanovllm_{name}"), 1_000_000, out)?;
        }
        header("pass_rows", "Sequences in a forward pass.", "histogram", out)?;
        self.pass_rows.write("nanovllm_pass_rows", 1, out)
    }
}

/// What stands before the samples of a metric.
fn header(name: &str, help: &str, kind: &str, out: &mut String) -> fmt::Result {
    writeln!(out, "# HELP nanovllm_{name} {help}\n# TYPE nanovllm_{name} {kind}")
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::blocks::CacheCounts;

    /// The promise of the C header.
    #[test]
    fn the_text_fits_in_sixteen_kilobytes_whatever_the_numbers() {
        let metrics = Metrics::default();
        let all = [&metrics.time_to_first_token, &metrics.time_between_tokens, &metrics.queue_time, &metrics.pass_time];
        for histogram in all.into_iter().chain([&metrics.pass_rows]) {
            histogram.fill(u64::MAX / 32);
        }
        metrics.finished.iter().for_each(|count| count.store(u64::MAX, Relaxed));
        let (many, some) = (u64::MAX, u32::MAX);
        let stats = Stats {
            steps: many,
            prompt_tokens: many,
            cached_tokens: many,
            generated_tokens: many,
            preemptions: many,
            step_time_us: many,
            running: some,
            waiting: some,
            kv_blocks_total: some,
            kv_blocks_used: some,
            kv_blocks_pinned: some,
            gpu_memory_bytes: 0,
            kv_cache_bytes_mapped: many,
            prefix_cache: CacheCounts { queries: many, hits: many, recomputed: many, evictions: many },
        };
        let len = metrics.text(&stats, many).len();
        assert!((6 << 10..16 << 10).contains(&len), "{len} bytes");
    }
}
