//! `rms_norm` and `add_rms_norm`.

use crate::column::{Column, Op, agrees};
use crate::scene::Random;
use nanovllm::backend::cpu::reference;
use nanovllm::ops;

struct Case {
    tokens: usize,
    hidden: usize,
    /// Greatest absolute value of the inputs.
    size: f32,
}

const CASES: &[(&str, Case)] = &[
    ("one number", Case { tokens: 1, hidden: 1, size: 1.0 }),
    ("fewer numbers than lanes", Case { tokens: 3, hidden: 7, size: 1.0 }),
    ("one token", Case { tokens: 1, hidden: 64, size: 1.0 }),
    ("odd width", Case { tokens: 5, hidden: 83, size: 1.0 }),
    ("numbers so small that eps decides", Case { tokens: 2, hidden: 64, size: 1e-4 }),
    ("large numbers", Case { tokens: 2, hidden: 64, size: 1e12 }),
    ("decode batch of Qwen3-0.6B", Case { tokens: 64, hidden: 1024, size: 3.0 }),
    ("more tokens than one thread takes", Case { tokens: 301, hidden: 200, size: 3.0 }),
];

const EPS: f32 = 1e-6;

/// `x`, `residual` and `weight`.
fn inputs(case: &Case) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let mut random = Random(1);
    let len = case.tokens * case.hidden;
    (random.numbers(len, case.size), random.numbers(len, case.size), random.numbers(case.hidden, 2.0))
}

struct RmsNorm;

impl Op for RmsNorm {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = CASES;
    const BOUND: f64 = 1e-6;

    fn expected(case: &Case) -> Vec<f32> {
        let (x, _, weight) = inputs(case);
        let mut out = vec![f32::NAN; x.len()];
        reference::rms_norm(&mut out, &x, &weight, EPS);
        out
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let (x, _, weight) = inputs(case);
        let (x, weight) = (backend.filled(&x, case.hidden), backend.table(&weight).unwrap());
        let mut out = backend.poisoned(case.tokens, case.hidden);
        ops::rms_norm(backend, &mut out, &x, &weight, EPS);
        backend.read(&out)
    }
}

struct AddRmsNorm;

impl Op for AddRmsNorm {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = CASES;
    const BOUND: f64 = 1e-6;

    fn expected(case: &Case) -> Vec<f32> {
        let (x, mut residual, weight) = inputs(case);
        let mut out = vec![f32::NAN; x.len()];
        reference::add_rms_norm(&mut out, &mut residual, &x, &weight, EPS);
        scaled(out, residual, case)
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let (x, residual, weight) = inputs(case);
        let (x, mut residual) = (backend.filled(&x, case.hidden), backend.filled(&residual, case.hidden));
        let weight = backend.table(&weight).unwrap();
        let mut out = backend.poisoned(case.tokens, case.hidden);
        ops::add_rms_norm(backend, &mut out, &mut residual, &x, &weight, EPS);
        scaled(backend.read(&out), backend.read(&residual), case)
    }
}

/// Both outputs, of like size so that neither hides the other's error.
fn scaled(out: Vec<f32>, residual: Vec<f32>, case: &Case) -> Vec<f32> {
    out.into_iter().chain(residual.into_iter().map(|v| v / case.size)).collect()
}

#[test]
fn rms_norm_agrees_with_its_specification() {
    agrees::<RmsNorm>();
}

#[test]
fn add_rms_norm_agrees_with_its_specification() {
    agrees::<AddRmsNorm>();
}
