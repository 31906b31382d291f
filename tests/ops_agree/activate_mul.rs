//! `activate_mul`.

use crate::column::{Column, Op, agrees};
use crate::scene::Random;
use compute::Activation::{self, ClampedSwiglu, GeluTanh, Silu};
use compute::cpu::{Cpu, Isa, reference};
use compute::ops;

struct Case {
    tokens: usize,
    width: usize,
    /// Greatest absolute value of the inputs.
    size: f32,
    activation: Activation,
}

struct ActivateMul;

impl Op for ActivateMul {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        ("one number", Case { tokens: 1, width: 1, size: 1.0, activation: Silu }),
        ("one token", Case { tokens: 1, width: 96, size: 4.0, activation: Silu }),
        ("odd width", Case { tokens: 3, width: 37, size: 4.0, activation: Silu }),
        ("gates so large that exp overflows", Case { tokens: 2, width: 64, size: 300.0, activation: Silu }),
        ("decode batch of Qwen3-0.6B", Case { tokens: 16, width: 3072, size: 6.0, activation: Silu }),
        ("GELU of one number", Case { tokens: 1, width: 1, size: 1.0, activation: GeluTanh }),
        ("GELU, odd width", Case { tokens: 3, width: 37, size: 4.0, activation: GeluTanh }),
        ("GELU of small gates", Case { tokens: 2, width: 64, size: 1e-3, activation: GeluTanh }),
        ("GELU of gates so large that exp overflows", Case { tokens: 2, width: 64, size: 300.0, activation: GeluTanh }),
        ("clamped SwiGLU of one number", Case { tokens: 1, width: 1, size: 1.0, activation: ClampedSwiglu }),
        ("clamped SwiGLU, odd width", Case { tokens: 3, width: 37, size: 12.0, activation: ClampedSwiglu }),
        ("clamped SwiGLU beyond all bounds", Case { tokens: 2, width: 64, size: 300.0, activation: ClampedSwiglu }),
        ("decode batch of Gemma 3 1B", Case { tokens: 16, width: 6912, size: 6.0, activation: GeluTanh }),
    ];
    const BOUND: f64 = 1e-6;

    fn expected(case: &Case) -> Vec<f32> {
        let mut out = vec![f32::NAN; case.tokens * case.width];
        reference::activate_mul(&mut out, &inputs(case), case.width, case.activation);
        out
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let gate_up = backend.filled(&inputs(case), 2 * case.width);
        let mut out = backend.poisoned(case.tokens, case.width);
        ops::activate_mul(backend, &mut out, &gate_up, case.activation);
        backend.read(&out)
    }
}

fn inputs(case: &Case) -> Vec<f32> {
    Random(2).numbers(case.tokens * 2 * case.width, case.size)
}

#[test]
fn activate_mul_agrees_with_its_specification() {
    agrees::<ActivateMul>();
}

#[test]
fn a_gate_at_the_end_of_the_range_gives_zero_or_the_product() {
    for isa in Isa::available() {
        for activation in [Silu, GeluTanh] {
            let cpu = &mut Cpu::new(1, *isa);
            let gate_up = cpu.filled(&[-1e30, -89.0, 0.0, 89.0, 1e30, 2.0, 2.0, 2.0, 2.0, 2.0], 10);
            let mut out = cpu.poisoned(1, 5);
            ops::activate_mul(cpu, &mut out, &gate_up, activation);
            let out = cpu.read(&out);
            assert!(out[0].abs() < 1e-30 && out[1].abs() < 1e-30, "{out:?}");
            assert_eq!(out[2..], [0.0, 178.0, 2e30], "{isa:?}, {activation:?}");
        }
    }
}
