//! See `ops/logprobs.rs` for the contract, `kernels/logprobs.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::Kernel;
use super::params::params;
use super::storage::Tensor;
use base::error::Result;

params! {
    LogprobsParams in "logprobs.cu" {
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

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel("logprobs", "logprobs")?))
    }

    pub fn run(&self, device: &Device, device_batch: &DeviceBatch, logits: &mut Tensor) -> Result<()> {
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
        self.0.launch(device.chaining, [device_batch.samples(), 1, 1], 1024, 0, &params)
    }
}
