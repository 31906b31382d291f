//! `logprobs`: near the specification, and the same bits however it is computed.

use crate::column::Column;
use crate::inputs::logprobs::{CASES, PLAIN, check, inputs};
use crate::inputs::{answered, ask, comparable};
use compute::Device;
use compute::batch::{Batch, MAX_LOGPROBS, Sampled, Sampling};
use compute::cpu::{Cpu, Isa};

#[test]
fn logprobs_agree_with_their_specification_on_every_instruction_set() {
    for (name, case) in CASES {
        let (logits, batch) = inputs(case, |logit| logit);
        let mut first = None;
        for isa in Isa::available() {
            for threads in [1, 2] {
                let what = format!("{name}, {isa:?}, {threads} threads");
                let cpu = &mut Cpu::new(threads, *isa);
                let mut tensor = cpu.filled(&logits, case.vocab);
                let device_batch = answered(cpu, &batch, &mut tensor);
                let found = cpu.results(&device_batch);
                check(&what, &logits, case.vocab, &batch, &found);
                let bits = (comparable(found.logprobs), comparable(found.top_logprobs));
                assert!(*first.get_or_insert_with(|| bits.clone()) == bits, "{what}: other bits than before");
            }
        }
    }
}

#[test]
fn a_row_that_asks_has_its_logits_back() {
    let (_, under_penalties) = CASES.iter().find(|(_, case)| case.adjusted > 0).unwrap();
    let (logits, batch) = inputs(under_penalties, |logit| logit);
    let cpu = &mut Cpu::new(1, Isa::available()[0]);
    let mut tensor = cpu.filled(&logits, under_penalties.vocab);
    answered(cpu, &batch, &mut tensor);
    for (sample, sampling) in batch.sampling.iter().enumerate().filter(|(_, sampling)| sampling.logprobs > 0) {
        let row = sample * under_penalties.vocab..(sample + 1) * under_penalties.vocab;
        assert_eq!(tensor.values()[row.clone()], logits[row], "sample {sample} of {}", sampling.adjusted().len());
    }
}

#[test]
fn nothing_is_brought_that_nobody_asked_for() {
    let mut batch = Batch::default();
    ask(&mut batch, Sampling { logprobs: 0, ..PLAIN.sampling }, []);
    let cpu = &mut Cpu::new(1, Isa::available()[0]);
    let mut logits = cpu.filled(&[1.0, 2.0, 3.0], 3);
    let device_batch = answered(cpu, &batch, &mut logits);
    let Sampled { tokens, logprobs, top_tokens, top_logprobs, hidden_states } = cpu.results(&device_batch);
    assert_eq!(
        (tokens.len(), logprobs.len(), top_tokens.len(), top_logprobs.len(), hidden_states.len()),
        (1, 0, 0, 0, 0)
    );
}

#[test]
fn a_row_s_answer_depends_on_that_row_alone() {
    let (logits, batch) = inputs(&PLAIN, |logit| logit);
    let cpu = &mut Cpu::new(2, *Isa::available().last().unwrap());
    let mut tensor = cpu.filled(&logits, PLAIN.vocab);
    let together = answered(cpu, &batch, &mut tensor);
    let together = cpu.results(&together);
    let mut alone = Batch::default();
    ask(&mut alone, batch.sampling[5], []);
    let mut row = cpu.filled(&logits[5 * PLAIN.vocab..][..PLAIN.vocab], PLAIN.vocab);
    let device_batch = answered(cpu, &alone, &mut row);
    let alone = cpu.results(&device_batch);
    assert_eq!((alone.tokens[0], alone.logprobs[0]), (together.tokens[5], together.logprobs[5]));
    assert_eq!(alone.top_tokens[..5], together.top_tokens[5 * MAX_LOGPROBS..][..5]);
    assert_eq!(alone.top_logprobs[..5], together.top_logprobs[5 * MAX_LOGPROBS..][..5]);
}
