//! See `ops/sigmoid_mul.rs` for the contract, `kernels/sigmoid_mul.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::Kernel;
use super::params::params;
use super::storage::Tensor;
use base::error::Result;

params! {
    SigmoidMulParams in "sigmoid_mul.cu" {
        x: Address,
        gate: Address,
        width: i32,
        stride: i32,
        gate_stride: i32,
        span: i32,
    }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel("sigmoid_mul", "sigmoid_mul")?))
    }

    pub fn run(&self, device: &Device, x: &mut Tensor, gate: &Tensor) -> Result<()> {
        let (width, span) = (x.cols(), x.cols() / gate.cols());
        assert!(span == 1 || span.is_multiple_of(8), "a thread has eight numbers of one head");
        let params = SigmoidMulParams {
            x: x.storage.address(),
            gate: gate.storage.address(),
            width: width as i32,
            stride: x.storage.stride() as i32,
            gate_stride: gate.storage.stride() as i32,
            span: span as i32,
        };
        self.0.launch(device.chaining, [x.rows(), width.div_ceil(2048), 1], 256, 0, &params)
    }
}
