//! Throughput of the engine on a GPU, from requests to tokens.
//!
//! ```text
//! cargo bench --bench throughput -- [shape] [folder] [graphs|eager|invariant|gathered|int8|prefill|long|shared-prefix] [max_batched_tokens] [ranks ...]
//! ```
//!
//! Shapes are qwen3-0.6b, qwen3-8b, qwen3-32b, qwen3-30b-a3b, qwen3.5-0.8b, qwen3.5-9b, llama3-8b, llama3-70b, gemma3-4b, gemma4-12b, phi4-mini and bge-m3, an encoder, of which texts are measured;
//! `BENCH_LAYERS` gives them another number of layers. `folder` receives a random bf16 checkpoint
//! of the shape, 1.2 GB for qwen3-0.6b, 16.4 GB for qwen3-8b, 65.5 GB for qwen3-32b and 141 GB for llama3-70b, unless it holds one
//! already or is a GGUF file. `int8` keeps keys and values in int8. `gathered` divides projections by outputs where ranks would divide sums. `prefill`
//! measures prompts alone, long ones too, and `long` one sequence of 512 and of 32,000 tokens. `shared-prefix` measures 256 requests of 2,048 common and 64 own tokens, with keys that are
//! read once for all rows and without. `max_batched_tokens` 0 is the default. `BENCH_GPU_MEMORY` and `BENCH_SEQS` are
//! `gpu_memory_bytes` and `max_num_seqs` of the engine.
//! With `BENCH_BATCHES`, such as `1,32`, decode steps of these batches after 512 tokens are measured and nothing else. For each number of `ranks`, as many GPUs compute
//! together. With `BENCH_BRIEF` in the environment the engine is opened once and the 256 requests are computed once. Random weights
//! take as long as trained ones if end tokens are ignored. Where `nvidia-smi` is found, lines end with the median of its SM clock and power.

#[path = "../decode/checkpoint.rs"]
#[allow(dead_code)]
mod checkpoint;
mod power;

use base::TokenId;
use base::error::Result;
use base::log::{self, Level};
use checkpoint::Shape;
use compute::batch::{Batch, BlockId, Sampled};
use engine::options::PrefixCache;
use engine::sampling_params::{Eos, Pooling, SamplingParams};
use engine::{Budget, Engine, EngineLimits, Prompt};
use formats::source::Source;
use power::Watch;
use runner::options::EngineOptions;
use runner::{Device, KvCacheDtype, Launching, Loaded, Rounding, Runner, SharedPrefixes, Sums, Switches};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Prompt and output lengths of 256 requests: two draws of Python's `randint(100, 1024)` with seed 0, as nano-vLLM's bench
/// makes them.
const LENGTHS: &str = include_str!("lengths.csv");
/// Prompt lengths and batch sizes of decode steps.
const DECODE: [(usize, &[usize]); 2] = [(512, &[1, 8, 32, 64, 128, 256]), (224, &[64, 256])];
const SHARED_PREFIX: usize = 2048;
const DECODE_STEPS: usize = 60;

thread_local! {
    /// Time that runners spent waiting for the device, on this thread.
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// A runner that notes how long the host waits for it.
struct Timed(Box<dyn Runner>);

impl Runner for Timed {
    fn submit(&mut self, batch: &Batch) -> Result<()> {
        self.0.submit(batch)
    }

    fn collect(&mut self, deadline: Option<Instant>) -> Result<Option<Sampled<'_>>> {
        let begun = Instant::now();
        let tokens = self.0.collect(deadline);
        WAITED.set(WAITED.get() + begun.elapsed());
        tokens
    }

    fn depth(&self) -> usize {
        self.0.depth()
    }

    fn stages(&self) -> usize {
        self.0.stages()
    }

    fn pass_time(&self) -> Duration {
        self.0.pass_time()
    }

    fn read_blocks(&mut self, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        self.0.read_blocks(blocks, to)
    }

    fn write_blocks(&mut self, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        self.0.write_blocks(blocks, from)
    }

    fn release_blocks(&mut self, unused: &[bool]) -> Result<u64> {
        self.0.release_blocks(unused)
    }

    fn restore_blocks(&mut self, blocks: &[BlockId]) -> Result<()> {
        self.0.restore_blocks(blocks)
    }

    fn kv_bytes_mapped(&self) -> u64 {
        self.0.kv_bytes_mapped()
    }
}

