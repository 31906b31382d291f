//! See `ops/combine.rs` for the contract, `kernels/combine.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::experts::Routes;
use super::kernels::{Chaining, Kernel};
use super::params::params;
use super::storage::Tensor;
use crate::SharedExpert;
use base::error::Result;
use std::ops::Range;

params! {
    CombineParams in "combine.cu" {
        out: Address,
        x: Address,
        weights: Address,
        experts_of: Address,
        shared: Address,
        gates: Address,
        chosen: i32,
        cols: i32,
        out_stride: i32,
        x_stride: i32,
        shared_stride: i32,
        gate_stride: i32,
        first_expert: i32,
        experts: i32,
    }
}

/// What is added up.
pub struct Rows {
    /// `[tokens, chosen, cols]`
    pub at: Address,
    /// Numbers from row to row.
    pub stride: usize,
    /// `[tokens, chosen]`
    pub weights: Address,
    pub chosen: usize,
    /// Experts whose slots alone are added, and where those of slots are. `None`: all are added. `[tokens, chosen]`
    pub some: Option<(Range<usize>, Address)>,
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel("combine", "combine")?))
    }

    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        x: &Tensor,
        shared: Option<SharedExpert<Tensor>>,
        routes: &Routes,
        experts: Range<usize>,
    ) -> Result<()> {
        let is_whole = experts.len() == routes.shape().experts;
        let rows = Rows {
            at: x.storage.address(),
            stride: x.storage.stride(),
            weights: routes.addresses().weights,
            chosen: routes.shape().chosen,
            some: (!is_whole).then(|| (experts, routes.addresses().experts)),
        };
        self.add_up(device.chaining, out, rows, shared)
    }

    /// Adds up `rows`, which may lie in pinned memory.
    pub fn add_up(
        &self,
        chaining: Chaining,
        out: &mut Tensor,
        rows: Rows,
        shared: Option<SharedExpert<Tensor>>,
    ) -> Result<()> {
        let at = |tensor: Option<&Tensor>| tensor.map_or((0, 0), |t| (t.storage.address(), t.storage.stride() as i32));
        let (of_shared, shared_stride) = at(shared.as_ref().map(|shared| shared.x));
        let (gates, gate_stride) = at(shared.as_ref().and_then(|shared| shared.gate));
        let (experts, experts_of) = rows.some.unwrap_or((0..0, 0));
        let params = CombineParams {
            out: out.storage.address(),
            x: rows.at,
            weights: rows.weights,
            experts_of,
            shared: of_shared,
            gates,
            chosen: rows.chosen as i32,
            cols: out.cols() as i32,
            out_stride: out.storage.stride() as i32,
            x_stride: rows.stride as i32,
            shared_stride,
            gate_stride,
            first_expert: experts.start as i32,
            experts: experts.len() as i32,
        };
        self.0.launch(chaining, [out.rows(), out.cols().div_ceil(2048), 1], 256, 0, &params)
    }
}
