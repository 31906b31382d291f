//! See `ops/activate_mul.rs` for the contract, `kernels/activate_mul.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::Kernel;
use super::params::params;
use super::storage::Tensor;
use crate::Activation;
use base::error::Result;

params! {
    ActivateMulParams in "activate_mul.cu" { out: Address, gate_up: Address, width: i32, activation: i32 }
}

/// `Activation` in `kernels/common/activation.cuh`.
pub fn number_of(activation: Activation) -> i32 {
    match activation {
        Activation::Silu => 0,
        Activation::GeluTanh => 1,
        Activation::ClampedSwiglu => 2,
    }
}

/// The kernel of all activations.
pub struct Kernels {
    kernel: Kernel,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels { kernel: device.kernel("activate_mul", "activate_mul")? })
    }

    pub fn run(&self, device: &Device, out: &mut Tensor, gate_up: &Tensor, activation: Activation) -> Result<()> {
        let width = out.cols();
        // The kernel knows no stride: a matrix with such a width was refused when it was loaded.
        assert_eq!(width % 8, 0);
        let params = ActivateMulParams {
            out: out.storage.address(),
            gate_up: gate_up.storage.address(),
            width: width as i32,
            activation: number_of(activation),
        };
        self.kernel.launch(device.chaining, [out.rows(), width.div_ceil(2048), 1], 256, 0, &params)
    }
}