fn main() {
    // Cargo adds `--bench` to what the user gave.
    let mut given = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let shape = Shape::named(&given.next().unwrap_or("qwen3-0.6b".into()));
    let folder =
        given.next().map_or_else(|| std::env::temp_dir().join(format!("nanovllm-{}", shape.name)), PathBuf::from);
    let mode = given.next();
    let (launching, rounding) = match mode.as_deref() {
        Some("eager" | "prefill") => (Launching::Eager, Rounding::Fastest),
        Some("invariant") => (Launching::Graphs, Rounding::BatchInvariant),
        _ => (Launching::Graphs, Rounding::Fastest),
    };
    let kv_cache_dtype = match mode.as_deref() {
        Some("int8") => KvCacheDtype::Int8,
        _ => KvCacheDtype::Auto,
    };
    let sums = (mode.as_deref() == Some("gathered")).then_some(Sums::Gathered);
    let max_batched_tokens = given.next().map(|tokens| tokens.parse().unwrap()).filter(|&tokens| tokens > 0);
    let ranks: Vec<usize> = given.map(|ranks| ranks.parse().unwrap()).collect();
    let begun = Instant::now();
    if folder.extension().is_none_or(|extension| extension != "gguf") {
        checkpoint::write_if_absent(&shape, &folder);
    }
    println!("checkpoint after          {:9.0} ms", ms(begun.elapsed()));
    for ranks in if ranks.is_empty() { vec![1] } else { ranks } {
        println!(
            "{}, {launching:?}, {rounding:?}, KV cache {kv_cache_dtype:?}, {ranks} GPUs{}",
            shape.name,
            sums.map_or("", |_| ", gathered")
        );
        let config = EngineOptions { kv_cache_dtype, ..config(launching, rounding, max_batched_tokens, ranks) };
        let switches = Switches { sums, ..Switches::NONE };
        if shape.is_encoder() {
            texts(&shape, &mut open(&folder, &switches, &config).unwrap());
            continue;
        }
        if mode.as_deref() == Some("shared-prefix") {
            for (shared_prefixes, dtype) in [
                (SharedPrefixes::Never, KvCacheDtype::Auto),
                (SharedPrefixes::WhereItPays, KvCacheDtype::Auto),
                (SharedPrefixes::Never, KvCacheDtype::Int8),
                (SharedPrefixes::WhereItPays, KvCacheDtype::Int8),
            ] {
                println!("shared prefixes {shared_prefixes:?}, KV cache {dtype:?}");
                with_a_shared_prefix(
                    &folder,
                    &Switches { shared_prefixes, ..switches },
                    &EngineOptions { kv_cache_dtype: dtype, ..config.clone() },
                );
            }
        } else if mode.as_deref() == Some("prefill") {
            let mut engine =
                open(&folder, &switches, &EngineOptions { max_model_len: Some(32_768), ..config }).unwrap();
            first_tokens(&mut engine, &[128, 1024]);
            prefill(&mut engine, &shape, &[(16, 1024), (2, 8192), (1, 32_000)]);
        } else if mode.as_deref() == Some("long") {
            let options = EngineOptions { max_model_len: Some(32_768), max_num_seqs: Some(8), ..config };
            let mut engine = open(&folder, &switches, &options).unwrap();
            for prompt in [512, 32_000] {
                println!("decode, batch   1 after {prompt:6} {:8.3} ms per step", ms(decode(&mut engine, 1, prompt).0));
            }
        } else {
            measure(&shape, &folder, &switches, &config);
        }
    }
}

