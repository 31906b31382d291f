//! See `ops/linear_add_norm.rs` for the contract, `kernels/linear_hopper.cu` for the work: where that file computes the layer and the one that
//! the norm is bound to.

use super::device::Device;
use super::hopper::Added;
use super::linear;
use super::matrix::{Matrix, Vector};
use super::product::LinearParams;
use super::storage::Tensor;
use crate::{AddNorm, LayerInput, NextNorm, NormKind};
use base::error::Result;
use formats::DType;

/// Launches the layer, if there is one kernel for it. `false`: nothing was launched.
pub fn run(
    device: &Device,
    kernels: &linear::Kernels,
    residual: &mut Tensor,
    layer: LayerInput<Tensor, Matrix, Vector>,
    add: AddNorm<Vector>,
    next: &mut NextNorm<Tensor, Vector>,
) -> Result<bool> {
    let LayerInput { x, weight, bias } = layer;
    // In f16, a row that is not divided could be out of range.
    if add.post.is_some() || add.stream_scale != 1.0 || next.norm.kind != NormKind::Rms || device.dtype != DType::Bf16 {
        return Ok(false);
    }
    // The kernel does not divide rows of x.
    let (Some(at), Some([n, k]), (_, None)) = (weight.plain(), next.norm.weight.product, x.storage.undivided()) else {
        return Ok(false);
    };
    let params = LinearParams {
        out: next.out.storage.overwritten(None),
        weight: at,
        bias: bias.map_or(0, |bias| bias.wide.address()),
        n: weight.rows() as i32,
        ..LinearParams::of(residual, x)
    };
    let of_next = LinearParams { n: n as i32, k: k as i32, ..params };
    let (Some(hopper), Some(_)) = (kernels.hopper(device, &params), kernels.hopper(device, &of_next)) else {
        return Ok(false);
    };
    let added = Added {
        residual: residual.storage.address(),
        norm: next.norm.weight.wide.address(),
        scale: add.scale,
        eps: next.norm.eps,
    };
    let factors = hopper.run_added(device, &params, added)?;
    next.out.storage.overwritten(factors);
    Ok(factors.is_some())
}
