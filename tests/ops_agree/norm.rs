//! `norm` and `add_norm`.

use crate::column::{Column, Op, agrees};
use crate::scene::Random;
use compute::NormKind::{self, Layer, LayerBiased, Rms};
use compute::cpu::{Cpu, Isa, reference};
use compute::ops;
use compute::{AddNorm, NextNorm, NormWeights};

#[derive(Clone, Copy)]
struct Case {
    tokens: usize,
    hidden: usize,
    /// Greatest absolute value of the inputs.
    size: f32,
    /// Added to each input.
    mean: f32,
    /// The norm, or the norm of the sum.
    kind: NormKind,
}

const ONE: Case = Case { tokens: 1, hidden: 64, size: 1.0, mean: 0.0, kind: Rms };

const CASES: &[(&str, Case)] = &[
    ("one number", Case { hidden: 1, ..ONE }),
    ("fewer numbers than lanes", Case { tokens: 3, hidden: 7, ..ONE }),
    ("one token", ONE),
    ("odd width", Case { tokens: 5, hidden: 83, ..ONE }),
    ("numbers so small that eps decides", Case { tokens: 2, size: 1e-4, ..ONE }),
    ("large numbers", Case { tokens: 2, size: 1e12, ..ONE }),
    ("decode batch of Qwen3-0.6B", Case { tokens: 64, hidden: 1024, size: 3.0, ..ONE }),
    ("more tokens than one thread takes", Case { tokens: 301, hidden: 200, size: 3.0, ..ONE }),
    ("layer norm of two numbers", Case { hidden: 2, kind: Layer, ..ONE }),
    ("layer norm, fewer numbers than lanes", Case { tokens: 3, hidden: 7, kind: Layer, ..ONE }),
    ("layer norm, odd width", Case { tokens: 5, hidden: 83, mean: 2.0, kind: Layer, ..ONE }),
    ("layer norm, numbers so small that eps decides", Case { tokens: 2, size: 1e-4, kind: Layer, ..ONE }),
    ("layer norm with biases, fewer numbers than lanes", Case { tokens: 3, hidden: 7, kind: LayerBiased, ..ONE }),
    ("layer norm with biases, odd width", Case { tokens: 5, hidden: 83, mean: 2.0, kind: LayerBiased, ..ONE }),
    ("layer norm with biases of BERT base", Case { tokens: 40, hidden: 768, size: 3.0, kind: LayerBiased, ..ONE }),
    ("layer norm, more tokens than one thread takes", Case { tokens: 301, hidden: 200, size: 3.0, kind: Layer, ..ONE }),
];

const EPS: f32 = 1e-6;
const POST_EPS: f32 = 1e-3;

/// Two rows of activations and two of weights.
struct Inputs {
    x: Vec<f32>,
    residual: Vec<f32>,
    weight: Box<[f32]>,
    post: Box<[f32]>,
}

fn inputs(case: &Case) -> Inputs {
    let mut random = Random(1);
    let mut numbers = || {
        let mut numbers = random.numbers(case.tokens * case.hidden, case.size);
        numbers.iter_mut().for_each(|v| *v += case.mean);
        numbers
    };
    let (x, residual) = (numbers(), numbers());
    let [weight, post] =
        [case.kind.weights(case.hidden), case.hidden].map(|len| random.numbers(len, 2.0).into_boxed_slice());
    Inputs { x, residual, weight, post }
}

struct Norm;

impl Op for Norm {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = CASES;
    const BOUND: f64 = 1e-6;

    fn expected(case: &Case) -> Vec<f32> {
        let Inputs { x, weight, .. } = inputs(case);
        let mut out = vec![f32::NAN; x.len()];
        reference::norm(&mut out, &x, NormWeights { weight: &weight, eps: EPS, kind: case.kind });
        out
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let Inputs { x, weight, .. } = inputs(case);
        let (x, weight) = (backend.filled(&x, case.hidden), backend.table(&weight).unwrap());
        let mut out = backend.poisoned(case.tokens, case.hidden);
        ops::norm(backend, &mut out, &x, NormWeights { weight: &weight, eps: EPS, kind: case.kind });
        backend.read(&out)
    }
}

