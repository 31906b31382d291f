//! Latent attention: `attention` and `rope_and_cache` over keys that end with their values, and `head_linear`.

use crate::attention::parts;
use crate::scene::{
    Dot, Near, Random, Scene, assert_near, bound, coded, filled, host_matrix, numbers, on_device, poisoned, staged,
};
use compute::cuda::Cuda;
use compute::{
    AttentionSpec, Device, HeadColumns, KvShape, KvValues, Pairing, QkNormRope, Reach, RopeTable, Rounding, ops,
};
use formats::DType;

struct Case {
    name: &'static str,
    /// Tokens of each row before and in the batch.
    rows: &'static [(usize, usize)],
    heads: usize,
    key: usize,
    value: usize,
    block_size: usize,
}

const DECODE: &[(usize, usize)] = &[(557, 1), (0, 1), (31, 1), (32, 1), (1, 1), (1999, 1), (300, 1)];
const RAGGED: &[(usize, usize)] =
    &[(0, 37), (64, 1), (63, 2), (100, 30), (0, 1), (5, 60), (1500, 1), (0, 129), (15, 1), (200, 33)];

const GLM: Case = Case { name: "", rows: &[], heads: 20, key: 576, value: 512, block_size: 64 };

const CASES: &[Case] = &[
    Case { name: "one token that sees itself alone", rows: &[(0, 1)], ..GLM },
    Case { name: "one long row in many parts", rows: &[(5000, 1)], ..GLM },
    Case { name: "decode", rows: DECODE, ..GLM },
    Case { name: "ragged", rows: RAGGED, ..GLM },
    Case { name: "decode, 16 heads", rows: DECODE, heads: 16, block_size: 16, ..GLM },
    Case { name: "ragged, 16 heads", rows: RAGGED, heads: 16, block_size: 16, ..GLM },
    Case { name: "decode, 128 heads", rows: DECODE, heads: 128, ..GLM },
    Case { name: "ragged, 128 heads", rows: RAGGED, heads: 128, block_size: 256, ..GLM },
    Case { name: "ragged, 3 heads", rows: RAGGED, heads: 3, ..GLM },
    Case { name: "more rows than multiprocessors", rows: &[(70, 1); 300], ..GLM },
    Case { name: "decode, heads of Mistral Small 4", rows: DECODE, heads: 32, key: 320, value: 256, block_size: 64 },
    Case { name: "ragged, heads of Mistral Small 4", rows: RAGGED, heads: 32, key: 320, value: 256, block_size: 64 },
    Case { name: "small keys", rows: RAGGED, heads: 2, key: 24, value: 16, block_size: 16 },
    Case { name: "keys that are no multiple of 16", rows: RAGGED, heads: 2, key: 40, value: 24, block_size: 16 },
    Case { name: "values of 24 behind 8", rows: DECODE, heads: 5, key: 32, value: 24, block_size: 32 },
];

struct Input {
    scene: Scene,
    shape: KvShape,
    spec: AttentionSpec,
    /// `[slots, key]`, NaN where no token is.
    keys: Vec<f32>,
    qkv: Vec<f32>,
}

impl Input {
    fn new(case: &Case, dtype: DType) -> Input {
        let &Case { heads, key, value, block_size, .. } = case;
        let mut random = Random(5);
        let scene = Scene::new(case.rows, block_size, &mut random);
        let mut keys = vec![f32::NAN; scene.blocks * block_size * key];
        for (row, &context) in scene.batch.context_lens.iter().enumerate() {
            for position in 0..context as usize {
                let at = scene.slot(row, position) * key;
                keys[at..at + key].copy_from_slice(&numbers(&mut random, key, 1.5, dtype));
            }
        }
        let shape =
            KvShape { kv_heads: 1, head_dim: key, values: KvValues::InKeys(value), block_size, format: dtype.into() };
        let spec = AttentionSpec { heads, scale: 0.1, window: None, softcap: None, reach: Reach::Back };
        let qkv = numbers(&mut random, scene.batch.tokens() * (heads + 1) * key, 1.5, dtype);
        Input { scene, shape, spec, keys, qkv }
    }

    fn cache(&self, cuda: &mut Cuda, dtype: DType) -> <Cuda as Device>::KvCache {
        let mut cache = cuda.kv_cache(&self.shape.layers(1), self.scene.blocks).unwrap();
        cache.fill(&coded(&self.keys, dtype)).unwrap();
        cache
    }

