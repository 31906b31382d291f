//! `rope_and_cache`, and the copies of blocks.

use crate::scene::{
    FEW_OPERATIONS, Near, Random, Scene, assert_near, bound, filled, formats, host_vector, numbers, on_device, staged,
    unit, wide,
};
use compute::batch::{Batch, BlockCopy};
use compute::cuda::{Cuda, KvCache};
use compute::ops;
use compute::{
    AttentionSpec, Device, KvFormat, KvHeads, KvLayout, KvShape, KvValues, NormExtent, NormOrder, Pairing, QkNormRope,
    QkNormWeights, RopeTable,
};
use formats::DType;
use half::{bf16, f16};

/// What happens to queries and keys.
#[derive(Clone, Copy, Debug)]
struct Variant {
    norm: Option<NormExtent>,
    /// Numbers that turn of 16, and the pairs that they form.
    rope: Option<(usize, Pairing)>,
    has_temperature: bool,
    value_norm: Option<f32>,
}

const BEFORE: Option<NormExtent> = Some(NormExtent::Head(NormOrder::BeforeRope));
const AFTER: Option<NormExtent> = Some(NormExtent::Head(NormOrder::AfterRope));
const WHOLE: Option<NormExtent> = Some(NormExtent::Whole);
const HALVES: Option<(usize, Pairing)> = Some((16, Pairing::Halves));
const NEIGHBOURS: Option<(usize, Pairing)> = Some((16, Pairing::Neighbours));

const VARIANTS: &[Variant] = &[
    Variant { norm: None, rope: HALVES, has_temperature: false, value_norm: None },
    Variant { norm: BEFORE, rope: HALVES, has_temperature: false, value_norm: None },
    Variant { norm: AFTER, rope: HALVES, has_temperature: false, value_norm: None },
    Variant { norm: WHOLE, rope: HALVES, has_temperature: false, value_norm: None },
    Variant { norm: None, rope: HALVES, has_temperature: true, value_norm: None },
    Variant { norm: AFTER, rope: Some((4, Pairing::Halves)), has_temperature: true, value_norm: None },
    Variant { norm: BEFORE, rope: Some((12, Pairing::Halves)), has_temperature: false, value_norm: None },
    Variant { norm: None, rope: Some((8, Pairing::Halves)), has_temperature: false, value_norm: None },
    Variant { norm: None, rope: NEIGHBOURS, has_temperature: false, value_norm: None },
    Variant { norm: BEFORE, rope: NEIGHBOURS, has_temperature: true, value_norm: None },
    Variant { norm: AFTER, rope: Some((8, Pairing::Neighbours)), has_temperature: false, value_norm: None },
    Variant { norm: WHOLE, rope: Some((12, Pairing::Neighbours)), has_temperature: false, value_norm: None },
    Variant { norm: None, rope: None, has_temperature: false, value_norm: None },
    Variant { norm: BEFORE, rope: None, has_temperature: false, value_norm: None },
    Variant { norm: WHOLE, rope: None, has_temperature: true, value_norm: None },
    Variant { norm: BEFORE, rope: HALVES, has_temperature: false, value_norm: Some(EPS) },
    Variant { norm: None, rope: Some((8, Pairing::Neighbours)), has_temperature: false, value_norm: Some(0.5) },
];

const EPS: f32 = 1e-6;
const POSITIONS: usize = 400;

/// The tables of one case, and what they make of a head.
struct Tables {
    variant: Variant,
    /// Numbers that turn.
    rotary: usize,
    /// `[POSITIONS, rotary]`
    rope: Vec<f32>,
    /// Of queries and of keys.
    norms: [Vec<f32>; 2],
    /// `[POSITIONS]`
    temperature: Vec<f32>,
}

