//! See `ops/gather_last.rs` for the contract, `kernels/gather_last.cu` for the work.

use super::driver::Address;
use super::params::params;
use super::{Cuda, Step, Tensor};
use crate::error::Result;

params! {
    GatherLastParams { out: Address, x: Address, sampled_rows: Address, row_starts: Address, cols: i32, stride: i32 }
}

pub fn run(cuda: &Cuda, out: &mut Tensor, x: &Tensor, step: &Step) -> Result<()> {
    let at = step.addresses();
    let params = GatherLastParams {
        out: out.storage.address(),
        x: x.storage.address(),
        sampled_rows: at.sampled_rows,
        row_starts: at.row_starts,
        cols: x.cols() as i32,
        stride: x.storage.stride() as i32,
    };
    cuda.kernels.gather_last.launch(cuda.chaining, [out.rows(), 1, 1], 128, 0, &params)
}
