//! See `ops/linear_add_norm.rs` for the contract. `gemm/plan.rs` knows where a kernel adds the sums of a layer to the stream, and where the products that
//! read the norm apply its scale.

use super::device::Device;
use super::gemm::{self, Added, LinearParams};
use super::matrix::{Matrix, Vector};
use super::storage::Tensor;
use crate::{AddNorm, LayerInput, NextNorm, NormKind};
use base::error::Result;

/// Launches the layer, if there is one kernel for it. `false`: nothing was launched.
pub fn run(
    device: &Device,
    kernels: &mut gemm::Kernels,
    residual: &mut Tensor,
    layer: LayerInput<Tensor, Matrix, Vector>,
    add: AddNorm<Vector>,
    next: &mut NextNorm<Tensor, Vector>,
) -> Result<bool> {
    let LayerInput { x, weight, bias, adapter } = layer;
    if adapter.is_some() || add.post.is_some() || add.stream_scale != 1.0 || next.norm.kind != NormKind::Rms {
        return Ok(false);
    }
    // The kernel does not divide rows of x.
    let (Some(readers), (_, None)) = (&next.norm.weight.product, x.storage.undivided()) else { return Ok(false) };
    let params = LinearParams {
        out: next.out.storage.overwritten(None),
        bias: bias.map_or(0, |bias| bias.wide.address()),
        n: weight.rows() as i32,
        ..LinearParams::of(residual, x)
    };
    let added = Added {
        residual: residual.storage.address(),
        norm: next.norm.weight.wide.address(),
        scale: add.scale,
        eps: next.norm.eps,
    };
    let factors = kernels.run_added(device, params, weight, readers, added)?;
    next.out.storage.overwritten(factors);
    Ok(factors.is_some())
}
