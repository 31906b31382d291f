//! See `ops/linear_add_norm.rs` for the contract, `kernels/gemm_swap_ab.cu` for the work: where that file computes the layer and the one that
//! the norm is bound to, which `gemm/plan.rs` knows.

use super::device::Device;
use super::gemm::{self, Added, LinearParams};
use super::matrix::{Matrix, Vector};
use super::storage::Tensor;
use crate::{AddNorm, LayerInput, NextNorm, NormKind};
use base::error::Result;

/// Launches the layer, if there is one kernel for it. `false`: nothing was launched.
pub fn run(
    device: &Device,
    kernels: &gemm::Kernels,
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
    let (Some(at), Some(of_next), (_, None)) = (weight.plain(), next.norm.weight.product, x.storage.undivided()) else {
        return Ok(false);
    };
    let params = LinearParams {
        out: next.out.storage.overwritten(None),
        weight: at,
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
    let factors = kernels.run_added(device, &params, of_next, added)?;
    next.out.storage.overwritten(factors);
    Ok(factors.is_some())
}
