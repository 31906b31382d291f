//! Every op of the CUDA backend against obvious loops in f64, in both number types.
//!
//! Inputs are random and rounded to the number type first, so that what remains is the op's own error. Outputs are poisoned
//! with NaN before. Without a device nothing is compared, unless `NVLLM_TEST_CUDA=require`.
#![cfg(nvllm_cuda)]

use half::{bf16, f16};
use nanovllm::backend::cuda::{Chaining, Cuda, KvCache, Route, Step, Tensor, device_count};
use nanovllm::backend::{Backend, DType, HeadNorm, HostTensor, KvShape};
use nanovllm::batch::{Batch, BatchLimits, Sampling};
use nanovllm::error::Error;
use nanovllm::ops;
use std::sync::Arc;

/// The greatest `|computed - expected| / |expected|`, as vectors.
fn bound(dtype: DType) -> f64 {
    if dtype == DType::Bf16 { 6e-3 } else { 1.5e-3 }
}

const DTYPES: [DType; 2] = [DType::Bf16, DType::F16];

/// Runs `test` on the first device for each number type.
fn on_device(test: impl Fn(&mut Cuda, DType)) {
    if device_count().unwrap() == 0 {
        assert!(std::env::var("NVLLM_TEST_CUDA").as_deref() != Ok("require"), "no CUDA device");
        eprintln!("no CUDA device: nothing is compared");
        return;
    }
    for dtype in DTYPES {
        test(&mut Cuda::open(0, dtype).unwrap(), dtype);
    }
}

/// Numbers that look random and are the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Numbers from -`size` to `size`, as `dtype` can hold them.
    fn numbers(&mut self, len: usize, size: f32, dtype: DType) -> Vec<f32> {
        (0..len).map(|_| rounded(((self.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0) * size, dtype)).collect()
    }

    fn permutation(&mut self, len: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..len as u32).collect();
        for i in (1..len).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }
}

fn rounded(v: f32, dtype: DType) -> f32 {
    match dtype {
        DType::Bf16 => bf16::from_f32(v).to_f32(),
        DType::F16 => f16::from_f32(v).to_f32(),
        DType::F32 => v,
    }
}

fn assert_near(computed: &[f32], expected: &[f64], bound: f64, what: &str) {
    assert_eq!(computed.len(), expected.len(), "{what}");
    let pairs = || computed.iter().zip(expected).map(|(&a, &b)| (f64::from(a), b));
    let error = pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    let norm = expected.iter().map(|b| b * b).sum::<f64>().sqrt();
    assert!(error <= bound * norm, "{what}: relative error {:.2e}, at most {bound:.0e} is allowed", error / norm);
}

fn filled(cuda: &mut Cuda, values: &[f32], cols: usize) -> Tensor {
    let mut tensor = cuda.tensor(values.len() / cols, cols).unwrap();
    tensor.set_rows(values.len() / cols);
    cuda.write(&mut tensor, values).unwrap();
    tensor
}

fn poisoned(cuda: &mut Cuda, rows: usize, cols: usize) -> Tensor {
    filled(cuda, &vec![f32::NAN; rows * cols], cols)
}

