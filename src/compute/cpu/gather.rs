//! See `ops/gather.rs` for the contract.

use super::{Cpu, DeviceBatch, Tensor};
use crate::batch::Batch;

/// The specification. `cols` numbers a token.
pub fn reference(out: &mut [f32], x: &[f32], cols: usize, batch: &Batch) {
    let tokens = batch.sampled_tokens.iter().chain(&batch.pooled_tokens);
    for (out, &token) in out.chunks_exact_mut(cols).zip(tokens) {
        out.copy_from_slice(&x[token as usize * cols..][..cols]);
    }
}

/// A copy of one row per token is too little work to distribute over threads.
pub fn run(_: &Cpu, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) {
    reference(out.values_mut(), x.values(), x.cols(), &device_batch.batch);
}
