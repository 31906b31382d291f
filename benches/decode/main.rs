//! Decode, prefill and start-up of a whole model on the CPU, compared with the memory bandwidth of the machine.
//!
//! ```text
//! cargo bench --bench decode -- [shape] [folder | file.gguf] [threads] [brief | parts]
//! ```
//!
//! `folder` receives a random bf16 checkpoint of the shape, 1.2 GB for qwen3-0.6b, unless it holds one already. A GGUF file is there and has
//! that shape; `BENCH_LAYERS=8` in the environment says that it has 8 layers. `brief` leaves out what takes long and compares no two
//! codings: batches, frames and the ceiling of the vector unit. `parts`, as in `1,16,prefill` or `1x400`, are batches, with their steps if they
//! are not 24, and the prompt, each measured alone.

#[path = "../linear/ceilings.rs"]
mod ceilings;
#[allow(dead_code)] // the bench of throughput shares it
mod checkpoint;
#[path = "../../tests/driver/mod.rs"]
mod driver;
#[path = "../../tests/tree/mod.rs"]
mod tree;

use base::TokenId;
use ceilings::Unit;
use checkpoint::Shape;
use compute::batch::{Batch, BatchLimits};
use compute::cpu::{Cpu, Isa, Pool};
use driver::{Sequence, pass};
use formats::source::Source;
use os::Files;
use runner::options::EngineOptions;
use runner::pass_runner::PassRunner;
use runner::{Device, Loading, ModelInfo, Runner};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

const CONTEXT: usize = 128;
const BATCHES: [usize; 4] = [1, 8, 16, 32];
/// Steps whose median is taken.
const STEPS: usize = 24;
const PREFILL_TOKENS: usize = 512;
const FRAME: Duration = Duration::from_micros(16_667);
const FRAME_BUDGET: Duration = Duration::from_millis(4);
const FRAMES: usize = 180;

fn main() {
    // Cargo adds `--bench` to what the user gave.
    let mut given = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let shape = Shape::named(&given.next().unwrap_or("qwen3-0.6b".into()));
    let folder =
        given.next().map_or_else(|| std::env::temp_dir().join(format!("nanovllm-{}", shape.name)), PathBuf::from);
    let threads = given.next().map_or_else(|| thread::available_parallelism().unwrap().get(), |n| n.parse().unwrap());
    let parts = given.next();
    let brief = parts.as_deref() == Some("brief");
    let is_gguf = folder.extension().is_some_and(|extension| extension == "gguf");
    if !is_gguf {
        checkpoint::write_if_absent(&shape, &folder);
    }
    let isa = Isa::detect().unwrap();
    println!("{}, {}, {threads} threads, {isa:?}", shape.name, folder.display());

    let read_gbps = || {
        let file = if is_gguf { folder.clone() } else { folder.join("model.safetensors") };
        let file = Files::OnDisk.load(&file, Loading::Map, 0).unwrap();
        ceilings::read_gbps(&Pool::new(threads), &file)
    };
    if let Some(parts) = parts.filter(|_| !brief) {
        return only(&parts, open(&shape, &folder, threads, isa, Room::MANY));
    }
    let before = read_gbps();
    start_up(&shape, &folder, threads, isa);

    let (mut runner, info) = open(&shape, &folder, threads, isa, Room::MANY);
    let weight_bytes = info.weight_bytes as f64;
    let mut alone = 0.0;
    let mut lines = Vec::new();
    for rows in BATCHES.into_iter().filter(|&rows| rows == 1 || !brief) {
        let step = decode(&mut runner, &info.limits, rows, STEPS);
        let rate = rows as f64 / step.as_secs_f64();
        alone = if rows == 1 { rate } else { alone };
        lines.push((rows, step, rate));
    }
    // The best of two moments: other programs may have taken some of it.
    let bandwidth = f64::max(before, read_gbps());
    println!("streaming read           {bandwidth:7.1} GB/s");
    for (rows, step, rate) in lines {
        let share = 1e-9 * weight_bytes / step.as_secs_f64() / bandwidth;
        println!(
            "decode, batch {rows:2}         {rate:7.1} tok/s  {:6.2} ms  weights at {:3.0} % of the read bandwidth  {:4.1} x batch 1",
            ms(step),
            100.0 * share,
            rate / alone
        );
    }
    let took = prefill(&mut runner, &info.limits);
    let rate = PREFILL_TOKENS as f64 / took.as_secs_f64();
    let gflops = 2e-9 * shape.body_parameters() as f64 * rate;
    println!("prefill of {PREFILL_TOKENS}           {rate:7.1} tok/s  {:6.1} ms  {gflops:.0} GFLOP/s", ms(took));
    if brief {
        return;
    }
    for unit in Unit::of(isa) {
        let ceiling = ceilings::gflops(&Pool::new(threads), unit);
        println!("  {}: {ceiling:.0} GFLOP/s, of which that is {:.0} %", unit.name(), 100.0 * gflops / ceiling);
    }
    frames(&mut runner, &info.limits);
}

