//! `attention`: decode, prefill and both at once, with and without a sliding window.

use crate::scene::{
    Dot, Near, Random, Scene, assert_near, bound, coded, filled, formats, numbers, on_device, poisoned, quantized,
    staged,
};
use compute::batch::Batch;
use compute::cuda::Cuda;
use compute::ops;
use compute::{AttentionSpec, Device, KvFormat, KvHeads, KvLayout, KvShape, KvValues, Reach, Rounding, Scoring};
use formats::DType;

pub struct AttentionCase {
    pub name: &'static str,
    /// Tokens of each row before and in the batch.
    pub rows: &'static [(usize, usize)],
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub block_size: usize,
    pub window: Option<usize>,
    pub softcap: Option<f32>,
    /// Whether each query head has a sink.
    pub has_sinks: bool,
    pub reach: Reach,
}

pub const QWEN3: AttentionCase = AttentionCase {
    name: "",
    rows: &[],
    heads: 16,
    kv_heads: 8,
    head_dim: 128,
    block_size: 64,
    window: None,
    softcap: None,
    has_sinks: false,
    reach: Reach::Back,
};
/// To be given a head dimension by `of`.
const OTHER_HEADS: AttentionCase = AttentionCase { rows: RAGGED, kv_heads: 4, ..QWEN3 };
const RAGGED: &[(usize, usize)] =
    &[(0, 37), (64, 1), (63, 2), (100, 30), (0, 1), (5, 60), (1500, 1), (0, 129), (15, 1), (16, 1), (200, 130)];
const DECODE: &[(usize, usize)] = &[(557, 1), (0, 1), (63, 1), (64, 1), (1, 1), (1999, 1), (300, 1)];

/// Rows that begin and end where a tile of keys or of queries does, one token before and one after.
const TILES: &[(usize, usize)] = &[
    (0, 128),
    (0, 127),
    (0, 256),
    (128, 128),
    (127, 129),
    (129, 127),
    (64, 64),
    (63, 66),
    (384, 257),
    (1, 2),
    (255, 2),
    (256, 65),
];

const TILED: AttentionCase = AttentionCase { rows: TILES, heads: 4, kv_heads: 2, ..QWEN3 };

