//! See `ops/add_rms_norm.rs` for the contract, `kernels/add_rms_norm.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::{Kernel, fatbin};
use super::matrix::Vector;
use super::params::params;
use super::rms_norm::threads;
use super::storage::Tensor;
use crate::error::Result;

params! {
    AddRmsNormParams in "add_rms_norm.cu" {
        out: Address,
        residual: Address,
        x: Address,
        weight: Address,
        hidden: i32,
        stride: i32,
        eps: f32,
    }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel(fatbin!("add_rms_norm"), "add_rms_norm")?))
    }

    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        residual: &mut Tensor,
        x: &Tensor,
        weight: &Vector,
        eps: f32,
    ) -> Result<()> {
        let params = AddRmsNormParams {
            out: out.storage.address(),
            residual: residual.storage.address(),
            x: x.storage.address(),
            weight: weight.wide.address(),
            hidden: x.cols() as i32,
            stride: x.storage.stride() as i32,
            eps,
        };
        let threads = threads(device.rows_of_geometry(x.rows()), x.cols(), device.facts().processors);
        self.0.launch(device.chaining, [x.rows(), 1, 1], threads, 0, &params)
    }
}
