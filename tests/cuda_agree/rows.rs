//! Ops that treat each row by itself: norms, gates, lookups and scales.

use crate::scene::{
    FEW_OPERATIONS, Near, Random, Scene, assert_near, bound, errors_of_norm, filled, host_matrix, host_vector,
    near_normalized, numbers, on_device, poisoned, rounded, staged, unit, wide,
};
use compute::batch::{PoolKind, PooledRange};
use compute::cpu::reference;
use compute::cuda::{Cuda, Vector};
use compute::ops;
use compute::{
    Activated, Activation, AddNorm, Curve, Device, HeadColumns, HeadPart, NextNorm, NormKind, NormWeights, Part,
    TableRows,
};
use formats::DType;

const SHAPES: [(usize, usize); 6] = [(1, 8), (3, 40), (64, 1024), (5, 4096), (2, 12_288), (300, 256)];

const EPS: f32 = 1e-6;
const POST_EPS: f32 = 1e-3;

/// A normalization of each row, in f64.
fn normalized(x: &[f64], weight: &[f32], kind: NormKind, eps: f32) -> Vec<f64> {
    let mean = |v: &mut dyn Iterator<Item = f64>| v.sum::<f64>() / weight.len() as f64;
    let rows = x.chunks_exact(weight.len()).flat_map(|row| {
        let centre = if kind == NormKind::Rms { 0.0 } else { mean(&mut row.iter().copied()) };
        let factor = 1.0 / (mean(&mut row.iter().map(|v| (v - centre).powi(2))) + f64::from(eps)).sqrt();
        row.iter().zip(weight).map(move |(v, &w)| (v - centre) * factor * f64::from(w))
    });
    rows.collect()
}

/// Inputs of a norm on the device.
struct Norms {
    x: Vec<f32>,
    y: Vec<f32>,
    weights: [Vec<f32>; 2],
    vectors: [Vector; 2],
}