fn host_tensor(values: &[f32], shape: &[usize], dtype: DType) -> HostTensor {
    let bytes: Vec<u8> = match dtype {
        DType::Bf16 => values.iter().flat_map(|&v| bf16::from_f32(v).to_le_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|&v| f16::from_f32(v).to_le_bytes()).collect(),
        DType::F32 => values.iter().flat_map(|&v| v.to_le_bytes()).collect(),
    };
    HostTensor::owned(Arc::from(bytes), dtype, shape.to_vec())
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// Sequences with blocks from all over a cache, and a batch of them.
struct Scene {
    batch: Batch,
    blocks: usize,
    block_size: usize,
}

impl Scene {
    /// `rows` name the tokens of each row before and in this batch.
    fn new(rows: &[(usize, usize)], block_size: usize, random: &mut Random) -> Scene {
        let needed = |&(before, new): &(usize, usize)| (before + new).div_ceil(block_size);
        let blocks = rows.iter().map(needed).sum::<usize>() + 2;
        let mut free = random.permutation(blocks);
        let width = rows.iter().map(needed).max().unwrap_or(1) + 1;
        let mut batch = Batch { row_starts: vec![0], table_width: width, ..Batch::default() };
        for (index, row) in rows.iter().enumerate() {
            let mut table = free.split_off(free.len() - needed(row));
            table.resize(width, 0);
            for position in row.0..row.0 + row.1 {
                batch.token_ids.push(random.below(50) as u32);
                batch.positions.push(position as u32);
                batch.slots.push(table[position / block_size] * block_size as u32 + (position % block_size) as u32);
            }
            batch.row_starts.push(batch.token_ids.len() as u32);
            batch.context_lens.push((row.0 + row.1) as u32);
            batch.block_tables.extend(table);
            batch.sampled_rows.push(index as u32);
            batch.sampling.push(Sampling::GREEDY);
        }
        Scene { batch, blocks, block_size }
    }

    fn slot(&self, row: usize, position: usize) -> usize {
        let block = self.batch.block_table(row)[position / self.block_size] as usize;
        block * self.block_size + position % self.block_size
    }
}

fn limits(batch: &Batch) -> BatchLimits {
    BatchLimits {
        tokens: batch.tokens().max(1),
        rows: batch.rows().max(batch.samples()).max(1),
        model_len: batch.table_width.max(1),
        block_size: 1,
    }
}

fn staged(cuda: &mut Cuda, batch: &Batch) -> Step {
    let mut step = cuda.step(&limits(batch)).unwrap();
    cuda.stage(&mut step, batch).unwrap();
    step
}

const SHAPES: [(usize, usize); 6] = [(1, 8), (3, 40), (64, 1024), (5, 4096), (2, 12_288), (300, 256)];

#[test]
fn norms_agree() {
    on_device(|cuda, dtype| {
        for (tokens, hidden) in SHAPES {
            let what = format!("{tokens} x {hidden}, {dtype:?}");
            let mut random = Random(1);
            let x = random.numbers(tokens * hidden, 3.0, dtype);
            let y = random.numbers(tokens * hidden, 3.0, dtype);
            let w = random.numbers(hidden, 2.0, dtype);
            let weight = cuda.vector(&[host_tensor(&w, &[hidden], dtype)]).unwrap();
            let norm = |x: &[f32]| -> Vec<f64> {
                let rows = x.chunks_exact(hidden).flat_map(|row| {
                    let mean = row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / hidden as f64;
                    let scale = 1.0 / (mean + 1e-6).sqrt();
                    row.iter().zip(&w).map(move |(&v, &w)| f64::from(v) * scale * f64::from(w))
                });
                rows.collect()
            };
            let (tx, mut out) = (filled(cuda, &x, hidden), poisoned(cuda, tokens, hidden));
            ops::rms_norm(cuda, &mut out, &tx, &weight, 1e-6);
            assert_near(&cuda.read(&out).unwrap(), &norm(&x), bound(dtype), &format!("rms_norm {what}"));

            let mut residual = filled(cuda, &y, hidden);
            let mut out = poisoned(cuda, tokens, hidden);
            ops::add_rms_norm(cuda, &mut out, &mut residual, &tx, &weight, 1e-6);
            let sum: Vec<f32> = x.iter().zip(&y).map(|(a, b)| rounded(a + b, dtype)).collect();
            assert_eq!(cuda.read(&residual).unwrap(), sum, "residual {what}");
            assert_near(&cuda.read(&out).unwrap(), &norm(&sum), bound(dtype), &format!("add_rms_norm {what}"));
        }
    });
}

#[test]
fn gates_and_lookups_agree() {
    on_device(|cuda, dtype| {
        for (tokens, hidden) in SHAPES {
            let what = format!("{tokens} x {hidden}, {dtype:?}");
            let mut random = Random(2);
            let gate_up = random.numbers(tokens * 2 * hidden, 5.0, dtype);
            let (x, mut out) = (filled(cuda, &gate_up, 2 * hidden), poisoned(cuda, tokens, hidden));
            ops::silu_mul(cuda, &mut out, &x);
            let silu = |v: f32| f64::from(v) / (1.0 + (-f64::from(v)).exp());
            let rows = gate_up.chunks_exact(2 * hidden);
            let expected: Vec<f64> =
                rows.flat_map(|row| (0..hidden).map(|i| silu(row[i]) * f64::from(row[hidden + i]))).collect();
            assert_near(&cuda.read(&out).unwrap(), &expected, bound(dtype), &format!("silu_mul {what}"));

            let table = random.numbers(50 * hidden, 1.0, dtype);
            let matrix = cuda.matrix(&[host_tensor(&table, &[50, hidden], dtype)]).unwrap();
            let scene = Scene::new(&[(0, tokens), (3, 2)], 16, &mut random);
            let step = staged(cuda, &scene.batch);
            let mut out = poisoned(cuda, tokens + 2, hidden);
            ops::embedding(cuda, &mut out, &matrix, &step);
            let ids = &scene.batch.token_ids;
            let expected: Vec<f32> =
                ids.iter().flat_map(|&id| &table[id as usize * hidden..][..hidden]).copied().collect();
            assert_eq!(cuda.read(&out).unwrap(), expected, "embedding {what}");

            let mut last = poisoned(cuda, 2, hidden);
            ops::gather_last(cuda, &mut last, &out, &step);
            let expected = [&expected[(tokens - 1) * hidden..][..hidden], &expected[(tokens + 1) * hidden..]].concat();
            assert_eq!(cuda.read(&last).unwrap(), expected, "gather_last {what}");
        }
    });
}

#[test]
fn linear_layers_agree_on_every_route() {
    on_device(|cuda, dtype| {
        let sizes = [(97, 40), (64, 8), (1024, 2048), (4096, 1024), (330, 1064), (2560, 3072)];
        for (n, k) in sizes {
            let mut random = Random(3);
            let w = random.numbers(n * k, 0.1, dtype);
            let b = random.numbers(n, 1.0, dtype);
            let split = n / 3;
            let parts = [
                host_tensor(&w[..split * k], &[split, k], dtype),
                host_tensor(&w[split * k..], &[n - split, k], dtype),
            ];
            let weight = cuda.matrix(&parts).unwrap();
            let bias = cuda.vector(&[host_tensor(&b, &[n], dtype)]).unwrap();
            for m in [1, 2, 7, 8, 9, 16, 17, 33, 64, 65, 200] {
                let x = random.numbers(m * k, 1.0, dtype);
                // Every third column is enough to be sure, and three times as fast.
                let exact = |t: usize, c: usize| -> f64 {
                    let pairs = x[t * k..][..k].iter().zip(&w[c * k..][..k]);
                    pairs.map(|(&a, &b)| f64::from(a * b)).sum()
                };
                let tx = filled(cuda, &x, k);
                for route in [Route::Auto, Route::Direct, Route::Tiled, Route::Blas] {
                    if route == Route::Blas && !cuda.has_blas() {
                        continue;
                    }
                    cuda.set_route(route);
                    for (columns, has_bias) in [(0..n, false), (0..n, true), (n / 8 * 3..n - n / 5, true)] {
                        let mut out = poisoned(cuda, m, n);
                        ops::linear(cuda, &mut out, &tx, &weight, has_bias.then_some(&bias), columns.clone());
                        let out = cuda.read(&out).unwrap();
                        let (mut computed, mut expected) = (Vec::new(), Vec::new());
                        for t in 0..m {
                            for c in 0..n {
                                if !columns.contains(&c) {
                                    assert!(out[t * n + c].is_nan(), "a column outside was written");
                                } else if (c + t) % 7 == 0 {
                                    computed.push(out[t * n + c]);
                                    expected.push(exact(t, c) + if has_bias { f64::from(b[c]) } else { 0.0 });
                                } else {
                                    assert!(
                                        out[t * n + c].is_finite(),
                                        "{m} {n} {k} {route:?}: {t} {c} was not written"
                                    );
                                }
                            }
                        }
                        let what = format!("{m} x {n} x {k}, {columns:?}, bias {has_bias}, {route:?}, {dtype:?}");
                        assert_near(&computed, &expected, bound(dtype), &what);
                    }
                }
            }
        }
    });
}

#[test]
fn heads_are_normalized_rotated_and_cached() {
    on_device(|cuda, dtype| {
        for (heads, kv_heads, d, block_size) in
            [(2, 1, 64, 16), (4, 2, 80, 32), (3, 3, 96, 64), (16, 8, 128, 64), (5, 1, 256, 256)]
        {
            for has_norm in [false, true] {
                let what = format!("{heads} heads, {kv_heads} kv heads of {d}, norm {has_norm}, {dtype:?}");
                let mut random = Random(4);
                let scene = Scene::new(&[(0, 40), (17, 1), (63, 3)], block_size, &mut random);
                let (tokens, cols) = (scene.batch.tokens(), (heads + 2 * kv_heads) * d);
                let values = random.numbers(tokens * cols, 2.0, dtype);
                let rope: Vec<f32> = (0..80)
                    .flat_map(|p| {
                        let angles = (0..d / 2).map(move |i| p as f64 / 10_000f64.powf(i as f64 / (d / 2) as f64));
                        let (c, s): (Vec<f32>, Vec<f32>) = angles.map(|a| (a.cos() as f32, a.sin() as f32)).unzip();
                        [c, s].concat()
                    })
                    .collect();
                let norms = [random.numbers(d, 1.5, dtype), random.numbers(d, 1.5, dtype)];
                let [query, key] = [0, 1].map(|i| cuda.vector(&[host_tensor(&norms[i], &[d], dtype)]).unwrap());
                let norm = has_norm.then_some(HeadNorm { query: &query, key: &key, eps: 1e-6 });
                let shape = KvShape { layers: 2, kv_heads, head_dim: d, block_size, dtype };
                let mut cache = cuda.kv_cache(&shape, scene.blocks).unwrap();
                let size = scene.blocks * shape.block_bytes();
                cache.fill(&vec![0xff; size]).unwrap();
                let step = staged(cuda, &scene.batch);
                let mut qkv = filled(cuda, &values, cols);
                let table = cuda.table(&rope).unwrap();
                ops::rope_and_cache(cuda, &mut qkv, &mut cache, 1, heads, norm, &table, &step);
                let (qkv, cached) = (cuda.read(&qkv).unwrap(), layer_values(&cache, 1));

                let head_of = |token: usize, head: usize| -> Vec<f64> {
                    let v = wide(&values[token * cols + head * d..][..d]);
                    if head >= heads + kv_heads {
                        return v;
                    }
                    let weights = if head < heads { &norms[0] } else { &norms[1] };
                    let scale = 1.0 / (v.iter().map(|v| v * v).sum::<f64>() / d as f64 + 1e-6).sqrt();
                    let v: Vec<f64> = match has_norm {
                        true => v.iter().zip(weights).map(|(v, &w)| v * scale * f64::from(w)).collect(),
                        false => v,
                    };
                    let table = &rope[scene.batch.positions[token] as usize * d..][..d];
                    let (half, at) = (d / 2, |i: usize| f64::from(table[i]));
                    let low = (0..half).map(|i| v[i] * at(i) - v[i + half] * at(i + half));
                    low.chain((0..half).map(|i| v[i + half] * at(i) + v[i] * at(i + half))).collect()
                };
                let (mut computed, mut expected) = (Vec::new(), Vec::new());
                let mut written = vec![false; cached.len()];
                for token in 0..tokens {
                    for head in 0..heads + 2 * kv_heads {
                        expected.extend(head_of(token, head));
                        if head < heads {
                            computed.extend_from_slice(&qkv[token * cols + head * d..][..d]);
                            continue;
                        }
                        let (kv, part) = ((head - heads) % kv_heads, (head - heads) / kv_heads);
                        let slot = scene.batch.slots[token] as usize;
                        let place = ((slot / block_size * kv_heads + kv) * 2 + part) * block_size + slot % block_size;
                        computed.extend_from_slice(&cached[place * d..][..d]);
                        written[place * d..][..d].fill(true);
                    }
                }
                assert_near(&computed, &expected, bound(dtype), &what);
                assert!(cached.iter().zip(written).all(|(v, w)| w || v.is_nan()), "{what}: a foreign slot was written");
                assert!(layer_values(&cache, 0).iter().all(|v| v.is_nan()), "{what}: a foreign layer was written");
            }
        }
    });
}

fn layer_values(cache: &KvCache, layer: usize) -> Vec<f32> {
    let (bytes, shape) = (cache.bytes().unwrap(), Cuda::kv_shape(cache));
    let layer_bytes = bytes.len() / shape.layers;
    let numbers = bytes[layer * layer_bytes..][..layer_bytes].chunks_exact(2);
    numbers
        .map(|b| match shape.dtype {
            DType::Bf16 => bf16::from_le_bytes([b[0], b[1]]).to_f32(),
            _ => f16::from_le_bytes([b[0], b[1]]).to_f32(),
        })
        .collect()
}

struct AttentionCase {
    name: &'static str,
    rows: &'static [(usize, usize)],
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    block_size: usize,
}

const QWEN3: AttentionCase =
    AttentionCase { name: "", rows: &[], heads: 16, kv_heads: 8, head_dim: 128, block_size: 64 };
const RAGGED: &[(usize, usize)] =
    &[(0, 37), (64, 1), (63, 2), (100, 30), (0, 1), (5, 60), (1500, 1), (0, 129), (15, 1), (16, 1), (200, 130)];
const DECODE: &[(usize, usize)] = &[(557, 1), (0, 1), (63, 1), (64, 1), (1, 1), (1999, 1), (300, 1)];

const ATTENTION: &[AttentionCase] = &[
    AttentionCase { name: "one token that sees itself alone", rows: &[(0, 1)], ..QWEN3 },
    AttentionCase { name: "one long row over all workers", rows: &[(5000, 1)], ..QWEN3 },
    AttentionCase { name: "decode", rows: DECODE, ..QWEN3 },
    AttentionCase { name: "ragged", rows: RAGGED, ..QWEN3 },
    AttentionCase {
        name: "heads of 64, group of 1",
        rows: RAGGED,
        heads: 3,
        kv_heads: 3,
        head_dim: 64,
        block_size: 16,
    },
    AttentionCase {
        name: "heads of 64, group of 4",
        rows: DECODE,
        heads: 8,
        kv_heads: 2,
        head_dim: 64,
        block_size: 16,
    },
    AttentionCase {
        name: "heads of 80, group of 3",
        rows: RAGGED,
        heads: 6,
        kv_heads: 2,
        head_dim: 80,
        block_size: 32,
    },
    AttentionCase {
        name: "heads of 96, group of 8",
        rows: RAGGED,
        heads: 16,
        kv_heads: 2,
        head_dim: 96,
        block_size: 64,
    },
    AttentionCase { name: "heads of 128, group of 5", rows: RAGGED, heads: 5, kv_heads: 1, block_size: 16, ..QWEN3 },
    AttentionCase { name: "heads of 128, group of 16", rows: RAGGED, heads: 16, kv_heads: 1, block_size: 256, ..QWEN3 },
    AttentionCase { name: "heads of 128, group of 9", rows: DECODE, heads: 18, kv_heads: 2, block_size: 32, ..QWEN3 },
    AttentionCase {
        name: "heads of 256, group of 2",
        rows: RAGGED,
        heads: 4,
        kv_heads: 2,
        head_dim: 256,
        block_size: 256,
    },
    AttentionCase {
        name: "heads of 256, group of 16",
        rows: DECODE,
        heads: 16,
        kv_heads: 1,
        head_dim: 256,
        block_size: 16,
    },
    AttentionCase { name: "a long prompt", rows: &[(0, 700), (300, 400)], heads: 2, kv_heads: 1, ..QWEN3 },
];

/// What attention reads: a cache of random numbers, and queries.
struct AttentionInput {
    scene: Scene,
    shape: KvShape,
    keys_and_values: Vec<f32>,
    qkv: Vec<f32>,
}

impl AttentionInput {
    fn new(case: &AttentionCase, dtype: DType) -> AttentionInput {
        let mut random = Random(5);
        let scene = Scene::new(case.rows, case.block_size, &mut random);
        let AttentionCase { heads, kv_heads, head_dim, block_size, .. } = *case;
        let shape = KvShape { layers: 1, kv_heads, head_dim, block_size, dtype };
        // What no row may see is NaN.
        let mut keys_and_values = vec![f32::NAN; scene.blocks * shape.block_bytes() / 2];
        for (row, &context) in scene.batch.context_lens.iter().enumerate() {
            for position in 0..context as usize {
                for plane in 0..2 * kv_heads {
                    let slot = scene.slot(row, position);
                    let place = (slot / block_size * 2 * kv_heads + plane) * block_size + slot % block_size;
                    let numbers = random.numbers(head_dim, 1.5, dtype);
                    keys_and_values[place * head_dim..][..head_dim].copy_from_slice(&numbers);
                }
            }
        }
        let qkv = random.numbers(scene.batch.tokens() * (heads + 2 * kv_heads) * head_dim, 1.5, dtype);
        AttentionInput { scene, shape, keys_and_values, qkv }
    }

    fn expected(&self, heads: usize, scale: f64) -> Vec<f64> {
        let KvShape { kv_heads, head_dim: d, block_size, .. } = self.shape;
        let (batch, cols) = (&self.scene.batch, (heads + 2 * kv_heads) * d);
        let mut out = Vec::new();
        for row in 0..batch.rows() {
            for token in batch.row(row) {
                for head in 0..heads {
                    let query = &self.qkv[token * cols + head * d..][..d];
                    let part = |position: usize, part: usize| {
                        let slot = self.scene.slot(row, position);
                        let kv = head / (heads / kv_heads);
                        let place = ((slot / block_size * kv_heads + kv) * 2 + part) * block_size + slot % block_size;
                        &self.keys_and_values[place * d..][..d]
                    };
                    let scores: Vec<f64> = (0..=batch.positions[token] as usize)
                        .map(|j| query.iter().zip(part(j, 0)).map(|(&a, &b)| f64::from(a * b)).sum::<f64>() * scale)
                        .collect();
                    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
                    let total: f64 = weights.iter().sum();
                    let mut sum = vec![0.0; d];
                    for (j, weight) in weights.iter().enumerate() {
                        sum.iter_mut().zip(part(j, 1)).for_each(|(s, &v)| *s += weight / total * f64::from(v));
                    }
                    out.extend(sum);
                }
            }
        }
        out
    }

    fn bytes(&self) -> Vec<u8> {
        host_tensor(&self.keys_and_values, &[self.keys_and_values.len()], self.shape.dtype).bytes().to_vec()
    }
}

#[test]
fn attention_agrees() {
    on_device(|cuda, dtype| {
        for case in ATTENTION {
            let input = AttentionInput::new(case, dtype);
            let KvShape { kv_heads, head_dim: d, .. } = input.shape;
            let batch = &input.scene.batch;
            let mut cache = cuda.kv_cache(&input.shape, input.scene.blocks).unwrap();
            cache.fill(&input.bytes()).unwrap();
            let step = staged(cuda, batch);
            let qkv = filled(cuda, &input.qkv, (case.heads + 2 * kv_heads) * d);
            let scale = 1.0 / (d as f64).sqrt();
            let expected = input.expected(case.heads, scale);
            let mut first = Vec::new();
            // Twice: the counts of arrivals must be as they were.
            for round in 0..2 {
                let mut out = poisoned(cuda, batch.tokens(), case.heads * d);
                ops::attention(cuda, &mut out, &qkv, &cache, 0, case.heads, scale as f32, &step);
                let out = cuda.read(&out).unwrap();
                assert_near(&out, &expected, bound(dtype), &format!("{}, {dtype:?}, round {round}", case.name));
                if round == 0 {
                    first = out;
                } else {
                    assert_eq!(first, out, "{}: the same launch gave other bits", case.name);
                }
            }
        }
    });
}

#[test]
fn blocks_are_copied_in_every_layer() {
    on_device(|cuda, dtype| {
        let shape = KvShape { layers: 3, kv_heads: 2, head_dim: 64, block_size: 16, dtype };
        let mut cache = cuda.kv_cache(&shape, 8).unwrap();
        let bytes: Vec<u8> = (0..8 * shape.block_bytes()).map(|i| (i * 7 + i / 251) as u8).collect();
        cache.fill(&bytes).unwrap();
        cuda.copy_blocks(&mut cache, &[(1, 5), (2, 7)]).unwrap();
        let block = shape.block_bytes() / 3;
        let mut expected = bytes;
        for layer in 0..3 {
            for (from, to) in [(1, 5), (2, 7)] {
                let from = (layer * 8 + from) * block;
                expected.copy_within(from..from + block, (layer * 8 + to) * block);
            }
        }
        assert!(cache.bytes().unwrap() == expected);
    });
}

/// A few layers of a random model, run op by op.
struct Model {
    cache: KvCache,
    step: Step,
    tensors: Vec<Tensor>,
    matrices: Vec<nanovllm::backend::cuda::Matrix>,
    vectors: Vec<nanovllm::backend::cuda::Vector>,
    batch: Batch,
}

const HIDDEN: usize = 256;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 64;
const WIDTH: usize = 512;
const VOCAB: usize = 1003;

impl Model {
    fn new(cuda: &mut Cuda, rows: &[(usize, usize)], dtype: DType) -> Model {
        let mut random = Random(6);
        let scene = Scene::new(rows, 16, &mut random);
        let shape = KvShape { layers: 1, kv_heads: KV_HEADS, head_dim: HEAD_DIM, block_size: 16, dtype };
        let mut cache = cuda.kv_cache(&shape, scene.blocks).unwrap();
        let numbers = random.numbers(scene.blocks * shape.block_bytes() / 2, 1.0, dtype);
        cache.fill(host_tensor(&numbers, &[numbers.len()], dtype).bytes()).unwrap();
        let qkv = (HEADS + 2 * KV_HEADS) * HEAD_DIM;
        let sizes = [(VOCAB, HIDDEN), (qkv, HIDDEN), (HIDDEN, HEADS * HEAD_DIM), (2 * WIDTH, HIDDEN), (HIDDEN, WIDTH)];
        let matrices = sizes
            .map(|(n, k)| cuda.matrix(&[host_tensor(&random.numbers(n * k, 0.15, dtype), &[n, k], dtype)]).unwrap());
        let rope: Vec<f32> =
            (0..4096 * HEAD_DIM).map(|i| if i % HEAD_DIM < HEAD_DIM / 2 { 0.8 } else { 0.6 }).collect();
        let norm = random.numbers(HIDDEN, 1.0, dtype);
        let vectors = vec![cuda.vector(&[host_tensor(&norm, &[HIDDEN], dtype)]).unwrap(), cuda.table(&rope).unwrap()];
        let mut batch = scene.batch;
        for (i, sampling) in batch.sampling.iter_mut().enumerate() {
            *sampling = match i % 3 {
                0 => Sampling::GREEDY,
                1 => Sampling { temperature: 0.7, seed: 5, position: i as u32, ..Sampling::GREEDY },
                _ => Sampling {
                    temperature: 0.7,
                    seed: 5,
                    top_k: 20,
                    top_p: 0.9,
                    position: i as u32,
                    ..Sampling::GREEDY
                },
            };
        }
        let tokens = batch.tokens();
        let widths = [HIDDEN, HIDDEN, HIDDEN, qkv, HEADS * HEAD_DIM, 2 * WIDTH, WIDTH];
        let mut tensors: Vec<Tensor> = widths.iter().map(|&cols| poisoned(cuda, tokens, cols)).collect();
        tensors.push(poisoned(cuda, batch.rows(), HIDDEN));
        tensors.push(poisoned(cuda, batch.rows(), VOCAB));
        let step = staged(cuda, &batch);
        Model { cache, step, tensors, matrices: matrices.into(), vectors, batch }
    }

    fn launch(&mut self, cuda: &mut Cuda) {
        let [residual, x, normed, qkv, attended, gate_up, gated, last, logits] = &mut self.tensors[..] else {
            unreachable!()
        };
        let [embedding, qkv_weight, out_weight, gate_up_weight, down_weight] = &self.matrices[..] else {
            unreachable!()
        };
        let [norm, rope] = &self.vectors[..] else { unreachable!() };
        ops::embedding(cuda, residual, embedding, &self.step);
        ops::rms_norm(cuda, normed, residual, norm, 1e-6);
        for _ in 0..6 {
            ops::linear(cuda, qkv, normed, qkv_weight, None, 0..(HEADS + 2 * KV_HEADS) * HEAD_DIM);
            ops::rope_and_cache(cuda, qkv, &mut self.cache, 0, HEADS, None, rope, &self.step);
            ops::attention(cuda, attended, qkv, &self.cache, 0, HEADS, 0.125, &self.step);
            ops::linear(cuda, x, attended, out_weight, None, 0..HIDDEN);
            ops::add_rms_norm(cuda, normed, residual, x, norm, 1e-6);
            ops::linear(cuda, gate_up, normed, gate_up_weight, None, 0..2 * WIDTH);
            ops::silu_mul(cuda, gated, gate_up);
            ops::linear(cuda, x, gated, down_weight, None, 0..HIDDEN);
            ops::add_rms_norm(cuda, normed, residual, x, norm, 1e-6);
        }
        ops::gather_last(cuda, last, normed, &self.step);
        ops::linear(cuda, logits, last, embedding, None, 0..VOCAB);
        ops::sample(cuda, &mut self.step, logits);
    }

    fn results(&mut self, cuda: &mut Cuda) -> (Vec<u32>, Vec<u32>) {
        let tokens = cuda.sampled(&self.step).unwrap().to_vec();
        (tokens, cuda.read(&self.tensors[8]).unwrap().iter().map(|v| v.to_bits()).collect())
    }
}

#[test]
fn a_step_gives_the_same_bits_strict_overlapped_and_as_a_graph() {
    on_device(|cuda, dtype| {
        for rows in [&[(5, 1), (100, 1), (0, 1)][..], &[(700, 1); 40], &[(0, 70), (30, 1), (9, 20), (400, 100)]] {
            let mut model = Model::new(cuda, rows, dtype);
            cuda.set_chaining(Chaining::Strict);
            model.launch(cuda);
            let strict = model.results(cuda);
            assert!(strict.1.iter().all(|&bits| f32::from_bits(bits).is_finite()));
            cuda.set_chaining(Chaining::Overlapped);
            for _ in 0..20 {
                model.launch(cuda);
                assert!(strict == model.results(cuda), "{} rows, {dtype:?}, overlapped", rows.len());
            }
            let graph = cuda.capture(|cuda| model.launch(cuda)).unwrap();
            for _ in 0..20 {
                graph.launch().unwrap();
                model.step.mark_sampled().unwrap();
                assert!(strict == model.results(cuda), "{} rows, {dtype:?}, as a graph", rows.len());
            }
        }
    });
}

#[test]
fn a_graph_serves_later_batches_and_rows_that_only_pad() {
    on_device(|cuda, dtype| {
        let mut model = Model::new(cuda, &[(300, 1), (50, 1), (20, 1), (700, 1)], dtype);
        model.launch(cuda);
        let graph = cuda.capture(|cuda| model.launch(cuda)).unwrap();
        // The same four rows with other contexts, then with the last two padded away.
        for (contexts, real) in [([120, 51, 3, 500], 4), ([120, 51, 0, 0], 2)] {
            let mut batch = model.batch.clone();
            for (row, &context) in contexts.iter().enumerate() {
                batch.context_lens[row] = context;
                batch.positions[row] = context.max(1) - 1;
                let position = batch.positions[row] as usize;
                batch.slots[row] = match context {
                    0 => u32::MAX,
                    _ => batch.block_table(row)[position / 16] * 16 + position as u32 % 16,
                };
            }
            cuda.stage(&mut model.step, &batch).unwrap();
            model.launch(cuda);
            let eager = model.results(cuda);
            cuda.stage(&mut model.step, &batch).unwrap();
            graph.launch().unwrap();
            model.step.mark_sampled().unwrap();
            let replayed = model.results(cuda);
            assert_eq!(eager.0[..real], replayed.0[..real], "{contexts:?}");
            assert_eq!(eager.1[..real * VOCAB], replayed.1[..real * VOCAB], "{contexts:?}");
        }
    });
}

#[test]
fn opening_and_freeing_twenty_times_leaves_the_device_as_it_was() {
    if device_count().unwrap() == 0 {
        return;
    }
    let held = Cuda::open(0, DType::Bf16).unwrap();
    let mut free = Vec::new();
    for _ in 0..20 {
        let mut cuda = Cuda::open(0, DType::Bf16).unwrap();
        let mut model = Model::new(&mut cuda, &[(5, 1), (100, 20)], DType::Bf16);
        model.launch(&mut cuda);
        model.results(&mut cuda);
        let graph = cuda.capture(|cuda| model.launch(cuda)).unwrap();
        graph.launch().unwrap();
        drop((cuda, model, graph));
        free.push(held.memory().unwrap().0);
    }
    assert_eq!(free[4], free[19], "free bytes after each: {free:?}");
}

#[test]
fn memory_that_is_not_there_is_an_error_with_facts() {
    on_device(|cuda, dtype| {
        let shape = KvShape { layers: 64, kv_heads: 64, head_dim: 128, block_size: 64, dtype };
        let error = cuda.kv_cache(&shape, 1 << 20).err().expect("no device holds that");
        let Error::OutOfMemory { bytes, knob, .. } = error else { panic!("{error}") };
        assert_eq!((bytes, knob), (shape.block_bytes() as u64 * (1 << 20), "kv_cache_bytes"));
        // The device goes on working.
        let x = filled(cuda, &[1.0; 64], 64);
        assert_eq!(cuda.read(&x).unwrap(), [1.0; 64]);
    });
}

#[test]
fn what_the_kernels_do_not_know_is_refused_when_the_model_loads() {
    on_device(|cuda, dtype| {
        let shape = KvShape { layers: 1, kv_heads: 1, head_dim: 128, block_size: 64, dtype };
        for (what, shape) in [
            ("heads of 72", KvShape { head_dim: 72, ..shape }),
            ("blocks of 8", KvShape { block_size: 8, ..shape }),
            ("blocks of 48", KvShape { block_size: 48, ..shape }),
            ("another number type", KvShape { dtype: DType::F32, ..shape }),
        ] {
            assert!(cuda.kv_cache(&shape, 1).is_err(), "{what}");
        }
        assert!(cuda.matrix(&[host_tensor(&[0.0; 20], &[2, 10], dtype)]).is_err(), "columns that are no multiple of 8");
    });
    if device_count().unwrap() > 0 {
        assert!(Cuda::open(99, DType::Bf16).is_err() && Cuda::open(0, DType::F32).is_err());
    }
}

struct SampleCase {
    name: &'static str,
    samples: usize,
    vocab: usize,
    /// Greatest absolute value of a logit.
    size: f32,
    /// Logits are multiples of this, so that some are equal; 0 leaves them as they are.
    grid: f32,
    /// Banned tokens of each sample.
    banned: usize,
    sampling: Sampling,
}

const WARM: Sampling = Sampling { temperature: 0.8, seed: 0x1234_5678_9abc_def0, ..Sampling::GREEDY };
const PLAIN: SampleCase =
    SampleCase { name: "", samples: 200, vocab: 300, size: 6.0, grid: 0.0, banned: 0, sampling: WARM };
const QWEN3_VOCAB: SampleCase = SampleCase { samples: 6, vocab: 151_936, ..PLAIN };

const SAMPLE: &[SampleCase] = &[
    SampleCase { name: "greedy", sampling: Sampling::GREEDY, ..PLAIN },
    SampleCase { name: "greedy among equals", sampling: Sampling::GREEDY, grid: 2.0, ..PLAIN },
    SampleCase { name: "greedy, some banned", sampling: Sampling::GREEDY, banned: 40, ..PLAIN },
    SampleCase { name: "temperature", ..PLAIN },
    SampleCase { name: "high temperature", sampling: Sampling { temperature: 50.0, ..WARM }, ..PLAIN },
    SampleCase { name: "hardly any temperature", sampling: Sampling { temperature: 1e-30, ..WARM }, ..PLAIN },
    SampleCase { name: "temperature, some banned", banned: 40, ..PLAIN },
    SampleCase { name: "temperature, equal logits", size: 0.0, ..PLAIN },
    SampleCase { name: "a vocabulary of two", vocab: 2, ..PLAIN },
    SampleCase { name: "a vocabulary of 65", vocab: 65, ..PLAIN },
    SampleCase { name: "top-k", sampling: Sampling { top_k: 10, ..WARM }, ..PLAIN },
    SampleCase { name: "top-k of one", sampling: Sampling { top_k: 1, ..WARM }, ..PLAIN },
    SampleCase { name: "top-k of more than there are", sampling: Sampling { top_k: 1000, ..WARM }, ..PLAIN },
    SampleCase {
        name: "top-k of nearly all, many banned",
        sampling: Sampling { top_k: 290, ..WARM },
        banned: 40,
        ..PLAIN
    },
    SampleCase { name: "top-k with ties", sampling: Sampling { top_k: 10, ..WARM }, grid: 0.5, ..PLAIN },
    SampleCase { name: "top-p", sampling: Sampling { top_p: 0.9, ..WARM }, ..PLAIN },
    SampleCase { name: "top-p of nearly nothing", sampling: Sampling { top_p: 1e-6, ..WARM }, ..PLAIN },
    SampleCase { name: "top-p of nearly all", sampling: Sampling { top_p: 0.999_999, ..WARM }, ..PLAIN },
    SampleCase { name: "top-p with ties", sampling: Sampling { top_p: 0.7, ..WARM }, grid: 1.0, ..PLAIN },
    SampleCase { name: "min-p", sampling: Sampling { min_p: 0.05, ..WARM }, ..PLAIN },
    SampleCase { name: "min-p of all", sampling: Sampling { min_p: 1.0, ..WARM }, grid: 1.0, ..PLAIN },
    SampleCase {
        name: "all filters, some banned",
        sampling: Sampling { top_k: 40, top_p: 0.95, min_p: 0.02, ..WARM },
        banned: 3,
        ..PLAIN
    },
    SampleCase { name: "greedy over Qwen3's vocabulary", sampling: Sampling::GREEDY, ..QWEN3_VOCAB },
    SampleCase { name: "temperature over Qwen3's vocabulary", ..QWEN3_VOCAB },
    SampleCase {
        name: "a low temperature over Qwen3's vocabulary",
        sampling: Sampling { temperature: 0.2, ..WARM },
        ..QWEN3_VOCAB
    },
    SampleCase { name: "top-p over Qwen3's vocabulary", sampling: Sampling { top_p: 0.95, ..WARM }, ..QWEN3_VOCAB },
    SampleCase {
        name: "all filters over Qwen3's vocabulary",
        sampling: Sampling { top_k: 5000, top_p: 0.95, min_p: 1e-5, ..WARM },
        banned: 5,
        ..QWEN3_VOCAB
    },
];

#[test]
fn the_same_logits_give_the_same_tokens_as_on_the_cpu() {
    on_device(|cuda, dtype| {
        for case in SAMPLE {
            let mut random = Random(8);
            let mut logits = random.numbers(case.samples * case.vocab, case.size, DType::F32);
            for logit in &mut logits {
                let on_grid = if case.grid > 0.0 { (*logit / case.grid).round() * case.grid } else { *logit };
                *logit = rounded(on_grid, dtype);
            }
            let mut batch = Scene::new(&vec![(0, 1); case.samples], 16, &mut random).batch;
            for (sample, sampling) in batch.sampling.iter_mut().enumerate() {
                let banned_start = batch.banned_tokens.len() as u32;
                batch.banned_tokens.extend((0..case.banned).map(|_| random.below(case.vocab) as u32));
                *sampling = Sampling {
                    position: sample as u32,
                    stream: (sample as u64 % 3) << 31,
                    banned_start,
                    banned_end: batch.banned_tokens.len() as u32,
                    ..case.sampling
                };
            }
            let expected = nanovllm::backend::cpu::reference::sample(&logits, case.vocab, &batch);
            let logits = filled(cuda, &logits, case.vocab);
            let mut step = staged(cuda, &batch);
            for round in 0..2 {
                ops::sample(cuda, &mut step, &logits);
                assert_eq!(cuda.sampled(&step).unwrap(), expected, "{}, {dtype:?}, round {round}", case.name);
            }
        }
    });
}

#[test]
fn no_token_that_is_nan_or_banned_is_chosen() {
    const NAN: f32 = f32::NAN;
    const MINUS: f32 = f32::NEG_INFINITY;
    const PLUS: f32 = f32::INFINITY;
    let cases: &[(&str, &[f32], &[u32], u32)] = &[
        ("NaN never wins", &[NAN, 1.0, NAN, 2.0, NAN], &[], 3),
        ("all NaN", &[NAN; 5], &[], 0),
        ("all minus infinity", &[MINUS; 5], &[], 0),
        ("minus infinity and NaN", &[NAN, MINUS, NAN, MINUS, NAN], &[], 1),
        ("minus infinity, the first banned", &[MINUS; 5], &[0, 1], 2),
        ("all banned", &[1.0; 5], &[4, 3, 2, 1, 0], 0),
        ("all but one banned", &[1.0; 5], &[4, 3, 1, 0], 2),
        ("the likeliest banned", &[1.0, 90.0, 2.0, 60.0, 3.0], &[1], 3),
        ("infinite logits, the first one wins", &[1.0, PLUS, NAN, PLUS, 0.0], &[], 1),
        ("zeros of both signs are equal", &[MINUS, -0.0, 0.0, -0.0, MINUS], &[3, 2], 1),
    ];
    on_device(|cuda, dtype| {
        for (name, logits, banned, expected) in cases {
            for sampling in [Sampling::GREEDY, WARM, Sampling { top_k: 3, top_p: 0.9, min_p: 0.1, ..WARM }] {
                let mut batch = Scene::new(&[(0, 1)], 16, &mut Random(9)).batch;
                batch.sampling = vec![Sampling { banned_end: banned.len() as u32, ..sampling }];
                batch.banned_tokens = banned.to_vec();
                let logits = filled(cuda, logits, 5);
                let mut step = staged(cuda, &batch);
                ops::sample(cuda, &mut step, &logits);
                let token = cuda.sampled(&step).unwrap();
                assert_eq!(token, [*expected], "{name}, {dtype:?}, temperature {}", sampling.temperature);
            }
        }
    });
}
