//! Time of each op of a decoder layer of the Qwen3-0.6B shape: where does a pass spend the time that its matrices do not explain?
//!
//! `cargo bench --bench layer [-- THREADS [TOKENS]...]`. One row contains all tokens, and its context begins with them. Times
//! are medians over passes through eight layers, so that weights are read from memory; the minimum is printed too.

use compute::batch::{Batch, BatchLimits, Sampling};
use compute::cpu::{Cpu, Isa, Tensor};
use compute::ops;
use compute::{
    Activation, AddNorm, AttentionSpec, Device, HostMatrix, KvFormat, KvShape, KvValues, LayerInput, NextNorm,
    NormExtent, NormKind, NormOrder, NormWeights, Pairing, QkNormRope, QkNormWeights, RopeTable,
};
use formats::{DType, WeightFormat};
use os::HostBytes;
use std::time::{Duration, Instant};

const LAYERS: usize = 8;
const HIDDEN: usize = 1024;
const HEADS: usize = 16;
const INTERMEDIATE: usize = 3072;
const KV: KvShape = KvShape {
    kv_heads: 8,
    head_dim: 128,
    values: KvValues::Stored,
    block_size: 16,
    format: KvFormat::Plain(DType::Bf16),
};
const SPEC: AttentionSpec =
    AttentionSpec { heads: HEADS, scale: 0.088, window: None, softcap: None, reach: compute::Reach::Back };
const QUERY: usize = HEADS * KV.head_dim;
const QKV: usize = QUERY + 2 * KV.kv_heads * KV.head_dim;
const EPS: f32 = 1e-6;
/// Layers of the whole model.
const MODEL_LAYERS: f64 = 28.0;

fn main() {
    let mut given = std::env::args().skip(1).filter_map(|arg| arg.parse::<usize>().ok());
    let threads = given.next().unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let mut tokens: Vec<usize> = given.collect();
    if tokens.is_empty() {
        tokens = vec![1, 16, 512];
    }
    let isa = Isa::detect().expect("a known instruction set");
    println!("isa,threads,tokens,op,us_median,us_least");
    for tokens in tokens {
        let ops = Layers::new(threads, isa, tokens).times();
        let (mut median, mut least) = (0.0, 0.0);
        for (name, mut times) in ops {
            times.sort_by(f64::total_cmp);
            println!("{},{threads},{tokens},{name},{:.1},{:.1}", isa.name(), times[times.len() / 2], times[0]);
            median += times[times.len() / 2];
            least += times[0];
        }
        println!("{},{threads},{tokens},a layer,{median:.1},{least:.1}", isa.name());
        let ms = MODEL_LAYERS * median / 1e3;
        println!("# {tokens} tokens through {MODEL_LAYERS} such layers: {ms:.1} ms");
    }
}

/// Activations and weights of some layers.
struct Layers {
    cpu: Cpu,
    device_batch: <Cpu as Device>::DeviceBatch,
    cache: <Cpu as Device>::KvCache,
    rope: Box<[f32]>,
    norm: Box<[f32]>,
    head_norm: Box<[f32]>,
    /// In the order of a layer: QKV, output, gate and up, down.
    weights: Vec<[<Cpu as Device>::Matrix; 4]>,
    residual: Tensor,
    delta: Tensor,
    normed: Tensor,
    qkv: Tensor,
    attended: Tensor,
    gate_up: Tensor,
    gated: Tensor,
}

impl Layers {
    fn new(threads: usize, isa: Isa, tokens: usize) -> Layers {
        let mut cpu = Cpu::new(threads, isa);
        let limits = BatchLimits { tokens, rows: 1, model_len: tokens, block_size: KV.block_size, ..BatchLimits::NONE };
        let mut device_batch = cpu.device_batch(&limits).unwrap();
        cpu.upload(&mut device_batch, &batch(&limits)).unwrap();
        let weights = (0..LAYERS).map(|layer| {
            [(QKV, HIDDEN), (HIDDEN, QUERY), (2 * INTERMEDIATE, HIDDEN), (HIDDEN, INTERMEDIATE)]
                .map(|(rows, cols)| cpu.matrix(&[noise(layer as u64 + 1, rows, cols)]).unwrap())
        });
        let weights = weights.collect();
        let tensor = |cols: usize| {
            let mut tensor = cpu.tensor(tokens, cols).unwrap();
            tensor.set_rows(tokens);
            tensor.values_mut().iter_mut().enumerate().for_each(|(i, v)| *v = (i * 31 % 97) as f32 / 97.0 - 0.5);
            tensor
        };
        Layers {
            residual: tensor(HIDDEN),
            delta: tensor(HIDDEN),
            normed: tensor(HIDDEN),
            qkv: tensor(QKV),
            attended: tensor(QUERY),
            gate_up: tensor(2 * INTERMEDIATE),
            gated: tensor(INTERMEDIATE),
            cache: cpu.kv_cache(&KV.layers(LAYERS), limits.table_width()).unwrap(),
            rope: vec![std::f32::consts::FRAC_1_SQRT_2; tokens * KV.head_dim].into(),
            norm: vec![1.0; HIDDEN].into(),
            head_norm: vec![1.0; KV.head_dim].into(),
            weights,
            device_batch,
            cpu,
        }
    }