/// Whole texts, whose tokens look both ways.
const TEXTS: AttentionCase = AttentionCase {
    rows: &[(0, 37), (0, 1), (0, 2), (0, 64), (0, 65), (0, 128), (0, 300), (0, 127)],
    heads: 4,
    kv_heads: 2,
    reach: Reach::Both,
    ..QWEN3
};

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
        ..QWEN3
    },
    AttentionCase {
        name: "heads of 64, group of 4",
        rows: DECODE,
        heads: 8,
        kv_heads: 2,
        head_dim: 64,
        block_size: 16,
        ..QWEN3
    },
    AttentionCase {
        name: "heads of 80, group of 3",
        rows: RAGGED,
        heads: 6,
        kv_heads: 2,
        head_dim: 80,
        block_size: 32,
        ..QWEN3
    },
    AttentionCase {
        name: "heads of 96, group of 8",
        rows: RAGGED,
        heads: 16,
        kv_heads: 2,
        head_dim: 96,
        block_size: 64,
        ..QWEN3
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
        ..QWEN3
    },
    AttentionCase {
        name: "heads of 256, group of 16",
        rows: DECODE,
        heads: 16,
        kv_heads: 1,
        head_dim: 256,
        block_size: 16,
        ..QWEN3
    },
    AttentionCase { name: "a window of one token", rows: RAGGED, window: Some(1), ..QWEN3 },
    AttentionCase { name: "a window within a tile", rows: RAGGED, window: Some(20), ..QWEN3 },
    AttentionCase { name: "a window of a tile less one token", rows: RAGGED, window: Some(63), ..QWEN3 },
    AttentionCase { name: "a window of a tile", rows: RAGGED, window: Some(64), block_size: 16, ..QWEN3 },
    AttentionCase { name: "a window of a tile and one token", rows: RAGGED, window: Some(65), ..QWEN3 },
    AttentionCase { name: "a window longer than all contexts", rows: RAGGED, window: Some(5000), ..QWEN3 },
    AttentionCase { name: "a window, decode", rows: DECODE, window: Some(130), ..QWEN3 },
    AttentionCase { name: "a window of one token, decode", rows: DECODE, window: Some(1), block_size: 16, ..QWEN3 },
    AttentionCase {
        name: "a window, one long row over all CTAs",
        rows: &[(9000, 1)],
        window: Some(4096),
        block_size: 16,
        ..QWEN3
    },
    AttentionCase {
        name: "a window that chunks cross",
        rows: &[(300, 400), (1000, 129), (90, 20), (0, 700)],
        heads: 2,
        kv_heads: 1,
        window: Some(100),
        ..QWEN3
    },
    AttentionCase {
        name: "a window, heads of 64, group of 4",
        rows: RAGGED,
        heads: 8,
        kv_heads: 2,
        head_dim: 64,
        block_size: 16,
        window: Some(50),
        ..QWEN3
    },
    AttentionCase {
        name: "a window, heads of 80, group of 3",
        rows: RAGGED,
        heads: 6,
        kv_heads: 2,
        head_dim: 80,
        block_size: 32,
        window: Some(33),
        ..QWEN3
    },
    AttentionCase {
        name: "a window, heads of 96, group of 8",
        rows: RAGGED,
        heads: 16,
        kv_heads: 2,
        head_dim: 96,
        window: Some(70),
        ..QWEN3
    },
    AttentionCase {
        name: "a window, heads of 128, group of 16",
        rows: RAGGED,
        kv_heads: 1,
        block_size: 256,
        window: Some(200),
        ..QWEN3
    },
    AttentionCase { name: "heads of 512, group of 2", ..OTHER_HEADS }.of(512, 16),
    AttentionCase { name: "heads of 512, group of 16", heads: 16, kv_heads: 1, ..OTHER_HEADS }.of(512, 64),
    AttentionCase { name: "heads of 512, decode", rows: DECODE, heads: 16, kv_heads: 2, ..OTHER_HEADS }.of(512, 64),
    AttentionCase { name: "a window, heads of 512", window: Some(33), ..OTHER_HEADS }.of(512, 256),
    AttentionCase {
        name: "a window, heads of 256, group of 16",
        rows: RAGGED,
        kv_heads: 1,
        head_dim: 256,
        block_size: 16,
        window: Some(31),
        ..QWEN3
    },
    AttentionCase { name: "sinks, decode", rows: DECODE, heads: 64, kv_heads: 8, has_sinks: true, ..QWEN3 }.of(64, 16),
    AttentionCase { name: "sinks, ragged", rows: RAGGED, heads: 64, kv_heads: 8, has_sinks: true, ..QWEN3 }.of(64, 64),
    AttentionCase { name: "sinks, one long row", rows: &[(5000, 1)], has_sinks: true, ..QWEN3 },
    AttentionCase { name: "sinks and a window", rows: RAGGED, window: Some(33), has_sinks: true, ..QWEN3 },
    AttentionCase { name: "sinks, group of 16", rows: RAGGED, heads: 16, kv_heads: 1, has_sinks: true, ..QWEN3 },
    AttentionCase { name: "sinks, heads of 32", has_sinks: true, ..OTHER_HEADS }.of(32, 16),
    AttentionCase { name: "sinks, heads of 512", has_sinks: true, ..OTHER_HEADS }.of(512, 16),
    AttentionCase { name: "more than six tiles for each CTA", rows: &[(1, 1000); 16], heads: 8, ..QWEN3 },
    AttentionCase { name: "heads of 32, group of 1", heads: 3, kv_heads: 3, ..OTHER_HEADS }.of(32, 16),
    AttentionCase { name: "heads of 32, group of 8", heads: 8, kv_heads: 1, rows: DECODE, ..OTHER_HEADS }.of(32, 64),
    AttentionCase { name: "heads of 32, group of 16", kv_heads: 1, ..OTHER_HEADS }.of(32, 64),
    AttentionCase { name: "heads of 48, group of 4", ..OTHER_HEADS }.of(48, 16),
    AttentionCase { name: "heads of 48, group of 16", kv_heads: 1, ..OTHER_HEADS }.of(48, 64),
    AttentionCase { name: "heads of 112, group of 4", ..OTHER_HEADS }.of(112, 16),
    AttentionCase { name: "heads of 112, group of 16", kv_heads: 1, ..OTHER_HEADS }.of(112, 32),
    AttentionCase { name: "heads of 160, group of 4", ..OTHER_HEADS }.of(160, 16),
    AttentionCase { name: "heads of 160, group of 16", kv_heads: 1, ..OTHER_HEADS }.of(160, 64),
    AttentionCase { name: "heads of 192, group of 4", ..OTHER_HEADS }.of(192, 16),
    AttentionCase { name: "heads of 192, group of 16", kv_heads: 1, ..OTHER_HEADS }.of(192, 64),
    AttentionCase { name: "a window, heads of 32", window: Some(50), ..OTHER_HEADS }.of(32, 16),
    AttentionCase { name: "a window, heads of 48", window: Some(33), ..OTHER_HEADS }.of(48, 16),
    AttentionCase { name: "a window, heads of 112", window: Some(70), ..OTHER_HEADS }.of(112, 64),
    AttentionCase { name: "a window, heads of 160", window: Some(31), ..OTHER_HEADS }.of(160, 64),
    AttentionCase { name: "a window, heads of 192", window: Some(33), ..OTHER_HEADS }.of(192, 32),
    AttentionCase { name: "a softcap far above the scores", rows: RAGGED, softcap: Some(50.0), ..QWEN3 },
    AttentionCase { name: "a softcap amid the scores", rows: RAGGED, softcap: Some(1.0), ..QWEN3 },
    AttentionCase { name: "a softcap amid the scores, decode", rows: DECODE, softcap: Some(1.0), ..QWEN3 },
    AttentionCase { name: "a softcap below the scores", rows: RAGGED, softcap: Some(0.25), ..QWEN3 },
    AttentionCase { name: "a softcap, group of 16", rows: RAGGED, kv_heads: 1, softcap: Some(1.0), ..QWEN3 },
    AttentionCase { name: "a softcap, heads of 64", softcap: Some(1.0), ..OTHER_HEADS }.of(64, 16),
    AttentionCase { name: "a softcap, heads of 96", softcap: Some(1.0), ..OTHER_HEADS }.of(96, 16),
    AttentionCase {
        name: "a softcap and a window, heads of 256",
        kv_heads: 8,
        softcap: Some(1.0),
        window: Some(90),
        ..OTHER_HEADS
    }
    .of(256, 64),
    AttentionCase { name: "a long prompt", rows: &[(0, 700), (300, 400)], heads: 2, kv_heads: 1, ..QWEN3 },
    AttentionCase { name: "tiles of 128 keys", ..TILED },
    AttentionCase { name: "tiles of 128 keys, group of 3", heads: 3, kv_heads: 1, ..TILED }.of(128, 16),
    AttentionCase { name: "tiles of 128 keys, group of 1", heads: 2, ..TILED }.of(128, 128),
    AttentionCase { name: "tiles of 128 keys in blocks of 256", ..TILED }.of(128, 256),
    AttentionCase { name: "tiles of 128 keys, heads of 64", ..TILED }.of(64, 32),
    AttentionCase { name: "tiles of 128 keys in blocks of 256, heads of 64", ..TILED }.of(64, 256),
    AttentionCase { name: "a window of a tile of 128 keys", window: Some(128), ..TILED },
    AttentionCase { name: "a window of a tile of 128 keys and one token", window: Some(129), ..TILED },
    AttentionCase { name: "a softcap and a window", softcap: Some(1.0), window: Some(127), ..TILED }.of(64, 16),
    AttentionCase { name: "both ways", ..TEXTS },
    AttentionCase { name: "both ways, heads of 32", ..TEXTS }.of(32, 64),
    AttentionCase { name: "both ways, heads of 64, a head of keys for each", heads: 3, kv_heads: 3, ..TEXTS }
        .of(64, 64),
    AttentionCase { name: "both ways, heads of 256", ..TEXTS }.of(256, 16),
    AttentionCase { name: "both ways, a window of one token", window: Some(1), ..TEXTS },
    AttentionCase { name: "both ways, a window of a tile of keys", window: Some(64), ..TEXTS }.of(64, 64),
    AttentionCase { name: "both ways, a window of a tile of keys and one token", window: Some(65), ..TEXTS }.of(64, 32),
    AttentionCase { name: "both ways, a window within a tile", window: Some(9), ..TEXTS }.of(256, 64),
    AttentionCase { name: "both ways, a window longer than all texts", window: Some(1000), ..TEXTS },
    AttentionCase { name: "more tiles than multiprocessors", rows: &[(3, 130); 45], ..TILED },
];

