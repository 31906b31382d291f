//! See `ops/pool_states.rs` for the contract, `kernels/pool_states.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::Kernel;
use super::params::params;
use super::storage::Tensor;
use base::error::Result;

params! {
    PoolStatesParams in "pool_states.cu" { out: Address, x: Address, ranges: Address, cols: i32, stride: i32 }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel("pool_states", "pool_states")?))
    }

    pub fn run(&self, device: &Device, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) -> Result<()> {
        let params = PoolStatesParams {
            out: out.storage.address(),
            x: x.storage.address(),
            ranges: device_batch.addresses().gathered_tokens,
            cols: x.cols() as i32,
            stride: x.storage.stride() as i32,
        };
        self.0.launch(device.chaining, [out.rows(), x.cols().div_ceil(512), 1], 64, 0, &params)
    }
}
