//! See `ops/add_norm.rs` for the contract, `kernels/add_norm.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::Kernel;
use super::matrix::Vector;
use super::norm::{code, threads};
use super::params::params;
use super::storage::Tensor;
use crate::{AddNorm, NextNorm, NormKind, NormWeights};
use base::error::Result;

params! {
    AddNormParams in "add_norm.cu" {
        out: Address,
        residual: Address,
        delta: Address,
        weight: Address,
        post_weight: Address,
        hidden: i32,
        stride: i32,
        eps: f32,
        post_eps: f32,
        scale: f32,
        stream_scale: f32,
        post: i32,
        next: i32,
    }
}

/// The kernel of all norms.
pub struct Kernels {
    kernel: Kernel,
}

/// The codes of the norms of what is added and of the sum.
pub fn norms(post: Option<NormWeights<Vector>>, next: Option<NormWeights<Vector>>) -> (i32, i32) {
    let kind = |norm: Option<NormWeights<Vector>>| norm.map(|norm| norm.kind);
    assert_ne!(kind(post), Some(NormKind::LayerBiased), "no model has one");
    (code(kind(post)), code(kind(next)))
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels { kernel: device.kernel("add_norm", "add_norm")? })
    }

    pub fn run(
        &self,
        device: &Device,
        residual: &mut Tensor,
        delta: &Tensor,
        add: AddNorm<Vector>,
        next: Option<NextNorm<Tensor, Vector>>,
    ) -> Result<()> {
        let (out, next) = next.map(|next| (next.out, next.norm)).unzip();
        let address = |norm: Option<NormWeights<Vector>>| norm.map_or(0, |norm| norm.weight.wide.address());
        let eps = |norm: Option<NormWeights<Vector>>| norm.map_or(0.0, |norm| norm.eps);
        let (post_kind, next_kind) = norms(add.post, next);
        let params = AddNormParams {
            out: out.map_or(0, |out| out.storage.overwritten(None)),
            residual: residual.storage.address(),
            delta: delta.storage.address(),
            weight: address(next),
            post_weight: address(add.post),
            hidden: delta.cols() as i32,
            stride: delta.storage.stride() as i32,
            eps: eps(next),
            post_eps: eps(add.post),
            scale: add.scale,
            stream_scale: add.stream_scale,
            post: post_kind,
            next: next_kind,
        };
        let threads = threads(device.rows_of_geometry(delta.rows()), delta.cols(), device.facts().processors);
        self.kernel.launch(device.chaining, [delta.rows(), 1, 1], threads, 0, &params)
    }
}
