//! `linear_add_norm`.

use crate::column::{Column, Op, agrees};
use crate::linear::{assert_same_bits, matrix};
use crate::scene::Random;
use compute::cpu::{Cpu, Isa, Matrix, reference};
use compute::ops;
use compute::{AddNorm, HostMatrix, LayerInput, NextNorm, NormKind, NormWeights};
use formats::WeightFormat;

struct Case {
    tokens: usize,
    inputs: usize,
    hidden: usize,
    has_bias: bool,
    scale: f32,
    kind: NormKind,
    has_post: bool,
}

struct LinearAddNorm;

const EPS: f32 = 1e-5;
const POST_EPS: f32 = 1e-3;
const SMALL: Case =
    Case { tokens: 1, inputs: 64, hidden: 48, has_bias: false, scale: 1.0, kind: NormKind::Rms, has_post: false };

impl Op for LinearAddNorm {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        ("one of everything", Case { inputs: 1, hidden: 1, ..SMALL }),
        ("one token", SMALL),
        ("five tokens, bias, a scale", Case { tokens: 5, has_bias: true, scale: 0.22, ..SMALL }),
        ("odd width, bias", Case { tokens: 3, inputs: 45, hidden: 37, has_bias: true, ..SMALL }),
        ("layer norm", Case { tokens: 2, kind: NormKind::Layer, ..SMALL }),
        ("a norm of what is added", Case { tokens: 4, has_post: true, ..SMALL }),
        ("decode batch of 16, a part of Qwen3-0.6B", Case { tokens: 16, inputs: 2048, hidden: 256, ..SMALL }),
    ];
    const BOUND: f64 = 1e-5;

    fn expected(case: &Case) -> Vec<f32> {
        let Inputs { x, mut residual, weight, bias, norms } = inputs(case);
        let mut delta = vec![0.0; residual.len()];
        reference::linear(&mut delta, &x, &Matrix::new(&[weight]).unwrap(), bias.as_deref(), 0..case.hidden);
        let mut out = vec![f32::NAN; residual.len()];
        let [norm, post] = &norms;
        let norm = NextNorm { out: &mut out[..], norm: NormWeights { weight: norm, eps: EPS, kind: case.kind } };
        reference::add_norm(&mut residual, &delta, case.add(post), Some(norm));
        [residual, out].concat()
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let [one, _] = both(backend, case);
        one
    }
}

impl Case {
    fn add<'a, V>(&self, post: &'a V) -> AddNorm<'a, V> {
        let post = self.has_post.then_some(NormWeights { weight: post, eps: POST_EPS, kind: NormKind::Rms });
        AddNorm { post, scale: self.scale, stream_scale: 1.0 }
    }
}

struct Inputs {
    /// Numbers of bf16, so that no instruction set rounds them.
    x: Vec<f32>,
    residual: Vec<f32>,
    weight: HostMatrix,
    bias: Option<Vec<f32>>,
    /// Of the sum, and of what is added.
    norms: [Box<[f32]>; 2],
}

fn inputs(case: &Case) -> Inputs {
    let mut random = Random(9);
    let weight = matrix(&random.numbers(case.hidden * case.inputs, 0.5), WeightFormat::Bf16, case.hidden);
    let x = random.numbers(case.tokens * case.inputs, 1.0).into_iter().map(|v| half::bf16::from_f32(v).to_f32());
    Inputs {
        x: x.collect(),
        residual: random.numbers(case.tokens * case.hidden, 3.0),
        weight,
        bias: case.has_bias.then(|| random.numbers(case.hidden, 1.0)),
        norms: [(); 2].map(|()| random.numbers(case.hidden, 2.0).into_boxed_slice()),
    }
}

/// The stream and its norm by the op, and by the ops one by one.
fn both<B: Column>(backend: &mut B, case: &Case) -> [Vec<f32>; 2] {
    let Inputs { x, residual, weight, bias, norms } = inputs(case);
    let (x, weight) = (backend.filled(&x, case.inputs), backend.matrix(&[weight]).unwrap());
    let bias = bias.map(|bias| backend.table(&bias).unwrap());
    let [norm, post] = norms.map(|norm| backend.table(&norm).unwrap());
    [true, false].map(|is_one| {
        let mut stream = backend.filled(&residual, case.hidden);
        let [mut delta, mut out] = [(); 2].map(|()| backend.poisoned(case.tokens, case.hidden));
        let next = NextNorm { out: &mut out, norm: NormWeights { weight: &norm, eps: EPS, kind: case.kind } };
        if is_one {
            let layer = LayerInput::new(&x, &weight, bias.as_ref());
            ops::linear_add_norm(backend, &mut stream, &mut delta, layer, case.add(&post), next);
        } else {
            ops::linear(backend, &mut delta, LayerInput::new(&x, &weight, bias.as_ref()), 0..case.hidden);
            ops::add_norm(backend, &mut stream, &delta, case.add(&post), Some(next));
        }
        [backend.read(&stream), backend.read(&out)].concat()
    })
}

#[test]
fn linear_add_norm_agrees() {
    agrees::<LinearAddNorm>();
}

#[test]
fn it_has_the_bits_of_the_ops_one_by_one() {
    for (name, case) in LinearAddNorm::CASES {
        for isa in Isa::available() {
            let [one, apart] = both(&mut Cpu::new(2, *isa), case);
            assert_same_bits(&one, &apart, &format!("{name}, {isa:?}"));
        }
    }
}
