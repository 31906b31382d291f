//! See `ops/gated_linear.rs` for the contract, `kernels/linear_hopper.cu` for the work: layers of plain weights that it computes by default.

use super::device::Device;
use super::linear;
use super::matrix::{Matrix, Rows, Vector};
use super::product::LinearParams;
use super::storage::Tensor;
use crate::backend::Activation;
use crate::error::Result;

/// Gates that lie side by side in a tile.
const EIGHT: usize = 8;

/// Launches the layer, if there is one kernel for it. `false`: nothing was launched.
pub fn run(
    device: &Device,
    kernels: &linear::Kernels,
    out: &mut Tensor,
    x: &Tensor,
    weight: &Matrix,
    bias: Option<&Vector>,
    activation: Activation,
) -> Result<bool> {
    let mut runs = weight.runs(0..weight.rows(), device.dtype);
    let (Some((_, Rows::Plain(at))), None) = (runs.next(), runs.next()) else { return Ok(false) };
    let params = LinearParams {
        weight: at,
        bias: bias.map_or(0, |bias| bias.wide.address()),
        n: weight.rows() as i32,
        ..LinearParams::of(out, x)
    };
    match kernels.hopper(device, &params) {
        Some(hopper) if out.cols().is_multiple_of(EIGHT) => {
            hopper.run_gated(device, &params, activation).map(|()| true)
        }
        _ => Ok(false),
    }
}
