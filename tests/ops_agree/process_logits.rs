//! `process_logits`: the same bits as the specification.

use crate::column::{Column, Op, agrees};
use crate::inputs::process_logits::{Awaits, CASES, Case, inputs};
use crate::inputs::{comparable, uploaded};
use compute::batch::{Batch, NO_TOKEN};
use compute::cpu::reference;
use compute::ops;

struct Adjust;

/// The cases that a device with one pass in flight can meet: no token of the pass before is unknown.
fn known(case: &Case) -> Case {
    Case { awaits: Awaits::Nothing, ..*case }
}

impl Op for Adjust {
    type Case = Case;
    const CASES: &'static [(&'static str, Case)] = CASES;
    const BOUND: f64 = 0.0;

    fn expected(case: &Case) -> Vec<f32> {
        let (logits, batch, _) = inputs(&known(case), |logit| logit);
        comparable(&reference::process_logits(&logits, case.vocab, &batch, &[]))
    }

    fn computed<B: Column>(backend: &mut B, case: &Case) -> Vec<f32> {
        let (logits, batch, _) = inputs(&known(case), |logit| logit);
        let mut device_batch = uploaded(backend, &batch);
        let mut logits = backend.filled(&logits, case.vocab);
        ops::process_logits(backend, &mut device_batch, &mut logits);
        comparable(&backend.read(&logits))
    }
}

#[test]
fn adjust_agrees_with_its_specification() {
    agrees::<Adjust>();
}

#[test]
fn a_token_of_the_pass_before_counts_as_if_it_were_listed() {
    for (name, case) in CASES.iter().filter(|(_, case)| case.awaits == Awaits::AnyToken) {
        let (logits, batch, previous) = inputs(case, |logit| logit);
        // The same, with every awaited token known and counted.
        let mut counted = Batch::default();
        for sampling in &batch.sampling {
            let mut adjustments = batch.adjustments[sampling.adjusted()].to_vec();
            if sampling.awaited != NO_TOKEN {
                let token = previous[sampling.awaited as usize & 0x7fff_ffff];
                match adjustments.iter_mut().find(|it| it.token == token) {
                    Some(it) => it.uses = it.uses.wrapping_add(1).max(1),
                    None => adjustments.push(compute::batch::LogitBias { token, uses: 1, bias: 0.0 }),
                }
            }
            let known = compute::batch::Sampling { awaited: NO_TOKEN, ..*sampling };
            crate::inputs::ask(&mut counted, known, adjustments);
        }
        let wanted = comparable(&reference::process_logits(&logits, case.vocab, &counted, &[]));
        assert_eq!(comparable(&reference::process_logits(&logits, case.vocab, &batch, &previous)), wanted, "{name}");
    }
}
