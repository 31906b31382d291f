//! The rows of the table.

mod attention_step;
mod codings;
mod experts;
mod gated;
mod invariant;
mod model;
mod shapes;

use codings::Mixture;
use compute::batch::{Batch, BatchLimits, LogitBias, Sampling};
use compute::cuda::{Chaining, Cuda, DeviceBatch, EventKind, KvCache, Matrix, Route, Tensor, Vector, device_count};
use compute::ops;
use compute::{
    Activation, AddNorm, AttentionSpec, Device, HostMatrix, HostVector, KvFormat, KvLayout, KvShape, KvValues,
    LayerInput, NextNorm, NormExtent, NormKind, NormOrder, NormWeights, Pairing, QkNormRope, QkNormWeights, RopeTable,
};
use formats::DType;
use model::Model;
use os::HostBytes;
use shapes::{LARGE, SHAPES, SMALL, Shape};
use std::sync::Arc;

const DTYPE: DType = DType::Bf16;
/// Of KV caches.
const FORMATS: [KvFormat; 2] = [KvFormat::Plain(DTYPE), KvFormat::Int8];

struct Bench {
    cuda: Cuda,
    filter: String,
    /// The shape that was named, instead of those that the table has.
    shape: Option<Shape>,
    read_bytes_s: f64,
    flops_s: f64,
}

pub fn main() {
    if device_count().unwrap_or(0) == 0 {
        eprintln!("no CUDA device: nothing is timed");
        return;
    }
    let mut given = std::env::args().skip(1).filter(|a| !a.starts_with('-'));
    let filter = given.next().unwrap_or_default();
    let shape = given.next().map(|name| SHAPES.into_iter().find(|shape| shape.name == name).expect("a known shape"));
    let cuda = Cuda::open(0, DTYPE).expect("the device opens");
    let mut bench = Bench { cuda, filter, shape, read_bytes_s: 4.6e12, flops_s: 790e12 };
    bench.ceilings();
    for (name, section) in [
        ("decode", Bench::decode_attention as fn(&mut Bench)),
        ("prefill", Bench::prefill_attention),
        ("linear", Bench::linears),
        ("small", Bench::small),
        ("sample", Bench::sampling),
        ("step", Bench::steps),
        ("attention step", Bench::attention_steps),
        ("gated linear", Bench::gated_linears),
        ("gated step", Bench::gated_steps),
        ("invariant step", Bench::invariant_steps),
        ("quantized linear", Bench::coded_linears),
        ("coded step", Bench::coded_steps),
        ("experts", Bench::expert_linears),
    ] {
        if name.contains(&bench.filter) || bench.filter.is_empty() {
            section(&mut bench);
            bench.cuda.set_windows([None]);
        }
    }
}

/// Names a window, where there is one.
fn within(window: Option<usize>) -> String {
    window.map_or(String::new(), |window| format!(" within {window}"))
}

/// Numbers of about 2^-7 of either sign.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(2 * len + 8);
    while bytes.len() < 2 * len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend((state & 0x807f_807f_807f_807f | 0x3c00_3c00_3c00_3c00).to_le_bytes());
    }
    bytes.truncate(2 * len);
    bytes
}

fn random_matrix([rows, cols]: [usize; 2], seed: u64) -> HostMatrix {
    HostMatrix::new(HostBytes::owned(Arc::from(noise(rows * cols, seed))), DTYPE.into(), rows, cols)
}

fn random_vector(len: usize, seed: u64) -> HostVector {
    HostVector::new(HostBytes::owned(Arc::from(noise(len, seed))), DTYPE.into(), len)
}

/// An RMS norm.
fn rms(weight: &Vector) -> NormWeights<'_, Vector> {
    NormWeights { weight, eps: 1e-6, kind: NormKind::Rms }
}