/// What `add_norm` does besides normalizing the sum.
#[derive(Clone, Copy)]
struct Add {
    case: Case,
    /// The norm of what is added.
    post: Option<NormKind>,
    scale: f32,
    stream_scale: f32,
    /// Whether the sum is normalized.
    next: bool,
}

const PLAIN: Add = Add { case: ONE, post: None, scale: 1.0, stream_scale: 1.0, next: true };
const ODD: Case = Case { tokens: 5, hidden: 83, size: 3.0, ..ONE };
const MANY: Case = Case { tokens: 301, hidden: 200, size: 3.0, ..ONE };

struct AddNormOp;

impl Op for AddNormOp {
    type Case = Add;
    const CASES: &'static [(&'static str, Add)] = &[
        ("one number", Add { case: Case { hidden: 1, ..ONE }, ..PLAIN }),
        ("fewer numbers than lanes", Add { case: Case { tokens: 3, hidden: 7, ..ONE }, ..PLAIN }),
        ("one token", PLAIN),
        ("odd width", Add { case: ODD, ..PLAIN }),
        ("numbers so small that eps decides", Add { case: Case { tokens: 2, size: 1e-4, ..ONE }, ..PLAIN }),
        ("large numbers", Add { case: Case { tokens: 2, size: 1e12, ..ONE }, ..PLAIN }),
        ("decode batch of Qwen3-0.6B", Add { case: Case { tokens: 64, hidden: 1024, size: 3.0, ..ONE }, ..PLAIN }),
        ("more tokens than one thread takes", Add { case: MANY, ..PLAIN }),
        ("a residual scale", Add { case: ODD, scale: 0.22, ..PLAIN }),
        ("layer norm of the sum", Add { case: Case { kind: Layer, mean: 1.0, ..ODD }, ..PLAIN }),
        ("layer norm of the sum, with biases", Add { case: Case { kind: LayerBiased, mean: 1.0, ..ODD }, ..PLAIN }),
        ("the sum alone", Add { case: MANY, next: false, ..PLAIN }),
        ("the scaled sum alone", Add { case: ODD, next: false, scale: -1.5, ..PLAIN }),
        ("norms after and before", Add { case: ODD, post: Some(Rms), ..PLAIN }),
        ("norms after and before of many tokens, scaled", Add { case: MANY, post: Some(Rms), scale: 0.5, ..PLAIN }),
        ("a norm after, where eps decides", Add { case: Case { size: 1e-4, ..ODD }, post: Some(Rms), ..PLAIN }),
        ("a norm after and none before", Add { case: ODD, post: Some(Rms), next: false, ..PLAIN }),
        ("a layer norm after", Add { case: Case { mean: 2.0, ..ODD }, post: Some(Layer), ..PLAIN }),
        ("a layer norm after and none before", Add { case: ODD, post: Some(Layer), next: false, scale: 2.0, ..PLAIN }),
        ("an RMS norm after, a layer norm before", Add { case: Case { kind: Layer, ..ODD }, post: Some(Rms), ..PLAIN }),
        ("a scaled stream", Add { case: ODD, stream_scale: 0.4, ..PLAIN }),
        ("a scaled stream alone", Add { case: MANY, next: false, scale: 0.5, stream_scale: -1.7, ..PLAIN }),
        ("a scaled stream, norms after and before", Add { case: MANY, post: Some(Rms), stream_scale: 3.0, ..PLAIN }),
        ("layer norms after and before", Add { case: Case { kind: Layer, ..MANY }, post: Some(Layer), ..PLAIN }),
    ];
    const BOUND: f64 = 1e-6;

    fn expected(it: &Add) -> Vec<f32> {
        let Inputs { x, mut residual, weight, post } = inputs(&it.case);
        let mut out = vec![f32::NAN; x.len()];
        let post = it.post.map(|kind| NormWeights { weight: &post, eps: POST_EPS, kind });
        let next = NormWeights { weight: &weight, eps: EPS, kind: it.case.kind };
        let next = it.next.then_some(NextNorm { out: &mut out[..], norm: next });
        reference::add_norm(&mut residual, &x, AddNorm { post, scale: it.scale, stream_scale: it.stream_scale }, next);
        scaled(out, residual, it)
    }

    fn computed<B: Column>(backend: &mut B, it: &Add) -> Vec<f32> {
        let Inputs { x, residual, weight, post } = inputs(&it.case);
        let (x, mut residual) = (backend.filled(&x, it.case.hidden), backend.filled(&residual, it.case.hidden));
        let [weight, post] = [&weight, &post].map(|weight| backend.table(weight).unwrap());
        let mut out = backend.poisoned(it.case.tokens, it.case.hidden);
        let post = it.post.map(|kind| NormWeights { weight: &post, eps: POST_EPS, kind });
        let next = NormWeights { weight: &weight, eps: EPS, kind: it.case.kind };
        let next = it.next.then_some(NextNorm { out: &mut out, norm: next });
        ops::add_norm(
            backend,
            &mut residual,
            &x,
            AddNorm { post, scale: it.scale, stream_scale: it.stream_scale },
            next,
        );
        scaled(backend.read(&out), backend.read(&residual), it)
    }
}

