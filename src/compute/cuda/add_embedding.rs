//! See `ops/add_embedding.rs` for the contract, `kernels/add_embedding.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::Kernel;
use super::matrix::{Matrix, Rows};
use super::params::params;
use super::storage::Tensor;
use crate::TableRows;
use base::error::Result;

params! {
    AddEmbeddingParams in "add_embedding.cu" { out: Address, table: Address, rows: Address, first: i32, hidden: i32, stride: i32 }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel("add_embedding", "add_embedding")?))
    }

    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        table: &Matrix,
        rows: TableRows,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let Some((_, Rows::Plain(table))) = table.runs(0..table.rows(), device.dtype).next() else {
            unreachable!("such tables are loaded in plain numbers")
        };
        let at = device_batch.addresses();
        let (rows, first) = match rows {
            TableRows::Positions { first } => (at.positions, first),
            TableRows::Types if device_batch.batch().token_types.is_empty() => (0, 0),
            TableRows::Types => (at.token_types, 0),
        };
        let params = AddEmbeddingParams {
            out: out.storage.address(),
            table,
            rows,
            first: first as i32,
            hidden: out.cols() as i32,
            stride: out.storage.stride() as i32,
        };
        self.0.launch(device.chaining, [out.rows(), 1, 1], 128, 0, &params)
    }
}