    /// Microseconds of each op, of many layers.
    fn times(mut self) -> Vec<(&'static str, Vec<f64>)> {
        let mut ops: Vec<(&'static str, Vec<f64>)> = Vec::new();
        let begun = Instant::now();
        for pass in 0.. {
            for layer in 0..LAYERS {
                let mut number = 0;
                let mut note = |name, time: Duration| {
                    if ops.len() <= number {
                        ops.push((name, Vec::new()));
                    }
                    // The first pass touches memory for the first time.
                    if pass > 0 {
                        ops[number].1.push(time.as_secs_f64() * 1e6);
                    }
                    number += 1;
                };
                self.layer(layer, &mut note);
            }
            if pass >= 3 && begun.elapsed() > Duration::from_secs(2) {
                break;
            }
        }
        ops
    }

    fn layer(&mut self, layer: usize, note: &mut impl FnMut(&'static str, Duration)) {
        let Layers { cpu, device_batch, cache, rope, norm, head_norm, residual, delta, normed, .. } = self;
        let Layers { weights, qkv, attended, gate_up, gated, .. } = self;
        let [to_qkv, to_hidden, to_gate_up, down] = &weights[layer];
        let norm = NormWeights { weight: &*norm, eps: EPS, kind: NormKind::Rms };
        let mut timed = |name, op: &mut dyn FnMut()| {
            let begun = Instant::now();
            op();
            note(name, begun.elapsed());
        };
        timed("add_norm", &mut || {
            ops::add_norm(cpu, residual, delta, AddNorm::PLAIN, Some(NextNorm { out: normed, norm }))
        });
        timed("linear qkv", &mut || ops::linear(cpu, qkv, LayerInput::new(normed, to_qkv, None), 0..QKV));
        timed("rope_and_cache", &mut || {
            let extent = NormExtent::Head(NormOrder::BeforeRope);
            let transform = QkNormRope {
                norm: Some(QkNormWeights { query: &*head_norm, key: &*head_norm, eps: EPS, extent }),
                whole: None,
                rope: Some(RopeTable { table: &*rope, rotary: KV.head_dim, pairing: Pairing::Halves }),
                temperature: None,
                value_norm: None,
            };
            ops::rope_and_cache(cpu, &SPEC, qkv, transform, cache, layer, device_batch);
        });
        timed("attention", &mut || ops::attention(cpu, &SPEC, attended, qkv, cache, layer, device_batch));
        timed("linear output", &mut || ops::linear(cpu, delta, LayerInput::new(attended, to_hidden, None), 0..HIDDEN));
        timed("add_norm", &mut || {
            ops::add_norm(cpu, residual, delta, AddNorm::PLAIN, Some(NextNorm { out: normed, norm }))
        });
        timed("linear gate_up", &mut || {
            ops::linear(cpu, gate_up, LayerInput::new(normed, to_gate_up, None), 0..2 * INTERMEDIATE)
        });
        timed("activate_mul", &mut || ops::activate_mul(cpu, gated, gate_up, Activation::Silu));
        timed("linear down", &mut || ops::linear(cpu, delta, LayerInput::new(gated, down, None), 0..HIDDEN));
    }
}

/// One row that brings all tokens.
fn batch(limits: &BatchLimits) -> Batch {
    let mut batch = Batch::with_limits(limits);
    batch.block_tables.extend(0..limits.table_width() as u32);
    batch.positions.extend(0..limits.tokens as u32);
    batch.slots.extend(0..limits.tokens as u32);
    batch.token_ids.extend(std::iter::repeat_n(0, limits.tokens));
    batch.row_starts.push(limits.tokens as u32);
    batch.context_lens.push(limits.tokens as u32);
    batch.sampled_tokens.push(0);
    batch.sampling.push(Sampling::GREEDY);
    batch
}

/// Small bf16 numbers of both signs.
fn noise(seed: u64, rows: usize, cols: usize) -> HostMatrix {
    let mut state = seed;
    let mut bytes = vec![0; rows * cols * 2];
    for pair in bytes.as_chunks_mut::<4>().0 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // A sign, an exponent below that of 1/16, and a mantissa.
        *pair = ((state >> 32) as u32 & 0x80ff_80ff | 0x3d00_3d00).to_le_bytes();
    }
    HostMatrix::new(HostBytes::owned(bytes.into()), WeightFormat::Bf16, rows, cols)
}
