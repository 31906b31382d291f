//! See `ops/process_logits.rs` for the contract.

use super::{DeviceBatch, Tensor};
use crate::batch::{Batch, FROM_PREVIOUS, LogitBias, NO_TOKEN, Sampling};
use base::TokenId;

/// The specification. `logits` is `[samples, vocab]`, `previous` the tokens that the pass before sampled.
pub fn reference(logits: &[f32], vocab: usize, batch: &Batch, previous: &[TokenId]) -> Vec<f32> {
    let mut logits = logits.to_vec();
    for (row, sampling) in logits.chunks_exact_mut(vocab).zip(&batch.sampling) {
        let mut adjustments = batch.adjustments[sampling.adjusted()].to_vec();
        if sampling.awaited != NO_TOKEN {
            let token = previous[(sampling.awaited & !FROM_PREVIOUS) as usize];
            match adjustments.iter_mut().find(|it| it.token == token) {
                Some(LogitBias { uses, .. }) => *uses = if *uses == LogitBias::UNUSED { 1 } else { *uses + 1 },
                None => adjustments.push(LogitBias { token, uses: 1, bias: 0.0 }),
            }
        }
        for it in adjustments {
            row[it.token as usize] = adjusted(row[it.token as usize], &it, sampling);
        }
    }
    logits
}

/// The formula of [`LogitBias`].
fn adjusted(logit: f32, it: &LogitBias, sampling: &Sampling) -> f32 {
    if it.bias == f32::NEG_INFINITY {
        return f32::NAN;
    }
    let mut logit = logit;
    if it.uses != LogitBias::UNUSED {
        logit = if logit > 0.0 { logit / sampling.repetition_penalty } else { logit * sampling.repetition_penalty };
        logit -= if it.uses > 0 { sampling.presence_penalty } else { 0.0 };
        logit -= sampling.frequency_penalty * it.uses as f32;
    }
    logit + it.bias
}

pub fn run(device_batch: &mut DeviceBatch, logits: &mut Tensor) {
    let DeviceBatch { batch, raw, .. } = device_batch;
    let vocab = logits.cols();
    raw.resize(batch.adjustments.len(), 0.0);
    for (row, sampling) in logits.values_mut().chunks_exact_mut(vocab).zip(&batch.sampling) {
        assert_eq!(sampling.awaited, NO_TOKEN, "with one pass in flight all tokens are known");
        let adjusted_here = sampling.adjusted();
        for (it, raw) in batch.adjustments[adjusted_here.clone()].iter().zip(&mut raw[adjusted_here]) {
            let logit = &mut row[it.token as usize];
            *raw = *logit;
            *logit = adjusted(*logit, it, sampling);
        }
    }
}
