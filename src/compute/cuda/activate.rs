//! See `ops/activate.rs` for the contract, `kernels/activate.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::Kernel;
use super::params::params;
use super::storage::Tensor;
use crate::{Activated, Activation, Curve, Part};
use base::error::Result;

params! {
    ActivateParams in "activate.cu" {
        out: Address,
        of: Address,
        times: Address,
        width: i32,
        out_stride: i32,
        of_stride: i32,
        times_stride: i32,
        scale: f32,
        curve: i32,
    }
}

/// `Curve` in `activate.cu`.
fn number_of(curve: Curve) -> i32 {
    match curve {
        Curve::Gate(Activation::Silu) => 0,
        Curve::Gate(Activation::GeluTanh) => 1,
        Curve::Gate(Activation::ClampedSwiglu) => unreachable!("the op refuses it"),
        Curve::ReluSquared => 2,
        Curve::Gelu => 3,
        Curve::Tanh => 4,
    }
}

/// The kernel of all curves.
pub struct Kernels {
    kernel: Kernel,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels { kernel: device.kernel("activate", "activate")? })
    }

    pub fn run(&self, device: &Device, out: &mut Tensor, activated: Activated<Tensor>) -> Result<()> {
        let Activated { of, scale, curve, times } = activated;
        let address = |part: Part<Tensor>| {
            // Eight numbers are read at once: a matrix of another width was refused when it was loaded.
            assert_eq!(part.first % 8, 0);
            part.x.storage.address() + (part.first * device.dtype.bytes()) as u64
        };
        let params = ActivateParams {
            out: out.storage.address(),
            of: address(of),
            times: times.map_or(0, address),
            width: out.cols() as i32,
            out_stride: out.storage.stride() as i32,
            of_stride: of.x.storage.stride() as i32,
            times_stride: times.map_or(0, |times| times.x.storage.stride()) as i32,
            scale,
            curve: number_of(curve),
        };
        self.kernel.launch(device.chaining, [out.rows(), out.cols().div_ceil(2048), 1], 256, 0, &params)
    }
}
