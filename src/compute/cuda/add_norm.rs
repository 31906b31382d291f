//! See `ops/add_norm.rs` for the contract, `kernels/add_norm.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::{Kernel, suffix};
use super::matrix::Vector;
use super::norm::threads;
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
    }
}

/// The norms that a kernel is compiled for, as its name spells them before and after `add`.
pub const NORMS: [(Option<NormKind>, &str, &str); 3] = [
    (None, "", ""),
    (Some(NormKind::Rms), "rms_norm_", "_rms_norm"),
    (Some(NormKind::Layer), "layer_norm_", "_layer_norm"),
];

/// The kernels.
pub struct Kernels {
    /// For each norm of what is added and each norm of the sum. `[3 * 3]`
    plain: Vec<Kernel>,
    /// For a sum that is normalized with biases, and nothing else.
    biased: Kernel,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("add_norm")?;
        let names = NORMS.iter().flat_map(|(_, post, _)| NORMS.map(|(_, _, next)| format!("{post}add{next}")));
        let kernels = names.map(|name| Kernel::new(&module, &format!("{name}_{}", suffix(device.dtype))));
        let biased = Kernel::new(&module, &format!("add_layer_norm_biased_{}", suffix(device.dtype)))?;
        Ok(Kernels { plain: kernels.collect::<Result<_>>()?, biased })
    }

    fn kernel(&self, post: Option<NormKind>, next: Option<NormKind>) -> &Kernel {
        if next == Some(NormKind::LayerBiased) {
            assert_eq!(post, None, "no model has both");
            return &self.biased;
        }
        let index = |norm| NORMS.iter().position(|(known, _, _)| *known == norm).expect("all norms are listed");
        &self.plain[NORMS.len() * index(post) + index(next)]
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
        };
        let kernel = self.kernel(add.post.map(|norm| norm.kind), next.map(|norm| norm.kind));
        let threads = threads(device.rows_of_geometry(delta.rows()), delta.cols(), device.facts().processors);
        kernel.launch(device.chaining, [delta.rows(), 1, 1], threads, 0, &params)
    }
}
