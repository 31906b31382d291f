//! `rope_and_cache`.

use crate::column::{Column, Op, agrees, cache_values};
use crate::scene::{Random, Row, Sequences, uploaded};
use compute::batch::Batch;
use compute::cpu::{KvCache, reference};
use compute::ops;
use compute::{
    AttentionSpec, KvFormat, KvShape, KvValues, NormExtent, NormOrder, Pairing, QkNormRope, QkNormWeights, RopeTable,
};
use formats::DType;

struct Case {
    /// Tokens of each row before and in this batch.
    rows: &'static [(usize, usize)],
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    block_size: usize,
    format: KvFormat,
    norm: Option<NormExtent>,
    rope: Option<Rope>,
    temperature: Temperature,
    value_norm: Option<f32>,
    columns: Columns,
    values: KvValues,
}

/// Numbers of a head that turn, and which of them together.
#[derive(Clone, Copy)]
enum Rope {
    Halves(usize),
    Neighbours(usize),
}

/// What the projections made.
#[derive(Clone, Copy, PartialEq)]
enum Columns {
    All,
    /// Another layer stored keys and values.
    Queries,
}

#[derive(Clone, Copy, PartialEq)]
enum Temperature {
    Growing,
    None,
}

const BEFORE: Option<NormExtent> = Some(NormExtent::Head(NormOrder::BeforeRope));
const AFTER: Option<NormExtent> = Some(NormExtent::Head(NormOrder::AfterRope));
const WHOLE: Option<NormExtent> = Some(NormExtent::Whole);

/// Rows of one token and of several.
const RAGGED: Case = Case {
    rows: &[(0, 19), (5, 7), (40, 1)],
    heads: 6,
    kv_heads: 2,
    head_dim: 24,
    block_size: 5,
    format: KvFormat::Plain(DType::F32),
    norm: None,
    rope: Some(Rope::Halves(24)),
    temperature: Temperature::None,
    value_norm: None,
    columns: Columns::All,
    values: KvValues::Stored,
};

impl Rope {
    fn rotary(self) -> usize {
        let (Rope::Halves(rotary) | Rope::Neighbours(rotary)) = self;
        rotary
    }
}

impl Case {
    fn cols(&self) -> usize {
        let kv_heads = if self.columns == Columns::All { self.kv_heads } else { 0 };
        (self.heads + self.values.vectors() * kv_heads) * self.head_dim
    }

    /// `vectors` are the norms of queries and keys, the table and the temperatures.
    fn transform<'a, V, T: ?Sized>(&self, vectors: &'a [V; 4]) -> QkNormRope<'a, V, T> {
        let [query, key, table, temperature] = vectors;
        QkNormRope {
            norm: self.norm.map(|extent| QkNormWeights { query, key, eps: EPS, extent }),
            whole: None,
            rope: self.rope.map(|rope| RopeTable {
                table,
                rotary: rope.rotary(),
                pairing: match rope {
                    Rope::Halves(_) => Pairing::Halves,
                    Rope::Neighbours(_) => Pairing::Neighbours,
                },
            }),
            temperature: (self.temperature == Temperature::Growing).then_some(temperature),
            value_norm: self.value_norm,
        }
    }
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
    temperature: Vec<f32>,
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
    let pairs = case.rope.map_or(0, |rope| rope.rotary() / 2);
    let rope = (0..*positions).flat_map(|position| {
        let angle = move |i: usize| position as f32 * 0.7f32.powi(i as i32);
        (0..pairs).map(move |i| angle(i).cos()).chain((0..pairs).map(move |i| angle(i).sin()))
    });
    let (query_width, key_width) = match case.norm {
        Some(NormExtent::Whole) => (case.heads * case.head_dim, case.kv_heads * case.head_dim),
        _ => (case.head_dim, case.head_dim),
    };
    Prepared {
        spec: AttentionSpec { heads: case.heads, scale: 1.0, window: None, softcap: None, reach: compute::Reach::Back },
        qkv: random.numbers(batch.tokens() * case.cols(), 2.0),
        rope: rope.collect(),
        query_norm: random.numbers(query_width, 2.0),
        key_norm: random.numbers(key_width, 2.0),
        temperature: (0..*positions).map(|position| 1.0 + 0.1 * (1.0 + (position / 8) as f32).ln()).collect(),
        batch,
        shape: KvShape {
            kv_heads: case.kv_heads,
            head_dim: case.head_dim,
            values: case.values,
            block_size: case.block_size,
            format: case.format,
        },
        blocks: sequences.blocks,
    }
}

