//! `sample`: the same tokens as on the CPU, exactly.

use crate::inputs::sample::{CASES, EDGES, edge_batches, expected, inputs};
use crate::inputs::{answered, ended};
use crate::scene::{filled, on_device, rounded};
use compute::Device;
use compute::ops;

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn the_same_logits_give_the_same_tokens_as_on_the_cpu() {
    on_device(|cuda, dtype| {
        for (name, case) in CASES {
            let (logits, batch) = inputs(case, |logit| rounded(logit, dtype));
            let wanted = expected(&logits, case.vocab, &batch);
            let mut logits = filled(cuda, &logits, case.vocab);
            let mut device_batch = answered(cuda, &batch, &mut logits);
            for round in 0..2 {
                assert_eq!(cuda.results(&device_batch).tokens, wanted, "{name}, {dtype:?}, round {round}");
                ops::sample(cuda, &mut device_batch, &logits);
                ended(cuda, &mut device_batch);
            }
        }
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU: --include-ignored"]
fn no_token_that_is_nan_banned_or_masked_is_chosen() {
    on_device(|cuda, dtype| {
        for (name, logits, banned, wanted) in EDGES {
            for (by, batch) in edge_batches(banned) {
                let mut logits = filled(cuda, logits, 5);
                let device_batch = answered(cuda, &batch, &mut logits);
                let token = cuda.results(&device_batch).tokens;
                assert_eq!(token, [*wanted], "{name}, {by:?}, {dtype:?}, {:?}", batch.sampling[0]);
            }
        }
    });
}