impl AttentionCase {
    pub const fn of(self, head_dim: usize, block_size: usize) -> AttentionCase {
        AttentionCase { head_dim, block_size, ..self }
    }

    pub fn spec(&self) -> AttentionSpec {
        AttentionSpec {
            heads: self.heads,
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            window: self.window,
            softcap: self.softcap,
            reach: self.reach,
        }
    }
}

/// What attention reads: a cache of random numbers, and queries.
pub struct AttentionInput {
    pub scene: Scene,
    pub shape: KvShape,
    /// The numbers that the cache holds, as a plain one has them.
    keys_and_values: Vec<f32>,
    /// What the cache holds.
    pub bytes: Vec<u8>,
    pub qkv: Vec<f32>,
    /// `[heads]`
    pub sinks: Option<Vec<f32>>,
}

impl AttentionInput {
    fn new(case: &AttentionCase, dtype: DType, format: KvFormat) -> AttentionInput {
        let mut random = Random(5);
        let scene = Scene::new(case.rows, case.block_size, &mut random);
        AttentionInput::over(scene, case, dtype, format, random)
    }

    /// Over a scene whose rows may share blocks. `case.rows` has no meaning.
    pub fn over(
        scene: Scene,
        case: &AttentionCase,
        dtype: DType,
        format: KvFormat,
        mut random: Random,
    ) -> AttentionInput {
        let AttentionCase { heads, kv_heads, head_dim, block_size, .. } = *case;
        // The second layer is what a kernel may ask for ahead and must not use.
        let shape = KvShape { kv_heads, head_dim, values: KvValues::Stored, block_size, format };
        // What no token attends to is NaN.
        let spec = case.spec();
        // With int8 by the bits of scales that are no numbers.
        let mut int8 = vec![0xff; scene.blocks * 2 * shape.block_bytes()];
        let mut keys_and_values = vec![f32::NAN; scene.blocks * 2 * kv_heads * block_size * head_dim];
        for (row, &context) in scene.batch.context_lens.iter().enumerate() {
            let first = spec.window_start(scene.batch.positions[scene.batch.row(row).start] as usize);
            for position in first..context as usize {
                for plane in 0..2 * kv_heads {
                    let slot = scene.slot(row, position);
                    let place = (slot / block_size * 2 * kv_heads + plane) * block_size + slot % block_size;
                    if !keys_and_values[place * head_dim].is_nan() {
                        continue; // of a block that an earlier row has, too
                    }
                    let mut numbers = numbers(&mut random, head_dim, 1.5, dtype);
                    if format == KvFormat::Int8 {
                        let (integers, scale) = quantized(&numbers);
                        let (head, is_value) = (plane / 2, plane % 2 == 1);
                        let (at, scale_at) = match is_value {
                            false => (shape.key_at(slot, head), shape.key_scale_at(slot, head)),
                            true => (shape.value_at(slot, head), shape.value_scale_at(slot, head)),
                        };
                        for (i, &integer) in integers.iter().enumerate() {
                            int8[at + i] = integer as u8;
                            numbers[i] = f32::from(integer) * scale.to_f32();
                        }
                        int8[scale_at..scale_at + 2].copy_from_slice(&scale.to_le_bytes());
                    }
                    keys_and_values[place * head_dim..][..head_dim].copy_from_slice(&numbers);
                }
            }
        }
        let qkv = numbers(&mut random, scene.batch.tokens() * (heads + 2 * kv_heads) * head_dim, 1.5, dtype);
        let mut bytes = match format {
            KvFormat::Plain(_) => coded(&keys_and_values, dtype),
            KvFormat::Int8 => int8,
        };
        bytes.resize(scene.blocks * 2 * shape.block_bytes(), 0xff);
        let sinks = case.has_sinks.then(|| Random(6).numbers(heads, 4.0));
        AttentionInput { scene, shape, keys_and_values, bytes, qkv, sinks }
    }

