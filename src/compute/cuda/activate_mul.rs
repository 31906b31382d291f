//! See `ops/activate_mul.rs` for the contract, `kernels/activate_mul.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::{Kernel, suffix};
use super::params::params;
use super::storage::Tensor;
use crate::Activation;
use base::error::Result;

params! {
    ActivateMulParams in "activate_mul.cu" { out: Address, gate_up: Address, width: i32 }
}

/// The kernel of each activation.
pub struct Kernels {
    silu: Kernel,
    gelu_tanh: Kernel,
    clamped_swiglu: Kernel,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("activate_mul")?;
        let kernel = |name: &str| Kernel::new(&module, &format!("{name}_{}", suffix(device.dtype)));
        Ok(Kernels {
            silu: kernel("silu_mul")?,
            gelu_tanh: kernel("gelu_tanh_mul")?,
            clamped_swiglu: kernel("clamped_swiglu")?,
        })
    }

    pub fn run(&self, device: &Device, out: &mut Tensor, gate_up: &Tensor, activation: Activation) -> Result<()> {
        let width = out.cols();
        // The kernel knows no stride: a matrix with such a width was refused when it was loaded.
        assert_eq!(width % 8, 0);
        let params =
            ActivateMulParams { out: out.storage.address(), gate_up: gate_up.storage.address(), width: width as i32 };
        let kernel = match activation {
            Activation::Silu => &self.silu,
            Activation::GeluTanh => &self.gelu_tanh,
            Activation::ClampedSwiglu => &self.clamped_swiglu,
        };
        kernel.launch(device.chaining, [out.rows(), width.div_ceil(2048), 1], 256, 0, &params)
    }
}
