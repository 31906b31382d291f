//! `logprobs`: near the specification, by logits rounded to the number type, and the bits of the CPU.

use crate::inputs::logprobs::{CASES, check, inputs};
use crate::inputs::{answered, comparable, ended};
use crate::scene::{filled, on_device, rounded};
use compute::Device;
use compute::batch::MAX_LOGPROBS;
use compute::cpu::{Cpu, Isa};
use compute::ops;

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn logprobs_are_those_of_the_cpu() {
    on_device(|cuda, dtype| {
        for (name, case) in CASES {
            let what = format!("{name}, {dtype:?}");
            let (logits, batch) = inputs(case, |logit| rounded(logit, dtype));
            let mut on_device = filled(cuda, &logits, case.vocab);
            let device_batch = answered(cuda, &batch, &mut on_device);
            let found = cuda.results(&device_batch);
            check(&what, &logits, case.vocab, &batch, &found);

            let cpu = &mut Cpu::new(1, Isa::available()[0]);
            let mut in_memory = cpu.tensor(batch.samples(), case.vocab).unwrap();
            in_memory.set_rows(batch.samples());
            in_memory.values_mut().copy_from_slice(&logits);
            // Penalties are rounded elsewhere than on the CPU: the token is taken over.
            let mut told = batch.clone();
            told.adjustments.clear();
            for (sampling, &token) in told.sampling.iter_mut().zip(found.tokens) {
                (sampling.forced, sampling.adjusted_start, sampling.adjusted_end) = (token, 0, 0);
            }
            let reference = answered(cpu, &told, &mut in_memory);
            let wanted = cpu.results(&reference);
            for (sample, sampling) in batch.sampling.iter().enumerate().filter(|(_, s)| s.logprobs > 0) {
                assert_eq!(found.logprobs[sample].to_bits(), wanted.logprobs[sample].to_bits(), "{what}, {sample}");
                let place = sample * MAX_LOGPROBS..sample * MAX_LOGPROBS + sampling.top_logprobs();
                assert_eq!(found.top_logprobs[place.clone()], wanted.top_logprobs[place], "{what}, {sample}");
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn a_row_that_asks_has_its_logits_back_with_an_awaited_token_too() {
    on_device(|cuda, dtype| {
        for (name, case) in crate::inputs::process_logits::CASES {
            let (logits, mut batch, _) = crate::inputs::process_logits::inputs(case, |logit| rounded(logit, dtype));
            batch.sampling.iter_mut().for_each(|sampling| sampling.logprobs = 3);
            // Without a pass before, token 0 is awaited.
            let mut tensor = filled(cuda, &logits, case.vocab);
            let mut device_batch = answered(cuda, &batch, &mut tensor);
            for round in 0..2 {
                let found = cuda.read(&tensor).unwrap();
                assert_eq!(comparable(&found), comparable(&logits), "{name}, {dtype:?}, round {round}");
                ops::process_logits(cuda, &mut device_batch, &mut tensor);
                ops::sample(cuda, &mut device_batch, &tensor);
                ops::logprobs(cuda, &mut device_batch, &mut tensor);
                ended(cuda, &mut device_batch);
            }
        }
    });
}
