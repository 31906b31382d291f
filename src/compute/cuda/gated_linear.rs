//! See `ops/gated_linear.rs` for the contract, `gemm/plan.rs` for the kernels that compute it in one launch.

use super::device::Device;
use super::gemm::{self, LinearParams, Results};
use super::matrix::{Matrix, Vector};
use super::storage::Tensor;
use crate::{Activation, LayerInput};
use base::error::Result;

/// Launches the layer, if there is one kernel for it. `false`: nothing was launched.
pub fn run(
    device: &Device,
    kernels: &mut gemm::Kernels,
    out: &mut Tensor,
    layer: LayerInput<Tensor, Matrix, Vector>,
    activation: Activation,
) -> Result<bool> {
    let LayerInput { x, weight, bias, adapter } = layer;
    // Kernels that activate what they compute know no other activation, and no adapters.
    if adapter.is_some() || activation == Activation::ClampedSwiglu {
        return Ok(false);
    }
    let params = LinearParams {
        bias: bias.map_or(0, |bias| bias.wide.address()),
        n: weight.rows() as i32,
        ..LinearParams::of(out, x)
    };
    let (_, factors) = x.storage.undivided();
    kernels.run_gated(device, params, weight, Results::Gated(activation), factors)
}
