//! `linear_add_norm`: the stream of the ops one by one, to the bit, and their norm up to rounding, as the next layer reads it.

use crate::inputs::codings;
use crate::scene::{
    Dot, FEW_OPERATIONS, Near, Random, assert_near, bound, filled, host_matrix, host_vector, numbers, on_device,
    poisoned, rounded,
};
use compute::cuda::{Chaining, Cuda, Matrix, Route, Tensor, Vector};
use compute::ops;
use compute::{Activation, AddNorm, Device, LayerInput, NextNorm, NormKind, NormWeights, Rounding};
use formats::{Block, DType, WeightFormat};

/// Rows that lie behind those in use.
const BEHIND: usize = 3;
const EPS: f32 = 1e-5;

/// A layer of `k` inputs that adds to a stream of `hidden` numbers, and one of `outputs` that reads the norm.
struct Layers {
    weight: Matrix,
    bias: Vector,
    norm: Vector,
    norm_values: Vec<f32>,
    reader: Matrix,
    reader_values: Vec<f32>,
    reader_bias: Vector,
    reader_bias_values: Vec<f32>,
    hidden: usize,
    k: usize,
    outputs: usize,
}

/// What is computed from rows.
struct Results {
    /// Whether no product was stored.
    is_one: bool,
    stream: Vec<f32>,
    /// The reader's products, and their gates times ups.
    read: Vec<f32>,
    gated: Vec<f32>,
}

/// Rows of random numbers of a size, the same for each number of rows, and NaN behind them.
fn rows(cuda: &mut Cuda, seed: u64, [m, cols]: [usize; 2], size: f32, dtype: DType) -> Tensor {
    let mut values = numbers(&mut Random(seed), m * cols, size, dtype);
    values.resize((m + BEHIND) * cols, f32::NAN);
    let mut tensor = filled(cuda, &values, cols);
    tensor.set_rows(m);
    tensor
}

impl Layers {
    fn new(cuda: &mut Cuda, sizes: [usize; 3], dtype: DType) -> Layers {
        Layers::coded(cuda, sizes, None, dtype)
    }

    /// With weights in `coding`, or in `dtype`.
    fn coded(cuda: &mut Cuda, [hidden, k, outputs]: [usize; 3], coding: Option<WeightFormat>, dtype: DType) -> Layers {
        let mut random = Random(11);
        let mut vector = |cuda: &mut Cuda, len, size| {
            let values = numbers(&mut random, len, size, dtype);
            (cuda.vector(&[host_vector(&values, dtype)]).unwrap(), values)
        };
        let (bias, _) = vector(cuda, hidden, 1.0);
        let (mut norm, norm_values) = vector(cuda, hidden, 3.0);
        let (reader_bias, reader_bias_values) = vector(cuda, outputs, 1.0);
        let mut matrix = |sizes: [usize; 2]| match coding {
            None => host_matrix(&numbers(&mut random, sizes[0] * sizes[1], 0.2, dtype), sizes, dtype),
            Some(coding) => codings::matrix(&mut random, coding, sizes),
        };
        let (weight, reader) = (matrix([hidden, k]), matrix([outputs, hidden]));
        let reader_values: Vec<f32> = reader.to_f32().into_iter().map(|v| rounded(v, dtype)).collect();
        let reader = cuda.matrix(&[reader]).unwrap();
        Cuda::bind_norm(&mut norm, &reader);
        Layers {
            weight: cuda.matrix(&[weight]).unwrap(),
            bias,
            norm,
            norm_values,
            reader,
            reader_values,
            reader_bias,
            reader_bias_values,
            hidden,
            k,
            outputs,
        }
    }