impl Norms {
    /// Numbers around `mean`, and two rows of weights.
    fn new(cuda: &mut Cuda, [tokens, hidden]: [usize; 2], mean: f32, dtype: DType) -> Norms {
        let mut random = Random(1);
        let mut around = || -> Vec<f32> {
            let numbers = random.numbers(tokens * hidden, 3.0);
            numbers.into_iter().map(|v| rounded(v + mean, dtype)).collect()
        };
        let (x, y) = (around(), around());
        let weights = [(); 2].map(|()| numbers(&mut random, hidden, 2.0, dtype));
        let vectors = [0, 1].map(|i| cuda.vector(&[host_vector(&weights[i], dtype)]).unwrap());
        Norms { x, y, weights, vectors }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn norms_agree() {
    on_device(|cuda, dtype| {
        for (tokens, hidden) in SHAPES {
            for (kind, mean) in [(NormKind::Rms, 0.0), (NormKind::Layer, 5.0)] {
                let it = Norms::new(cuda, [tokens, hidden], mean, dtype);
                let (x, mut out) = (filled(cuda, &it.x, hidden), poisoned(cuda, tokens, hidden));
                ops::norm(cuda, &mut out, &x, NormWeights { weight: &it.vectors[0], eps: EPS, kind });
                let expected = normalized(&wide(&it.x), &it.weights[0], kind, EPS);
                let expected = near_normalized(&expected, &it.x, &it.weights[0], dtype);
                let what = format!("{kind:?}, {tokens} x {hidden}, {dtype:?}");
                assert_near(&cuda.read(&out).unwrap(), &expected, bound(dtype), &what);
            }
        }
    });
}

/// The biases of a norm stand behind its weights.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn norms_with_biases_agree() {
    on_device(|cuda, dtype| {
        for (tokens, hidden) in SHAPES {
            let it = Norms::new(cuda, [tokens, hidden], 5.0, dtype);
            let both = [0, 1].map(|i| host_vector(&it.weights[i], dtype));
            let (kind, weight) = (NormKind::LayerBiased, cuda.vector(&both).unwrap());
            let norm = NormWeights { weight: &weight, eps: EPS, kind };
            let what = format!("{tokens} x {hidden}, {dtype:?}");
            let expected = |x: &[f32]| {
                let plain = normalized(&wide(x), &it.weights[0], NormKind::Layer, EPS);
                let biased = plain.iter().zip(it.weights[1].iter().cycle()).map(|(v, &bias)| v + f64::from(bias));
                // The sum may be small where both are large.
                let errors = plain.iter().zip(errors_of_norm(x, &it.weights[0]));
                let errors = errors.map(|(v, error)| error + FEW_OPERATIONS * (v.abs() + 2.0));
                biased.zip(errors).map(|(v, error)| Near::stored(v, error, dtype)).collect::<Vec<Near>>()
            };
            let (x, mut out) = (filled(cuda, &it.x, hidden), poisoned(cuda, tokens, hidden));
            ops::norm(cuda, &mut out, &x, norm);
            assert_near(&cuda.read(&out).unwrap(), &expected(&it.x), bound(dtype), &what);
            let (mut residual, mut out) = (filled(cuda, &it.y, hidden), poisoned(cuda, tokens, hidden));
            ops::add_norm(cuda, &mut residual, &x, AddNorm::PLAIN, Some(NextNorm { out: &mut out, norm }));
            let sum = cuda.read(&residual).unwrap();
            assert_near(&cuda.read(&out).unwrap(), &expected(&sum), bound(dtype), &format!("of a sum, {what}"));
        }
    });
}

/// All kinds, of many states and of single ones.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn pooled_states_agree() {
    on_device(|cuda, dtype| {
        for (tokens, hidden) in SHAPES {
            let mut random = Random(3);
            let states = numbers(&mut random, tokens * hidden, 2.0, dtype);
            let mut scene = Scene::new(&[(0, tokens)], 16, &mut random);
            scene.batch.sampled_tokens.clear();
            scene.batch.sampling.clear();
            let end = tokens as u32;
            let ranges = [[0, end], [0, 1], [end - 1, end], [end / 2, end]];
            let kinds =
                PoolKind::ALL.into_iter().flat_map(|kind| ranges.map(|[first, end]| PooledRange { first, end, kind }));
            scene.batch.pooled_ranges = kinds.collect();
            let device_batch = staged(cuda, &scene.batch);
            let x = filled(cuda, &states, hidden);
            let rows = scene.batch.pooled_ranges.len();
            let mut out = poisoned(cuda, rows, hidden);
            ops::pool_states(cuda, &mut out, &x, &device_batch);
            let mut expected = vec![f32::NAN; rows * hidden];
            reference::pool_states(&mut expected, &states, hidden, &scene.batch);
            let size = |i: usize| {
                let PooledRange { first, end, .. } = scene.batch.pooled_ranges[i / hidden];
                let sum: f64 = (first as usize..end as usize)
                    .map(|token| f64::from(states[token * hidden + i % hidden]).abs())
                    .sum();
                sum * unit(DType::F32)
            };
            let near = expected.iter().enumerate().map(|(i, &v)| Near::stored(f64::from(v), size(i), dtype));
            let what = format!("{tokens} x {hidden}, {dtype:?}");
            assert_near(&cuda.read(&out).unwrap(), &near.collect::<Vec<Near>>(), bound(dtype), &what);
        }
    });
}

