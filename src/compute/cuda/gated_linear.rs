//! See `ops/gated_linear.rs` for the contract, `kernels/linear_hopper.cu`, `kernels/gated_linear_hopper.cu`, `kernels/linear_few.cu` and
//! `kernels/linear_stream.cu` for the work on plain weights, `linear_few_quantized.cu`, `linear_scaled.cu` and `linear_coded_hopper.cu` for
//! that on weights in codes.

use super::device::Device;
use super::linear;
use super::matrix::{Matrix, Vector};
use super::product::{LinearParams, Results};
use super::storage::Tensor;
use crate::{Activation, LayerInput, Rounding};
use base::error::Result;

/// Gates that lie side by side in a tile.
const EIGHT: usize = 8;

/// Tokens from which on `linear_hopper.cu` activates gates. One H200, decode step of the 0.6B shape in a graph over 555 tokens, in two launches and in
/// one: 16 rows 998 and 1,013 us, 32 rows 1,276 and 1,273.
const HOPPER_TOKENS_MIN: usize = 17;

/// Launches the layer, if there is one kernel for it. `false`: nothing was launched.
pub fn run(
    device: &Device,
    kernels: &linear::Kernels,
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
    let Some(at) = weight.plain() else {
        return kernels.coded_gated(device, &params, weight, activation);
    };
    let params = LinearParams { weight: at, ..params };
    if device.rounding == Rounding::BatchInvariant {
        assert!(x.storage.undivided().1.is_none(), "batch-invariant rows are divided");
        return kernels.invariant_gated(device, &params, activation);
    }
    if let Some(hopper) = kernels.hopper(device, &params)
        && x.rows() >= HOPPER_TOKENS_MIN
        && out.cols().is_multiple_of(EIGHT)
    {
        let (_, factors) = x.storage.undivided();
        return hopper.run_gated(device, &params, activation, factors).map(|()| true);
    }
    if let Some(many) = kernels.gated_hopper(device, &params) {
        assert!(x.storage.undivided().1.is_none(), "rows are left undivided for `linear_hopper.cu` alone");
        return many.run(device, &params, activation).map(|()| true);
    }
    let results = Results::Gated(activation);
    let is_divided = x.storage.undivided().1.is_none();
    if let Some((few, plan)) = kernels.few(device, &params, results) {
        assert!(is_divided, "rows are left undivided for `linear_hopper.cu` alone");
        return few.run(device, &params, results, plan).map(|()| true);
    }
    match kernels.streamed(device, &params) {
        // Rows for `linear_hopper.cu` in two launches.
        Some(stream) if is_divided => stream.run(device, &params, results),
        _ => Ok(false),
    }
}