    /// By the op, or by the ops one by one. Asserts that rows behind are left alone.
    fn computed(&self, cuda: &mut Cuda, m: usize, has_bias: bool, scale: f32, is_one: bool, dtype: DType) -> Results {
        let Layers { weight, bias, norm, reader, reader_bias, hidden, k, outputs, .. } = self;
        let x = rows(cuda, 1, [m, *k], 1.0, dtype);
        let mut residual = rows(cuda, 2, [m, *hidden], 5.0, dtype);
        let behind = |cuda: &mut Cuda, cols| {
            let mut tensor = poisoned(cuda, m + BEHIND, cols);
            tensor.set_rows(m);
            tensor
        };
        let (mut delta, mut normed) = (behind(cuda, *hidden), behind(cuda, *hidden));
        let (mut read, mut gate_up, mut gated) =
            (behind(cuda, *outputs), behind(cuda, *outputs), behind(cuda, outputs / 2));
        let bias = has_bias.then_some(bias);
        let add = AddNorm { post: None, scale, stream_scale: 1.0 };
        let next = NormWeights { weight: norm, eps: EPS, kind: NormKind::Rms };
        let next = NextNorm { out: &mut normed, norm: next };
        if is_one {
            let layer = LayerInput::new(&x, weight, bias);
            ops::linear_add_norm(cuda, &mut residual, &mut delta, layer, add, next);
        } else {
            ops::linear(cuda, &mut delta, LayerInput::new(&x, weight, bias), 0..*hidden);
            ops::add_norm(cuda, &mut residual, &delta, add, Some(next));
        }
        let is_one_launch = cuda.read(&delta).unwrap().iter().all(|v| v.is_nan());
        let reader_bias = has_bias.then_some(reader_bias);
        ops::linear(cuda, &mut read, LayerInput::new(&normed, reader, reader_bias), 0..*outputs);
        ops::gated_linear(
            cuda,
            &mut gated,
            &mut gate_up,
            LayerInput::new(&normed, reader, reader_bias),
            Activation::Silu,
        );
        residual.set_rows(m + BEHIND);
        let stream = cuda.read(&residual).unwrap();
        let (stream, rest) = stream.split_at(m * hidden);
        assert!(rest.iter().all(|v| v.is_nan()), "rows behind were written");
        // Written by an op that does not leave anything to another one, the rows behind can be read.
        normed.set_rows(m);
        ops::norm(cuda, &mut normed, &delta, NormWeights { weight: norm, eps: EPS, kind: NormKind::Rms });
        normed.set_rows(m + BEHIND);
        let normed = cuda.read(&normed).unwrap();
        assert!(normed[m * hidden..].iter().all(|v| v.is_nan()), "rows behind were written");
        Results {
            is_one: is_one_launch,
            stream: stream.to_vec(),
            read: cuda.read(&read).unwrap(),
            gated: cuda.read(&gated).unwrap(),
        }
    }

    /// The reader's products in f64, from the stream as it was rounded. Its input is rounded on the way, with or without the factor of its row.
    fn expected(&self, stream: &[f32], has_bias: bool, dtype: DType) -> Vec<Near> {
        let rows = stream.chunks_exact(self.hidden).flat_map(|row| {
            let squares: f64 = row.iter().map(|&v| f64::from(v).powi(2)).sum();
            let factor = 1.0 / (squares / self.hidden as f64 + f64::from(EPS)).sqrt();
            let normed: Vec<f64> =
                row.iter().zip(&self.norm_values).map(|(&v, &w)| f64::from(v) * factor * f64::from(w)).collect();
            let product = move |(weights, bias): (&[f32], &f32)| {
                let sum = Dot::sum(weights.iter().zip(&normed).map(|(&w, v)| f64::from(w) * v));
                let sum = if has_bias { sum.plus(f64::from(*bias)) } else { sum };
                sum.near_rounded(dtype)
            };
            self.reader_values.chunks_exact(self.hidden).zip(&self.reader_bias_values).map(product).collect::<Vec<_>>()
        });
        rows.collect()
    }
}

