//! See `ops/gated_norm.rs` for the contract, `kernels/gated_norm.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::Kernel;
use super::matrix::Vector;
use super::params::params;
use super::storage::Tensor;
use crate::{GateOrder, HeadGate};
use base::error::Result;

params! {
    GatedNormParams in "gated_norm.cu" {
        x: Address,
        gate: Address,
        weight: Address,
        x_stride: i32,
        gate_stride: i32,
        heads: i32,
        head_dim: i32,
        weight_len: i32,
        is_gate_first: i32,
        eps: f32,
        gate_scale: f32,
    }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel("gated_norm", "gated_norm")?))
    }

    pub fn run(&self, device: &Device, x: &mut Tensor, gate: HeadGate<Tensor, Vector>) -> Result<()> {
        let heads = x.cols() / gate.head_dim;
        let params = GatedNormParams {
            x: x.storage.address(),
            gate: gate.gate.storage.address() + (gate.first * device.dtype.bytes()) as u64,
            weight: gate.weight.wide.address(),
            x_stride: x.storage.stride() as i32,
            gate_stride: gate.gate.storage.stride() as i32,
            heads: heads as i32,
            head_dim: gate.head_dim as i32,
            weight_len: gate.weight.numbers() as i32,
            is_gate_first: i32::from(gate.order == GateOrder::BeforeNorm),
            eps: gate.eps,
            gate_scale: gate.scale,
        };
        self.0.launch(device.chaining, [x.rows(), heads.div_ceil(4), 1], 128, 0, &params)
    }
}
