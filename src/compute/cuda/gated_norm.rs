//! See `ops/gated_norm.rs` for the contract, `kernels/gated_norm.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::{Kernel, suffix};
use super::matrix::Vector;
use super::params::params;
use super::storage::Tensor;
use crate::{GateOrder, HeadGate};
use base::error::Result;

params! {
    GatedNormParams in "common/gated_norm.cuh" {
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

impl GatedNormParams {
    /// Where a kernel may compute a norm besides: none.
    pub const NONE: GatedNormParams = GatedNormParams {
        x: 0,
        gate: 0,
        weight: 0,
        x_stride: 0,
        gate_stride: 0,
        heads: 0,
        head_dim: 0,
        weight_len: 0,
        is_gate_first: 0,
        eps: 0.0,
        gate_scale: 0.0,
    };
}

/// The kernels.
pub struct Kernels {
    /// A warp per head.
    narrow: Kernel,
    /// A thread block per head: of many numbers, as a whole group of Mamba-2 has them.
    wide: Kernel,
}

/// Numbers of a head from which on it gets a thread block, and those that shared memory has room for.
const WIDE: usize = 512;
const WIDE_MAX: usize = 12 * 1024;
/// Threads of a wide head at most, each with eight numbers at once.
const WIDE_THREADS: usize = 512;

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("gated_norm")?;
        let kernel = |name| Kernel::new(&module, &format!("{name}_{}", suffix(device.dtype)));
        Ok(Kernels { narrow: kernel("gated_norm")?, wide: kernel("gated_norm_wide")? })
    }

    pub fn run(&self, device: &Device, x: &mut Tensor, gate: HeadGate<Tensor, Vector>) -> Result<()> {
        let (params, dim) = (params(device, x, gate), gate.head_dim);
        let heads = x.cols() / dim;
        if (WIDE..=WIDE_MAX).contains(&dim) && is_in_eights(&gate) {
            let threads = dim.div_ceil(8).next_multiple_of(32).min(WIDE_THREADS);
            return self.wide.launch(device.chaining, [x.rows(), heads, 1], threads, 4 * dim, &params);
        }
        self.narrow.launch(device.chaining, [x.rows(), heads.div_ceil(4), 1], 128, 0, &params)
    }
}

/// Whether a thread block can compute a head, eight numbers per thread.
pub fn is_in_eights(gate: &HeadGate<Tensor, Vector>) -> bool {
    gate.head_dim.is_multiple_of(8) && gate.first.is_multiple_of(8)
}

pub fn params(device: &Device, x: &Tensor, gate: HeadGate<Tensor, Vector>) -> GatedNormParams {
    GatedNormParams {
        x: x.storage.address(),
        gate: gate.gate.storage.address() + (gate.first * device.dtype.bytes()) as u64,
        weight: gate.weight.wide.address(),
        x_stride: x.storage.stride() as i32,
        gate_stride: gate.gate.storage.stride() as i32,
        heads: (x.cols() / gate.head_dim) as i32,
        head_dim: gate.head_dim as i32,
        weight_len: gate.weight.numbers() as i32,
        is_gate_first: i32::from(gate.order == GateOrder::BeforeNorm),
        eps: gate.eps,
        gate_scale: gate.scale,
    }
}