impl Tables {
    fn new(variant: Variant, heads: [usize; 2], d: usize, dtype: DType, random: &mut Random) -> Tables {
        let rotary = variant.rope.map_or(0, |(of_16, _)| d * of_16 / 16);
        let pairs = rotary / 2;
        let rope = (0..POSITIONS).flat_map(|p| {
            let angles = (0..pairs).map(move |i| p as f64 / 10_000f64.powf(i as f64 / pairs as f64));
            let (c, s): (Vec<f32>, Vec<f32>) = angles.map(|a| (a.cos() as f32, a.sin() as f32)).unzip();
            [c, s].concat()
        });
        let is_whole = variant.norm == WHOLE;
        let norms = heads.map(|heads| numbers(random, if is_whole { heads * d } else { d }, 1.5, dtype));
        let temperature = (0..POSITIONS).map(|p| 1.0 + 0.1 * (1.0 + (p / 16) as f32).ln()).collect();
        Tables { variant, rotary, rope: rope.collect(), norms, temperature }
    }

    /// All value heads of a token.
    fn values(&self, v: &[f32], d: usize) -> Vec<f64> {
        let mut v = wide(v);
        if let Some(eps) = self.variant.value_norm {
            for head in v.chunks_exact_mut(d) {
                let scale = 1.0 / (head.iter().map(|v| v * v).sum::<f64>() / d as f64 + f64::from(eps)).sqrt();
                head.iter_mut().for_each(|v| *v *= scale);
            }
        }
        v
    }

