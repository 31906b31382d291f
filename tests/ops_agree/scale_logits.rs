//! `scale_logits`.

use crate::column::{Column, Op, agrees};
use crate::scene::Random;
use compute::cpu::{Cpu, Isa, reference};
use compute::ops;

struct Case {
    samples: usize,
    vocab: usize,
    scale: f32,
    softcap: Option<f32>,
}

struct ScaleLogits;

impl Op for ScaleLogits {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = &[
        ("one logit", Case { samples: 1, vocab: 1, scale: 1.0, softcap: Some(30.0) }),
        ("a scale alone", Case { samples: 3, vocab: 101, scale: 0.0625, softcap: None }),
        ("a cap alone", Case { samples: 3, vocab: 101, scale: 1.0, softcap: Some(30.0) }),
        ("both", Case { samples: 2, vocab: 67, scale: -3.0, softcap: Some(5.0) }),
        ("logits far beyond the cap", Case { samples: 2, vocab: 64, scale: 1e30, softcap: Some(30.0) }),
        ("logits far below the cap", Case { samples: 2, vocab: 64, scale: 1e-5, softcap: Some(30.0) }),
        ("more than one thread takes", Case { samples: 7, vocab: 9001, scale: 1.0, softcap: Some(30.0) }),
    ];
    const BOUND: f64 = 1e-6;

    fn expected(case: &Case) -> Vec<f32> {
        let mut logits = inputs(case);
        reference::scale_logits(&mut logits, case.scale, case.softcap);
        logits
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let mut logits = backend.filled(&inputs(case), case.vocab);
        ops::scale_logits(backend, &mut logits, case.scale, case.softcap);
        backend.read(&logits)
    }
}

fn inputs(case: &Case) -> Vec<f32> {
    Random(5).numbers(case.samples * case.vocab, 60.0)
}

#[test]
fn scale_logits_agrees_with_its_specification() {
    agrees::<ScaleLogits>();
}

#[test]
fn a_capped_logit_has_the_same_bits_wherever_it_stands() {
    for isa in Isa::available() {
        let cpu = &mut Cpu::new(2, *isa);
        for vocab in [1, 7, 16, 1023, 40_001] {
            let mut logits = cpu.filled(&vec![12.34; vocab], vocab);
            ops::scale_logits(cpu, &mut logits, 1.5, Some(20.0));
            let logits = cpu.read(&logits);
            assert!(logits.iter().all(|v| v.to_bits() == logits[0].to_bits()), "{isa:?}, {vocab} logits");
            assert!((logits[0] - 20.0 * (12.34f32 * 1.5 / 20.0).tanh()).abs() < 1e-5, "{isa:?}");
        }
    }
}
