//! See `ops/gated_delta.rs` for the contract, `kernels/gated_delta.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::{Kernel, suffix};
use super::matrix::Vector;
use super::params::params;
use super::states::States;
use super::storage::Tensor;
use crate::{DeltaHeads, DeltaInputs, ValueOrder};
use base::error::Result;

params! {
    GatedDeltaParams in "gated_delta.cu" {
        out: Address,
        qkv: Address,
        gates: Address,
        decays: Address,
        states: Address,
        row_starts: Address,
        sources: Address,
        slots: Address,
        saves: Address,
        slot_numbers: i64,
        out_stride: i32,
        qkv_stride: i32,
        gates_stride: i32,
        key_heads: i32,
        value_heads: i32,
        value_dim: i32,
        is_tiled: i32,
    }
}

/// For each of [`DeltaHeads::KEY_DIMS`], a kernel whose lanes have two columns of the state each, and one whose lanes have four.
pub struct Kernels([[Kernel; 2]; DeltaHeads::KEY_DIMS.len()]);

/// Rows of one token each from which on the traffic of states bounds the kernel, and not how many warps there are.
const MANY_ROWS: usize = 16;

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("gated_delta")?;
        let kernel = |dim, cols| Kernel::new(&module, &format!("gated_delta_{dim}x{cols}_{}", suffix(device.dtype)));
        let [a, b, c, d] = DeltaHeads::KEY_DIMS.map(|dim| Ok([kernel(dim, 2)?, kernel(dim, 4)?]));
        Ok(Kernels([a?, b?, c?, d?]))
    }

    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        inputs: DeltaInputs<Tensor, Vector>,
        heads: DeltaHeads,
        (states, at): (&mut States, usize),
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let DeltaInputs { qkv, gates, first_gate, decays } = inputs;
        let places = device_batch.addresses();
        let kernel = DeltaHeads::KEY_DIMS.iter().position(|&dim| dim == heads.key_dim).expect("the op checked it");
        let params = GatedDeltaParams {
            out: out.storage.address(),
            qkv: qkv.storage.address(),
            gates: gates.storage.address() + (first_gate * device.dtype.bytes()) as u64,
            decays: decays.wide.address(),
            states: states.region(at),
            row_starts: places.row_starts,
            sources: places.state_sources,
            slots: places.state_slots,
            saves: places.state_saves,
            slot_numbers: states.shape().numbers as i64,
            out_stride: out.storage.stride() as i32,
            qkv_stride: qkv.storage.stride() as i32,
            gates_stride: gates.storage.stride() as i32,
            key_heads: heads.keys as i32,
            value_heads: heads.values as i32,
            value_dim: heads.value_dim as i32,
            is_tiled: i32::from(heads.order == ValueOrder::Tiled),
        };
        // Lanes of a warp that share a column, as the kernels have them.
        let split = heads.key_dim.div_ceil(32);
        let batch = device_batch.batch();
        let is_decode = batch.tokens() <= 2 * batch.rows();
        let cols = if is_decode && batch.rows() >= MANY_ROWS { 4 } else { 2 };
        let blocks = [batch.rows(), heads.values, (heads.value_dim * split).div_ceil(32 * cols)];
        self.0[kernel][cols / 4].launch(device.chaining, blocks, 32, 0, &params)
    }
}
