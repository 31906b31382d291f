//! `gated_linear`: the bits of the ops one by one, of more than 256 tokens those of one chain of sums.

use crate::inputs::codings;
use crate::scene::{Random, filled, host_matrix, host_vector, numbers, on_device};
use compute::cuda::{Chaining, Cuda, Matrix, Route, Vector};
use compute::ops;
use compute::{Activation, Device, LayerInput, Rounding};
use formats::DType;

const ACTIVATIONS: [Activation; 2] = [Activation::Silu, Activation::GeluTanh];
/// Rows that lie behind those in use.
const BEHIND: usize = 3;
/// Rows up to which a layer in one launch has the sums of the product alone.
const FEW: usize = 256;

/// How a layer is called.
#[derive(Clone, Copy, Debug)]
struct Case {
    m: usize,
    has_bias: bool,
    activation: Activation,
    route: Route,
}

const CASE: Case = Case { m: 1, has_bias: true, activation: Activation::Silu, route: Route::Auto };

/// A layer on the device.
struct Layer {
    weight: Matrix,
    bias: Vector,
    width: usize,
    k: usize,
}

impl Layer {
    /// Weights and biases up to `size`.
    fn plain(cuda: &mut Cuda, random: &mut Random, [width, k]: [usize; 2], size: f32, dtype: DType) -> Layer {
        let parts = [(); 2].map(|()| host_matrix(&numbers(random, width * k, size, dtype), [width, k], dtype));
        let weight = cuda.matrix(&parts).unwrap();
        Layer { weight, bias: Layer::bias(cuda, random, width, size, dtype), width, k }
    }

    fn bias(cuda: &mut Cuda, random: &mut Random, width: usize, size: f32, dtype: DType) -> Vector {
        cuda.vector(&[host_vector(&numbers(random, 2 * width, size, dtype), dtype)]).unwrap()
    }

    /// Whether a device of compute capability 9.0 has a kernel for `m` rows of it.
    fn is_served(&self, m: usize) -> bool {
        self.k.is_multiple_of(64) && m >= 17 && (m <= FEW || self.k >= 512)
    }

    /// Asserts that the op gives random rows the bits of the ops one by one, and leaves what lies behind alone. Returns whether it stored no product.
    fn agrees(&self, cuda: &mut Cuda, case: Case, dtype: DType, what: &str) -> bool {
        let x = numbers(&mut Random(case.m as u64), case.m * self.k, 1.0, dtype);
        self.agrees_on(cuda, x, case, what)
    }

    /// The same of these rows.
    fn agrees_on(&self, cuda: &mut Cuda, mut x: Vec<f32>, case: Case, what: &str) -> bool {
        let (Layer { weight, width, k, .. }, Case { m, has_bias, activation, route }) = (self, case);
        x.resize((m + BEHIND) * k, f32::NAN);
        let mut x = filled(cuda, &x, *k);
        x.set_rows(m);
        let poisoned = |cuda: &mut Cuda, cols| {
            let mut tensor = filled(cuda, &vec![f32::NAN; (m + BEHIND) * cols], cols);
            tensor.set_rows(m);
            tensor
        };
        let bias = has_bias.then_some(&self.bias);
        cuda.set_route(route);
        let (mut gate_up, mut out) = (poisoned(cuda, 2 * width), poisoned(cuda, *width));
        ops::gated_linear(cuda, &mut out, &mut gate_up, LayerInput::new(&x, weight, bias), activation);
        let is_one = cuda.read(&gate_up).unwrap().iter().all(|v| v.is_nan());
        if is_one && m > FEW {
            // Its sums are one chain each, as there; cuBLASLt's may be others.
            cuda.set_route(Route::Tiled);
        }
        let (mut product, mut wanted) = (poisoned(cuda, 2 * width), poisoned(cuda, *width));
        ops::linear(cuda, &mut product, LayerInput::new(&x, weight, bias), 0..2 * width);
        ops::activate_mul(cuda, &mut wanted, &product, activation);
        cuda.set_route(route);

        let wanted = cuda.read(&wanted).unwrap();
        // Great gates times great up may be infinite in f16.
        assert!(!wanted.iter().any(|v| v.is_nan()), "{what}: the ops one by one");
        out.set_rows(m + BEHIND);
        let out = cuda.read(&out).unwrap();
        let (out, behind) = out.split_at(m * width);
        let differs = out.iter().zip(&wanted).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(differs.map(|i| (i / width, i % width, out[i], wanted[i])), None, "{what}: token, column, numbers");
        assert!(behind.iter().all(|v| v.is_nan()), "{what}: rows behind were written");
        is_one
    }
}