/// Positions and types of tokens name rows of tables.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn added_embeddings_agree() {
    on_device(|cuda, dtype| {
        for (rows, (tokens, hidden)) in [TableRows::Positions { first: 2 }, TableRows::Types]
            .into_iter()
            .flat_map(|rows| SHAPES.map(|shape| (rows, shape)))
        {
            let mut random = Random(3);
            let [before, table] = [tokens, tokens + 2].map(|rows| numbers(&mut random, rows * hidden, 2.0, dtype));
            let mut scene = Scene::new(&[(0, tokens)], 16, &mut random);
            scene.batch.token_types = (0..tokens as u32).map(|token| token % 2).collect();
            let device_batch = staged(cuda, &scene.batch);
            let matrix = cuda.matrix(&[host_matrix(&table, [tokens + 2, hidden], dtype)]).unwrap();
            let mut out = filled(cuda, &before, hidden);
            ops::add_embedding(cuda, &mut out, &matrix, rows, &device_batch);
            let sum = |(i, v): (usize, &f32)| {
                let row = rows.of(&scene.batch, i / hidden);
                rounded(v + table[row * hidden + i % hidden], dtype)
            };
            let expected: Vec<f32> = before.iter().enumerate().map(sum).collect();
            assert_eq!(cuda.read(&out).unwrap(), expected, "{rows:?}, {tokens} x {hidden}, {dtype:?}");
        }
    });
}