fn config(launching: Launching, rounding: Rounding, max_batched_tokens: Option<usize>, ranks: usize) -> EngineOptions {
    EngineOptions {
        device: Device::Cuda { index: 0 },
        max_model_len: Some(4096),
        max_batched_tokens,
        launching,
        rounding,
        gpu_memory_bytes: std::env::var("BENCH_GPU_MEMORY").ok().map(|bytes| bytes.parse().expect("bytes")),
        max_num_seqs: std::env::var("BENCH_SEQS").ok().map(|rows| rows.parse().expect("sequences")),
        tensor_parallel_size: ranks,
        ..EngineOptions::new("")
    }
}

fn measure(shape: &Shape, folder: &Path, switches: &Switches, config: &EngineOptions) {
    let open = |folder: &Path| open(folder, switches, config);
    log::set_max_level(Some(Level::Debug));
    let rounds = if std::env::var_os("BENCH_BRIEF").is_some() { 1 } else { 2 };

    let mut opened_last = None;
    for _ in 0..rounds {
        // Two engines do not fit.
        drop(opened_last.take());
        let begun = Instant::now();
        let mut engine = match open(folder) {
            Ok(engine) => engine,
            Err(error) => {
                println!("{error}");
                return;
            }
        };
        let opened = begun.elapsed();
        add(&mut engine, 1, 128, 1);
        finish(&mut engine);
        println!("open / to first token     {:9.0} ms / {:.0} ms", ms(opened), ms(begun.elapsed()));
        while let Some((_, message)) = log::pop() {
            println!("    {message}");
        }
        opened_last = Some(engine);
    }
    log::set_max_level(None);

    let mut engine = opened_last.expect("it was opened at least once");
    let info = engine.handle().model_info();
    println!("KV cache                  {:9} blocks, {:.1} GB", info.num_kv_blocks, info.kv_cache_bytes as f64 / 1e9);
    let watch = Watch::begin();
    if let Ok(batches) = std::env::var("BENCH_BATCHES") {
        for rows in batches.split(',') {
            print_decode(&mut engine, shape, rows.parse().expect("a batch size"), 512, &watch);
        }
        return;
    }
    first_tokens(&mut engine, &[128, 1024]);
    for (prompt, rows) in
        DECODE.into_iter().flat_map(|(prompt, batches)| batches.iter().map(move |rows| (prompt, *rows)))
    {
        print_decode(&mut engine, shape, rows, prompt, &watch);
    }
    prefill(&mut engine, shape, &[(16, 1024)]);
    for _ in 0..rounds {
        watch.since_last();
        requests(&mut engine);
        println!("    SM clock and power{}", watch.since_last());
    }
}

/// Measures decode steps and prints their median.
fn print_decode(engine: &mut Engine, shape: &Shape, rows: usize, prompt: usize, watch: &Watch) {
    let (step, host) = decode(engine, rows, prompt);
    println!(
        "decode, batch {rows:3} after {prompt:3} {:8.3} ms per step, {:8.0} tok/s, host {:.0} us per step, weights at {:.0} GB/s{}",
        ms(step),
        rows as f64 / step.as_secs_f64(),
        1e3 * ms(host),
        shape.weight_bytes() as f64 / step.as_secs_f64() / 1e9,
        watch.since_last()
    );
}

/// The median time from a prompt to its first token.
fn first_tokens(engine: &mut Engine, prompts: &[usize]) {
    for &prompt in prompts {
        let times = (0..7).map(|i| {
            let begun = Instant::now();
            add(engine, 1, prompt + i, 1);
            finish(engine);
            begun.elapsed()
        });
        println!("first token, prompt {prompt:5} {:9.2} ms", ms(median(times.collect())));
    }
}

