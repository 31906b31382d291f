//! See `ops/silu_mul.rs` for the contract, `kernels/silu_mul.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::{Kernel, fatbin};
use super::params::params;
use super::storage::Tensor;
use crate::error::Result;

params! {
    SiluMulParams in "silu_mul.cu" { out: Address, gate_up: Address, width: i32 }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel(fatbin!("silu_mul"), "silu_mul")?))
    }

    pub fn run(&self, device: &Device, out: &mut Tensor, gate_up: &Tensor) -> Result<()> {
        let width = out.cols();
        // The kernel knows no stride: a matrix with such a width was refused when it was loaded.
        assert_eq!(width % 8, 0);
        let params =
            SiluMulParams { out: out.storage.address(), gate_up: gate_up.storage.address(), width: width as i32 };
        self.0.launch(device.chaining, [width.div_ceil(2048), out.rows(), 1], 256, 0, &params)
    }
}
