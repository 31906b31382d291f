//! `sigmoid_mul`.

use crate::column::{Column, Op, agrees};
use crate::scene::Random;
use compute::cpu::{Cpu, Isa, reference};
use compute::ops;

struct Case {
    tokens: usize,
    width: usize,
    /// Numbers that one gate multiplies.
    span: usize,
    /// Greatest absolute value of the inputs.
    size: f32,
}

struct SigmoidMul;

impl Op for SigmoidMul {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        ("one number", Case { tokens: 1, width: 1, span: 1, size: 1.0 }),
        ("one token", Case { tokens: 1, width: 96, span: 1, size: 4.0 }),
        ("odd width", Case { tokens: 3, width: 37, span: 1, size: 4.0 }),
        ("small numbers", Case { tokens: 2, width: 64, span: 1, size: 1e-3 }),
        ("gates so large that exp overflows", Case { tokens: 2, width: 64, span: 1, size: 300.0 }),
        ("one gate", Case { tokens: 2, width: 37, span: 37, size: 4.0 }),
        ("gates of heads of an odd size", Case { tokens: 3, width: 57, span: 19, size: 4.0 }),
        ("gates of heads so large that exp overflows", Case { tokens: 2, width: 64, span: 16, size: 300.0 }),
        ("decode batch of LFM3 1.7B", Case { tokens: 16, width: 2048, span: 128, size: 6.0 }),
        ("decode batch of Muse Glimmer", Case { tokens: 16, width: 4096, span: 1, size: 6.0 }),
    ];
    const BOUND: f64 = 1e-6;

    fn expected(case: &Case) -> Vec<f32> {
        let [mut x, gate] = inputs(case);
        reference::sigmoid_mul(&mut x, &gate);
        x
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let [x, gate] = inputs(case);
        let (mut x, gate) = (backend.filled(&x, case.width), backend.filled(&gate, case.width / case.span));
        ops::sigmoid_mul(backend, &mut x, &gate);
        backend.read(&x)
    }
}

/// What is gated, and the gates.
fn inputs(case: &Case) -> [Vec<f32>; 2] {
    let mut random = Random(3);
    [1, case.span].map(|span| random.numbers(case.tokens * case.width / span, case.size))
}

#[test]
fn sigmoid_mul_agrees_with_its_specification() {
    agrees::<SigmoidMul>();
}

#[test]
fn a_gate_at_the_end_of_the_range_gives_zero_or_what_it_gates() {
    for isa in Isa::available() {
        let cpu = &mut Cpu::new(1, *isa);
        let [mut x, gate] = [[2.0; 5], [-1e30, -89.0, 0.0, 89.0, 1e30]].map(|numbers| cpu.filled(&numbers, 5));
        ops::sigmoid_mul(cpu, &mut x, &gate);
        let x = cpu.read(&x);
        assert!(x[0].abs() < 1e-30 && x[1].abs() < 1e-30, "{x:?}");
        assert_eq!(x[2..], [1.0, 2.0, 2.0], "{isa:?}");
    }
}

#[test]
fn a_row_does_not_depend_on_the_rows_around_it() {
    for isa in Isa::available() {
        for (width, span) in [(37, 1), (57, 19)] {
            let case = Case { tokens: 5, width, span, size: 4.0 };
            let [x, gate] = inputs(&case);
            let together = SigmoidMul::computed(&mut Cpu::new(2, *isa), &case);
            for row in 0..case.tokens {
                let cpu = &mut Cpu::new(1, *isa);
                let of_row = |width: usize| row * width..(row + 1) * width;
                let gates = width / span;
                let mut x = cpu.filled(&x[of_row(width)], width);
                let gate = cpu.filled(&gate[of_row(gates)], gates);
                ops::sigmoid_mul(cpu, &mut x, &gate);
                assert_eq!(cpu.read(&x), together[of_row(width)], "{isa:?}, row {row} of spans of {span}");
            }
        }
    }
}