    /// All query heads (`part` 0) or all key heads (1) of a token at `position`.
    fn apply(&self, v: &[f32], part: usize, d: usize, position: usize) -> Vec<f64> {
        let mut v = wide(v);
        let normalize = |v: &mut [f64]| {
            let scale = 1.0 / (v.iter().map(|v| v * v).sum::<f64>() / v.len() as f64 + f64::from(EPS)).sqrt();
            v.iter_mut().zip(&self.norms[part]).for_each(|(v, &w)| *v *= scale * f64::from(w));
        };
        if self.variant.norm == WHOLE {
            normalize(&mut v);
        }
        for head in v.chunks_exact_mut(d) {
            if self.variant.norm == BEFORE {
                normalize(head);
            }
            if let Some((_, pairing)) = self.variant.rope {
                let (table, pairs) = (&self.rope[position * self.rotary..][..self.rotary], self.rotary / 2);
                for i in 0..pairs {
                    let (a, b) = if pairing == Pairing::Halves { (i, i + pairs) } else { (2 * i, 2 * i + 1) };
                    let (cos, sin) = (f64::from(table[i]), f64::from(table[i + pairs]));
                    (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[b] * cos + head[a] * sin);
                }
            }
            if self.variant.norm == AFTER {
                normalize(head);
            }
        }
        if self.variant.has_temperature && part == 0 {
            v.iter_mut().for_each(|v| *v *= f64::from(self.temperature[position]));
        }
        v
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn heads_are_normalized_rotated_and_cached() {
    /// Few tokens and many have kernels of their own.
    const ROWS: [&[(usize, usize)]; 2] = [&[(0, 40), (17, 1), (63, 3)], &[(0, 390), (17, 1)]];
    on_device(|cuda, dtype| {
        let shapes = [
            (2, 1, 64, 16),
            (4, 2, 80, 32),
            (3, 3, 96, 64),
            (16, 8, 128, 64),
            (5, 1, 256, 256),
            (4, 4, 32, 16),
            (6, 2, 48, 16),
            (4, 1, 112, 16),
            (8, 2, 160, 16),
            (4, 2, 192, 64),
            (4, 1, 512, 16),
        ];
        for ((heads, kv_heads, d, block_size), variant) in
            shapes.into_iter().flat_map(|s| VARIANTS.iter().map(move |v| (s, *v)))
        {
            for (rows, format) in ROWS.into_iter().flat_map(|rows| formats(dtype).map(|format| (rows, format))) {
                let what = format!("{heads} heads, {kv_heads} kv heads of {d}, {variant:?}, {dtype:?}, {format:?}");
                let mut random = Random(4);
                let scene = Scene::new(rows, block_size, &mut random);
                let (tokens, cols) = (scene.batch.tokens(), (heads + 2 * kv_heads) * d);
                let values = numbers(&mut random, tokens * cols, 2.0, dtype);
                let tables = Tables::new(variant, [heads, kv_heads], d, dtype, &mut random);
                let [query, key] = [0, 1].map(|i| cuda.vector(&[host_vector(&tables.norms[i], dtype)]).unwrap());
                let shape = KvShape { kv_heads, head_dim: d, values: KvValues::Stored, block_size, format };
                let mut cache = cuda.kv_cache(&shape.layers(2), scene.blocks).unwrap();
                let size = scene.blocks * 2 * shape.block_bytes();
                cache.fill(&vec![0xff; size]).unwrap();
                let device_batch = staged(cuda, &scene.batch);
                let mut qkv = filled(cuda, &values, cols);
                // A table is never empty.
                let rope = if tables.rope.is_empty() { &[0.0][..] } else { &tables.rope };
                let [rope, temperature] = [rope, &tables.temperature].map(|table| cuda.table(table).unwrap());
                let spec =
                    AttentionSpec { heads, scale: 1.0, window: None, softcap: None, reach: compute::Reach::Back };
                let transform = QkNormRope {
                    norm: variant.norm.map(|extent| QkNormWeights { query: &query, key: &key, eps: EPS, extent }),
                    whole: None,
                    rope: variant.rope.map(|(_, pairing)| RopeTable { table: &rope, rotary: tables.rotary, pairing }),
                    temperature: variant.has_temperature.then_some(&temperature),
                    value_norm: variant.value_norm,
                };
                ops::rope_and_cache(cuda, &spec, &mut qkv, transform, &mut cache, 1, &device_batch);
                let (qkv, cached) = (cuda.read(&qkv).unwrap(), layer_values(&cache, 1, dtype));

                let (mut computed, mut expected) = (Vec::new(), Vec::new());
                let mut written = vec![false; cached.len()];
                // Numbers of a pair, and factors of a head, are at most the greatest number of the head. Under `WHOLE`, heads are stored
                // before they are rotated: a rounding of both numbers of a pair.
                let near = |values: Vec<f64>, is_cached: bool| -> Vec<Near> {
                    let heads = values.chunks_exact(d).flat_map(|head| {
                        let greatest = head.iter().fold(0.0, |greatest: f64, v| greatest.max(v.abs()));
                        let of_pairs = if variant.norm == WHOLE { 1.5 * unit(dtype) } else { 0.0 };
                        // Integers are off by half a step, of which the greatest has 127; a scale that was rounded down to bf16 cuts off
                        // as much again from the greatest. The rest is room for the scale's own rounding.
                        let of_steps = if is_cached && format == KvFormat::Int8 { 1.1 / 127.0 } else { 0.0 };
                        let error = greatest * (FEW_OPERATIONS + of_pairs + of_steps);
                        head.iter().map(move |&v| Near::stored(v, error, dtype)).collect::<Vec<_>>()
                    });
                    heads.collect()
                };
                for token in 0..tokens {
                    let (row, position) = (&values[token * cols..][..cols], scene.batch.positions[token] as usize);
                    let (queries, rest) = row.split_at(heads * d);
                    let (keys, row_values) = rest.split_at(kv_heads * d);
                    expected.extend(near(tables.apply(queries, 0, d, position), false));
                    expected.extend(near(tables.apply(keys, 1, d, position), true));
                    expected.extend(near(tables.values(row_values, d), true));
                    computed.extend_from_slice(&qkv[token * cols..][..heads * d]);
                    let slot = scene.batch.slots[token] as usize;
                    for head in 0..2 * kv_heads {
                        let (kv, part) = (head % kv_heads, head / kv_heads);
                        let place = ((slot / block_size * kv_heads + kv) * 2 + part) * block_size + slot % block_size;
                        computed.extend_from_slice(&cached[place * d..][..d]);
                        written[place * d..][..d].fill(true);
                    }
                }
                // Integers are off by up to half a step, of which the greatest number of a head has 127.
                let bound = if format == KvFormat::Int8 { 1.2e-2 } else { bound(dtype) };
                assert_near(&computed, &expected, bound, &what);
                assert!(cached.iter().zip(written).all(|(v, w)| w || v.is_nan()), "{what}: a foreign slot was written");
                assert!(
                    layer_values(&cache, 0, dtype).iter().all(|v| v.is_nan()),
                    "{what}: a foreign layer was written"
                );
            }
        }
    });
}

/// Heads, KV heads, their numbers and the tokens of a block.
struct Heads {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    block_size: usize,
}

const fn of(heads: usize, kv_heads: usize, head_dim: usize, block_size: usize) -> Heads {
    Heads { heads, kv_heads, head_dim, block_size }
}

/// Many tokens have a kernel of their own, with the bits that the same tokens have in small batches.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn many_tokens_have_the_bits_of_few() {
    // An H200 has 132 multiprocessors, and twice as many tokens are many.
    const TOKENS: [usize; 3] = [263, 264, 301];
    const FEW: usize = 100;
    const CASES: [Heads; 6] = [
        of(1, 1, 128, 16),
        of(5, 1, 64, 256),
        of(9, 3, 64, 16),
        of(16, 8, 128, 64),
        of(32, 8, 64, 64),
        of(64, 8, 128, 256),
    ];
    on_device(|cuda, dtype| {
        for (case, tokens, norm) in CASES
            .iter()
            .flat_map(|case| TOKENS.map(|tokens| (case, tokens)))
            .flat_map(|(case, tokens)| [None, BEFORE].map(|norm| (case, tokens, norm)))
        {
            let Heads { heads, kv_heads, head_dim, block_size } = *case;
            let mut random = Random(tokens as u64);
            let cols = (heads + 2 * kv_heads) * head_dim;
            let values = numbers(&mut random, tokens * cols, 2.0, dtype);
            let variant = Variant { norm, rope: HALVES, has_temperature: false, value_norm: None };
            let tables = Tables::new(variant, [heads, kv_heads], head_dim, dtype, &mut random);
            let [query, key] = [0, 1].map(|i| cuda.vector(&[host_vector(&tables.norms[i], dtype)]).unwrap());
            let rope = cuda.table(&tables.rope).unwrap();
            let shape = KvShape { kv_heads, head_dim, values: KvValues::Stored, block_size, format: dtype.into() };
            let blocks = tokens.div_ceil(block_size) + 2;
            let mut slots = random.permutation(blocks * block_size);
            slots.truncate(tokens);
            // Tokens that pad a pass are stored nowhere.
            slots.iter_mut().step_by(7).for_each(|slot| *slot = u32::MAX);
            let positions: Vec<u32> = (0..tokens).map(|_| random.below(POSITIONS) as u32).collect();
            let spec = AttentionSpec { heads, scale: 1.0, window: None, softcap: None, reach: compute::Reach::Back };
            let computed = [tokens, FEW].map(|at_once| {
                let mut cache = cuda.kv_cache(&shape.layers(2), blocks).unwrap();
                cache.fill(&vec![0xff; blocks * 2 * shape.block_bytes()]).unwrap();
                let mut rows = Vec::new();
                for first in (0..tokens).step_by(at_once) {
                    let range = first..tokens.min(first + at_once);
                    let batch = Batch {
                        token_ids: vec![0; range.len()],
                        positions: positions[range.clone()].to_vec(),
                        slots: slots[range.clone()].to_vec(),
                        row_starts: vec![0, range.len() as u32],
                        context_lens: vec![0],
                        block_tables: vec![0],
                        table_width: 1,
                        ..Batch::default()
                    };
                    let device_batch = staged(cuda, &batch);
                    let mut qkv = filled(cuda, &values[range.start * cols..range.end * cols], cols);
                    let transform = QkNormRope {
                        norm: norm.map(|extent| QkNormWeights { query: &query, key: &key, eps: EPS, extent }),
                        whole: None,
                        rope: Some(RopeTable { table: &rope, rotary: head_dim, pairing: Pairing::Halves }),
                        temperature: None,
                        value_norm: None,
                    };
                    ops::rope_and_cache(cuda, &spec, &mut qkv, transform, &mut cache, 1, &device_batch);
                    rows.extend(cuda.read(&qkv).unwrap().into_iter().map(f32::to_bits));
                }
                (rows, cache.bytes().unwrap())
            });
            let what =
                format!("{tokens} tokens, {heads} heads, {kv_heads} kv heads of {head_dim}, {norm:?}, {dtype:?}");
            let [many, few] = computed;
            assert!(many.0 == few.0, "{what}: other queries, or other numbers were written");
            assert!(many.1 == few.1, "{what}: another cache");
        }
    });
}

/// One layer as numbers, in the order of a plain cache.
fn layer_values(cache: &KvCache, layer: usize, dtype: DType) -> Vec<f32> {
    let (bytes, shape) = (cache.bytes().unwrap(), Cuda::kv_layout(cache).layer(0));
    let layer_bytes = bytes.len() / Cuda::kv_layout(cache).layers.len();
    let layer = &bytes[layer * layer_bytes..][..layer_bytes];
    if shape.format == KvFormat::Int8 {
        return int8_values(layer, &shape);
    }
    let number = |b: &[u8]| match dtype {
        DType::Bf16 => bf16::from_le_bytes([b[0], b[1]]).to_f32(),
        _ => f16::from_le_bytes([b[0], b[1]]).to_f32(),
    };
    layer.chunks_exact(2).map(number).collect()
}

fn int8_values(layer: &[u8], shape: &KvShape) -> Vec<f32> {
    let (scales, d) = (2 * shape.block_size, shape.head_dim);
    let heads = layer.chunks_exact(shape.head_bytes()).map(|head| head.split_at(scales * d));
    let number =
        |integer: u8, scale: &[u8]| f32::from(integer as i8) * bf16::from_le_bytes([scale[0], scale[1]]).to_f32();
    let vectors = heads.flat_map(|(integers, scales)| integers.chunks_exact(d).zip(scales.chunks_exact(2)));
    vectors.flat_map(|(integers, scale)| integers.iter().map(move |&integer| number(integer, scale))).collect()
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn blocks_are_copied_in_every_layer() {
    on_device(|cuda, dtype| {
        let heads = |kv_heads, head_dim| KvHeads { kv_heads, head_dim, values: KvValues::Stored };
        let (narrow, wide) = (heads(2, 64), heads(1, 256));
        for layers in [vec![narrow; 3], vec![narrow, narrow, wide, narrow, wide, wide]] {
            let layout = KvLayout { layers, split: None, block_size: 16, format: dtype.into() };
            let mut cache = cuda.kv_cache(&layout, 8).unwrap();
            let bytes: Vec<u8> = (0..8 * layout.block_bytes()).map(|i| (i * 7 + i / 251) as u8).collect();
            cache.fill(&bytes).unwrap();
            let copies = [(1, 5), (2, 7)].map(|(from, to)| BlockCopy { from, to }).to_vec();
            let device_batch = staged(cuda, &Batch { row_starts: vec![0], copies, ..Batch::default() });
            ops::copy_blocks(cuda, &mut cache, &device_batch);
            let mut expected = bytes;
            for (shape, start) in layout.shapes().zip(layout.starts(8).unwrap()) {
                let block = shape.block_bytes();
                for (from, to) in [(1, 5), (2, 7)] {
                    let from = start + from * block;
                    expected.copy_within(from..from + block, start + to * block);
                }
            }
            assert!(cache.bytes().unwrap() == expected);
            let mut blocks = vec![0; 3 * layout.block_bytes()];
            cuda.read_blocks(&cache, &[5, 3, 7], &mut blocks).unwrap();
            let part = |block: usize| {
                let layers = layout.shapes().zip(layout.starts(8).unwrap());
                layers.flat_map(move |(shape, start)| {
                    let bytes = shape.block_bytes();
                    start + block * bytes..start + (block + 1) * bytes
                })
            };
            let read: Vec<u8> = [5, 3, 7].into_iter().flat_map(part).map(|at| expected[at]).collect();
            assert!(blocks == read, "blocks are read layer after layer");
            cuda.write_blocks(&mut cache, &[0, 4, 6], &blocks).unwrap();
            for (to, from) in [(0, 5), (4, 3), (6, 7)] {
                part(to).zip(part(from)).for_each(|(to, from)| expected[to] = expected[from]);
            }
            assert!(cache.bytes().unwrap() == expected, "blocks are written layer after layer");
        }
    });
}
