//! How fast are linear layers of the Qwen3-0.6B shape, compared with the ceilings of the machine?
//!
//! `cargo bench --bench linear [-- [THREADS] [ISA] [CODING]... [LAYER]... [one-row] [small-pages]]`. The ceilings are measured in the same run:
//! reading memory from end to end, and multiply-adds in registers. Weights are read from memory, not from a cache: bf16, then the codings by turns
//! with it. They lie in large pages where the system has them, unless `small-pages` is given. Times are medians; the minimum is printed too,
//! because it is more reliable on a shared machine.

mod ceilings;

use ceilings::Unit;
use compute::cpu::{Cpu, Isa, Pool};
use compute::ops;
use compute::{Device, HostMatrix, LayerInput};
use formats::{Block, Codes, Scaled, Scales, WeightFormat};
use memmap2::Mmap;
use os::HostBytes;
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

const BATCHES: [usize; 7] = [1, 4, 8, 16, 64, 512, 2048];

/// Codings beside bf16, by the names with which the command line asks for them.
const CODINGS: [(&str, WeightFormat); 9] = [
    ("f32", WeightFormat::F32),
    ("q8_0", WeightFormat::Block(Block::Q8_0)),
    ("q4_0", WeightFormat::Block(Block::Q4_0)),
    ("q4_k", WeightFormat::Block(Block::Q4K)),
    ("q5_k", WeightFormat::Block(Block::Q5K)),
    ("q6_k", WeightFormat::Block(Block::Q6K)),
    ("int8", WeightFormat::Scaled(Scaled { codes: Codes::I8, scales: Scales::F16, group: 32, zeros: false })),
    ("int4", WeightFormat::Scaled(Scaled { codes: Codes::U4, scales: Scales::F16, group: 128, zeros: false })),
    ("fp8", WeightFormat::Scaled(Scaled { codes: Codes::E4m3, scales: Scales::F32, group: 128, zeros: false })),
];

/// Time for a layer, a number of tokens and a coding.
const TIME: Duration = Duration::from_millis(150);

/// Bytes of weights in all, far beyond any cache; small layers take turns in it.
const WEIGHT_BYTES: usize = 320 << 20;

