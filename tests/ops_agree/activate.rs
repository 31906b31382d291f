//! `activate`.

use crate::column::{Column, Op, agrees};
use crate::scene::Random;
use compute::Activation::{GeluTanh, Silu};
use compute::Curve::{self, Gate, Gelu, ReluSquared, Tanh};
use compute::cpu::{Cpu, Isa, reference};
use compute::{Activated, Part, ops};

struct Case {
    tokens: usize,
    width: usize,
    /// Greatest absolute value of the inputs.
    size: f32,
    scale: f32,
    curve: Curve,
    /// The first column of what goes through the curve, and that of its factors.
    first: usize,
    times: Option<usize>,
}

const ONE: Case = Case { tokens: 1, width: 1, size: 1.0, scale: 1.0, curve: ReluSquared, first: 0, times: None };
const ODD: Case = Case { tokens: 3, width: 37, size: 4.0, first: 5, ..ONE };

/// Columns behind those that are read.
const MORE: usize = 3;

struct Activate;

impl Op for Activate {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        ("one number", Case { curve: Gate(Silu), ..ONE }),
        ("odd width", ODD),
        ("a scale", Case { scale: -0.3, ..ODD }),
        ("factors", Case { times: Some(11), ..ODD }),
        ("SiLU", Case { curve: Gate(Silu), ..ODD }),
        ("SiLU, scaled, with factors", Case { curve: Gate(Silu), scale: 0.8, times: Some(0), ..ODD }),
        ("SiLU so large that exp overflows", Case { curve: Gate(Silu), size: 300.0, ..ODD }),
        ("GELU with factors", Case { curve: Gate(GeluTanh), times: Some(37), ..ODD }),
        ("tanh", Case { curve: Tanh, ..ODD }),
        ("exact GELU", Case { curve: Gelu, ..ODD }),
        ("exact GELU of numbers of nearly nothing", Case { curve: Gelu, size: 1e-4, ..ODD }),
        ("exact GELU of large numbers", Case { curve: Gelu, size: 300.0, ..ODD }),
        ("exact GELU, scaled, with factors", Case { curve: Gelu, scale: 0.8, times: Some(3), ..ODD }),
        ("decode batch of Nemotron-H 4B", Case { tokens: 16, width: 12_288, ..ODD }),
        (
            "decode batch of Gemma 4 E2B",
            Case { tokens: 16, width: 256, curve: Gate(GeluTanh), times: Some(512), ..ODD },
        ),
    ];
    const BOUND: f64 = 1e-6;

    fn expected(case: &Case) -> Vec<f32> {
        let Case { tokens, width, first, times, .. } = *case;
        let mut out = vec![f32::NAN; tokens * width];
        let [of, factors] = inputs(case);
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            let at = |numbers: &[f32], first: usize| numbers[row * (first + width + MORE) + first..][..width].to_vec();
            let factors = times.map(|times| at(&factors, times));
            reference::activate(out, &at(&of, first), (case.scale, case.curve), factors.as_deref());
        }
        out
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let Case { tokens, width, first, times, scale, curve, .. } = *case;
        let [of, factors] = inputs(case);
        let of = backend.filled(&of, first + width + MORE);
        let factors = times.map(|times| (backend.filled(&factors, times + width + MORE), times));
        let mut out = backend.poisoned(tokens, width);
        let times = factors.as_ref().map(|(x, first)| Part { x, first: *first });
        ops::activate(backend, &mut out, Activated { of: Part { x: &of, first }, scale, curve, times });
        backend.read(&out)
    }
}

/// What goes through the curve, and the factors.
fn inputs(case: &Case) -> [Vec<f32>; 2] {
    let mut random = Random(4);
    [case.first, case.times.unwrap_or(0)]
        .map(|first| random.numbers(case.tokens * (first + case.width + MORE), case.size))
}

#[test]
fn activate_agrees_with_its_specification() {
    agrees::<Activate>();
}

#[test]
fn exact_gelu_keeps_the_digits_of_its_tail() {
    for isa in Isa::available() {
        let cpu = &mut Cpu::new(1, *isa);
        let x: Vec<f32> = (0..2600).map(|i| -13.0 + i as f32 * 0.01).collect();
        let (of, mut out) = (cpu.filled(&x, 2600), cpu.poisoned(1, 2600));
        let of = Part { x: &of, first: 0 };
        ops::activate(cpu, &mut out, Activated { of, scale: 1.0, curve: Gelu, times: None });
        let mut expected = vec![f32::NAN; 2600];
        reference::activate(&mut expected, &x, (1.0, Gelu), None);
        for ((x, found), wanted) in x.iter().zip(cpu.read(&out)).zip(expected) {
            let apart = (f64::from(found) - f64::from(wanted)).abs();
            assert!(apart <= f64::from(wanted.abs()) * 2e-5 + 1e-37, "{isa:?}: {x} becomes {found}, not {wanted}");
        }
        let ends = cpu.filled(&[f32::NEG_INFINITY, f32::MIN, 0.0, f32::MAX, f32::INFINITY, f32::NAN], 6);
        let mut out = cpu.poisoned(1, 6);
        let of = Part { x: &ends, first: 0 };
        ops::activate(cpu, &mut out, Activated { of, scale: 1.0, curve: Gelu, times: None });
        let out = cpu.read(&out);
        assert_eq!(out[..5], [0.0, 0.0, 0.0, f32::MAX, f32::INFINITY], "{isa:?}");
        assert!(out[5].is_nan(), "{isa:?}");
    }
}

#[test]
fn what_is_not_positive_is_zero_and_the_rest_is_squared() {
    for isa in Isa::available() {
        let cpu = &mut Cpu::new(1, *isa);
        let x = cpu.filled(&[-1e30, -0.5, 0.0, 0.5, 2f32.powi(50)], 5);
        let mut out = cpu.poisoned(1, 5);
        let of = Part { x: &x, first: 0 };
        ops::activate(cpu, &mut out, Activated { of, scale: 2.0, curve: ReluSquared, times: None });
        assert_eq!(cpu.read(&out), [0.0, 0.0, 0.0, 1.0, 2f32.powi(102)], "{isa:?}");
    }
}
