//! See `ops/selective_scan.rs` for the contract, `kernels/selective_scan.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::{Kernel, suffix};
use super::matrix::Vector;
use super::params::params;
use super::states::States;
use super::storage::Tensor;
use crate::{ScanHeads, ScanInputs};
use base::error::Result;

params! {
    SelectiveScanParams in "selective_scan.cu" {
        out: Address,
        xbc: Address,
        steps: Address,
        rates: Address,
        states: Address,
        row_starts: Address,
        sources: Address,
        slots: Address,
        saves: Address,
        slot_numbers: i64,
        out_stride: i32,
        xbc_stride: i32,
        steps_stride: i32,
        heads: i32,
        groups: i32,
        head_dim: i32,
        step_scale: f32,
    }
}

/// A kernel for each of [`ScanHeads::STATE_DIMS`].
pub struct Kernels([Kernel; ScanHeads::STATE_DIMS.len()]);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("selective_scan")?;
        let kernel = |dim| Kernel::new(&module, &format!("selective_scan_{dim}_{}", suffix(device.dtype)));
        let [a, b, c, d, e] = ScanHeads::STATE_DIMS.map(kernel);
        Ok(Kernels([a?, b?, c?, d?, e?]))
    }

    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        inputs: ScanInputs<Tensor, Vector>,
        sizes: ScanHeads,
        (states, at): (&mut States, usize),
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let ScanInputs { xbc, steps, first_step, step_scale, rates } = inputs;
        let places = device_batch.addresses();
        let kernel = ScanHeads::STATE_DIMS.iter().position(|&dim| dim == sizes.state_dim).expect("the op checked it");
        let params = SelectiveScanParams {
            out: out.storage.address(),
            xbc: xbc.storage.address(),
            steps: steps.storage.address() + (first_step * device.dtype.bytes()) as u64,
            rates: rates.wide.address(),
            states: states.region(at),
            row_starts: places.row_starts,
            sources: places.state_sources,
            slots: places.state_slots,
            saves: places.state_saves,
            slot_numbers: states.shape().numbers as i64,
            out_stride: out.storage.stride() as i32,
            xbc_stride: xbc.storage.stride() as i32,
            steps_stride: steps.storage.stride() as i32,
            heads: sizes.heads as i32,
            groups: sizes.groups as i32,
            head_dim: sizes.head_dim as i32,
            step_scale,
        };
        // Lanes of a warp that share a column, as the kernels have them.
        let split = sizes.state_dim.div_ceil(32);
        let blocks = [device_batch.batch().rows(), sizes.heads, (sizes.head_dim * split).div_ceil(32)];
        self.0[kernel].launch(device.chaining, blocks, 32, 0, &params)
    }
}
