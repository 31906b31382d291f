//! See `ops/keep_hidden_states.rs` for the contract.

use super::device::Cuda;
use super::device_batch::DeviceBatch;
use super::storage::Tensor;
use crate::error::Result;

pub fn run(cuda: &Cuda, device_batch: &mut DeviceBatch, gathered: &Tensor) -> Result<()> {
    device_batch.keep_hidden_states(&cuda.context, gathered, cuda.dtype)
}