/// Layers for `gemm_full_n.cu` where a device has 132 multiprocessors, in tiles of one, two and three warpgroups, and with k divided.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_gated_layer_with_many_weights_has_the_bits_of_the_ops_one_by_one() {
    on_device(|cuda, dtype| {
        let mut random = Random(3);
        for sizes in [[2048, 4096], [3048, 1472], [6000, 768], [8856, 512], [14_304, 320]] {
            let layer = Layer::plain(cuda, &mut random, sizes, 0.5, dtype);
            for m in [33, 64, 65, 128, 129, 200, 256] {
                for (chaining, activation, has_bias) in [
                    (Chaining::Strict, Activation::Silu, true),
                    (Chaining::DependentLaunch, Activation::Silu, false),
                    (Chaining::DependentLaunch, Activation::GeluTanh, true),
                ] {
                    cuda.set_chaining(chaining);
                    let case = Case { m, has_bias, activation, route: Route::Hopper };
                    let what = format!("{case:?}, {sizes:?}, {chaining:?}, {dtype:?}");
                    assert_eq!(layer.agrees(cuda, case, dtype, &what), cuda.is_hopper(), "{what}: in one launch");
                }
            }
        }
    });
}

/// Layers for `gemv_stream.cu`, with rings of either depth where a device has 132 multiprocessors.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_gated_layer_of_few_tokens_has_the_bits_of_the_ops_one_by_one() {
    on_device(|cuda, dtype| {
        let mut random = Random(10);
        // The tiles of the first are 8 rows of weights, for which there is no kernel.
        for sizes in [[40, 64], [1064, 72], [2104, 1400], [2056, 2048], [3584, 1024], [4504, 8200], [9000, 4096]] {
            let layer = Layer::plain(cuda, &mut random, sizes, 0.5, dtype);
            for (m, route) in [1, 3, 4, 5, 8].into_iter().flat_map(|m| [(m, Route::Stream), (m, Route::Auto)]) {
                for (chaining, activation, has_bias) in [
                    (Chaining::Strict, Activation::Silu, true),
                    (Chaining::DependentLaunch, Activation::Silu, false),
                    (Chaining::DependentLaunch, Activation::GeluTanh, true),
                ] {
                    cuda.set_chaining(chaining);
                    let case = Case { m, has_bias, activation, route };
                    let what = format!("{case:?}, {sizes:?}, {chaining:?}, {dtype:?}");
                    let is_one = layer.agrees(cuda, case, dtype, &what);
                    assert!(is_one || sizes[0] < 2000, "{what}: two launches");
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_gated_layer_has_the_bits_of_the_ops_one_by_one() {
    on_device(|cuda, dtype| {
        let mut random = Random(3);
        let sizes = [
            [8, 64],
            [40, 192],
            [1000, 1088],
            [2000, 1024],
            [2008, 1400],
            [3072, 1024],
            [2056, 2048],
            [512, 4096],
            [104, 8192],
            [24, 72],
        ];
        for (sizes, size) in sizes.into_iter().flat_map(|sizes| [(sizes, 0.1), (sizes, 4.0)]) {
            let layer = Layer::plain(cuda, &mut random, sizes, size, dtype);
            for m in [1, 8, 9, 16, 17, 32, 33, 64, 65, 96, 97, 128, 129, 200, 256, 257] {
                for (route, chaining) in [(Route::Hopper, Chaining::Strict), (Route::Auto, Chaining::DependentLaunch)] {
                    cuda.set_chaining(chaining);
                    for (activation, has_bias) in ACTIVATIONS.into_iter().flat_map(|a| [(a, false), (a, true)]) {
                        let case = Case { m, has_bias, activation, route };
                        let what = format!("{case:?}, {sizes:?}, {size}, {chaining:?}, {dtype:?}");
                        let is_one = layer.agrees(cuda, case, dtype, &what);
                        let is_served = cuda.is_hopper() && layer.is_served(m);
                        assert!(route == Route::Auto || is_one == is_served, "{what}: in one launch: {is_one}");
                    }
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_gated_layer_of_many_tokens_has_the_bits_of_chains_of_sums() {
    on_device(|cuda, dtype| {
        let mut random = Random(4);
        // Widths and k; rows.
        let cases: [([usize; 2], &[usize]); 8] = [
            ([8, 512], &[257, 300, 5000]),
            ([40, 576], &[257, 640, 1000]),
            ([1000, 1088], &[257, 320, 384, 385, 1000, 4096]),
            ([2008, 640], &[512, 513, 700]),
            ([3072, 1024], &[257, 300, 512, 640, 1000, 1024, 1280, 2049, 4096]),
            ([1032, 2048], &[512, 2500]),
            ([6144, 2048], &[500, 1000]),
            ([264, 8192], &[257, 1000]),
        ];
        for (sizes, rows) in cases {
            let layer = Layer::plain(cuda, &mut random, sizes, 0.1, dtype);
            for (&m, route) in rows.iter().flat_map(|m| [(m, Route::Hopper), (m, Route::Auto)]) {
                for (activation, has_bias) in [(Activation::Silu, false), (Activation::GeluTanh, true)] {
                    let case = Case { m, has_bias, activation, route };
                    let what = format!("{case:?}, {sizes:?}, {dtype:?}");
                    let is_one = layer.agrees(cuda, case, dtype, &what);
                    assert!(route == Route::Auto || is_one == cuda.is_hopper(), "{what}: in one launch: {is_one}");
                    // On one H200.
                    let is_known = [512, 640, 1000, 1024, 1280, 4096].contains(&m) && sizes == [3072, 1024];
                    assert!(is_one || !(cuda.is_hopper() && is_known), "{what}: two launches");
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn every_gate_of_16_bits_has_the_bits_of_the_op_alone() {
    on_device(|cuda, dtype| {
        // Gates are weights that rows of one 1 select. As sums of products with 0, they are finite.
        let (width, k) = (128, 512);
        let gate = |i: usize| match dtype {
            DType::Bf16 => half::bf16::from_bits(i as u16).to_f32(),
            DType::F16 | DType::F32 => half::f16::from_bits(i as u16).to_f32(),
        };
        let gates: Vec<f32> = (0..width * k).map(gate).map(|v| if v.is_finite() { v } else { 1.0 }).collect();
        let ups = numbers(&mut Random(6), width * k, 2.0, dtype);
        let parts = [gates, ups].map(|part| host_matrix(&part, [width, k], dtype));
        let bias = Layer::bias(cuda, &mut Random(7), width, 1.0, dtype);
        let layer = Layer { weight: cuda.matrix(&parts).unwrap(), bias, width, k };
        let rows: Vec<f32> = (0..k * k).map(|i| f32::from(i / k == i % k)).collect();
        for activation in ACTIVATIONS {
            let case = Case { m: k, has_bias: false, activation, route: Route::Hopper };
            layer.agrees_on(cuda, rows.clone(), case, &format!("every gate, {activation:?}, {dtype:?}"));
        }
    });
}

/// Layers for `gemv_shared_quantized.cu`, `gemv_quantized.cu` and `gemm_quantized.cu` where a device has 132 multiprocessors, and for no kernel.
#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_gated_layer_of_quantized_weights_has_the_bits_of_the_ops_one_by_one() {
    on_device(|cuda, dtype| {
        let mut random = Random(5);
        for (sizes, tokens) in [
            ([264usize, 512usize], &[1, 8, 16, 40, 300][..]),
            ([1064, 1280], &[1, 2, 7, 8, 9, 33]),
            ([3072, 1024], &[1, 8, 12, 64, 200]),
            ([520, 4608], &[1, 3, 8, 9, 30, 129, 257]),
        ] {
            let [width, k] = sizes;
            let mut in_one_launch = 0;
            for coding in codings::all().into_iter().filter(|coding| k.is_multiple_of(coding.group())) {
                let gate = codings::matrix(&mut random, coding, sizes);
                let up = codings::matrix(&mut random, coding, sizes);
                let plain_up = host_matrix(&numbers(&mut random, width * k, 0.1, dtype), sizes, dtype);
                let bias = Layer::bias(cuda, &mut random, width, 1.0, dtype);
                let mut layer = Layer { weight: cuda.matrix(&[gate.clone(), up]).unwrap(), bias, width, k };
                for (&m, (activation, has_bias)) in
                    tokens.iter().flat_map(|m| [(m, (Activation::Silu, true)), (m, (Activation::GeluTanh, false))])
                {
                    let case = Case { m, has_bias, activation, route: Route::Auto };
                    let is_one = layer.agrees(cuda, case, dtype, &format!("{case:?}, {sizes:?}, {coding}, {dtype:?}"));
                    in_one_launch += usize::from(is_one && m <= 256);
                }
                layer.weight = cuda.matrix(&[gate, plain_up]).unwrap();
                for m in [1, 40] {
                    let what = format!("{m} tokens, {sizes:?}, gates in {coding}, {dtype:?}");
                    layer.agrees(cuda, Case { m, ..CASE }, dtype, &what);
                }
            }
            assert!(!cuda.is_hopper() || in_one_launch > 20, "{sizes:?}, {dtype:?}: {in_one_launch} in one launch");
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_batch_invariant_gated_layer_has_the_bits_of_the_ops_one_by_one() {
    on_device(|cuda, dtype| {
        cuda.set_rounding(Rounding::BatchInvariant);
        let mut random = Random(8);
        for sizes in [[8, 64], [40, 512], [1000, 1088], [2008, 640], [3072, 1024], [2056, 2048], [24, 72]] {
            let layer = Layer::plain(cuda, &mut random, sizes, 0.1, dtype);
            for m in [1, 8, 9, 16, 17, 32, 64, 96, 120, 128, 129, 144, 192, 225, 256, 257, 300, 512, 640, 1024] {
                for (activation, has_bias) in [(Activation::Silu, false), (Activation::GeluTanh, true)] {
                    let case = Case { m, has_bias, activation, route: Route::Auto };
                    layer.agrees(cuda, case, dtype, &format!("{case:?}, {sizes:?}, batch-invariant, {dtype:?}"));
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_batch_invariant_gated_row_has_the_same_bits_among_any_number() {
    on_device(|cuda, dtype| {
        cuda.set_rounding(Rounding::BatchInvariant);
        let mut random = Random(9);
        for (sizes, size) in
            [([3072, 1024], 0.1), ([3072, 1024], 8.0), ([1000, 1088], 0.1), ([40, 512], 4.0), ([2056, 2048], 0.1)]
        {
            let layer = Layer::plain(cuda, &mut random, sizes, size, dtype);
            let ([width, k], most) = (sizes, 1100);
            let mut x = numbers(&mut random, most * k, 1.0, dtype);
            // Zeros of either sign.
            x[3 * k..4 * k].fill(0.0);
            x[4 * k..5 * k].fill(-0.0);
            for (activation, has_bias) in ACTIVATIONS.into_iter().flat_map(|a| [(a, false), (a, true)]) {
                let mut rows = |from: usize, rows: usize| {
                    let x = filled(cuda, &x[from * k..][..rows * k], k);
                    let mut gate_up = filled(cuda, &vec![f32::NAN; rows * 2 * width], 2 * width);
                    let mut out = filled(cuda, &vec![f32::NAN; rows * width], width);
                    let bias = has_bias.then_some(&layer.bias);
                    ops::gated_linear(
                        cuda,
                        &mut out,
                        &mut gate_up,
                        LayerInput::new(&x, &layer.weight, bias),
                        activation,
                    );
                    cuda.read(&out).unwrap()
                };
                let alone: Vec<f32> = (0..9).flat_map(|row| rows(row, 1)).collect();
                for count in [
                    2, 8, 9, 16, 17, 32, 33, 64, 65, 96, 104, 120, 128, 129, 150, 192, 208, 232, 256, 257, 384, 512,
                    640, 1024, 1100,
                ] {
                    let among = rows(0, count);
                    let common = count.min(9) * width;
                    let differs = (0..common).find(|&i| among[i].to_bits() != alone[i].to_bits());
                    assert_eq!(
                        differs.map(|i| (i / width, i % width, among[i], alone[i])),
                        None,
                        "{count} rows, {sizes:?}, {size}, {activation:?}, bias {has_bias}, {dtype:?}: token, column, numbers"
                    );
                    // The last rows lie in other tiles.
                    let last = rows(count - 1, 1);
                    assert!(
                        last.iter().zip(&among[(count - 1) * width..]).all(|(a, b)| a.to_bits() == b.to_bits()),
                        "the last of {count} rows, {sizes:?}, {size}, {activation:?}, {dtype:?}"
                    );
                }
            }
        }
    });
}
