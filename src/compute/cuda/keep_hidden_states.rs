//! See `ops/keep_hidden_states.rs` for the contract.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::storage::Tensor;
use base::error::Result;

pub fn run(device: &Device, device_batch: &mut DeviceBatch, gathered: &Tensor) -> Result<()> {
    device_batch.keep_hidden_states(&device.context, gathered, device.dtype)
}