/// Rows of `new` tokens each that attend to `context`.
fn batch_of(rows: usize, new: usize, context: usize, block_size: usize) -> (Batch, usize) {
    let width = context.div_ceil(block_size);
    let blocks = rows * width;
    let mut batch = Batch { row_starts: vec![0], table_width: width, ..Batch::default() };
    // Blocks lie all over the cache: 7919 is prime and divides no such number of blocks.
    let block = |i: usize| (i * 7919 % blocks) as u32;
    for row in 0..rows {
        for position in context - new..context {
            batch.token_ids.push((row * 31 + position) as u32 % 1000);
            batch.positions.push(position as u32);
            let slot = block(row * width + position / block_size) * block_size as u32;
            batch.slots.push(slot + (position % block_size) as u32);
        }
        batch.row_starts.push(batch.token_ids.len() as u32);
        batch.context_lens.push(context as u32);
        batch.block_tables.extend((0..width).map(|i| block(row * width + i)));
        batch.sampled_tokens.push(batch.tokens() as u32 - 1);
        batch.sampling.push(Sampling {
            temperature: 0.6,
            seed: 1,
            position: context as u32,
            stream: row as u64,
            ..Sampling::GREEDY
        });
    }
    (batch, blocks)
}

impl Bench {
    fn shapes(&self) -> Vec<Shape> {
        self.shape.map_or(vec![SMALL, LARGE], |shape| vec![shape])
    }

    fn tensor(&mut self, rows: usize, cols: usize) -> Tensor {
        let mut tensor = self.cuda.tensor(rows, cols).unwrap();
        tensor.set_rows(rows);
        let values: Vec<f32> = (0..rows * cols).map(|i| ((i * 7919 % 1021) as f32 - 510.0) / 510.0).collect();
        self.cuda.write(&mut tensor, &values).unwrap();
        tensor
    }

    fn staged(&mut self, batch: &Batch) -> DeviceBatch {
        let limits = BatchLimits {
            tokens: batch.tokens(),
            rows: batch.rows(),
            model_len: batch.table_width,
            block_size: 1,
            ..BatchLimits::NONE
        };
        let mut device_batch = self.cuda.device_batch(&limits).unwrap();
        self.cuda.upload(&mut device_batch, batch).unwrap();
        device_batch
    }

