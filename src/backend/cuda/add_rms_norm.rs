//! See `ops/add_rms_norm.rs` for the contract, `kernels/add_rms_norm.cu` for the work.

use super::device::Cuda;
use super::driver::Address;
use super::matrix::Vector;
use super::params::params;
use super::rms_norm::threads;
use super::storage::Tensor;
use crate::error::Result;

params! {
    AddRmsNormParams {
        out: Address,
        residual: Address,
        x: Address,
        weight: Address,
        hidden: i32,
        stride: i32,
        eps: f32,
    }
}

pub fn run(cuda: &Cuda, out: &mut Tensor, residual: &mut Tensor, x: &Tensor, weight: &Vector, eps: f32) -> Result<()> {
    let params = AddRmsNormParams {
        out: out.storage.address(),
        residual: residual.storage.address(),
        x: x.storage.address(),
        weight: weight.wide.address(),
        hidden: x.cols() as i32,
        stride: x.storage.stride() as i32,
        eps,
    };
    let threads = threads(cuda.rows_of_geometry(x.rows()), x.cols(), cuda.context.facts().processors);
    cuda.kernels.add_rms_norm.launch(cuda.chaining, [x.rows(), 1, 1], threads, 0, &params)
}
