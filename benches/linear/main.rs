//! How fast are linear layers of the Qwen3-0.6B shape, compared with the ceilings of the machine?
//!
//! `cargo bench --bench linear [-- [THREADS] [ISA]]`. The ceilings are measured in the same run: reading memory from end to end,
//! and multiply-adds in registers. Weights are bf16 and are read from memory, not from a cache. Times are medians; the
//! minimum is printed too, because it is more reliable on a shared machine.

mod ceilings;

use ceilings::Unit;
use memmap2::Mmap;
use nanovllm::backend::cpu::{Cpu, Isa, Pool};
use nanovllm::backend::{Backend, Coding, HostBytes, HostMatrix};
use nanovllm::ops;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A layer and its place in the model.
struct Layer {
    name: &'static str,
    inputs: usize,
    outputs: usize,
    /// How often a decode step computes it.
    times: usize,
}

const LAYERS: [Layer; 5] = [
    Layer { name: "qkv", inputs: 1024, outputs: 4096, times: 28 },
    Layer { name: "o", inputs: 2048, outputs: 1024, times: 28 },
    Layer { name: "gate_up", inputs: 1024, outputs: 6144, times: 28 },
    Layer { name: "down", inputs: 3072, outputs: 1024, times: 28 },
    Layer { name: "lm_head", inputs: 1024, outputs: 151_936, times: 1 },
];

const BATCHES: [usize; 6] = [1, 4, 8, 16, 64, 512];

/// Bytes of weights in all, far beyond any cache; small layers take turns in it.
const WEIGHT_BYTES: usize = 320 << 20;

fn main() {
    let threads = std::env::args().find_map(|arg| arg.parse().ok());
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let weights = weights();
    let pool = Pool::new(threads);
    println!("{threads} threads; bf16 weights");
    let wanted = |isa: &&Isa| !Isa::available().iter().any(|i| asked(i.name())) || asked(isa.name());
    for isa in Isa::available().iter().filter(wanted) {
        let read = ceilings::read_gbps(&pool, &weights);
        println!("\n{}: streaming read {read:.1} GB/s", isa.name());
        for unit in Unit::of(*isa) {
            println!("{}: {} {:.0} GFLOP/s", isa.name(), unit.name(), ceilings::gflops(&pool, unit));
        }
        let most = if *isa == Isa::Portable { 8 } else { 512 };
        let cpu = &mut Cpu::new(threads, *isa);
        for layer in &LAYERS {
            for tokens in BATCHES.into_iter().filter(|&tokens| tokens <= most) {
                let (seconds, best) = median_and_best_seconds(cpu, layer, tokens, &weights);
                let numbers = (layer.inputs * layer.outputs) as f64;
                let (gbps, gflops) = (2e-9 * numbers / seconds, 2e-9 * numbers * tokens as f64 / seconds);
                let Layer { name, inputs, outputs, .. } = layer;
                println!(
                    "{:10} {name:8} {inputs:5} -> {outputs:6}  M {tokens:3}  {:9.3} ms (best {:9.3})  {gbps:6.1} GB/s ({:3.0} % of read)  {gflops:7.1} GFLOP/s",
                    isa.name(),
                    seconds * 1e3,
                    best * 1e3,
                    100.0 * gbps / read
                );
            }
        }
        if *isa != Isa::Portable {
            step(cpu, &weights);
        }
    }
}

/// Whether an argument of the command line is `word`.
fn asked(word: &str) -> bool {
    std::env::args().any(|arg| arg == word)
}

/// All linear layers of a step at once: batch 1 against batch 16, and batch 1 beside a busy process.
fn step(cpu: &mut Cpu, weights: &Arc<Mmap>) {
    let mut seconds = |tokens: usize| -> f64 {
        LAYERS.iter().map(|layer| layer.times as f64 * median_and_best_seconds(cpu, layer, tokens, weights).0).sum()
    };
    let (one, sixteen) = (seconds(1), seconds(16));
    println!("linear layers of a step: batch 1 {:.1} ms, batch 16 {:.1} ms", one * 1e3, sixteen * 1e3);
    println!("batch 16 makes {:.1} times the tokens of batch 1", 16.0 * one / sixteen);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let beside = seconds(1);
        println!("batch 1 beside a busy thread: {:.0} % of its speed", 100.0 * one / beside);
        ended.store(true, Ordering::Relaxed);
    });
}

/// Random bf16 numbers from -2 to 2, as a mapped file would be.
fn weights() -> Arc<Mmap> {
    let mut state = 1u64;
    let mut map = memmap2::MmapMut::map_anon(WEIGHT_BYTES).expect("memory for the weights");
    for pair in map.as_chunks_mut::<4>().0 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A sign, an exponent that is below 2, and a mantissa.
        let bits = (state >> 32) as u32 & 0x80ff_80ff | 0x3f00_3f00;
        *pair = bits.to_le_bytes();
    }
    Arc::new(map.make_read_only().expect("a read-only mapping"))
}

/// The layer's weights at the `turn`-th place of all.
fn matrix(layer: &Layer, weights: &Arc<Mmap>, turn: usize) -> HostMatrix {
    let bytes = layer.inputs * layer.outputs * 2;
    let start = turn % (WEIGHT_BYTES / bytes) * bytes;
    HostMatrix::new(HostBytes::mapped(weights.clone(), start..start + bytes), Coding::Bf16, layer.outputs, layer.inputs)
}

fn median_and_best_seconds(cpu: &mut Cpu, layer: &Layer, tokens: usize, weights: &Arc<Mmap>) -> (f64, f64) {
    let matrices: Vec<_> = (0..WEIGHT_BYTES / (layer.inputs * layer.outputs * 2))
        .map(|turn| cpu.matrix(&[matrix(layer, weights, turn)]).expect("a matrix"))
        .collect();
    let mut x = cpu.tensor(tokens, layer.inputs).expect("memory for x");
    let mut out = cpu.tensor(tokens, layer.outputs).expect("memory for the result");
    x.set_rows(tokens);
    out.set_rows(tokens);
    x.values_mut().iter_mut().enumerate().for_each(|(i, v)| *v = (i % 7) as f32 - 3.0);
    let mut times = Vec::new();
    let begin = Instant::now();
    for turn in 0.. {
        let start = Instant::now();
        ops::linear(cpu, &mut out, &x, &matrices[turn % matrices.len()], None, 0..layer.outputs);
        times.push(start.elapsed().as_secs_f64());
        if times.len() >= 3 && begin.elapsed() > Duration::from_millis(250) {
            break;
        }
    }
    times.sort_by(f64::total_cmp);
    (times[times.len() / 2], times[0])
}
