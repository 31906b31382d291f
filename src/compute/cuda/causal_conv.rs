//! See `ops/causal_conv.rs` for the contract, `kernels/causal_conv.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::{Kernel, suffix};
use super::matrix::Vector;
use super::params::params;
use super::states::States;
use super::storage::Tensor;
use crate::{ConvForm, ShortConv};
use base::error::Result;

params! {
    CausalConvParams in "causal_conv.cu" {
        out: Address,
        x: Address,
        weight: Address,
        states: Address,
        row_starts: Address,
        sources: Address,
        slots: Address,
        saves: Address,
        slot_numbers: i64,
        rows: i32,
        cols: i32,
        out_stride: i32,
        x_stride: i32,
        form: i32,
        has_bias: i32,
    }
}

/// Taps that there are kernels for.
pub const TAPS: [usize; 4] = [2, 3, 4, 7];

/// A kernel for each number of [`TAPS`].
pub struct Kernels([Kernel; TAPS.len()]);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("causal_conv")?;
        let kernel = |taps| Kernel::new(&module, &format!("causal_conv_{taps}_{}", suffix(device.dtype)));
        let [a, b, c, d] = TAPS.map(kernel);
        Ok(Kernels([a?, b?, c?, d?]))
    }

    #[allow(clippy::too_many_arguments)]
    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        x: &Tensor,
        weight: &Vector,
        conv: ShortConv,
        (states, at): (&mut States, usize),
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let (batch, places) = (device_batch.batch(), device_batch.addresses());
        let kernel = TAPS.iter().position(|&taps| taps == conv.taps).expect("families refuse other taps");
        assert!(out.cols().is_multiple_of(4));
        let params = CausalConvParams {
            out: out.storage.address(),
            x: x.storage.address(),
            weight: weight.wide.address(),
            states: states.region(at),
            row_starts: places.row_starts,
            sources: places.state_sources,
            slots: places.state_slots,
            saves: places.state_saves,
            slot_numbers: states.shape().numbers as i64,
            rows: batch.rows() as i32,
            cols: out.cols() as i32,
            out_stride: out.storage.stride() as i32,
            x_stride: x.storage.stride() as i32,
            form: match conv.form {
                ConvForm::Plain => 0,
                ConvForm::Silu => 1,
                ConvForm::Gated => 2,
            },
            has_bias: i32::from(conv.has_bias),
        };
        self.0[kernel].launch(device.chaining, [batch.tokens(), out.cols().div_ceil(512), 1], 128, 0, &params)
    }
}
