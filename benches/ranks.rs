//! One rank with several threads beside as many ranks with one thread each, on the CPU, pass by pass in turn.
//!
//! ```text
//! cargo bench --bench ranks -- [shape] [folder] [ranks]
//! ```
//!
//! `folder` receives a random bf16 checkpoint of the shape, 1.2 GB for qwen3-0.6b, unless it holds one already.

#[allow(dead_code)] // the bench of decoding shares it
#[path = "decode/checkpoint.rs"]
mod checkpoint;
#[path = "../tests/driver/mod.rs"]
mod driver;
#[path = "../tests/tree/mod.rs"]
mod tree;

use base::TokenId;
use checkpoint::Shape;
use compute::batch::{Batch, BatchLimits};
use compute::cpu::{Cpu, Isa};
use driver::Sequence;
use formats::source::Source;
use runner::Runner;
use runner::options::EngineOptions;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const CONTEXT: usize = 128;
const PREFILL_TOKENS: usize = 512;
const PASSES: usize = 31;

fn main() {
    // Cargo adds `--bench` to what the user gave.
    let mut given = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let shape = Shape::named(&given.next().unwrap_or("qwen3-0.6b".into()));
    let folder =
        given.next().map_or_else(|| std::env::temp_dir().join(format!("nanovllm-{}", shape.name)), PathBuf::from);
    let ranks: usize = given.next().map_or(2, |n| n.parse().expect("a number of ranks"));
    checkpoint::write_if_absent(&shape, &folder);
    let (isa, source) = (Isa::detect().unwrap(), Source::open(&folder).unwrap());
    let config = EngineOptions {
        num_threads: Some(ranks),
        max_model_len: Some(1024),
        kv_block_size: None,
        kv_cache_bytes: Some((16 * 1024 * shape.kv_token_bytes()) as u64),
        ..driver::config()
    };
    let progress = &mut |_| ControlFlow::Continue(());
    let (mut alone, info) = runner::cpu::open(&source, &config, Cpu::new(ranks, isa), progress).unwrap();
    let config = EngineOptions { tensor_parallel_size: ranks, ..config };
    let (mut together, _) = runner::cpu::open_ranks(&source, &config, ranks, isa, progress).unwrap();

    println!("{}, {isa:?}: one rank of {ranks} threads, {ranks} ranks of one thread", shape.name);
    for rows in [1, 8, 32] {
        let mut of_one = Decode::new(&mut alone, &info.limits, rows);
        let mut of_many = Decode::new(&mut together, &info.limits, rows);
        let pair = |_| (of_one.step(&mut alone), of_many.step(&mut together));
        report(&format!("decode, batch {rows}"), (0..PASSES).map(pair).collect());
    }
    let pair = |_| (prefill(&mut alone, &info.limits), prefill(&mut together, &info.limits));
    report(&format!("prefill of {PREFILL_TOKENS}"), (0..7).map(pair).collect());
}

/// Medians of both, and the rate of the second as a share of that of the first: the median over pairs.
fn report(what: &str, pairs: Vec<(Duration, Duration)>) {
    let median = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let (one, many) = pairs.iter().map(|&(one, many)| (ms(one), ms(many))).unzip();
    let share = median(pairs.iter().map(|(one, many)| ms(*one) / ms(*many)).collect());
    println!("{what:16} {:8.2} ms {:8.2} ms  {:4.0} % of the rate", median(one), median(many), 100.0 * share);
}

struct Decode {
    sequences: Vec<Sequence>,
    batch: Batch,
    limits: BatchLimits,
}

impl Decode {
    /// Sequences of [`CONTEXT`] tokens whose prompts are computed.
    fn new(runner: &mut impl Runner, limits: &BatchLimits, rows: usize) -> Decode {
        let blocks = ((CONTEXT + PASSES) / limits.block_size + 1) as u32;
        let mut decode = Decode { sequences: Vec::new(), batch: Batch::with_limits(limits), limits: *limits };
        for row in 0..rows as u32 {
            let mut sequence = Sequence::new(&prompt(CONTEXT), row * blocks..(row + 1) * blocks);
            decode.batch.clear();
            sequence.bring(CONTEXT, limits, &mut decode.batch);
            sequence.tokens.extend(driver::pass(runner, &decode.batch));
            decode.sequences.push(sequence);
        }
        decode
    }

    fn step(&mut self, runner: &mut impl Runner) -> Duration {
        let begun = Instant::now();
        self.batch.clear();
        for sequence in &mut self.sequences {
            sequence.bring(1, &self.limits, &mut self.batch);
        }
        for (sequence, token) in self.sequences.iter_mut().zip(driver::pass(runner, &self.batch)) {
            sequence.tokens.push(token);
        }
        begun.elapsed()
    }
}

fn prefill(runner: &mut impl Runner, limits: &BatchLimits) -> Duration {
    let mut sequence = Sequence::new(&prompt(PREFILL_TOKENS), 0..(PREFILL_TOKENS / limits.block_size + 1) as u32);
    let mut batch = Batch::with_limits(limits);
    sequence.bring(PREFILL_TOKENS, limits, &mut batch);
    let begun = Instant::now();
    driver::pass(runner, &batch);
    begun.elapsed()
}

fn prompt(len: usize) -> Vec<TokenId> {
    (0..len as u32).map(|i| 3 + i * 7919 % 90).collect()
}