/// Hidden, k, outputs: the thread blocks of a cluster share tokens, columns or both, and the last tile of columns may be short.
const SIZES: [[usize; 3]; 9] = [
    [1024, 2048, 512],
    [1024, 3072, 96],
    [512, 64, 1040],
    [896, 4864, 128],
    [200, 576, 64],
    [64, 2048, 32],
    [5120, 256, 64],
    [2560, 9728, 48],
    [3008, 4096, 64],
];
/// The same for readers with many weights, and rows.
const MANY_WEIGHTS: [([usize; 3], &[usize]); 2] = [([1024, 2048, 8448], &[33, 256]), ([1024, 2048, 17_664], &[70])];
const ROWS: [usize; 18] = [1, 8, 9, 16, 17, 31, 32, 33, 64, 65, 90, 96, 97, 128, 129, 200, 256, 257];

/// Asserts that the layers of these sizes agree with the ops one by one, with these counts of rows.
fn assert_agree(cuda: &mut Cuda, sizes: [usize; 3], counts: &[usize], dtype: DType) {
    let layers = Layers::new(cuda, sizes, dtype);
    assert_layers_agree(cuda, &layers, counts, dtype);
}

fn assert_layers_agree(cuda: &mut Cuda, layers: &Layers, counts: &[usize], dtype: DType) {
    let sizes = [layers.hidden, layers.k, layers.outputs];
    for &m in counts {
        for (route, chaining) in [(Route::Hopper, Chaining::Strict), (Route::Auto, Chaining::DependentLaunch)] {
            cuda.set_route(route);
            cuda.set_chaining(chaining);
            for (has_bias, scale) in [(false, 1.0), (true, 0.22)] {
                let what = format!("{m} x {sizes:?}, bias {has_bias}, {route:?}, {chaining:?}, {dtype:?}");
                let apart = layers.computed(cuda, m, has_bias, scale, false, dtype);
                let one = layers.computed(cuda, m, has_bias, scale, true, dtype);
                let differs = one.stream.iter().zip(&apart.stream).position(|(a, b)| a.to_bits() != b.to_bits());
                let hidden = layers.hidden;
                assert_eq!(differs.map(|i| (i / hidden, i % hidden)), None, "{what}: token, number of the stream");
                let expected = layers.expected(&one.stream, has_bias, dtype);
                assert_near(&apart.read, &expected, bound(dtype), &format!("{what}, apart"));
                assert_near(&one.read, &expected, bound(dtype), &what);
                let half = layers.outputs / 2;
                let gated: Vec<Near> = (0..m * half)
                    .map(|i| {
                        let [gate, up] = [0, half].map(|at| expected[i / half * 2 * half + at + i % half]);
                        let activated = gate.value / (1.0 + (-gate.value).exp());
                        // SiLU is nowhere steeper than 1.1. Gate and up were stored before, or rounded as if they were.
                        let of_gate = 1.1 * gate.within;
                        let error = of_gate * (up.value.abs() + up.within) + activated.abs() * up.within;
                        let of_power = FEW_OPERATIONS * (1.0 + gate.value.abs()) * (activated * up.value).abs();
                        Near::stored(activated * up.value, error + of_power, dtype)
                    })
                    .collect();
                assert_near(&one.gated, &gated, 2.0 * bound(dtype), &format!("{what}, gated"));
            }
        }
    }
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_layer_that_is_added_and_normalized_agrees_with_the_ops_one_by_one() {
    on_device(|cuda, dtype| SIZES.into_iter().for_each(|sizes| assert_agree(cuda, sizes, &ROWS, dtype)));
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn so_do_readers_with_many_weights() {
    on_device(|cuda, dtype| MANY_WEIGHTS.iter().for_each(|(sizes, counts)| assert_agree(cuda, *sizes, counts, dtype)));
}

/// Layers that shared memory holds, and others; with k as a whole and in slices.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn layers_of_quantized_weights_agree() {
    on_device(|cuda, dtype| {
        for block in [Block::Q8_0, Block::Q4K, Block::Q6K] {
            for sizes in [[1024, 2048, 512], [1024, 3072, 4096], [4096, 4096, 512], [2048, 12_288, 256]] {
                let layers = Layers::coded(cuda, sizes, Some(WeightFormat::Block(block)), dtype);
                let is_one = [1, 8].map(|m| layers.computed(cuda, m, true, 1.0, true, dtype).is_one);
                assert_eq!(is_one, [cuda.is_hopper() && dtype == DType::Bf16; 2], "{block:?}, {sizes:?}, {dtype:?}");
                assert_layers_agree(cuda, &layers, &[1, 3, 8, 9, 16, 40, 100], dtype);
            }
        }
    });
}

/// Where one launch computes the layer. Otherwise the norm's sums depend on how many rows a launch has.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_row_has_the_same_bits_among_any_number_of_rows_of_its_class() {
    on_device(|cuda, dtype| {
        for sizes in SIZES {
            let layers = Layers::new(cuda, sizes, dtype);
            for class in [[1, 5, 8], [9, 13, 16], [17, 25, 32], [33, 50, 64], [97, 101, 128], [129, 190, 256]] {
                let what = format!("{sizes:?}, {class:?}, {dtype:?}");
                let results = class.map(|m| layers.computed(cuda, m, true, 1.0, true, dtype));
                let is_one = results[0].is_one;
                assert!(results.iter().all(|results| results.is_one == is_one), "{what}: in one launch or in two");
                let is_served = cuda.is_hopper() && dtype == DType::Bf16;
                assert!(sizes != SIZES[0] || is_one == is_served, "{what}: in one launch: {is_one}");
                for (shorter, longer) in results.iter().zip(&results[1..]).filter(|_| is_one) {
                    assert!(longer.stream.starts_with(&shorter.stream), "{what}: the stream");
                    assert!(longer.read.starts_with(&shorter.read), "{what}: the next layer");
                    assert!(longer.gated.starts_with(&shorter.gated), "{what}: gates");
                }
            }
        }
    });
}