/// The keys and values of a cache, in the order of their slots and heads.
fn keys_and_values(cache: &[f32], shape: &KvShape, blocks: usize) -> Vec<f32> {
    let scale_at = |at: usize| match shape.format {
        KvFormat::Plain(_) => 1.0,
        KvFormat::Int8 => half::bf16::from_ne_bytes([cache[at] as i8 as u8, cache[at + 1] as i8 as u8]).to_f32(),
    };
    let places = (0..blocks * shape.block_size).flat_map(|slot| (0..shape.kv_heads).map(move |head| (slot, head)));
    let vectors = places.flat_map(|(slot, head)| {
        let key = (shape.key_at(slot, head), shape.key_scale_at(slot, head));
        let value = (shape.value_at(slot, head), shape.value_scale_at(slot, head));
        [(key, shape.scaled_as_key()), (value, shape.value_dim())]
    });
    vectors.flat_map(|((at, scale), len)| cache[at..at + len].iter().map(move |v| v * scale_at(scale))).collect()
}

/// The queries of each token, and then the cache. What an op leaves in the place of keys and values is its own affair.
fn queries_and_cache(qkv: &[f32], cache: Vec<f32>, case: &Case) -> Vec<f32> {
    let tokens = qkv.chunks_exact(case.cols());
    tokens.flat_map(|token| token[..case.heads * case.head_dim].to_vec()).chain(cache).collect()
}

struct RopeAndCache;

