//! `gated_linear`: the bits of the ops one by one.

use crate::inputs::codings;
use crate::scene::{Random, filled, host_matrix, host_vector, numbers, on_device};
use nanovllm::backend::cuda::{Chaining, Cuda, Matrix, Route, Vector};
use nanovllm::backend::{Activation, Backend, DType, Rounding};
use nanovllm::ops;

const ACTIVATIONS: [Activation; 2] = [Activation::Silu, Activation::GeluTanh];
/// Rows that lie behind those in use.
const BEHIND: usize = 3;

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

    /// Asserts that the op gives `m` rows the bits of the ops one by one, and leaves what lies behind alone. Returns whether it stored no product.
    fn agrees(
        &self,
        cuda: &mut Cuda,
        m: usize,
        has_bias: bool,
        activation: Activation,
        dtype: DType,
        what: &str,
    ) -> bool {
        let Layer { weight, width, k, .. } = self;
        let mut x = numbers(&mut Random(m as u64), m * k, 1.0, dtype);
        x.resize((m + BEHIND) * k, f32::NAN);
        let mut x = filled(cuda, &x, *k);
        x.set_rows(m);
        let poisoned = |cuda: &mut Cuda, cols| {
            let mut tensor = filled(cuda, &vec![f32::NAN; (m + BEHIND) * cols], cols);
            tensor.set_rows(m);
            tensor
        };
        let bias = has_bias.then_some(&self.bias);
        let (mut product, mut wanted) = (poisoned(cuda, 2 * width), poisoned(cuda, *width));
        ops::linear(cuda, &mut product, &x, weight, bias, 0..2 * width);
        ops::activate_mul(cuda, &mut wanted, &product, activation);
        let (mut gate_up, mut out) = (poisoned(cuda, 2 * width), poisoned(cuda, *width));
        ops::gated_linear(cuda, &mut out, &mut gate_up, &x, weight, bias, activation);

        let wanted = cuda.read(&wanted).unwrap();
        // Great gates times great up may be infinite in f16.
        assert!(!wanted.iter().any(|v| v.is_nan()), "{what}: the ops one by one");
        out.set_rows(m + BEHIND);
        let out = cuda.read(&out).unwrap();
        let (out, behind) = out.split_at(m * width);
        let differs = out.iter().zip(&wanted).position(|(a, b)| a.to_bits() != b.to_bits());
        assert_eq!(differs.map(|i| (i / width, i % width, out[i], wanted[i])), None, "{what}: token, column, numbers");
        assert!(behind.iter().all(|v| v.is_nan()), "{what}: rows behind were written");
        cuda.read(&gate_up).unwrap().iter().all(|v| v.is_nan())
    }
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
                    cuda.set_route(route);
                    cuda.set_chaining(chaining);
                    for (activation, has_bias) in ACTIVATIONS.into_iter().flat_map(|a| [(a, false), (a, true)]) {
                        let what = format!(
                            "{m} x {sizes:?}, {size}, bias {has_bias}, {activation:?}, {route:?}, {chaining:?}, {dtype:?}"
                        );
                        let is_one = layer.agrees(cuda, m, has_bias, activation, dtype, &what);
                        let is_served = cuda.is_hopper() && (17..=256).contains(&m) && layer.k.is_multiple_of(64);
                        assert!(route == Route::Auto || is_one == is_served, "{what}: in one launch: {is_one}");
                    }
                }
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_gated_layer_that_has_no_kernel_has_the_bits_of_the_ops_one_by_one() {
    on_device(|cuda, dtype| {
        let mut random = Random(5);
        let (width, k) = (264, 512);
        let plain = Layer::plain(cuda, &mut random, [width, k], 0.1, dtype);
        let coded = codings::all().into_iter().filter(|coding| k.is_multiple_of(coding.group())).flat_map(|coding| {
            let gate = codings::matrix(&mut random, coding, [width, k]);
            let up = codings::matrix(&mut random, coding, [width, k]);
            let plain_up = host_matrix(&numbers(&mut random, width * k, 0.1, dtype), [width, k], dtype);
            [(format!("{coding}"), [gate.clone(), up]), (format!("gates in {coding}"), [gate, plain_up])]
        });
        let coded: Vec<_> = coded.collect();
        for (name, parts) in coded {
            let bias = Layer::bias(cuda, &mut random, width, 1.0, dtype);
            let layer = Layer { weight: cuda.matrix(&parts).unwrap(), bias, width, k };
            for m in [1, 16, 40, 300] {
                let what = format!("{m} tokens, {name}, {dtype:?}");
                layer.agrees(cuda, m, true, Activation::Silu, dtype, &what);
            }
        }
        cuda.set_rounding(Rounding::BatchInvariant);
        for m in [1, 9, 64, 256, 300] {
            let what = format!("{m} tokens, batch-invariant, {dtype:?}");
            assert!(!plain.agrees(cuda, m, true, Activation::Silu, dtype, &what), "{what}: the product is stored");
        }
    });
}
