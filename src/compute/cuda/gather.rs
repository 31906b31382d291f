//! See `ops/gather.rs` for the contract, `kernels/gather.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::Kernel;
use super::params::params;
use super::storage::Tensor;
use base::error::Result;

params! {
    GatherParams in "gather.cu" { out: Address, x: Address, tokens: Address, cols: i32, stride: i32 }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel("gather", "gather")?))
    }

    pub fn run(&self, device: &Device, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) -> Result<()> {
        let params = GatherParams {
            out: out.storage.address(),
            x: x.storage.address(),
            tokens: device_batch.addresses().gathered_tokens,
            cols: x.cols() as i32,
            stride: x.storage.stride() as i32,
        };
        self.0.launch(device.chaining, [out.rows(), 1, 1], 128, 0, &params)
    }
}
