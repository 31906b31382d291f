//! `rope_and_cache`.

use crate::column::{Column, Op, agrees, cache_values};
use crate::scene::{Random, Row, Sequences, uploaded};
use nanovllm::backend::cpu::{KvCache, reference};
use nanovllm::backend::{AttentionSpec, DType, HeadNorm, KvShape, QkNormRope};
use nanovllm::batch::Batch;
use nanovllm::ops;

struct Case {
    /// Tokens of each row before and in this batch.
    rows: &'static [(usize, usize)],
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    block_size: usize,
    dtype: DType,
    norm: Norm,
}

#[derive(Clone, Copy, PartialEq)]
enum Norm {
    PerHead,
    None,
}

const EPS: f32 = 1e-6;
const LAYERS: usize = 3;
const LAYER: usize = 1;

struct Prepared {
    spec: AttentionSpec,
    qkv: Vec<f32>,
    rope: Vec<f32>,
    query_norm: Vec<f32>,
    key_norm: Vec<f32>,
    batch: Batch,
    shape: KvShape,
    blocks: usize,
}

fn prepare(case: &Case) -> Prepared {
    let mut random = Random(5);
    let lens: Vec<usize> = case.rows.iter().map(|(before, new)| before + new).collect();
    let sequences = Sequences::new(&mut random, &lens, case.block_size);
    let rows: Vec<Row> =
        case.rows.iter().enumerate().map(|(sequence, &(before, new))| Row { sequence, before, new }).collect();
    let batch = sequences.batch(&rows);
    let positions = lens.iter().max().unwrap();
    let rope = (0..*positions).flat_map(|position| {
        let angle = move |i: usize| position as f32 * 0.7f32.powi(i as i32);
        (0..case.head_dim / 2).map(move |i| angle(i).cos()).chain((0..case.head_dim / 2).map(move |i| angle(i).sin()))
    });
    Prepared {
        spec: AttentionSpec { heads: case.heads, scale: 1.0, window: None, softcap: None },
        qkv: random.numbers(batch.tokens() * (case.heads + 2 * case.kv_heads) * case.head_dim, 2.0),
        rope: rope.collect(),
        query_norm: random.numbers(case.head_dim, 2.0),
        key_norm: random.numbers(case.head_dim, 2.0),
        batch,
        shape: KvShape {
            layers: LAYERS,
            kv_heads: case.kv_heads,
            head_dim: case.head_dim,
            block_size: case.block_size,
            dtype: case.dtype,
        },
        blocks: sequences.blocks,
    }
}

/// The queries of each token, and then the cache. What an op leaves in the place of keys and values is its own affair.
fn queries_and_cache(qkv: &[f32], cache: Vec<f32>, case: &Case) -> Vec<f32> {
    let tokens = qkv.chunks_exact((case.heads + 2 * case.kv_heads) * case.head_dim);
    tokens.flat_map(|token| token[..case.heads * case.head_dim].to_vec()).chain(cache).collect()
}

struct RopeAndCache;

impl Op for RopeAndCache {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        (
            "one token, first of its sequence",
            Case {
                rows: &[(0, 1)],
                heads: 1,
                kv_heads: 1,
                head_dim: 16,
                block_size: 16,
                dtype: DType::F32,
                norm: Norm::None,
            },
        ),
        (
            "decode batch",
            Case {
                rows: &[(3, 1), (0, 1), (30, 1)],
                heads: 4,
                kv_heads: 2,
                head_dim: 32,
                block_size: 4,
                dtype: DType::F32,
                norm: Norm::PerHead,
            },
        ),
        (
            "ragged prefill, f16",
            Case {
                rows: &[(0, 19), (5, 7), (40, 1)],
                heads: 6,
                kv_heads: 2,
                head_dim: 24,
                block_size: 5,
                dtype: DType::F16,
                norm: Norm::None,
            },
        ),
        (
            "a head that is no multiple of 8",
            Case {
                rows: &[(2, 3), (0, 9)],
                heads: 3,
                kv_heads: 1,
                head_dim: 10,
                block_size: 1,
                dtype: DType::Bf16,
                norm: Norm::PerHead,
            },
        ),
        (
            "prefill of Qwen3-0.6B",
            Case {
                rows: &[(0, 70), (100, 1)],
                heads: 16,
                kv_heads: 8,
                head_dim: 128,
                block_size: 16,
                dtype: DType::Bf16,
                norm: Norm::PerHead,
            },
        ),
    ];
    // Where f32 differs in the last place, a number of the cache may round to its other neighbour.
    const BOUND: f64 = 1e-4;

    fn expected(case: &Case) -> Vec<f32> {
        let Prepared { spec, mut qkv, rope, query_norm, key_norm, batch, shape, blocks } = prepare(case);
        let mut cache = KvCache::new(&shape, blocks).unwrap();
        let [query, key, rope] = [query_norm, key_norm, rope].map(Vec::into_boxed_slice);
        let norm = (case.norm == Norm::PerHead).then_some(HeadNorm { query: &query, key: &key, eps: EPS });
        let transform = QkNormRope { norm, rope: &rope };
        reference::rope_and_cache(&spec, &mut qkv, transform, &mut cache, LAYER, &batch);
        queries_and_cache(&qkv, cache_values(&cache, LAYER), case)
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let prepared = prepare(case);
        let mut qkv = backend.filled(&prepared.qkv, prepared.qkv.len() / prepared.batch.tokens());
        let mut cache = backend.kv_cache(&prepared.shape, prepared.blocks).unwrap();
        let device_batch = uploaded(backend, &prepared.batch);
        let [query, key, rope] =
            [&prepared.query_norm, &prepared.key_norm, &prepared.rope].map(|table| backend.table(table).unwrap());
        let norm = (case.norm == Norm::PerHead).then_some(HeadNorm { query: &query, key: &key, eps: EPS });
        let transform = QkNormRope { norm, rope: &rope };
        ops::rope_and_cache(backend, &prepared.spec, &mut qkv, transform, &mut cache, LAYER, &device_batch);
        for other in [0, 2] {
            assert!(backend.read_cache(&cache, other).iter().all(|&v| v == 0.0), "layer {other} was touched");
        }
        let cache = backend.read_cache(&cache, LAYER);
        queries_and_cache(&backend.read(&qkv), cache, case)
    }
}

#[test]
fn rope_and_cache_agrees_with_its_specification() {
    agrees::<RopeAndCache>();
}
