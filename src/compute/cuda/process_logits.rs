//! See `ops/process_logits.rs` for the contract, `kernels/process_logits.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::Kernel;
use super::params::params;
use super::storage::Tensor;
use base::error::Result;

params! {
    ProcessLogitsParams in "process_logits.cu" {
        logits: Address,
        sampling: Address,
        adjustments: Address,
        previous: Address,
        raw: Address,
        awaited: Address,
        awaited_raw: Address,
        stride: i32,
    }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel("process_logits", "process_logits")?))
    }

    pub fn run(&self, device: &Device, device_batch: &mut DeviceBatch, logits: &mut Tensor) -> Result<()> {
        let (at, extras) = (device_batch.addresses(), device_batch.extras());
        let params = ProcessLogitsParams {
            logits: logits.storage.address(),
            sampling: at.sampling,
            adjustments: extras.adjustments(),
            previous: at.tokens,
            raw: extras.raw(),
            awaited: extras.awaited(),
            awaited_raw: extras.awaited_raw(),
            stride: logits.storage.stride() as i32,
        };
        self.0.launch(device.chaining, [device_batch.samples(), 1, 1], 256, 0, &params)
    }
}