/// Both outputs, of like size so that neither hides the other's error. Without a next norm nothing else than the stream is written.
fn scaled(out: Vec<f32>, residual: Vec<f32>, it: &Add) -> Vec<f32> {
    let out = if it.next { out } else { out.into_iter().map(|v| if v.is_nan() { 1.0 } else { 1e30 }).collect() };
    let size = if it.post.is_some() { it.case.size.max(1.0) } else { it.case.size };
    out.into_iter().chain(residual.into_iter().map(|v| v / size)).collect()
}

#[test]
fn norm_agrees_with_its_specification() {
    agrees::<Norm>();
}

#[test]
fn add_norm_agrees_with_its_specification() {
    agrees::<AddNormOp>();
}

/// Residual and output of `add_norm` over these rows, as bits.
fn bits(cpu: &mut Cpu, rows: usize, add: &Add) -> [Vec<u32>; 2] {
    let Inputs { x, residual, weight, post } = inputs(&add.case);
    let len = rows * add.case.hidden;
    let (x, mut residual) = (cpu.filled(&x[..len], add.case.hidden), cpu.filled(&residual[..len], add.case.hidden));
    let mut out = cpu.poisoned(rows, add.case.hidden);
    let post = add.post.map(|kind| NormWeights { weight: &post, eps: POST_EPS, kind });
    let next = NormWeights { weight: &weight, eps: EPS, kind: add.case.kind };
    ops::add_norm(
        cpu,
        &mut residual,
        &x,
        AddNorm { post, scale: add.scale, stream_scale: add.stream_scale },
        Some(NextNorm { out: &mut out, norm: next }),
    );
    [residual, out].map(|tensor| cpu.read(&tensor).iter().map(|v| v.to_bits()).collect())
}

#[test]
fn a_row_has_the_same_bits_alone_and_among_others() {
    for isa in Isa::available() {
        for (post, kind) in [(None, Rms), (Some(Rms), Rms), (None, Layer), (Some(Layer), Layer), (None, LayerBiased)] {
            let add = Add { case: Case { kind, ..MANY }, post, scale: 0.3, stream_scale: 0.7, next: true };
            let [alone, among] = [1, MANY.tokens].map(|rows| bits(&mut Cpu::new(2, *isa), rows, &add));
            for (alone, among) in alone.iter().zip(among) {
                assert_eq!(alone[..], among[..MANY.hidden], "{isa:?}, {post:?}, {kind:?}");
            }
        }
    }
}
