//! Attention of the Qwen3-0.6B shape, decode and prefill, compared with the ceilings measured in the same run.
//!
//! `cargo bench --bench attention [-- threads]`. Times are the minimum and the median of passes through eight layers, so that
//! the keys and values of a long context are read from memory and not from a cache. The rates are computed from the minimum,
//! which other processes disturb less.

#[path = "linear/ceilings.rs"]
mod ceilings;

use ceilings::{Unit, gflops, read_gbps};
use compute::batch::{Batch, BatchLimits, Sampling};
use compute::cpu::{Cpu, Isa, KvCache, Pool};
use compute::ops;
use compute::{AttentionSpec, Device, KvFormat, KvShape, KvValues, Tensor};
use formats::DType;
use std::hint::black_box;
use std::time::Instant;

const LAYERS: usize = 8;
const HEADS: usize = 16;
const SHAPE: KvShape = KvShape {
    kv_heads: 8,
    head_dim: 128,
    values: KvValues::Stored,
    block_size: 16,
    format: KvFormat::Plain(DType::Bf16),
};
const SPEC: AttentionSpec =
    AttentionSpec { heads: HEADS, scale: 0.088, window: None, softcap: None, reach: compute::Reach::Back };
const COLS: usize = (HEADS + 2 * SHAPE.kv_heads) * SHAPE.head_dim;

/// Rows of a batch, new tokens of each, tokens of its context, and the sliding window.
type Case = (usize, usize, usize, Option<usize>);

/// Pairs of cases that attend to as many keys, the second one at the end of a longer context: a sliding window costs no work outside
/// of it if their times are alike.
const WINDOWED: &[[Case; 2]] =
    &[[(1, 1, 1024, None), (1, 1, 16000, Some(1024))], [(1, 512, 1536, Some(1024)), (1, 512, 16000, Some(1024))]];

const CASES: &[Case] = &[
    (1, 1, 512, None),
    (1, 1, 4096, None),
    (1, 1, 16384, None),
    (1, 1, 16384, Some(4096)),
    (8, 1, 1024, None),
    (16, 1, 512, None),
    (1, 512, 512, None),
    (1, 128, 4096, None),
    (1, 128, 4096, Some(512)),
    (16, 128, 128, None),
];

fn main() {
    let threads = std::env::args().skip(1).find_map(|arg| arg.parse().ok());
    let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    {
        let pool = Pool::new(threads);
        println!("# {threads} threads; streaming read {:.1} GB/s", read_gbps(&pool, &vec![1; 256 << 20]));
        for unit in Isa::available().iter().flat_map(|isa| Unit::of(*isa)) {
            println!("# {}: {:.0} GFLOP/s", unit.name(), gflops(&pool, unit));
        }
    }
    println!("isa,rows,new_tokens,context,us_a_layer,us_median,kv_gb_s,gflop_s,window");
    for isa in Isa::available() {
        let mut cpu = Cpu::new(threads, *isa);
        for &(rows, new, context, window) in CASES {
            let spec = AttentionSpec { window, ..SPEC };
            let (us, median) = measure(&mut cpu, &spec, rows, new, context);
            let kv_bytes = rows * (context - spec.window_start(context - new)) * SHAPE.block_bytes() / SHAPE.block_size;
            let attended = |position| position + 1 - spec.window_start(position);
            let pairs = rows * (context - new..context).map(attended).sum::<usize>();
            let flop = 4 * SHAPE.head_dim * HEADS * pairs;
            let (gb_s, gflop_s) = (kv_bytes as f64 / us / 1e3, flop as f64 / us / 1e3);
            let window = window.map_or(String::new(), |window| window.to_string());
            println!("{},{rows},{new},{context},{us:.1},{median:.1},{gb_s:.1},{gflop_s:.1},{window}", isa.name());
        }
        for pair in WINDOWED {
            let (ratio, [near_us, far_us]) = compare(&mut cpu, pair);
            let [(_, new, near, _), (_, _, far, _)] = *pair;
            println!(
                "# {}, {new} new tokens, a window of 1024: {far_us:.1} us at {far}, {near_us:.1} us at {near}: {ratio:.2} times",
                isa.name()
            );
        }
    }
}

