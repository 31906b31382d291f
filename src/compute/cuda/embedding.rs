//! See `ops/embedding.rs` for the contract, `kernels/embedding.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::gemm::quantized::weights::QuantizedWeights;
use super::kernels::Kernel;
use super::matrix::{Matrix, Rows};
use super::params::params;
use super::storage::Tensor;
use base::error::Result;

params! {
    EmbeddingParams in "embedding.cu" { out: Address, table: Address, token_ids: Address, sampled: Address, hidden: i32, stride: i32, scale: f32 }
    CodedEmbeddingParams in "embedding.cu" { out: Address, table: QuantizedWeights, token_ids: Address, sampled: Address, hidden: i32, stride: i32, scale: f32 }
}

/// The kernels: for plain numbers, and for codes.
pub struct Kernels {
    plain: Kernel,
    coded: Kernel,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let kernel = |name| device.kernel("embedding", name);
        Ok(Kernels { plain: kernel("embedding")?, coded: kernel("embedding_coded")? })
    }

    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        table: &Matrix,
        scale: f32,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let (range, rows) = table.runs(0..table.rows(), device.dtype).next().expect("a table has rows");
        assert_eq!(range.len(), table.rows(), "a table is one matrix of a file");
        let (blocks, hidden, stride) = ([out.rows(), 1, 1], out.cols() as i32, out.storage.stride() as i32);
        let (token_ids, sampled) = (device_batch.addresses().token_ids, device_batch.addresses().tokens);
        let out = out.storage.address();
        match rows {
            Rows::Plain(table) => {
                let params = EmbeddingParams { out, table, token_ids, sampled, hidden, stride, scale };
                self.plain.launch(device.chaining, blocks, 128, 0, &params)
            }
            Rows::Coded { weights: table, .. } => {
                let params = CodedEmbeddingParams { out, table, token_ids, sampled, hidden, stride, scale };
                self.coded.launch(device.chaining, blocks, 128, 0, &params)
            }
        }
    }
}