fn main() {
    let threads = std::env::args().find_map(|arg| arg.parse().ok());
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let weights = weights();
    let pool = Pool::new(threads);
    println!("{threads} threads");
    let named = CODINGS.iter().any(|(name, _)| asked(name));
    let codings: Vec<_> = std::iter::once(("bf16", WeightFormat::Bf16))
        .chain(CODINGS.into_iter().filter(|(name, _)| !named || asked(name)))
        .collect();
    let wanted = |isa: &&Isa| !Isa::available().iter().any(|i| asked(i.name())) || asked(isa.name());
    for isa in Isa::available().iter().filter(wanted) {
        let read = ceilings::read_gbps(&pool, &weights);
        println!("\n{}: streaming read {read:.1} GB/s", isa.name());
        for unit in Unit::of(*isa) {
            println!("{}: {} {:.0} GFLOP/s", isa.name(), unit.name(), ceilings::gflops(&pool, unit));
        }
        let most = if *isa == Isa::Portable { 8 } else { 2048 };
        let cpu = &mut Cpu::new(threads, *isa);
        let named = LAYERS.iter().any(|layer| asked(layer.name));
        for layer in LAYERS.iter().filter(|layer| !named || asked(layer.name)) {
            for tokens in BATCHES.into_iter().filter(|&tokens| tokens <= most && (tokens == 1 || !asked("one-row"))) {
                let times =
                    medians_and_bests(cpu, layer, tokens, &weights, &codings.iter().map(|c| c.1).collect::<Vec<_>>());
                let bf16 = times[0];
                let Layer { name, inputs, outputs, .. } = layer;
                println!("{:10} {name:8} {inputs:5} -> {outputs:6}  M {tokens:4}", isa.name());
                for ((coding_name, coding), (seconds, best)) in codings.iter().zip(times) {
                    let gbps = 1e-9 * matrix_bytes(layer, *coding) as f64 / seconds;
                    let gflops = 2e-9 * (inputs * outputs * tokens) as f64 / seconds;
                    println!(
                        "    {coding_name:5} {:9.3} ms (best {:9.3})  {gbps:6.1} GB/s ({:3.0} % of read)  {gflops:7.1} GFLOP/s  {:4.2} x bf16 (best {:4.2})",
                        seconds * 1e3,
                        best * 1e3,
                        100.0 * gbps / read,
                        bf16.0 / seconds,
                        bf16.1 / best,
                    );
                }
            }
        }
        if *isa != Isa::Portable && !named && !asked("one-row") {
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
        LAYERS
            .iter()
            .map(|layer| {
                layer.times as f64 * medians_and_bests(cpu, layer, tokens, weights, &[WeightFormat::Bf16])[0].0
            })
            .sum()
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

/// Random bf16 numbers from -2 to 2, as a mapped file would be. Read as codes with scales, they are finite numbers too.
fn weights() -> Arc<Mmap> {
    let mut state = 1u64;
    let mut map = memmap2::MmapMut::map_anon(WEIGHT_BYTES).expect("memory for the weights");
    #[cfg(target_os = "linux")]
    if !asked("small-pages") {
        let _ = map.advise(memmap2::Advice::HugePage);
    }
    for pair in map.as_chunks_mut::<4>().0 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A sign, an exponent that is below 2, and a mantissa.
        let bits = (state >> 32) as u32 & 0x80ff_80ff | 0x3f00_3f00;
        *pair = bits.to_le_bytes();
    }
    Arc::new(map.make_read_only().expect("a read-only mapping"))
}

/// Bytes of a layer's weights, with their scales.
fn matrix_bytes(layer: &Layer, coding: WeightFormat) -> usize {
    layer.outputs * (coding.row_bytes(layer.inputs) + coding.scale_bytes(layer.inputs))
}

/// The layer's weights at the `turn`-th place of all.
fn matrix(layer: &Layer, weights: &Arc<Mmap>, turn: usize, coding: WeightFormat) -> HostMatrix {
    let bytes = matrix_bytes(layer, coding);
    let start = turn % (WEIGHT_BYTES / bytes) * bytes;
    let scales = start + layer.outputs * coding.row_bytes(layer.inputs);
    let [codes, scales, zeros] =
        [start..scales, scales..start + bytes, start..start].map(|range| HostBytes::mapped(weights.clone(), range));
    HostMatrix::scaled(codes, scales, zeros, coding, layer.outputs, layer.inputs)
}

/// The median and the least number of seconds for each coding, all of which take turns.
fn medians_and_bests(
    cpu: &mut Cpu,
    layer: &Layer,
    tokens: usize,
    weights: &Arc<Mmap>,
    codings: &[WeightFormat],
) -> Vec<(f64, f64)> {
    let matrices: Vec<Vec<_>> = codings
        .iter()
        .map(|&coding| {
            let turns = 0..WEIGHT_BYTES / matrix_bytes(layer, coding);
            turns.map(|turn| cpu.matrix(&[matrix(layer, weights, turn, coding)]).expect("a matrix")).collect()
        })
        .collect();
    let mut x = cpu.tensor(tokens, layer.inputs).expect("memory for x");
    let mut out = cpu.tensor(tokens, layer.outputs).expect("memory for the result");
    x.set_rows(tokens);
    out.set_rows(tokens);
    x.values_mut().iter_mut().enumerate().for_each(|(i, v)| *v = (i % 7) as f32 - 3.0);
    let mut times = vec![Vec::new(); codings.len()];
    let begin = Instant::now();
    for turn in 0.. {
        for (times, matrices) in times.iter_mut().zip(&matrices) {
            let start = Instant::now();
            ops::linear(cpu, &mut out, LayerInput::new(&x, &matrices[turn % matrices.len()], None), 0..layer.outputs);
            times.push(start.elapsed().as_secs_f64());
        }
        if turn >= 2 && begin.elapsed() > TIME * codings.len() as u32 {
            break;
        }
    }
    let result = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        (times[times.len() / 2], times[0])
    };
    times.into_iter().map(result).collect()
}