/// Microseconds of a layer: the least, and the median.
fn measure(cpu: &mut Cpu, spec: &AttentionSpec, rows: usize, new: usize, context: usize) -> (f64, f64) {
    let mut passes = Passes::new(cpu, rows, new, context);
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.len() < 3 || (begin.elapsed().as_millis() < 700 && times.len() < 200) {
        times.push(passes.next(cpu, spec));
    }
    (least(&times), median(times))
}

/// How many times longer the second case takes than the first, and the least microseconds of both. They take turns, so that other
/// processes disturb both alike.
fn compare(cpu: &mut Cpu, cases: &[Case; 2]) -> (f64, [f64; 2]) {
    let mut passes = cases.map(|(rows, new, context, _)| Passes::new(cpu, rows, new, context));
    let specs = cases.map(|(_, _, _, window)| AttentionSpec { window, ..SPEC });
    let mut times = [Vec::new(), Vec::new()];
    let begin = Instant::now();
    while times[0].len() < 5 || (begin.elapsed().as_millis() < 1500 && times[0].len() < 400) {
        for i in [0, 1] {
            times[i].push(passes[i].next(cpu, &specs[i]));
        }
    }
    let ratios = times[0].iter().zip(&times[1]).map(|(near, far)| far / near).collect();
    (median(ratios), [least(&times[0]), least(&times[1])])
}

fn least(times: &[f64]) -> f64 {
    times.iter().copied().fold(f64::INFINITY, f64::min)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// What passes over one batch read and write.
struct Passes {
    cache: KvCache,
    device_batch: <Cpu as Device>::DeviceBatch,
    qkv: Tensor<<Cpu as Device>::Storage>,
    out: Tensor<<Cpu as Device>::Storage>,
}

impl Passes {
    fn new(cpu: &mut Cpu, rows: usize, new: usize, context: usize) -> Passes {
        let width = context.div_ceil(SHAPE.block_size);
        let limits = BatchLimits {
            tokens: rows * new,
            rows,
            model_len: context,
            block_size: SHAPE.block_size,
            ..BatchLimits::NONE
        };
        let mut cache: KvCache = cpu.kv_cache(&SHAPE.layers(LAYERS), rows * width).unwrap();
        for layer in 0..LAYERS {
            for (i, number) in cache.layer_mut::<half::bf16>(layer).iter_mut().enumerate() {
                *number = half::bf16::from_bits(0x3f00 + (i * 7919 % 251) as u16);
            }
        }
        let mut batch = Batch::with_limits(&limits);
        for row in 0..rows {
            // Blocks from all over the cache.
            batch.block_tables.extend((0..width).map(|i| ((i * rows + row) * 769 % (rows * width)) as u32));
            batch.positions.extend((context - new..context).map(|position| position as u32));
            batch.token_ids.extend(std::iter::repeat_n(0, new));
            batch.slots.extend(std::iter::repeat_n(0, new));
            batch.row_starts.push(((row + 1) * new) as u32);
            batch.context_lens.push(context as u32);
            batch.sampled_tokens.push(batch.tokens() as u32 - 1);
            batch.sampling.push(Sampling::GREEDY);
        }
        let mut device_batch = cpu.device_batch(&limits).unwrap();
        cpu.upload(&mut device_batch, &batch).unwrap();
        let mut qkv = cpu.tensor(rows * new, COLS).unwrap();
        qkv.set_rows(rows * new);
        qkv.values_mut().iter_mut().enumerate().for_each(|(i, v)| *v = (i * 31 % 97) as f32 / 97.0 - 0.5);
        let mut out = cpu.tensor(rows * new, HEADS * SHAPE.head_dim).unwrap();
        out.set_rows(rows * new);
        Passes { cache, device_batch, qkv, out }
    }

    /// Microseconds of a layer in the next pass.
    fn next(&mut self, cpu: &mut Cpu, spec: &AttentionSpec) -> f64 {
        let begin = Instant::now();
        for layer in 0..LAYERS {
            ops::attention(cpu, spec, &mut self.out, &self.qkv, &self.cache, layer, &self.device_batch);
        }
        black_box(self.out.values());
        begin.elapsed().as_secs_f64() * 1e6 / LAYERS as f64
    }
}
