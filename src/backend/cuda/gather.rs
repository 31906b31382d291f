//! See `ops/gather.rs` for the contract, `kernels/gather.cu` for the work.

use super::device::Cuda;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::params::params;
use super::storage::Tensor;
use crate::error::Result;

params! {
    GatherParams { out: Address, x: Address, tokens: Address, cols: i32, stride: i32 }
}

pub fn run(cuda: &Cuda, out: &mut Tensor, x: &Tensor, device_batch: &DeviceBatch) -> Result<()> {
    let params = GatherParams {
        out: out.storage.address(),
        x: x.storage.address(),
        tokens: device_batch.addresses().gathered_tokens,
        cols: x.cols() as i32,
        stride: x.storage.stride() as i32,
    };
    cuda.kernels.gather.launch(cuda.chaining, [out.rows(), 1, 1], 128, 0, &params)
}
