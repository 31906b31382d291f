//! See `ops/logprobs.rs` for the contract, `kernels/logprobs.cu` for the work.

use super::device::Cuda;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::params::params;
use super::storage::Tensor;
use crate::error::Result;

params! {
    LogprobsParams {
        logits: Address,
        sampling: Address,
        tokens: Address,
        adjusted: Address,
        raw: Address,
        awaited: Address,
        awaited_raw: Address,
        logprobs: Address,
        top_tokens: Address,
        top_logprobs: Address,
        vocab: i32,
        stride: i32,
    }
}

pub fn run(cuda: &Cuda, device_batch: &DeviceBatch, logits: &mut Tensor) -> Result<()> {
    let (at, extras) = (device_batch.addresses(), device_batch.extras());
    let [logprobs, top_tokens, top_logprobs] = extras.logprob_addresses(device_batch.samples());
    let params = LogprobsParams {
        logits: logits.storage.address(),
        sampling: at.sampling,
        tokens: at.tokens,
        adjusted: extras.adjustments(),
        raw: extras.raw(),
        awaited: if device_batch.batch().processes_logits() { extras.awaited() } else { 0 },
        awaited_raw: extras.awaited_raw(),
        logprobs,
        top_tokens,
        top_logprobs,
        vocab: logits.cols() as i32,
        stride: logits.storage.stride() as i32,
    };
    cuda.kernels.logprobs.launch(cuda.chaining, [device_batch.samples(), 1, 1], 1024, 0, &params)
}