/// The parts that `parts` names, one after the other: for comparisons by turns, and for profilers.
fn only(parts: &str, (mut runner, info): (PassRunner<Cpu>, ModelInfo)) {
    for part in parts.split(',') {
        let (tokens, took) = match part {
            "prefill" => (PREFILL_TOKENS, prefill(&mut runner, &info.limits)),
            batch => {
                let (rows, steps) =
                    batch.split_once('x').map_or((batch, STEPS), |(rows, steps)| (rows, steps.parse().unwrap()));
                let rows = rows.parse().unwrap();
                (rows, decode(&mut runner, &info.limits, rows, steps))
            }
        };
        println!("{part:>7} {:8.1} tok/s", tokens as f64 / took.as_secs_f64());
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// What the cache has room for.
struct Room {
    kv_tokens: usize,
    sequences: usize,
}

impl Room {
    const MANY: Room = Room { kv_tokens: 64 * 1024, sequences: 64 };
}

fn open(shape: &Shape, folder: &Path, threads: usize, isa: Isa, room: Room) -> (PassRunner<Cpu>, ModelInfo) {
    let Room { kv_tokens, sequences } = room;
    let config = EngineOptions {
        device: Device::Cpu,
        num_threads: Some(threads),
        max_model_len: Some(4096.min(kv_tokens)),
        max_num_seqs: (shape.state_bytes() > 0).then_some(sequences),
        max_batched_tokens: None,
        kv_cache_bytes: Some((kv_tokens * shape.kv_token_bytes() + sequences * shape.state_bytes()) as u64),
        ..EngineOptions::new("")
    };
    let source = Source::open(folder).unwrap();
    runner::cpu::open(&source, &config, Cpu::new(threads, isa), &mut |_| ControlFlow::Continue(())).unwrap()
}

fn prompt(len: usize) -> Vec<TokenId> {
    (0..len as u32).map(|i| 3 + i * 7919 % 90).collect()
}

/// Sequences of `CONTEXT` tokens whose prompts are computed, with blocks for `steps` more.
fn sequences(runner: &mut PassRunner<Cpu>, limits: &BatchLimits, rows: usize, steps: usize) -> Vec<Sequence> {
    let blocks = ((CONTEXT + steps) / limits.block_size + 1) as u32;
    let mut batch = Batch::with_limits(limits);
    (0..rows as u32)
        .map(|row| {
            let mut sequence = Sequence::new(&prompt(CONTEXT), row * blocks..(row + 1) * blocks).of(runner, row);
            batch.clear();
            sequence.bring(CONTEXT, limits, &mut batch);
            sequence.tokens.extend(pass(runner, &batch));
            sequence
        })
        .collect()
}

/// The median time of a decode step.
fn decode(runner: &mut PassRunner<Cpu>, limits: &BatchLimits, rows: usize, steps: usize) -> Duration {
    let mut sequences = sequences(runner, limits, rows, steps);
    let mut batch = Batch::with_limits(limits);
    let steps = (0..steps).map(|_| {
        let begun = Instant::now();
        batch.clear();
        for sequence in &mut sequences {
            sequence.bring(1, limits, &mut batch);
        }
        for (sequence, token) in sequences.iter_mut().zip(pass(runner, &batch)) {
            sequence.tokens.push(token);
        }
        begun.elapsed()
    });
    median(steps.collect())
}

/// The median time of one pass over a prompt.
fn prefill(runner: &mut PassRunner<Cpu>, limits: &BatchLimits) -> Duration {
    let passes = (0..5).map(|_| {
        let blocks = 0..(PREFILL_TOKENS / limits.block_size + 1) as u32;
        let mut sequence = Sequence::new(&prompt(PREFILL_TOKENS), blocks).of(runner, 0);
        let mut batch = Batch::with_limits(limits);
        sequence.bring(PREFILL_TOKENS, limits, &mut batch);
        let begun = Instant::now();
        pass(runner, &batch);
        begun.elapsed()
    });
    median(passes.collect())
}

/// From a warm file cache to the first token, and the most memory that 512 tokens needed.
fn start_up(shape: &Shape, folder: &Path, threads: usize, isa: Isa) {
    let begun = Instant::now();
    let (mut runner, info) = open(shape, folder, threads, isa, Room { kv_tokens: 512, sequences: 1 });
    let opened = begun.elapsed();
    let mut batch = Batch::with_limits(&info.limits);
    let mut sequence = Sequence::new(&prompt(511), 0..32).of(&runner, 0);
    sequence.bring(16, &info.limits, &mut batch);
    pass(&mut runner, &batch);
    let first = begun.elapsed();
    batch.clear();
    sequence.bring(sequence.pending(), &info.limits, &mut batch);
    pass(&mut runner, &batch);
    let (peak, private) = (memory_bytes("VmHWM:"), memory_bytes("RssAnon:"));
    println!("open / to first token    {:7.0} ms / {:.0} ms", ms(opened), ms(first));
    println!("peak RSS, 512-token KV   {:7.2} GB, {:.3} x the weights", peak / 1e9, peak / info.weight_bytes as f64);
    println!(
        "private memory           {:7.1} MB, {:.1} MB of it keys, values and states",
        private / 1e6,
        (512 * shape.kv_token_bytes() + shape.state_bytes()) as f64 / 1e6
    );
}

/// A line of the kernel's account of this process.
fn memory_bytes(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap() * 1024.0
}

/// A game that gives the model a slice of every frame.
fn frames(runner: &mut PassRunner<Cpu>, limits: &BatchLimits) {
    let mut sequence = sequences(runner, limits, 1, 64).pop().unwrap();
    let mut batch = Batch::with_limits(limits);
    let (mut calls, mut tokens, mut is_running) = (Vec::new(), 0, false);
    for _ in 0..FRAMES {
        let begun = Instant::now();
        let deadline = begun + FRAME_BUDGET;
        // As many passes as fit, the last of them left in the middle.
        while Instant::now() < deadline && sequence.tokens.len() < CONTEXT + 64 {
            if !is_running {
                batch.clear();
                sequence.bring(1, limits, &mut batch);
                runner.submit(&batch).unwrap();
            }
            let chosen = runner.collect(Some(deadline)).unwrap();
            is_running = chosen.is_none();
            let Some(chosen) = chosen else { break };
            sequence.tokens.extend(chosen.tokens);
            tokens += 1;
        }
        calls.push(begun.elapsed());
        thread::sleep(FRAME.saturating_sub(begun.elapsed()));
    }
    if is_running {
        runner.collect(None).unwrap();
    }
    calls.sort();
    let at = |share: f64| ms(calls[((calls.len() - 1) as f64 * share) as usize]);
    println!(
        "60 frames/s, {} ms each    {:.1} tok/s; ms in the call: median {:.2}, 90 % {:.2}, 99 % {:.2}, most {:.2}",
        FRAME_BUDGET.as_millis(),
        tokens as f64 / (FRAMES as f64 * FRAME.as_secs_f64()),
        at(0.5),
        at(0.9),
        at(0.99),
        at(1.0)
    );
}
