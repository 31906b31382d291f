//! See `ops/embedding.rs` for the contract, `kernels/embedding.cu` for the work.

use super::device::Cuda;
use super::driver::Address;
use super::matrix::Matrix;
use super::params::params;
use super::step::Step;
use super::storage::Tensor;
use crate::error::Result;

params! {
    EmbeddingParams { out: Address, table: Address, token_ids: Address, sampled: Address, hidden: i32, stride: i32 }
}

pub fn run(cuda: &Cuda, out: &mut Tensor, table: &Matrix, step: &Step) -> Result<()> {
    let params = EmbeddingParams {
        out: out.storage.address(),
        table: table.memory.address(),
        token_ids: step.addresses().token_ids,
        sampled: step.addresses().tokens,
        hidden: out.cols() as i32,
        stride: out.storage.stride() as i32,
    };
    cuda.kernels.embedding.launch(cuda.chaining, [out.rows(), 1, 1], 128, 0, &params)
}