impl Op for RopeAndCache {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        (
            "one token, first of its sequence",
            Case { rows: &[(0, 1)], heads: 1, kv_heads: 1, head_dim: 16, rope: Some(Rope::Halves(16)), ..RAGGED },
        ),
        (
            "decode batch",
            Case {
                rows: &[(3, 1), (0, 1), (30, 1)],
                head_dim: 32,
                block_size: 4,
                norm: BEFORE,
                rope: Some(Rope::Halves(32)),
                ..RAGGED
            },
        ),
        ("ragged prefill, f16", Case { format: KvFormat::Plain(DType::F16), ..RAGGED }),
        (
            "a head that is no multiple of 8",
            Case {
                rows: &[(2, 3), (0, 9)],
                heads: 3,
                kv_heads: 1,
                head_dim: 10,
                block_size: 1,
                format: KvFormat::Plain(DType::Bf16),
                norm: BEFORE,
                rope: Some(Rope::Halves(10)),
                ..RAGGED
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
                format: KvFormat::Plain(DType::Bf16),
                norm: BEFORE,
                rope: Some(Rope::Halves(128)),
                ..RAGGED
            },
        ),
        ("int8", Case { format: KvFormat::Int8, ..RAGGED }),
        ("int8, normalized before", Case { format: KvFormat::Int8, norm: BEFORE, ..RAGGED }),
        (
            "int8, neighbours, normalized after",
            Case { format: KvFormat::Int8, rope: Some(Rope::Neighbours(12)), norm: AFTER, ..RAGGED },
        ),
        (
            "int8, heads of 10, blocks of one token",
            Case { head_dim: 10, rope: Some(Rope::Halves(10)), block_size: 1, format: KvFormat::Int8, ..RAGGED },
        ),
        (
            "int8, prefill of Qwen3-0.6B",
            Case {
                rows: &[(0, 70), (100, 1)],
                heads: 16,
                kv_heads: 8,
                head_dim: 128,
                block_size: 16,
                format: KvFormat::Int8,
                norm: BEFORE,
                rope: Some(Rope::Halves(128)),
                ..RAGGED
            },
        ),
        ("half of each head, halves", Case { rope: Some(Rope::Halves(12)), ..RAGGED }),
        (
            "three quarters of each head, normalized before",
            Case { rope: Some(Rope::Halves(18)), norm: BEFORE, ..RAGGED },
        ),
        ("one pair of each head", Case { rope: Some(Rope::Halves(2)), ..RAGGED }),
        ("neighbours", Case { rope: Some(Rope::Neighbours(24)), ..RAGGED }),
        (
            "neighbours, bf16, normalized before",
            Case { rope: Some(Rope::Neighbours(24)), format: KvFormat::Plain(DType::Bf16), norm: BEFORE, ..RAGGED },
        ),
        ("half of each head, neighbours", Case { rope: Some(Rope::Neighbours(12)), ..RAGGED }),
        (
            "one pair of each head, neighbours, normalized after",
            Case { rope: Some(Rope::Neighbours(2)), norm: AFTER, ..RAGGED },
        ),
        ("no rotation", Case { rope: None, ..RAGGED }),
        (
            "no rotation, f16, normalized",
            Case { rope: None, norm: BEFORE, format: KvFormat::Plain(DType::F16), ..RAGGED },
        ),
        ("no rotation, whole width", Case { rope: None, norm: WHOLE, ..RAGGED }),
        ("normalized after", Case { norm: AFTER, ..RAGGED }),
        ("half of each head, normalized after", Case { rope: Some(Rope::Halves(12)), norm: AFTER, ..RAGGED }),
        ("whole width", Case { norm: WHOLE, ..RAGGED }),
        (
            "whole width, a key and value head for each query head",
            Case { heads: 5, kv_heads: 5, norm: WHOLE, ..RAGGED },
        ),
        ("values normalized", Case { value_norm: Some(EPS), ..RAGGED }),
        ("values normalized, where eps decides", Case { value_norm: Some(3.0), norm: BEFORE, ..RAGGED }),
        (
            "values normalized, neighbours of a part",
            Case { value_norm: Some(EPS), rope: Some(Rope::Neighbours(12)), ..RAGGED },
        ),
        (
            "values normalized, int8",
            Case {
                value_norm: Some(EPS),
                norm: BEFORE,
                format: KvFormat::Int8,
                head_dim: 512,
                heads: 2,
                kv_heads: 1,
                rope: Some(Rope::Halves(512)),
                ..RAGGED
            },
        ),
        (
            "full layers of Gemma 4",
            Case {
                value_norm: Some(EPS),
                norm: BEFORE,
                format: KvFormat::Plain(DType::Bf16),
                head_dim: 512,
                heads: 4,
                kv_heads: 1,
                rope: Some(Rope::Halves(512)),
                ..RAGGED
            },
        ),
        (
            "values in keys, neighbours",
            Case { kv_heads: 1, rope: Some(Rope::Neighbours(8)), values: KvValues::InKeys(16), ..RAGGED },
        ),
        (
            "values in keys, bf16",
            Case {
                rope: Some(Rope::Halves(8)),
                values: KvValues::InKeys(16),
                format: KvFormat::Plain(DType::Bf16),
                ..RAGGED
            },
        ),
        (
            "values in keys, int8",
            Case { rope: Some(Rope::Neighbours(8)), values: KvValues::InKeys(16), format: KvFormat::Int8, ..RAGGED },
        ),
        (
            "GLM-4.7-Flash",
            Case {
                heads: 20,
                kv_heads: 1,
                head_dim: 576,
                rope: Some(Rope::Neighbours(64)),
                values: KvValues::InKeys(512),
                format: KvFormat::Plain(DType::Bf16),
                ..RAGGED
            },
        ),
        ("queries alone", Case { columns: Columns::Queries, norm: BEFORE, ..RAGGED }),
        (
            "queries alone, not normalized",
            Case { columns: Columns::Queries, rope: Some(Rope::Neighbours(12)), ..RAGGED },
        ),
        ("temperature", Case { temperature: Temperature::Growing, ..RAGGED }),
        ("temperature, normalized after", Case { temperature: Temperature::Growing, norm: AFTER, ..RAGGED }),
        ("temperature without rotation", Case { temperature: Temperature::Growing, rope: None, ..RAGGED }),
    ];
    // Where f32 differs in the last place, a number of the cache may round to its other neighbour.
    const BOUND: f64 = 1e-4;

    fn expected(case: &Case) -> Vec<f32> {
        let Prepared { spec, mut qkv, rope, query_norm, key_norm, temperature, batch, shape, blocks } = prepare(case);
        let mut cache = KvCache::new(&shape.layers(LAYERS), blocks).unwrap();
        let vectors = [query_norm, key_norm, rope, temperature].map(Vec::into_boxed_slice);
        reference::rope_and_cache(&spec, &mut qkv, case.transform(&vectors), &mut cache, LAYER, &batch);
        queries_and_cache(&qkv, keys_and_values(&cache_values(&cache, LAYER), &shape, blocks), case)
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let prepared = prepare(case);
        let mut qkv = backend.filled(&prepared.qkv, prepared.qkv.len() / prepared.batch.tokens());
        let mut cache = backend.kv_cache(&prepared.shape.layers(LAYERS), prepared.blocks).unwrap();
        let device_batch = uploaded(backend, &prepared.batch);
        let Prepared { query_norm, key_norm, rope, temperature, .. } = &prepared;
        let vectors = [query_norm, key_norm, rope, temperature].map(|table| backend.table(table).unwrap());
        let transform = case.transform(&vectors);
        ops::rope_and_cache(backend, &prepared.spec, &mut qkv, transform, &mut cache, LAYER, &device_batch);
        for other in [0, 2] {
            assert!(backend.read_cache(&cache, other).iter().all(|&v| v == 0.0), "layer {other} was touched");
        }
        let cache = keys_and_values(&backend.read_cache(&cache, LAYER), &prepared.shape, prepared.blocks);
        queries_and_cache(&backend.read(&qkv), cache, case)
    }
}

#[test]
fn rope_and_cache_agrees_with_its_specification() {
    agrees::<RopeAndCache>();
}
