//! `process_logits`: the bits of the CPU's, rounded to the number type.

use crate::inputs::process_logits::{CASES, inputs};
use crate::inputs::{ask, comparable, limits};
use crate::scene::{filled, on_device, rounded};
use base::TokenId;
use compute::Device;
use compute::batch::{Batch, Sampling};
use compute::cpu::reference;
use compute::ops;

/// Logits and a batch whose samples choose these tokens.
fn choosing(tokens: &[TokenId]) -> Batch {
    let mut batch = Batch::default();
    for &forced in tokens {
        ask(&mut batch, Sampling { forced, ..Sampling::GREEDY }, []);
    }
    batch
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn adjusted_logits_are_those_of_the_cpu() {
    on_device(|cuda, dtype| {
        for (name, case) in CASES {
            let (logits, batch, previous) = inputs(case, |logit| rounded(logit, dtype));
            let wanted = reference::process_logits(&logits, case.vocab, &batch, &previous);
            let wanted: Vec<f32> = wanted.into_iter().map(|logit| rounded(logit, dtype)).collect();
            let mut logits = filled(cuda, &logits, case.vocab);
            // The pass before leaves its tokens on the device.
            let mut passes = cuda.device_batches(&limits(&batch)).unwrap();
            let [first, second] = &mut passes[..] else { panic!("two passes may be in flight") };
            cuda.upload(first, &choosing(&previous)).unwrap();
            ops::sample(cuda, first, &logits);
            cuda.finish(first).unwrap();
            cuda.upload(second, &batch).unwrap();
            ops::process_logits(cuda, second, &mut logits);
            assert_eq!(comparable(&cuda.read(&logits).unwrap()), comparable(&wanted), "{name}, {dtype:?}");
            assert!(cuda.poll(first, None).unwrap());
            assert_eq!(cuda.results(first).tokens, previous, "{name}, {dtype:?}");
        }
    });
}
