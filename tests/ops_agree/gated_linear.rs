//! `gated_linear`.

use crate::column::{Column, Op, agrees};
use crate::linear::{assert_same_bits, matrix};
use crate::scene::Random;
use compute::Activation::{self, GeluTanh, Silu};
use compute::cpu::{Cpu, Isa, Matrix, reference};
use compute::ops;
use compute::{HostMatrix, LayerInput};
use formats::WeightFormat;

struct Case {
    tokens: usize,
    inputs: usize,
    width: usize,
    has_bias: bool,
    activation: Activation,
}

struct GatedLinear;

const SMALL: Case = Case { tokens: 1, inputs: 64, width: 48, has_bias: false, activation: Silu };

impl Op for GatedLinear {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        ("one of everything", Case { inputs: 1, width: 1, ..SMALL }),
        ("one token", SMALL),
        ("five tokens, bias", Case { tokens: 5, has_bias: true, ..SMALL }),
        ("odd width, bias", Case { tokens: 3, inputs: 45, width: 37, has_bias: true, ..SMALL }),
        ("GELU", Case { tokens: 17, activation: GeluTanh, ..SMALL }),
        ("GELU, bias", Case { tokens: 2, has_bias: true, activation: GeluTanh, ..SMALL }),
        ("decode batch of 16, a part of Qwen3-0.6B", Case { tokens: 16, inputs: 1024, width: 192, ..SMALL }),
    ];
    const BOUND: f64 = 1e-5;

    fn expected(case: &Case) -> Vec<f32> {
        let Inputs { x, weights, bias } = inputs(case);
        let mut gate_up = vec![0.0; case.tokens * 2 * case.width];
        let weight = Matrix::new(&weights).unwrap();
        reference::linear(&mut gate_up, &x, &weight, bias.as_deref(), 0..2 * case.width);
        let mut out = vec![f32::NAN; case.tokens * case.width];
        reference::activate_mul(&mut out, &gate_up, case.width, case.activation);
        out
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let [out, _] = both(backend, case);
        out
    }
}

struct Inputs {
    /// Numbers of bf16, so that no instruction set rounds them.
    x: Vec<f32>,
    /// Gate and up.
    weights: [HostMatrix; 2],
    bias: Option<Vec<f32>>,
}

fn inputs(case: &Case) -> Inputs {
    let mut random = Random(7);
    let weights =
        [(); 2].map(|()| matrix(&random.numbers(case.width * case.inputs, 0.5), WeightFormat::Bf16, case.width));
    let x = random.numbers(case.tokens * case.inputs, 1.0).into_iter().map(|v| half::bf16::from_f32(v).to_f32());
    Inputs { x: x.collect(), weights, bias: case.has_bias.then(|| random.numbers(2 * case.width, 1.0)) }
}

/// The results of the op, and of the ops one by one.
fn both<B: Column>(backend: &mut B, case: &Case) -> [Vec<f32>; 2] {
    let Case { tokens, width, activation, .. } = *case;
    let Inputs { x, weights, bias } = inputs(case);
    let (x, weight) = (backend.filled(&x, case.inputs), backend.matrix(&weights).unwrap());
    let bias = bias.map(|bias| backend.table(&bias).unwrap());
    let mut gate_up = backend.poisoned(tokens, 2 * width);
    let mut out = backend.poisoned(tokens, width);
    ops::gated_linear(backend, &mut out, &mut gate_up, LayerInput::new(&x, &weight, bias.as_ref()), activation);
    let gated = backend.read(&out);
    let mut gate_up = backend.poisoned(tokens, 2 * width);
    let mut out = backend.poisoned(tokens, width);
    ops::linear(backend, &mut gate_up, LayerInput::new(&x, &weight, bias.as_ref()), 0..2 * width);
    ops::activate_mul(backend, &mut out, &gate_up, activation);
    [gated, backend.read(&out)]
}

#[test]
fn gated_linear_agrees_with_its_specification() {
    agrees::<GatedLinear>();
}

#[test]
fn gated_linear_has_the_bits_of_the_ops_one_by_one() {
    for (name, case) in GatedLinear::CASES {
        for isa in Isa::available() {
            let [found, wanted] = both(&mut Cpu::new(2, *isa), case);
            assert_same_bits(&found, &wanted, &format!("{name}, {isa:?}"));
        }
    }
}
