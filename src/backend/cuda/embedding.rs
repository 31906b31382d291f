//! See `ops/embedding.rs` for the contract, `kernels/embedding.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::{Kernel, fatbin};
use super::matrix::Matrix;
use super::params::params;
use super::storage::Tensor;
use crate::error::Result;

params! {
    EmbeddingParams in "embedding.cu" { out: Address, table: Address, token_ids: Address, sampled: Address, hidden: i32, stride: i32, scale: f32 }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel(fatbin!("embedding"), "embedding")?))
    }

    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        table: &Matrix,
        scale: f32,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let params = EmbeddingParams {
            out: out.storage.address(),
            table: table.memory.address(),
            token_ids: device_batch.addresses().token_ids,
            sampled: device_batch.addresses().tokens,
            hidden: out.cols() as i32,
            stride: out.storage.stride() as i32,
            scale,
        };
        self.0.launch(device.chaining, [out.rows(), 1, 1], 128, 0, &params)
    }
}
