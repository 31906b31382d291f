//! See `ops/activate.rs` for the contract, `kernels/activate.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::{Kernel, suffix};
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
    }
}

/// The kernel of each curve.
pub struct Kernels {
    silu: Kernel,
    gelu_tanh: Kernel,
    relu_squared: Kernel,
    gelu: Kernel,
    tanh: Kernel,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("activate")?;
        let kernel = |name: &str| Kernel::new(&module, &format!("activate_{name}_{}", suffix(device.dtype)));
        Ok(Kernels {
            silu: kernel("silu")?,
            gelu_tanh: kernel("gelu_tanh")?,
            relu_squared: kernel("relu_squared")?,
            gelu: kernel("gelu")?,
            tanh: kernel("tanh")?,
        })
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
        };
        let kernel = match curve {
            Curve::Gate(Activation::Silu) => &self.silu,
            Curve::Gate(Activation::GeluTanh) => &self.gelu_tanh,
            Curve::Gate(Activation::ClampedSwiglu) => unreachable!("the op refuses it"),
            Curve::ReluSquared => &self.relu_squared,
            Curve::Gelu => &self.gelu,
            Curve::Tanh => &self.tanh,
        };
        kernel.launch(device.chaining, [out.rows(), out.cols().div_ceil(2048), 1], 256, 0, &params)
    }
}
