//! See `ops/copy_states.rs` for the contract, `kernels/copy_states.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::Kernel;
use super::params::params;
use super::states::States;
use base::error::Result;

params! {
    CopyStatesParams in "copy_states.cu" { from: Address, to: Address, numbers: i64 }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(Kernel::new(&device.module("copy_states")?, "copy_states")?))
    }

    pub fn run(&self, device: &Device, states: &mut States, device_batch: &DeviceBatch) -> Result<()> {
        let numbers = states.shape().numbers;
        let blocks = [numbers.div_ceil(256).min(1024), 1, 1];
        device_batch.batch().state_copies.iter().try_for_each(|copy| {
            let params =
                CopyStatesParams { from: states.slot(copy.from), to: states.slot(copy.to), numbers: numbers as i64 };
            self.0.launch(device.chaining, blocks, 256, 0, &params)
        })
    }
}
