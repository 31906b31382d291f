//! See `ops/rms_norm.rs` for the contract, `kernels/rms_norm.cu` for the work.

use super::driver::Address;
use super::params::params;
use super::{Cuda, Tensor, Vector};
use crate::error::Result;

params! {
    RmsNormParams { out: Address, x: Address, weight: Address, hidden: i32, stride: i32, eps: f32 }
}

/// Threads that normalize a row of `hidden` numbers: eight numbers each, or a multiple of that.
pub fn threads(hidden: usize) -> usize {
    (hidden / 8).next_multiple_of(32).clamp(32, 1024)
}

pub fn run(cuda: &Cuda, out: &mut Tensor, x: &Tensor, weight: &Vector, eps: f32) -> Result<()> {
    let params = RmsNormParams {
        out: out.storage.address(),
        x: x.storage.address(),
        weight: weight.wide.address(),
        hidden: x.cols() as i32,
        stride: x.storage.stride() as i32,
        eps,
    };
    cuda.kernels.rms_norm.launch(cuda.chaining, [x.rows(), 1, 1], threads(x.cols()), 0, &params)
}