    fn expected(&self, dtype: DType) -> Vec<Near> {
        let (KvShape { head_dim: key, .. }, value) = (self.shape, self.shape.value_dim());
        let (batch, cols) = (&self.scene.batch, (self.spec.heads + 1) * key);
        let mut out = Vec::new();
        for (row, token) in (0..batch.rows()).flat_map(|row| batch.row(row).map(move |token| (row, token))) {
            for head in 0..self.spec.heads {
                let query = &self.qkv[token * cols + head * key..][..key];
                let of = |position: usize| &self.keys[self.scene.slot(row, position) * key..][..key];
                let positions = 0..batch.positions[token] as usize + 1;
                let scores: Vec<f64> =
                    positions.map(|j| Dot::of(query, of(j)).value * f64::from(self.spec.scale)).collect();
                let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp()).collect();
                let total: f64 = weights.iter().sum();
                let mut sums = vec![Dot::default(); value];
                for (j, weight) in weights.iter().enumerate() {
                    let products = of(j)[key - value..].iter().map(|&v| weight / total * f64::from(v));
                    sums.iter_mut().zip(products).for_each(|(sum, product)| *sum = sum.plus(product));
                }
                out.extend(sums.iter().map(|sum| sum.near_rounded(dtype)));
            }
        }
        out
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn latent_attention_agrees() {
    on_device(|cuda, dtype| {
        cuda.set_windows([None]);
        for case in CASES {
            let input = Input::new(case, dtype);
            let (batch, expected) = (&input.scene.batch, input.expected(dtype));
            for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
                cuda.set_rounding(rounding);
                let cache = input.cache(cuda, dtype);
                let (device_batch, qkv) = (staged(cuda, batch), filled(cuda, &input.qkv, (case.heads + 1) * case.key));
                let what = format!("{}, {dtype:?}, {rounding:?}", case.name);
                let [first, second] = [0, 1].map(|_| {
                    let mut out = poisoned(cuda, batch.tokens(), case.heads * case.value);
                    ops::attention(cuda, &input.spec, &mut out, &qkv, &cache, 0, &device_batch);
                    cuda.read(&out).unwrap()
                });
                assert_near(&first, &expected, bound(dtype), &what);
                assert!(first == second, "{what}: the same launch gave other bits");
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_batch_invariant_latent_query_gives_the_same_bits_in_a_prompt_in_a_chunk_and_alone() {
    on_device(|cuda, dtype| {
        cuda.set_rounding(Rounding::BatchInvariant);
        cuda.set_windows([None]);
        for heads in [3, 16, 20, 128] {
            let case = Case { rows: &[(0, 333)], heads, ..GLM };
            let input = Input::new(&case, dtype);
            let (cache, whole) = (input.cache(cuda, dtype), &input.scene.batch);
            let (cols, out_cols) = ((heads + 1) * case.key, heads * case.value);
            let mut attended = |split: &[(usize, usize)]| {
                let qkv: Vec<f32> = split.iter().flat_map(|&(a, b)| &input.qkv[a * cols..b * cols]).copied().collect();
                let (device_batch, qkv) = (staged(cuda, &parts(whole, split)), filled(cuda, &qkv, cols));
                let mut out = poisoned(cuda, qkv.rows(), out_cols);
                ops::attention(cuda, &input.spec, &mut out, &qkv, &cache, 0, &device_batch);
                cuda.read(&out).unwrap()
            };
            let together = attended(&[(0, 333)]);
            let alone: Vec<(usize, usize)> = (0..333).map(|token| (token, token + 1)).collect();
            for split in [&alone[..], &[(0, 130), (130, 131), (131, 333)], &[(332, 333)], &[(64, 71), (200, 201)]] {
                let wanted: Vec<f32> =
                    split.iter().flat_map(|&(a, b)| &together[a * out_cols..b * out_cols]).copied().collect();
                assert!(attended(split) == wanted, "{heads} heads, {} rows, {dtype:?}", split.len());
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn latent_keys_are_rotated_and_stored() {
    on_device(|cuda, dtype| {
        let shapes = [
            (20, 576, 64, true, false),
            (2, 24, 8, false, false),
            (128, 576, 64, false, false),
            // Queries that grow with their position, of the shape of Mistral Small 4 and of a small one.
            (32, 320, 64, true, true),
            (3, 24, 8, true, true),
        ];
        for (heads, key, rotary, neighbours, grows) in shapes {
            let case = Case { rows: RAGGED, heads, key, value: key - rotary, ..GLM };
            let input = Input::new(&case, dtype);
            let batch = &input.scene.batch;
            let positions = *batch.positions.iter().max().unwrap() as usize + 1;
            let angle = |position: usize, pair: usize| position as f32 * 0.7f32.powi(pair as i32);
            let table = (0..positions).flat_map(|position| {
                let angles = move || (0..rotary / 2).map(move |pair| angle(position, pair));
                angles().map(f32::cos).chain(angles().map(f32::sin))
            });
            let table: Vec<f32> = table.collect();
            let device_table = cuda.table(&table).unwrap();
            // One of the first 16 positions is 1.
            let factor = |position: usize| 1.0 + 0.3 * (1.0 + (position / 16) as f32).ln();
            let factors: Vec<f32> = (0..positions).map(factor).collect();
            let device_factors = cuda.table(&factors).unwrap();
            let pairing = if neighbours { Pairing::Neighbours } else { Pairing::Halves };
            let transform = QkNormRope {
                norm: None,
                whole: None,
                rope: Some(RopeTable { table: &device_table, rotary, pairing }),
                temperature: grows.then_some(&device_factors),
                value_norm: None,
            };
            let mut cache = cuda.kv_cache(&input.shape.layers(1), input.scene.blocks).unwrap();
            let untouched = vec![7.0; input.keys.len()];
            cache.fill(&coded(&untouched, dtype)).unwrap();
            let (device_batch, cols) = (staged(cuda, batch), (heads + 1) * key);
            let mut qkv = filled(cuda, &input.qkv, cols);
            ops::rope_and_cache(cuda, &input.spec, &mut qkv, transform, &mut cache, 0, &device_batch);
            let found = cuda.read(&qkv).unwrap();
            let mut stored = wide_of(&cache.bytes().unwrap(), dtype);
            for token in 0..batch.tokens() {
                let row = &input.qkv[token * cols..][..cols];
                let (cos, sin) = table[batch.positions[token] as usize * rotary..][..rotary].split_at(rotary / 2);
                for head in 0..=heads {
                    let v = &row[head * key..][..key];
                    let scale = match grows && head < heads {
                        true => f64::from(factors[batch.positions[token] as usize]),
                        false => 1.0,
                    };
                    let kept = |&v: &f32| match scale == 1.0 {
                        true => Near { value: v.into(), within: 0.0 },
                        false => Near::stored(scale * f64::from(v), 1e-6 * f64::from(v.abs()), dtype),
                    };
                    let mut expected: Vec<Near> = v.iter().map(kept).collect();
                    for pair in 0..rotary / 2 {
                        let (a, b) = if neighbours { (2 * pair, 2 * pair + 1) } else { (pair, pair + rotary / 2) };
                        let [x, y, c, s] = [v[a], v[b], cos[pair], sin[pair]].map(f64::from);
                        let error = 1e-6 * scale * (x.abs() + y.abs());
                        expected[a] = Near::stored(scale * (x * c - y * s), error, dtype);
                        expected[b] = Near::stored(scale * (y * c + x * s), error, dtype);
                    }
                    let slot = batch.slots[token] as usize;
                    let what = format!("{heads} heads of {key}, token {token}, head {head}, {dtype:?}");
                    match head < heads {
                        true => assert_near(&found[token * cols + head * key..][..key], &expected, 2e-2, &what),
                        false => {
                            assert_near(&stored[slot * key..][..key], &expected, 2e-2, &what);
                            stored[slot * key..][..key].fill(7.0);
                        }
                    }
                }
            }
            assert!(stored.iter().all(|&v| v == 7.0), "slots of no token were touched");
        }
    });
}

/// Numbers that a cache holds.
fn wide_of(bytes: &[u8], dtype: DType) -> Vec<f32> {
    let numbers = bytes.as_chunks::<2>().0.iter();
    match dtype {
        DType::Bf16 => numbers.map(|&n| half::bf16::from_le_bytes(n).to_f32()).collect(),
        _ => numbers.map(|&n| half::f16::from_le_bytes(n).to_f32()).collect(),
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn head_linear_agrees_and_no_row_depends_on_another() {
    on_device(|cuda, dtype| {
        for (heads, [outputs, inputs], [first, step], [to_first, to_step]) in [
            (20, [512, 192], [0, 256], [64, 576]),
            (16, [128, 512], [0, 512], [0, 128]),
            (3, [24, 40], [8, 48], [16, 32]),
            (1, [8, 8], [0, 8], [0, 8]),
        ] {
            let mut random = Random(11);
            let weights: Vec<Vec<f32>> =
                (0..heads).map(|_| numbers(&mut random, outputs * inputs, 0.2, dtype)).collect();
            let matrices: Vec<_> = weights.iter().map(|w| host_matrix(w, [outputs, inputs], dtype)).collect();
            let weight = cuda.heads(&matrices).unwrap();
            let (cols, out_cols) = (first + heads * step, to_first + heads * to_step);
            let x = numbers(&mut random, 150 * cols, 1.0, dtype);
            let (from, to) = (HeadColumns { first, step }, HeadColumns { first: to_first, step: to_step });
            let mut before: Option<Vec<f32>> = None;
            for tokens in [150, 65, 16, 1] {
                let rows = filled(cuda, &x[..tokens * cols], cols);
                let mut out = filled(cuda, &vec![7.0; tokens * out_cols], out_cols);
                ops::head_linear(cuda, (&mut out, to), (&rows, from), &weight);
                let found = cuda.read(&out).unwrap();
                let mut expected = vec![Near { value: 7.0, within: 0.0 }; tokens * out_cols];
                for (token, head) in (0..tokens).flat_map(|token| (0..heads).map(move |head| (token, head))) {
                    let x = &x[token * cols + from.of(head)..][..inputs];
                    for (n, w) in weights[head].chunks_exact(inputs).enumerate() {
                        expected[token * out_cols + to.of(head) + n] = Dot::of(x, w).near(dtype);
                    }
                }
                let what = format!("{heads} heads of {outputs} x {inputs}, {tokens} tokens, {dtype:?}");
                assert_near(&found, &expected, bound(dtype), &what);
                if let Some(before) = before.replace(found.clone()) {
                    assert!(before[..found.len()] == found, "{what}: other bits beside fewer tokens");
                }
            }
        }
    });
}