/// Everything that the stream may be added with, in every shape.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn sums_with_the_stream_and_their_norms_agree() {
    let norms = [None, Some(NormKind::Rms), Some(NormKind::Layer)];
    on_device(|cuda, dtype| {
        for (tokens, hidden) in SHAPES {
            let it = Norms::new(cuda, [tokens, hidden], 1.0, dtype);
            for (post, next, (scale, stream_scale)) in norms
                .iter()
                .flat_map(|&a| norms.map(|b| (a, b)))
                .flat_map(|(a, b)| [(1.0, 1.0), (0.22, 1.0), (1.0, 0.7)].map(|scales| (a, b, scales)))
            {
                let what = format!("{post:?}, {next:?}, {scale}, {stream_scale}, {tokens} x {hidden}, {dtype:?}");
                let (x, mut residual) = (filled(cuda, &it.x, hidden), filled(cuda, &it.y, hidden));
                let mut out = poisoned(cuda, tokens, hidden);
                let [weight, post_weight] = &it.vectors;
                let add = AddNorm {
                    post: post.map(|kind| NormWeights { weight: post_weight, eps: POST_EPS, kind }),
                    scale,
                    stream_scale,
                };
                let norm = next.map(|kind| NextNorm { out: &mut out, norm: NormWeights { weight, eps: EPS, kind } });
                ops::add_norm(cuda, &mut residual, &x, add, norm);

                let delta = match post {
                    None => wide(&it.x),
                    Some(kind) => normalized(&wide(&it.x), &it.weights[1], kind, POST_EPS),
                };
                // A norm of what is added is not rounded before the sum, which is one operation more.
                let errors = match post {
                    None => vec![0.0; delta.len()],
                    Some(_) => errors_of_norm(&it.x, &it.weights[1]),
                };
                let sums = it.y.iter().zip(delta).zip(errors).map(|((&y, v), error)| {
                    let (y, v) = (f64::from(y), f64::from(scale) * v);
                    let of_sum = FEW_OPERATIONS * (y.abs() + v.abs());
                    let stream = f64::from(stream_scale);
                    Near::stored(stream * (y + v), stream * (of_sum + f64::from(scale.abs()) * error), dtype)
                });
                let sum: Vec<Near> = sums.collect();
                let computed = cuda.read(&residual).unwrap();
                assert_near(&computed, &sum, bound(dtype), &format!("residual {what}"));
                if post.is_none() && scale == 1.0 && stream_scale == 1.0 {
                    let exact: Vec<f32> = it.x.iter().zip(&it.y).map(|(a, b)| rounded(a + b, dtype)).collect();
                    assert_eq!(computed, exact, "residual {what}");
                }
                match next {
                    None => assert!(cuda.read(&out).unwrap().iter().all(|v| v.is_nan()), "{what}: out was written"),
                    // The sum is normalized as it was rounded.
                    Some(kind) => {
                        let expected = normalized(&wide(&computed), &it.weights[0], kind, EPS);
                        let expected = near_normalized(&expected, &computed, &it.weights[0], dtype);
                        assert_near(&cuda.read(&out).unwrap(), &expected, bound(dtype), &format!("norm {what}"));
                    }
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn scaled_and_capped_logits_agree() {
    on_device(|cuda, dtype| {
        for (samples, vocab) in [(1, 1), (3, 1003), (64, 32_001), (256, 2048)] {
            let numbers = numbers(&mut Random(5), samples * vocab, 60.0, dtype);
            for (scale, softcap) in [(0.0625, None), (1.0, Some(30.0)), (-3.0, Some(5.0)), (1e-3, Some(30.0))] {
                let mut logits = filled(cuda, &numbers, vocab);
                ops::scale_logits(cuda, &mut logits, scale, softcap);
                let cap = |v: f64| softcap.map_or(v, |cap: f32| f64::from(cap) * (v / f64::from(cap)).tanh());
                let expected = numbers.iter().map(|&v| {
                    let scaled = f64::from(scale) * f64::from(v);
                    // The tanh of a GPU is off by 3e-7 of 1, however small it is.
                    let of_tanh = softcap.map_or(0.0, |cap| FEW_OPERATIONS * f64::from(cap));
                    Near::stored(cap(scaled), FEW_OPERATIONS * cap(scaled).abs() + of_tanh, dtype)
                });
                let expected: Vec<Near> = expected.collect();
                let what = format!("{scale}, {softcap:?}, {samples} x {vocab}, {dtype:?}");
                assert_near(&cuda.read(&logits).unwrap(), &expected, bound(dtype), &what);
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn gates_and_lookups_agree() {
    on_device(|cuda, dtype| {
        for (tokens, hidden) in SHAPES {
            let what = format!("{tokens} x {hidden}, {dtype:?}");
            let mut random = Random(2);
            let gate_up = numbers(&mut random, tokens * 2 * hidden, 5.0, dtype);
            let (x, mut out) = (filled(cuda, &gate_up, 2 * hidden), poisoned(cuda, tokens, hidden));
            let rows = || gate_up.chunks_exact(2 * hidden);
            for activation in [Activation::Silu, Activation::GeluTanh, Activation::ClampedSwiglu] {
                ops::activate_mul(cuda, &mut out, &x, activation);
                let activate = |v: f64| match activation {
                    Activation::Silu => v / (1.0 + (-v).exp()),
                    Activation::GeluTanh => v / 2.0 * (1.0 + (0.797_884_560_8 * (v + 0.044_715 * v.powi(3))).tanh()),
                    Activation::ClampedSwiglu => v.min(7.0) / (1.0 + (-1.702 * v.min(7.0)).exp()),
                };
                let activated = |row: &[f32], i: usize| {
                    let (gate, up) = (f64::from(row[i]), f64::from(row[hidden + i]));
                    let up = if activation == Activation::ClampedSwiglu { up.clamp(-7.0, 7.0) + 1.0 } else { up };
                    let value = activate(gate) * up;
                    // An exponent of up to 64 is off by that many units, and its power by as great a share. The f64 of `1 + tanh` is exact enough.
                    let exponent = match activation {
                        Activation::Silu => gate.abs(),
                        Activation::GeluTanh => 1.6 * gate.abs() + 0.072 * gate.abs().powi(3),
                        Activation::ClampedSwiglu => 1.702 * gate.abs(),
                    };
                    Near::stored(value, FEW_OPERATIONS * (1.0 + exponent) * value.abs(), dtype)
                };
                let expected: Vec<Near> = rows().flat_map(|row| (0..hidden).map(|i| activated(row, i))).collect();
                assert_near(&cuda.read(&out).unwrap(), &expected, bound(dtype), &format!("{activation:?} {what}"));
            }

            let table = numbers(&mut random, 50 * hidden, 1.0, dtype);
            let matrix = cuda.matrix(&[host_matrix(&table, [50, hidden], dtype)]).unwrap();
            let scene = Scene::new(&[(0, tokens), (3, 2)], 16, &mut random);
            let device_batch = staged(cuda, &scene.batch);
            let mut out = poisoned(cuda, tokens + 2, hidden);
            ops::embedding(cuda, &mut out, &matrix, 12.0, &device_batch);
            let scaled: Vec<f32> = scene
                .batch
                .token_ids
                .iter()
                .flat_map(|&id| &table[id as usize * hidden..][..hidden])
                .map(|v| rounded(v * 12.0, dtype))
                .collect();
            assert_eq!(cuda.read(&out).unwrap(), scaled, "scaled embedding {what}");
            ops::embedding(cuda, &mut out, &matrix, 1.0, &device_batch);
            let ids = &scene.batch.token_ids;
            let expected: Vec<f32> =
                ids.iter().flat_map(|&id| &table[id as usize * hidden..][..hidden]).copied().collect();
            assert_eq!(cuda.read(&out).unwrap(), expected, "embedding {what}");

            let mut last = poisoned(cuda, 2, hidden);
            ops::gather(cuda, &mut last, &out, &device_batch);
            let expected = [&expected[(tokens - 1) * hidden..][..hidden], &expected[(tokens + 1) * hidden..]].concat();
            assert_eq!(cuda.read(&last).unwrap(), expected, "gather {what}");
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn sigmoid_gates_agree() {
    on_device(|cuda, dtype| {
        // Rows that are padded in memory, and gates whose exponential overflows.
        // A gate per number, and a gate per head.
        let per_number = SHAPES.map(|(tokens, width)| (tokens, width, 1, 5.0)).into_iter().chain([(3, 37, 1, 300.0)]);
        let per_head = [(1, 2048, 128, 5.0), (300, 96, 32, 5.0), (3, 24, 8, 300.0), (70_000, 32, 16, 5.0)];
        for (tokens, width, span, size) in per_number.chain(per_head) {
            let mut random = Random(6);
            let [x, gate] = [1, span].map(|span| numbers(&mut random, tokens * width / span, size, dtype));
            let (mut gated, gates) = (filled(cuda, &x, width), filled(cuda, &gate, width / span));
            ops::sigmoid_mul(cuda, &mut gated, &gates);
            let expected = x.iter().enumerate().map(|(i, &x)| {
                let gate = gate[i / span];
                let value = f64::from(x) / (1.0 + (-f64::from(gate)).exp());
                // An exponent of up to 64 is off by that many units, and its power by as great a share.
                let of_power = FEW_OPERATIONS * (1.0 + f64::from(gate.abs())) * value.abs();
                // A power that f32 does not have gives 0, instead of what is less than this.
                Near::stored(value, of_power + 1e-35, dtype)
            });
            let expected: Vec<Near> = expected.collect();
            let what = format!("{tokens} x {width}, spans of {span}, up to {size}, {dtype:?}");
            assert_near(&cuda.read(&gated).unwrap(), &expected, bound(dtype), &what);
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn heads_are_placed_where_attention_reads_them() {
    on_device(|cuda, dtype| {
        // Heads of GLM-4.7-Flash, heads of DeepSeek-V3 with narrow values, and one head.
        for (tokens, heads, [nope, rope, value]) in
            [(3, 20, [192, 64, 256]), (40, 16, [128, 64, 128]), (1, 1, [8, 8, 8])]
        {
            let (key, head) = (nope + rope, (nope + rope).max(value));
            let mut random = Random(9);
            let mut random = |cols: usize| numbers(&mut random, tokens * cols, 4.0, dtype);
            let (of_queries, of_latent, of_rope) = (random(heads * key), random(heads * (nope + value)), random(rope));
            let queries = filled(cuda, &of_queries, heads * key);
            let latent = filled(cuda, &of_latent, heads * (nope + value));
            let shared = filled(cuda, &of_rope, rope);
            let columns = |first, step| HeadColumns { first, step };
            let kinds = [0, 1, 2].map(|kind| kind * heads * head);
            let parts = [
                (Some((&queries, &of_queries, columns(nope, key))), columns(0, head), rope),
                (Some((&queries, &of_queries, columns(0, key))), columns(rope, head), nope),
                (None, columns(key, head), head - key),
                (Some((&shared, &of_rope, columns(0, 0))), columns(kinds[1], head), rope),
                (Some((&latent, &of_latent, columns(0, nope + value))), columns(kinds[1] + rope, head), nope),
                (None, columns(kinds[1] + key, head), head - key),
                (Some((&latent, &of_latent, columns(nope, nope + value))), columns(kinds[2], head), value),
                (None, columns(kinds[2] + value, head), head - value),
            ];
            let mut expected = vec![0.0; tokens * 3 * heads * head];
            for &(from, to, width) in &parts {
                let from = from.map(|(x, numbers, from)| (&**numbers, x.cols(), from));
                reference::place_heads((&mut expected, 3 * heads * head), from, to, [heads, width]);
            }
            let mut out = poisoned(cuda, tokens, 3 * heads * head);
            let parts = parts.map(|(from, to, width)| HeadPart { from: from.map(|(x, _, from)| (x, from)), to, width });
            ops::place_heads(cuda, &mut out, heads, &parts);
            assert_eq!(cuda.read(&out).unwrap(), expected, "{tokens} tokens, {heads} heads, {dtype:?}");
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn activations_agree() {
    on_device(|cuda, dtype| {
        let curves = [
            Curve::ReluSquared,
            Curve::Gate(Activation::Silu),
            Curve::Gate(Activation::GeluTanh),
            Curve::Gelu,
            Curve::Tanh,
        ];
        for ((tokens, width), (curve, scale)) in SHAPES
            .into_iter()
            .flat_map(|shape| curves.into_iter().zip([1.0, 0.7, -1.5, 0.9, 1.1]).map(move |it| (shape, it)))
        {
            let mut random = Random(7);
            // Columns 16.. of one tensor, and 8.. of another; rows are padded in memory.
            let [of, factors] = [16, 8].map(|first| numbers(&mut random, tokens * (first + width), 5.0, dtype));
            let (x, y) = (filled(cuda, &of, 16 + width), filled(cuda, &factors, 8 + width));
            for has_times in [false, true] {
                let mut out = poisoned(cuda, tokens, width);
                let times = has_times.then_some(Part { x: &y, first: 8 });
                ops::activate(cuda, &mut out, Activated { of: Part { x: &x, first: 16 }, scale, curve, times });
                let near = |row: usize, i: usize| {
                    let v = of[row * (16 + width) + 16 + i];
                    let factor = if has_times { f64::from(factors[row * (8 + width) + 8 + i]) } else { 1.0 };
                    let mut value = [f32::NAN];
                    reference::activate(&mut value, &[v], (scale, curve), None);
                    let (value, scaled) = (f64::from(value[0]) * factor, f64::from((scale * v).abs()));
                    // An exponent is off by that many units, and its power by as great a share.
                    let exponent = match curve {
                        Curve::ReluSquared | Curve::Tanh => 0.0,
                        // That of the square in erfc, whose tail lies that far below.
                        Curve::Gelu => 2.0 * scaled + scaled.powi(2),
                        Curve::Gate(Activation::Silu) => scaled,
                        Curve::Gate(Activation::GeluTanh) => 1.6 * scaled + 0.072 * scaled.powi(3),
                        Curve::Gate(Activation::ClampedSwiglu) => unreachable!("it changes the up"),
                    };
                    // Where a curve is nearly 0, the specification has lost all digits of the factor: half a unit of one.
                    let lost = unit(DType::F32) * scaled * factor.abs();
                    Near::stored(value, FEW_OPERATIONS * (1.0 + exponent) * value.abs() + lost + 1e-35, dtype)
                };
                let expected: Vec<Near> = (0..tokens)
                    .flat_map(|row| (0..width).map(move |i| (row, i)))
                    .map(|(row, i)| near(row, i))
                    .collect();
                let what = format!("{curve:?}, {scale}, {has_times}, {tokens} x {width}, {dtype:?}");
                assert_near(&cuda.read(&out).unwrap(), &expected, bound(dtype), &what);
            }
        }
    });
}