    /// Weights are rounded to the number type before values are multiplied with them. The errors of scores are those of sums in f32, and
    /// change a weight by far less than its rounding.
    pub fn expected(&self, spec: &AttentionSpec, dtype: DType) -> Vec<Near> {
        let (heads, scale) = (spec.heads, f64::from(spec.scale));
        let cap = |score: f64| spec.softcap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh());
        let KvShape { kv_heads, head_dim: d, block_size, .. } = self.shape;
        let (batch, cols) = (&self.scene.batch, (heads + 2 * kv_heads) * d);
        let mut out = Vec::new();
        for row in 0..batch.rows() {
            for token in batch.row(row) {
                let first = spec.window_start(batch.positions[token] as usize);
                for head in 0..heads {
                    let query = &self.qkv[token * cols + head * d..][..d];
                    let part = |position: usize, part: usize| {
                        let slot = self.scene.slot(row, position);
                        let kv = head / (heads / kv_heads);
                        let place = ((slot / block_size * kv_heads + kv) * 2 + part) * block_size + slot % block_size;
                        &self.keys_and_values[place * d..][..d]
                    };
                    let end = spec.window_end(batch.positions[token] as usize, batch.context_lens[row] as usize);
                    let scores: Vec<f64> = (first..end)
                        .map(
                            |j| cap(query.iter().zip(part(j, 0)).map(|(&a, &b)| f64::from(a * b)).sum::<f64>() * scale),
                        )
                        .collect();
                    let sink = self.sinks.as_ref().map(|sinks| f64::from(sinks[head]));
                    let top = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
                    let weights: Vec<f64> = scores.iter().map(|s| (s - top).exp()).collect();
                    let total: f64 = weights.iter().sum::<f64>() + sink.map_or(0.0, |sink| (sink - top).exp());
                    let mut sums = vec![Dot::default(); d];
                    for (j, weight) in weights.iter().enumerate() {
                        let products = part(first + j, 1).iter().map(|&v| weight / total * f64::from(v));
                        sums.iter_mut().zip(products).for_each(|(sum, product)| *sum = sum.plus(product));
                    }
                    out.extend(sums.iter().map(|sum| sum.near_rounded(dtype)));
                }
            }
        }
        out
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn attention_agrees() {
    on_device(|cuda, dtype| {
        for (case, format) in ATTENTION.iter().flat_map(|case| formats(dtype).map(|format| (case, format))) {
            let spec = case.spec();
            if (spec.reach, format) == (Reach::Both, KvFormat::Int8) {
                continue;
            }
            cuda.set_windows([spec.window]);
            cuda.set_query_heads(case.heads);
            let input = AttentionInput::new(case, dtype, format);
            let KvShape { kv_heads, head_dim: d, .. } = input.shape;
            let batch = &input.scene.batch;
            let expected = input.expected(&spec, dtype);
            let sinks = input.sinks.as_ref().map(|sinks| cuda.table(sinks).unwrap());
            for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
                cuda.set_rounding(rounding);
                let mut cache = cuda.kv_cache(&input.shape.layers(2), input.scene.blocks).unwrap();
                cache.fill(&input.bytes).unwrap();
                let device_batch = staged(cuda, batch);
                let qkv = filled(cuda, &input.qkv, (case.heads + 2 * kv_heads) * d);
                let what = format!("{}, {dtype:?}, {format:?}, {rounding:?}", case.name);
                let mut first = Vec::new();
                // Twice: the counts of arrivals must be as they were.
                for round in 0..2 {
                    let mut out = poisoned(cuda, batch.tokens(), case.heads * d);
                    let scoring = Scoring { spec: &spec, sinks: sinks.as_ref() };
                    ops::attention(cuda, scoring, &mut out, &qkv, &cache, 0, &device_batch);
                    let out = cuda.read(&out).unwrap();
                    assert_near(&out, &expected, bound(dtype), &format!("{what}, round {round}"));
                    if round == 0 {
                        first = out;
                    } else {
                        assert_eq!(first, out, "{what}: the same launch gave other bits");
                    }
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn layers_with_different_windows_share_a_step() {
    on_device(|cuda, dtype| {
        let windows = [Some(100), None, Some(1), Some(64)];
        cuda.set_windows(windows);
        for (rows, format) in [DECODE, RAGGED].into_iter().flat_map(|rows| formats(dtype).map(|format| (rows, format)))
        {
            let case = AttentionCase { rows, ..QWEN3 };
            let input = AttentionInput::new(&case, dtype, format);
            let batch = &input.scene.batch;
            let mut cache = cuda.kv_cache(&input.shape.layers(2), input.scene.blocks).unwrap();
            cache.fill(&input.bytes).unwrap();
            let (device_batch, cols) = (staged(cuda, batch), input.qkv.len() / batch.tokens());
            let qkv = filled(cuda, &input.qkv, cols);
            // Back and forth: one plan must leave the counts of arrivals as the next one expects them.
            for window in windows.into_iter().chain(windows) {
                let spec = AttentionSpec { window, ..case.spec() };
                let mut out = poisoned(cuda, batch.tokens(), case.heads * case.head_dim);
                ops::attention(cuda, &spec, &mut out, &qkv, &cache, 0, &device_batch);
                let what = format!("{} rows, a window of {window:?}, {dtype:?}, {format:?}", rows.len());
                assert_near(&cuda.read(&out).unwrap(), &input.expected(&spec, dtype), bound(dtype), &what);
            }
        }
    });
}

/// Layers with other heads, and with a window or none, have plans and kernels of their own in one pass.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn layers_of_two_shapes_share_a_step_and_its_block_tables() {
    on_device(|cuda, dtype| {
        cuda.set_layer_windows([(0, Some(100)), (1, None), (0, None)]);
        for (rows, format) in [DECODE, RAGGED].into_iter().flat_map(|rows| formats(dtype).map(|format| (rows, format)))
        {
            for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
                cuda.set_rounding(rounding);
                let narrow = AttentionCase { rows, ..QWEN3 };
                let wide = AttentionCase { rows, heads: 8, kv_heads: 1, head_dim: 512, ..QWEN3 };
                let inputs = [&narrow, &wide].map(|case| AttentionInput::new(case, dtype, format));
                let [first, second] = &inputs;
                let layout = KvLayout {
                    layers: [first.shape, second.shape]
                        .map(|shape| KvHeads {
                            kv_heads: shape.kv_heads,
                            head_dim: shape.head_dim,
                            values: KvValues::Stored,
                        })
                        .to_vec(),
                    ..first.shape.layers(0)
                };
                let mut cache = cuda.kv_cache(&layout, first.scene.blocks).unwrap();
                cache
                    .fill(
                        &inputs
                            .iter()
                            .flat_map(|input| &input.bytes[..input.bytes.len() / 2])
                            .copied()
                            .collect::<Vec<_>>(),
                    )
                    .unwrap();
                let batch = &first.scene.batch;
                assert_eq!(batch.block_tables, second.scene.batch.block_tables);
                let device_batch = staged(cuda, batch);
                for (layer, window) in [(0, Some(100)), (1, None), (0, None), (1, None), (0, Some(100))] {
                    let (case, input) = ([&narrow, &wide][layer], &inputs[layer]);
                    let spec = AttentionSpec { window, ..case.spec() };
                    let qkv = filled(cuda, &input.qkv, input.qkv.len() / batch.tokens());
                    let mut out = poisoned(cuda, batch.tokens(), case.heads * case.head_dim);
                    ops::attention(cuda, &spec, &mut out, &qkv, &cache, layer, &device_batch);
                    let what =
                        format!("{} rows, layer {layer}, {window:?}, {dtype:?}, {format:?}, {rounding:?}", rows.len());
                    assert_near(&cuda.read(&out).unwrap(), &input.expected(&spec, dtype), bound(dtype), &what);
                    // Queries alone get the same bits.
                    let cols = case.heads * case.head_dim;
                    let queries: Vec<f32> = input
                        .qkv
                        .chunks_exact(input.qkv.len() / batch.tokens())
                        .flat_map(|row| &row[..cols])
                        .copied()
                        .collect();
                    let (queries, mut alone) = (filled(cuda, &queries, cols), poisoned(cuda, batch.tokens(), cols));
                    ops::attention(cuda, &spec, &mut alone, &queries, &cache, layer, &device_batch);
                    assert!(cuda.read(&alone).unwrap() == cuda.read(&out).unwrap(), "{what}: queries alone");
                }
            }
        }
    });
}

/// Rows that each bring some tokens of the one sequence of `whole`.
pub fn parts(whole: &Batch, parts: &[(usize, usize)]) -> Batch {
    let mut batch = Batch { row_starts: vec![0], table_width: whole.table_width, ..Batch::default() };
    for &(start, end) in parts {
        batch.token_ids.extend(&whole.token_ids[start..end]);
        batch.positions.extend(&whole.positions[start..end]);
        batch.slots.extend(&whole.slots[start..end]);
        batch.row_starts.push(batch.token_ids.len() as u32);
        batch.context_lens.push(end as u32);
        batch.block_tables.extend(&whole.block_tables);
    }
    batch
}

/// Each of `splits`, parts of the one sequence of `case`, gives the bits of the whole sequence in one row.
fn assert_parts_have_the_bits_of_the_whole(
    cuda: &mut Cuda,
    dtype: DType,
    case: &AttentionCase,
    spec: &AttentionSpec,
    format: KvFormat,
    splits: &[&[(usize, usize)]],
) {
    let AttentionCase { heads, kv_heads, head_dim, .. } = *case;
    cuda.set_windows([spec.window]);
    let input = AttentionInput::new(case, dtype, format);
    let whole = &input.scene.batch;
    let mut cache = cuda.kv_cache(&input.shape.layers(2), input.scene.blocks).unwrap();
    cache.fill(&input.bytes).unwrap();
    let (cols, out_cols) = ((heads + 2 * kv_heads) * head_dim, heads * head_dim);
    let mut attended = |split: &[(usize, usize)]| {
        let qkv: Vec<f32> = split.iter().flat_map(|&(a, b)| &input.qkv[a * cols..b * cols]).copied().collect();
        let (device_batch, qkv) = (staged(cuda, &parts(whole, split)), filled(cuda, &qkv, cols));
        let mut out = poisoned(cuda, qkv.rows(), out_cols);
        let sinks = input.sinks.as_ref().map(|sinks| cuda.table(sinks).unwrap());
        ops::attention(cuda, Scoring { spec, sinks: sinks.as_ref() }, &mut out, &qkv, &cache, 0, &device_batch);
        cuda.read(&out).unwrap()
    };
    let together = attended(&[(0, whole.tokens())]);
    for split in splits {
        let wanted: Vec<f32> =
            split.iter().flat_map(|&(a, b)| &together[a * out_cols..b * out_cols]).copied().collect();
        let what = format!(
            "{heads} heads over {kv_heads} of {head_dim}, {spec:?}, {} rows, {dtype:?}, {format:?}",
            split.len()
        );
        assert!(attended(split) == wanted, "{what}");
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_batch_invariant_query_gives_the_same_bits_in_a_prompt_in_a_chunk_and_alone() {
    const PROMPT: &[(usize, usize)] = &[(0, 333)];
    on_device(|cuda, dtype| {
        cuda.set_rounding(Rounding::BatchInvariant);
        let shapes = [
            (4, 2, 512),
            (16, 1, 512),
            (16, 8, 128),
            (16, 1, 128),
            (5, 1, 128),
            (3, 3, 64),
            (6, 2, 80),
            (16, 2, 96),
            (4, 2, 256),
            (16, 1, 256),
            (8, 2, 32),
            (4, 4, 48),
            (16, 1, 112),
            (6, 2, 160),
            (16, 2, 192),
        ];
        let scores = [(None, None), (Some(20), None), (Some(150), None), (None, Some(1.0)), (Some(20), Some(1.0))];
        let kinds = || scores.into_iter().flat_map(|score| formats(dtype).map(|format| (score, format)));
        for ((heads, kv_heads, head_dim), kind) in
            shapes.iter().flat_map(|&shape| kinds().map(move |kind| (shape, kind)))
        {
            let ((window, softcap), format) = kind;
            let case = AttentionCase { rows: PROMPT, heads, kv_heads, head_dim, block_size: 32, ..QWEN3 };
            let spec = AttentionSpec { heads, scale: 0.1, window, softcap, reach: compute::Reach::Back };
            let alone: Vec<(usize, usize)> = (0..333).map(|token| (token, token + 1)).collect();
            let splits = [&alone[..], &[(0, 130), (130, 131), (131, 333)], &[(332, 333)], &[(64, 64 + 7), (200, 201)]];
            assert_parts_have_the_bits_of_the_whole(cuda, dtype, &case, &spec, format, &splits);
        }
    });
}

/// Long rows are split over all workers; twenty of them with 16 query heads per KV head have more units than the memory for split rows holds. Of many rows,
/// a worker hands over what the next one ends, and of equal ones none is split.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_batch_invariant_query_gives_the_same_bits_whether_its_keys_are_split_or_not() {
    const PROMPT: &[(usize, usize)] = &[(0, 2000)];
    on_device(|cuda, dtype| {
        cuda.set_rounding(Rounding::BatchInvariant);
        let last = (1999, 2000);
        for (heads, kv_heads, head_dim, window) in [
            (128, 8, 128, None),
            (16, 8, 128, None),
            (16, 8, 128, Some(700)),
            (32, 2, 64, None),
            (7, 1, 64, Some(1000)),
        ] {
            let case = AttentionCase { rows: PROMPT, heads, kv_heads, head_dim, ..QWEN3 };
            let spec = AttentionSpec { heads, scale: 0.1, window, softcap: None, reach: compute::Reach::Back };
            let ragged: Vec<(usize, usize)> = (0..100).map(|i| (i * 19 + 63, i * 19 + 64)).collect();
            let many: Vec<(usize, usize)> = (0..180).map(|i| (i * 5 + 63, i * 5 + 64)).collect();
            let splits = [
                &[last; 20][..],
                &[last],
                &[last; 3],
                &ragged,
                &many,
                &[(554, 555); 64],
                &[(554, 555); 130],
                &[(1000, 1007), last, (64, 65)],
                &[(1500, 1900), last],
            ];
            assert_parts_have_the_bits_of_the_whole(cuda, dtype, &case, &spec, KvFormat::Plain(dtype), &splits);
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_query_gives_the_same_bits_in_a_prompt_and_in_any_chunk_of_several() {
    const PROMPT: &[(usize, usize)] = &[(0, 701)];
    on_device(|cuda, dtype| {
        for ((heads, kv_heads, head_dim), (window, softcap)) in [(16, 8, 128), (5, 1, 128), (4, 2, 64)]
            .into_iter()
            .flat_map(|shape| [(None, None), (Some(150), None), (Some(20), Some(1.0))].map(|score| (shape, score)))
        {
            let case = AttentionCase { rows: PROMPT, heads, kv_heads, head_dim, block_size: 32, ..QWEN3 };
            let spec = AttentionSpec { heads, scale: 0.1, window, softcap, reach: compute::Reach::Back };
            let sevens: Vec<(usize, usize)> = (0..100).map(|chunk| (7 * chunk, 7 * chunk + 7)).collect();
            let splits = [&sevens[..], &[(0, 130), (130, 132), (132, 701)], &[(64, 192), (300, 555)], &[(699, 701)]];
            assert_parts_have_the_bits_of_the_whole(cuda, dtype, &case, &spec, KvFormat::Plain(dtype), &splits);
        }
    });
}
