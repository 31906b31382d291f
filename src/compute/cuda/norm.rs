//! See `ops/norm.rs` for the contract, `kernels/norm.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::{Kernel, suffix};
use super::matrix::Vector;
use super::params::params;
use super::storage::Tensor;
use crate::{NormKind, NormWeights};
use base::error::Result;

params! {
    NormParams in "norm.cu" { out: Address, x: Address, weight: Address, hidden: i32, stride: i32, eps: f32 }
}

/// Threads that normalize a row of `hidden` numbers. Few rows get a thread for each eight numbers; many get a quarter of that, so that
/// each thread has several loads under way.
pub fn threads(rows: usize, hidden: usize, processors: usize) -> usize {
    let most = (hidden / 8).next_multiple_of(32).min(1024);
    if rows < 2 * processors { most } else { (most / 4).max(hidden / 64).next_multiple_of(32).max(most.min(64)) }
}

/// The kernel of each formula.
pub struct Kernels {
    rms: Kernel,
    layer: Kernel,
    layer_biased: Kernel,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("norm")?;
        let kernel = |name: &str| Kernel::new(&module, &format!("{name}_{}", suffix(device.dtype)));
        Ok(Kernels {
            rms: kernel("rms_norm")?,
            layer: kernel("layer_norm")?,
            layer_biased: kernel("layer_norm_biased")?,
        })
    }

    pub fn run(&self, device: &Device, out: &mut Tensor, x: &Tensor, norm: NormWeights<Vector>) -> Result<()> {
        let params = NormParams {
            out: out.storage.overwritten(None),
            x: x.storage.address(),
            weight: norm.weight.wide.address(),
            hidden: x.cols() as i32,
            stride: x.storage.stride() as i32,
            eps: norm.eps,
        };
        let kernel = match norm.kind {
            NormKind::Rms => &self.rms,
            NormKind::Layer => &self.layer,
            NormKind::LayerBiased => &self.layer_biased,
        };
        let threads = threads(device.rows_of_geometry(x.rows()), x.cols(), device.facts().processors);
        kernel.launch(device.chaining, [x.rows(), 1, 1], threads, 0, &params)
    }
}