/// Norms of what is added, layer norms, and batch-invariant layers are computed one by one.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn what_no_kernel_adds_has_the_bits_of_the_ops_one_by_one() {
    on_device(|cuda, dtype| {
        let layers = Layers::new(cuda, SIZES[0], dtype);
        cuda.set_rounding(Rounding::BatchInvariant);
        for m in [1, 40, 300] {
            let [apart, one] = [false, true].map(|is_one| layers.computed(cuda, m, true, 1.0, is_one, dtype));
            assert!(apart.stream == one.stream && apart.read == one.read && apart.gated == one.gated, "{m} rows");
        }
        cuda.set_rounding(Rounding::Fastest);
        let Layers { weight, norm, hidden, k, .. } = &layers;
        for (post, kind) in [(Some(NormKind::Rms), NormKind::Rms), (None, NormKind::Layer)] {
            let [apart, one] = [false, true].map(|is_one| {
                let (x, mut residual) = (rows(cuda, 1, [40, *k], 1.0, dtype), rows(cuda, 2, [40, *hidden], 5.0, dtype));
                let (mut delta, mut normed) = (poisoned(cuda, 40, *hidden), poisoned(cuda, 40, *hidden));
                let norm_of = |kind| NormWeights { weight: norm, eps: EPS, kind };
                let add = AddNorm { post: post.map(norm_of), scale: 1.0, stream_scale: 1.0 };
                let next = NextNorm { out: &mut normed, norm: norm_of(kind) };
                if is_one {
                    let layer = LayerInput::new(&x, weight, None);
                    ops::linear_add_norm(cuda, &mut residual, &mut delta, layer, add, next);
                } else {
                    ops::linear(cuda, &mut delta, LayerInput::new(&x, weight, None), 0..*hidden);
                    ops::add_norm(cuda, &mut residual, &delta, add, Some(next));
                }
                [cuda.read(&residual).unwrap(), cuda.read(&normed).unwrap()]
            });
            assert!(apart == one, "{post:?}, {kind:?}");
            assert!(one.iter().flatten().all(|v| rounded(*v, dtype) == *v), "{post:?}, {kind:?}: numbers of the type");
        }
    });
}