    /// Microseconds of one op, of which `launches` launches `count`.
    fn time(&mut self, count: usize, mut launches: impl FnMut(&mut Cuda)) -> f64 {
        launches(&mut self.cuda);
        self.cuda.synchronize().unwrap();
        let graph = self.cuda.capture(|cuda| launches(cuda)).unwrap();
        let [begin, end] = [0; 2].map(|_| self.cuda.event(EventKind::Timing).unwrap());
        let mut times = Vec::new();
        for round in 0..9 {
            begin.record().unwrap();
            graph.launch().unwrap();
            end.record().unwrap();
            end.wait().unwrap();
            if round >= 2 {
                times.push(f64::from(begin.milliseconds_to(&end).unwrap()) * 1e3 / count as f64);
            }
        }
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    fn line(&self, name: &str, us: f64, bytes: f64, flops: f64) {
        let memory = bytes / us * 1e6;
        let compute = flops / us * 1e6;
        println!(
            "{name:<44} {us:>9.2} us {:>8.0} GB/s {:>4.0}% {:>7.1} TFLOP/s {:>4.0}%",
            memory / 1e9,
            100.0 * memory / self.read_bytes_s,
            compute / 1e12,
            100.0 * compute / self.flops_s,
        );
    }

    fn weights(&mut self, n: usize, k: usize, total_bytes: usize) -> Vec<Matrix> {
        let tensor = random_matrix([n, k], (n + k) as u64);
        let copies = (total_bytes / (2 * n * k)).clamp(1, 32);
        (0..copies).map(|_| self.cuda.matrix(std::slice::from_ref(&tensor)).unwrap()).collect()
    }

    fn ceilings(&mut self) {
        let weights = self.weights(1 << 19, 4096, 0);
        let (x, mut out) = (self.tensor(1, 4096), self.tensor(1, 1 << 19));
        self.cuda.set_route(Route::Stream);
        let us = self.time(1, |cuda| ops::linear(cuda, &mut out, LayerInput::new(&x, &weights[0], None), 0..1 << 19));
        self.read_bytes_s = 2.0 * 4096.0 * f64::from(1 << 19) / us * 1e6;
        self.line("ceiling: read of 4.3 GB by a product", us, self.read_bytes_s * us * 1e-6, 0.0);
        drop((weights, x, out));
        let weights = self.weights(8192, 8192, 0);
        let (x, mut out) = (self.tensor(8192, 8192), self.tensor(8192, 8192));
        let flops = 2.0 * 8192f64.powi(3);
        for route in [Route::Tiled, Route::Blas] {
            self.cuda.set_route(route);
            let us = self.time(4, |cuda| {
                (0..4).for_each(|_| ops::linear(cuda, &mut out, LayerInput::new(&x, &weights[0], None), 0..8192))
            });
            if route == Route::Blas && self.cuda.has_blas() {
                self.flops_s = flops / us * 1e6;
            }
            self.line(&format!("ceiling: product of 8192^3, {route:?}"), us, 0.0, flops);
        }
        self.cuda.set_route(Route::Auto);
    }

    fn cache(&mut self, layout: &KvLayout, blocks: usize) -> KvCache {
        let mut cache = self.cuda.kv_cache(layout, blocks).unwrap();
        cache.fill(&noise(blocks * layout.block_bytes() / 2, 9)).unwrap();
        cache
    }

    fn decode_attention(&mut self) {
        let table = [
            (SMALL, 256, 558, 64, None),
            (SMALL, 128, 1000, 64, None),
            (SMALL, 64, 512, 64, None),
            (SMALL, 16, 1500, 64, None),
            (SMALL, 1, 512, 64, None),
            (SMALL, 1, 4000, 64, None),
            (SMALL, 256, 558, 16, None),
            (SMALL, 256, 558, 256, None),
            (LARGE, 256, 558, 64, None),
            (LARGE, 1, 512, 64, None),
            (LARGE, 1, 32_768, 64, None),
            (LARGE, 1, 32_768, 64, Some(4096)),
            (LARGE, 16, 8192, 64, None),
            (LARGE, 16, 8192, 64, Some(4096)),
            (LARGE, 16, 4096, 64, None),
            (LARGE, 16, 1024, 64, None),
            (LARGE, 16, 16_000, 64, Some(1024)),
            (LARGE, 1, 1024, 64, None),
            (LARGE, 1, 16_000, 64, Some(1024)),
        ];
        let named = |shape| [1, 8, 16, 32, 64, 128, 256].map(|rows| (shape, rows, 512, 64, None)).to_vec();
        let cases = self.shape.map_or(table.to_vec(), named);
        for ((shape, rows, context, block_size, window), format) in
            cases.into_iter().flat_map(|case| FORMATS.map(|format| (case, format)))
        {
            let (batch, blocks) = batch_of(rows, 1, context, block_size);
            let spec = AttentionSpec { window, ..shape.attention() };
            let (kv_heads, head_dim) = (shape.kv_heads, shape.head_dim);
            let kv = KvShape { kv_heads, head_dim, values: KvValues::Stored, block_size, format };
            let token_bytes = kv.layers(1).token_bytes();
            let bytes = (rows * (context - spec.window_start(context - 1)) * token_bytes) as f64;
            let held = (rows * context * token_bytes) as f64;
            // More than the second-level cache holds, and not much more memory than a host fills in a second.
            let layers = ((400e6 / bytes) as usize).min((2e9 / held) as usize).clamp(2, 28);
            let cache = self.cache(&kv.layers(layers), blocks);
            self.cuda.set_windows([window]);
            let device_batch = self.staged(&batch);
            let (qkv, mut out) = (self.tensor(rows, shape.qkv()), self.tensor(rows, shape.heads * shape.head_dim));
            for chaining in [Chaining::Strict, Chaining::DependentLaunch] {
                self.cuda.set_chaining(chaining);
                let us = self.time(layers, |cuda| {
                    for layer in 0..layers {
                        ops::attention(cuda, &spec, &mut out, &qkv, &cache, layer, &device_batch);
                    }
                });
                let name = format!(
                    "decode {} {rows} x {context}{}, blocks of {block_size}, {}, {chaining:?}",
                    shape.name,
                    within(window),
                    format.name()
                );
                self.line(&name, us, bytes, 0.0);
            }
        }
    }

    fn prefill_attention(&mut self) {
        let cases = [
            (SMALL, 16, 512, 512, None),
            (SMALL, 16, 1024, 1024, None),
            (SMALL, 4, 4096, 4096, None),
            (SMALL, 4, 512, 4096, None),
            (LARGE, 16, 1024, 1024, None),
            (LARGE, 4, 4096, 4096, None),
            (LARGE, 4, 4096, 4096, Some(1024)),
            (LARGE, 4, 512, 1536, Some(1024)),
            (LARGE, 4, 512, 16_000, Some(1024)),
        ];
        for ((shape, rows, new, context, window), format) in
            cases.into_iter().flat_map(|case| FORMATS.map(|format| (case, format)))
        {
            let (batch, blocks) = batch_of(rows, new, context, 64);
            let (kv_heads, head_dim) = (shape.kv_heads, shape.head_dim);
            let cache = self.cache(
                &KvShape { kv_heads, head_dim, values: KvValues::Stored, block_size: 64, format }.layers(1),
                blocks,
            );
            let spec = AttentionSpec { window, ..shape.attention() };
            self.cuda.set_windows([window]);
            let device_batch = self.staged(&batch);
            let tokens = batch.tokens();
            let (qkv, mut out) = (self.tensor(tokens, shape.qkv()), self.tensor(tokens, shape.heads * shape.head_dim));
            let us = self.time(4, |cuda| {
                for _ in 0..4 {
                    ops::attention(cuda, &spec, &mut out, &qkv, &cache, 0, &device_batch);
                }
            });
            let attended = |position| position + 1 - spec.window_start(position);
            let pairs: usize = rows * (context - new..context).map(attended).sum::<usize>();
            let flops = (4 * pairs * shape.heads * shape.head_dim) as f64;
            let name =
                format!("prefill {} {rows} x {new} of {context}{}, {}", shape.name, within(window), format.name());
            self.line(&name, us, 0.0, flops);
        }
    }

    fn linears(&mut self) {
        for shape in self.shapes() {
            let head = ("lm_head", shape.vocab, shape.hidden);
            for (name, n, k) in shape.linears().into_iter().chain([head]) {
                let weights = self.weights(n, k, 400 << 20);
                for m in [1, 4, 8, 16, 32, 64, 128, 256, 4096] {
                    if name == "lm_head" && m > 256 {
                        continue;
                    }
                    let (x, mut out) = (self.tensor(m, k), self.tensor(m, n));
                    for route in [Route::Stream, Route::Tiled, Route::Hopper, Route::Blas] {
                        let is_sensible = match route {
                            Route::Stream => m <= 64,
                            Route::Tiled => m >= 64,
                            Route::Hopper => (9..=256).contains(&m),
                            _ => true,
                        };
                        if !is_sensible {
                            continue;
                        }
                        self.cuda.set_route(route);
                        let us = self.time(weights.len(), |cuda| {
                            weights
                                .iter()
                                .for_each(|w| ops::linear(cuda, &mut out, LayerInput::new(&x, w, None), 0..n));
                        });
                        let bytes = (2 * (n * k + m * (n + k))) as f64;
                        let flops = (2 * m * n * k) as f64;
                        self.line(
                            &format!("linear {} {name} {m} x {n} x {k}, {route:?}", shape.name),
                            us,
                            bytes,
                            flops,
                        );
                    }
                }
            }
        }
        self.cuda.set_route(Route::Auto);
    }

    /// Products with quantized weights, each beside the same in bf16. `BENCH_TOKENS` takes some of the numbers of tokens, such as `512,1024`.
    fn coded_linears(&mut self) {
        for shape in self.shapes() {
            for (name, n, k) in shape.linears().into_iter().chain([("head", shape.vocab, shape.hidden)]) {
                let tokens = [1, 8, 16, 32, 64, 128, 256, 512, 1024, 8192].into_iter();
                let is_asked = |m: &usize| {
                    let all = asked("BENCH_TOKENS");
                    all.map_or(name != "head" || *m <= 64, |all| all.split(',').any(|asked| asked == m.to_string()))
                };
                let tokens: Vec<usize> = tokens.filter(is_asked).collect();
                let mut plain = [0.0; 10];
                for mixture in mixtures() {
                    let host = codings::matrix(mixture.coding(), [n, k], (n + k) as u64);
                    let copies = ((256 << 20) / host.bytes()).clamp(1, 16);
                    let weights: Vec<Matrix> =
                        (0..copies).map(|_| self.cuda.matrix(std::slice::from_ref(&host)).unwrap()).collect();
                    for (plain, &m) in plain.iter_mut().zip(&tokens) {
                        let (x, mut out) = (self.tensor(m, k), self.tensor(m, n));
                        let us = self.time(weights.len(), |cuda| {
                            weights
                                .iter()
                                .for_each(|w| ops::linear(cuda, &mut out, LayerInput::new(&x, w, None), 0..n));
                        });
                        if mixture == Mixture::Bf16 {
                            *plain = us;
                        }
                        let what = format!("{mixture:?} {} {name} {m} x {n} x {k}, {:.2}", shape.name, us / *plain);
                        self.line(&what, us, (host.bytes() + 2 * m * (n + k)) as f64, (2 * m * n * k) as f64);
                    }
                }
            }
        }
    }

    /// Whole decode steps, and a pass over prompts of 8,192 tokens together, with quantized weights. `BENCH_LAYERS` takes as many layers, which are made
    /// faster, and `BENCH_PASSES` some of the passes.
    fn coded_steps(&mut self) {
        for mut shape in self.shapes() {
            shape.layers =
                asked("BENCH_LAYERS").map_or(shape.layers, |layers| layers.parse().expect("a number of layers"));
            let mut plain = Vec::new();
            for mixture in mixtures() {
                let mut model = Model::new(self, shape, mixture);
                let passes = [(1, 1), (8, 1), (16, 1), (32, 1), (64, 1), (128, 1), (256, 1), (1, 512), (8, 1024)];
                // Such as `8x1,1x512`.
                let is_asked = |(rows, new): &(usize, usize)| {
                    asked("BENCH_PASSES").is_none_or(|all| all.split(',').any(|pass| pass == format!("{rows}x{new}")))
                };
                let passes: Vec<_> = passes.into_iter().filter(is_asked).collect();
                for (pass, (rows, new)) in passes.into_iter().enumerate() {
                    let (batch, blocks) = batch_of(rows, new, new.max(512), 64);
                    let Shape { layers, kv_heads, head_dim, .. } = shape;
                    let kv =
                        KvShape { kv_heads, head_dim, values: KvValues::Stored, block_size: 64, format: DTYPE.into() };
                    let mut cache = self.cache(&kv.layers(layers), blocks);
                    let mut device_batch = self.staged(&batch);
                    let mut tensors = model.tensors(self, rows, rows * new);
                    let mut time = |model: &Model| {
                        self.time(1, |cuda| model.launch(cuda, &mut tensors, &mut cache, &mut device_batch))
                    };
                    model.is_added = false;
                    let apart = time(&model);
                    model.is_added = true;
                    let us = time(&model);
                    if mixture == Mixture::Bf16 {
                        plain.push(us);
                    }
                    let ratio = us / plain[pass];
                    let what = format!("step {mixture:?} {} {rows} x {new}, {ratio:.2}, {apart:.0} apart", shape.name);
                    self.line(&what, us, model.bytes, 0.0);
                }
            }
        }
    }

    fn small(&mut self) {
        let table = [(SMALL, 1), (SMALL, 256), (SMALL, 16_384), (LARGE, 256), (LARGE, 16_384)];
        let named = |shape| [1, 16, 64, 256, 8192].map(|tokens| (shape, tokens)).to_vec();
        for (shape, tokens) in self.shape.map_or(table.to_vec(), named) {
            let hidden = shape.hidden;
            let repeat = 20;
            let weight = self.cuda.vector(&[random_vector(hidden, 1)]).unwrap();
            let norm = self.cuda.vector(&[random_vector(shape.head_dim, 1)]).unwrap();
            let rope = self.cuda.table(&vec![0.5; 1024 * shape.head_dim]).unwrap();
            let (x, mut residual, mut out) =
                (self.tensor(tokens, hidden), self.tensor(tokens, hidden), self.tensor(tokens, hidden));
            let (gate_up, mut gated) = (self.tensor(tokens, 2 * shape.width), self.tensor(tokens, shape.width));
            let mut qkv = self.tensor(tokens, shape.qkv());
            let rows = if tokens > 1024 { 16 } else { tokens };
            let (batch, blocks) = batch_of(rows, tokens / rows, 1024, 64);
            let (kv_heads, head_dim) = (shape.kv_heads, shape.head_dim);
            let kv = KvShape { kv_heads, head_dim, values: KvValues::Stored, block_size: 64, format: DTYPE.into() };
            let mut cache = self.cache(&kv.layers(1), blocks);
            let device_batch = self.staged(&batch);
            let name = |op: &str| format!("small {op} {} x {}", tokens, shape.name);
            let row = (2 * tokens * hidden) as f64;

            let us = self.time(repeat, |c| (0..repeat).for_each(|_| ops::norm(c, &mut out, &x, rms(&weight))));
            self.line(&name("norm"), us, 2.0 * row, 0.0);
            let us = self.time(repeat, |c| {
                (0..repeat).for_each(|_| {
                    ops::add_norm(
                        c,
                        &mut residual,
                        &x,
                        AddNorm::PLAIN,
                        Some(NextNorm { out: &mut out, norm: rms(&weight) }),
                    )
                });
            });
            self.line(&name("add_norm"), us, 4.0 * row, 0.0);
            let add = AddNorm { post: Some(rms(&weight)), scale: 1.0, stream_scale: 1.0 };
            let us = self.time(repeat, |c| {
                (0..repeat).for_each(|_| {
                    ops::add_norm(c, &mut residual, &x, add, Some(NextNorm { out: &mut out, norm: rms(&weight) }))
                });
            });
            self.line(&name("add_norm with a norm of delta"), us, 4.0 * row, 0.0);
            let us = self.time(repeat, |c| {
                (0..repeat).for_each(|_| ops::activate_mul(c, &mut gated, &gate_up, Activation::Silu))
            });
            self.line(&name("activate_mul"), us, (6 * tokens * shape.width) as f64, 0.0);
            let us = self.time(repeat, |c| {
                for _ in 0..repeat {
                    let transform = transform(&norm, &rope, shape.head_dim);
                    ops::rope_and_cache(c, &shape.attention(), &mut qkv, transform, &mut cache, 0, &device_batch);
                }
            });
            self.line(&name("rope_and_cache"), us, (4 * tokens * shape.qkv()) as f64, 0.0);
        }
    }

    fn sampling(&mut self) {
        for samples in [1, 16, 64, 256] {
            let logits = self.tensor(samples, SMALL.vocab);
            let warm = Sampling { temperature: 0.6, seed: 3, ..Sampling::GREEDY };
            for (name, sampling) in [
                ("greedy", Sampling::GREEDY),
                ("temperature", warm),
                ("top-k 20", Sampling { top_k: 20, ..warm }),
                ("top-k 20, top-p 0.95", Sampling { top_k: 20, top_p: 0.95, ..warm }),
                ("top-p 0.95", Sampling { top_p: 0.95, ..warm }),
            ] {
                let (mut batch, _) = batch_of(samples, 1, 64, 64);
                batch.sampling.fill(sampling);
                let mut device_batch = self.staged(&batch);
                let us = self.time(4, |cuda| (0..4).for_each(|_| ops::sample(cuda, &mut device_batch, &logits)));
                self.line(&format!("sample {samples}, {name}"), us, (2 * samples * SMALL.vocab) as f64, 0.0);
            }
            self.sampling_extras(samples, logits);
        }
    }

    /// What some samples ask for besides a token.
    fn sampling_extras(&mut self, samples: usize, mut logits: Tensor) {
        for adjusted in [100, 4000] {
            let (mut batch, _) = batch_of(samples, 1, 64, 64);
            for sampling in &mut batch.sampling {
                sampling.adjusted_start = batch.adjustments.len() as u32;
                let tokens = (0..adjusted).map(|i| (i * 37) as u32);
                batch.adjustments.extend(tokens.map(|token| LogitBias { token, uses: 1, bias: 0.0 }));
                sampling.adjusted_end = batch.adjustments.len() as u32;
            }
            let mut device_batch = self.staged(&batch);
            let us =
                self.time(4, |cuda| (0..4).for_each(|_| ops::process_logits(cuda, &mut device_batch, &mut logits)));
            self.line(&format!("adjust {samples} x {adjusted} tokens"), us, (32 * samples * adjusted) as f64, 0.0);
        }
        for ranked in [0, 20, 64] {
            let (mut batch, _) = batch_of(samples, 1, 64, 64);
            batch.sampling.iter_mut().for_each(|sampling| sampling.logprobs = ranked + 1);
            let mut device_batch = self.staged(&batch);
            let us = self.time(4, |cuda| (0..4).for_each(|_| ops::logprobs(cuda, &mut device_batch, &mut logits)));
            self.line(&format!("logprobs {samples}, top {ranked}"), us, (2 * samples * SMALL.vocab) as f64, 0.0);
        }
        let (mut batch, _) = batch_of(samples, 1, 64, 64);
        batch.masks = vec![0x5555_ffff; SMALL.vocab.div_ceil(32)];
        batch.sampling.iter_mut().for_each(|sampling| sampling.mask = 0);
        let mut device_batch = self.staged(&batch);
        let us = self.time(4, |cuda| (0..4).for_each(|_| ops::sample(cuda, &mut device_batch, &logits)));
        self.line(&format!("sample {samples}, temperature, masked"), us, (2 * samples * SMALL.vocab) as f64, 0.0);
    }

    /// A whole decode step, op by op as a model runs it, inside one graph.
    fn steps(&mut self) {
        for shape in self.shapes() {
            let model = Model::new(self, shape, Mixture::Bf16);
            let rows = [1, 8, 16, 32, 64, 96, 128, 144, 160, 192, 224, 256];
            for (rows, context) in rows.into_iter().map(|rows| (rows, 555)).chain([(64, 256), (192, 256), (256, 256)]) {
                let (batch, blocks) = batch_of(rows, 1, context, 64);
                let cache_shape = KvShape {
                    kv_heads: shape.kv_heads,
                    head_dim: shape.head_dim,
                    values: KvValues::Stored,
                    block_size: 64,
                    format: DTYPE.into(),
                };
                let mut cache = self.cuda.kv_cache(&cache_shape.layers(shape.layers), blocks).unwrap();
                let mut device_batch = self.staged(&batch);
                let mut tensors = model.tensors(self, rows, rows);
                for (chaining, route) in [
                    (Chaining::Strict, Route::Auto),
                    (Chaining::DependentLaunch, Route::Auto),
                    (Chaining::DependentLaunch, Route::Stream),
                    (Chaining::DependentLaunch, Route::Blas),
                ] {
                    if route == Route::Stream && rows > 64 {
                        continue;
                    }
                    self.cuda.set_chaining(chaining);
                    self.cuda.set_route(route);
                    let us = self.time(1, |cuda| model.launch(cuda, &mut tensors, &mut cache, &mut device_batch));
                    let kv = (rows * context * 2 * shape.kv_heads * shape.head_dim * 2 * shape.layers) as f64;
                    self.line(
                        &format!("step {} {rows} x {context}, {chaining:?}, {route:?}", shape.name),
                        us,
                        model.bytes + kv,
                        0.0,
                    );
                }
                self.cuda.set_route(Route::Auto);
            }
        }
    }
}

/// What Qwen3 does with queries and keys.
fn transform<'a>(norm: &'a Vector, table: &'a Vector, head_dim: usize) -> QkNormRope<'a, Vector, Tensor> {
    let extent = NormExtent::Head(NormOrder::BeforeRope);
    QkNormRope {
        norm: Some(QkNormWeights { query: norm, key: norm, eps: 1e-6, extent }),
        whole: None,
        rope: Some(RopeTable { table, rotary: head_dim, pairing: Pairing::Halves }),
        temperature: None,
        value_norm: None,
    }
}

/// What an environment variable says, if it is set.
fn asked(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// bf16, and the others that `BENCH_MIXTURES` names, such as `Q8_0,Q4KM`: all if it is not set.
fn mixtures() -> Vec<Mixture> {
    let asked = asked("BENCH_MIXTURES");
    let is_asked = |mixture: &Mixture| {
        asked.as_ref().is_none_or(|asked| asked.split(',').any(|name| name == format!("{mixture:?}")))
    };
    Mixture::ALL.into_iter().filter(|mixture| *mixture == Mixture::Bf16 || is_asked(mixture)).collect()
}