/// The median time of some prompts at once, each of these numbers of prompts and of tokens.
fn prefill(engine: &mut Engine, shape: &Shape, prompts: &[(usize, usize)]) {
    let flops_of_token = 2.0 * shape.body_parameters() as f64;
    for &(rows, tokens) in prompts {
        let times = (0..4).map(|_| {
            let begun = Instant::now();
            add(engine, rows, tokens, 1);
            finish(engine);
            begun.elapsed()
        });
        let took = median(times.collect());
        let name = format!("prefill of {rows} x {tokens}");
        let rate = (rows * tokens) as f64 / took.as_secs_f64();
        println!(
            "{name:<25} {:9.1} ms, {rate:.0} tok/s, {:.0} TFLOP/s in layers",
            ms(took),
            flops_of_token * rate / 1e12
        );
    }
}

/// The median time of 1,024 texts of 128 tokens.
fn texts(shape: &Shape, engine: &mut Engine) {
    const TEXTS: usize = 1024;
    const TOKENS: usize = 128;
    let texts: Vec<Vec<TokenId>> = (0..TEXTS)
        .map(|text| (0..TOKENS).map(|i| ((i * 7919 + text * 104_729) % 8000 + 4) as TokenId).collect())
        .collect();
    let prompts: Vec<Prompt> = texts.iter().map(|tokens| Prompt::Tokens(tokens)).collect();
    let params = vec![SamplingParams { pooling: Pooling::First, ..SamplingParams::default() }; TEXTS];
    let times = (0..5).map(|_| {
        let begun = Instant::now();
        engine.generate(&prompts, &params, &mut |_| ControlFlow::Continue(())).unwrap();
        begun.elapsed()
    });
    let took = median(times.collect()).as_secs_f64();
    let tokens = (TEXTS * TOKENS) as f64 / took;
    println!(
        "{TEXTS} texts of {TOKENS} tokens {:9.1} ms, {tokens:.0} tok/s, {:.0} TFLOP/s",
        1e3 * took,
        2.0 * shape.body_parameters() as f64 * tokens / 1e12
    );
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn open(folder: &Path, switches: &Switches, config: &EngineOptions) -> Result<Engine> {
    open_with(folder, switches, config, PrefixCache::Off)
}

fn open_with(folder: &Path, switches: &Switches, config: &EngineOptions, prefix_cache: PrefixCache) -> Result<Engine> {
    let Loaded { runner, info } =
        runner::load_with(switches, &Source::open(folder)?, config, &mut |_| ControlFlow::Continue(()))?;
    let limits = EngineLimits { max_queue: None, prefix_cache, seed: 1 };
    Ok(Engine::with_runner(Loaded { runner: Box::new(Timed(runner)), info }, limits))
}

fn params(output: usize) -> SamplingParams {
    SamplingParams { max_tokens: Some(output as u32), temperature: 0.6, eos: Eos::Ignored, ..SamplingParams::default() }
}

/// Adds requests of `prompt` tokens that ask for `output` each.
fn add(engine: &mut Engine, requests: usize, prompt: usize, output: usize) {
    for request in 0..requests {
        let tokens: Vec<TokenId> = (0..prompt).map(|i| ((i * 7919 + request * 104_729) % 8000) as TokenId).collect();
        engine.handle().add_request(Prompt::Tokens(&tokens), params(output)).unwrap();
    }
}

/// Steps until all requests have ended, and counts their tokens.
fn finish(engine: &mut Engine) -> usize {
    let mut tokens = 0;
    while !engine.handle().is_finished() {
        engine.step(Budget::OnePass).unwrap();
        while let Some(output) = engine.next_output() {
            tokens += output.token_ids.len();
        }
    }
    tokens
}

/// The median time of a decode step after prompts of `prompt` tokens, and the part of it in which the host works.
fn decode(engine: &mut Engine, rows: usize, prompt: usize) -> (Duration, Duration) {
    add(engine, rows, prompt, DECODE_STEPS + 40);
    // Until all prompts are computed, and a little on.
    let mut steps_since_prompts = 0;
    while steps_since_prompts < 5 {
        let report = engine.step(Budget::OnePass).unwrap();
        steps_since_prompts =
            if report.prefill_tokens + report.waiting as u32 > 0 { 0 } else { steps_since_prompts + 1 };
        while engine.next_output().is_some() {}
    }
    let steps = (0..DECODE_STEPS).map(|_| {
        let (begun, waited) = (Instant::now(), WAITED.get());
        engine.step(Budget::OnePass).unwrap();
        while engine.next_output().is_some() {}
        let took = begun.elapsed();
        (took, took - (WAITED.get() - waited))
    });
    let (steps, host) = steps.unzip();
    finish(engine);
    (median(steps), median(host))
}

/// Requests with `SHARED_PREFIX` tokens in common, which an earlier request computed, and 64 of their own.
fn with_a_shared_prefix(folder: &Path, switches: &Switches, config: &EngineOptions) {
    let mut engine = open_with(folder, switches, config, PrefixCache::On).unwrap();
    let token = |i: usize| ((i * 7919) % 8000) as TokenId;
    let prefix: Vec<TokenId> = (0..SHARED_PREFIX).map(token).collect();
    engine.handle().add_request(Prompt::Tokens(&prefix), params(2)).unwrap();
    finish(&mut engine);
    let mut request = 0;
    for requests in [8, 16, 64, 256, 256, 256] {
        let begun = Instant::now();
        let before = engine.handle().stats();
        for _ in 0..requests {
            request += 1;
            let own = (0..64).map(|i| ((i * 31 + request * 104_729) % 8000) as TokenId);
            let prompt: Vec<TokenId> = prefix.iter().copied().chain(own).collect();
            engine.handle().add_request(Prompt::Tokens(&prompt), params(128)).unwrap();
        }
        let (mut steps, mut host) = (Vec::new(), Vec::new());
        let mut tokens = 0;
        while !engine.handle().is_finished() {
            let (begun, waited) = (Instant::now(), WAITED.get());
            let report = engine.step(Budget::OnePass).unwrap();
            while let Some(output) = engine.next_output() {
                tokens += output.token_ids.len();
            }
            if report.prefill_tokens == 0 {
                steps.push(begun.elapsed());
                host.push(begun.elapsed() - (WAITED.get() - waited));
            }
        }
        let (took, after) = (begun.elapsed(), engine.handle().stats());
        println!(
            "{requests:3} x ({SHARED_PREFIX} + 64), 128 out {:7.3} s, {:.0} output tok/s, {:.3} ms per decode step, host {:.0} us per step, {} tokens from the prefix cache",
            took.as_secs_f64(),
            tokens as f64 / took.as_secs_f64(),
            ms(median(steps)),
            1e3 * ms(median(host)),
            after.prefix_cache.hits - before.prefix_cache.hits,
        );
    }
}

/// nano-vLLM's bench.
fn requests(engine: &mut Engine) {
    let lengths = LENGTHS.lines().skip(1).map(|line| {
        let (prompt, output) = line.split_once(',').unwrap();
        (prompt.parse::<usize>().unwrap(), output.parse::<usize>().unwrap())
    });
    let begun = Instant::now();
    let waited = WAITED.get();
    let (mut prompts, mut outputs) = (0, 0);
    for (prompt, output) in lengths {
        add(engine, 1, prompt, output);
        (prompts, outputs) = (prompts + prompt, outputs + output);
    }
    let before = engine.handle().stats();
    let tokens = finish(engine);
    assert_eq!(tokens, outputs, "every request gets its tokens");
    let took = begun.elapsed();
    let after = engine.handle().stats();
    println!(
        "256 requests              {:9.2} s, {:.0} output tok/s ({prompts} prompt and {outputs} output tokens, {} passes, device {:.2} s, host {:.2} s, {} preemptions)",
        took.as_secs_f64(),
        outputs as f64 / took.as_secs_f64(),
        after.steps - before.steps,
        (after.step_time_us - before.step_time_us) as f64 / 1e6,
        (took - (WAITED.get() - waited)).as_secs_f64(),
        after.preemptions - before.preemptions,
    );
}
