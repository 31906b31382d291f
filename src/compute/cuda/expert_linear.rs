//! See `ops/expert_linear.rs` and `ops/gated_expert_linear.rs` for the contracts, `kernels/expert_linear.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::experts::{Experts, Routes, TILE_ROWS};
use super::kernels::{Kernel, suffix};
use super::matrix::Vector;
use super::params::params;
use super::product::Results;
use super::storage::Tensor;
use crate::{Activation, LayerInput, Rounding};
use base::error::Result;

params! {
    ExpertLinearParams in "expert_linear.cu" {
        out: Address,
        x: Address,
        weight: Address,
        bias: Address,
        experts_of: Address,
        order: Address,
        tiles: Address,
        tile_count: Address,
        n: i32,
        k: i32,
        out_stride: i32,
        x_stride: i32,
        slots_of_row: i32,
        is_gelu_tanh: i32,
    }
}

/// Tokens up to which each slot reads the weights of its expert by itself: one answer for all from 1 to 8 tokens, as for linear layers.
const FEW_TOKENS: usize = 8;
/// Of a thread block for few tokens: its threads, and the rows of weights that it reads.
const FEW: (usize, usize) = (128, 16);
/// k of a stage of a tile.
const DEPTH: usize = 64;

/// Whether tokens are few, so that slots need not be grouped by expert.
pub fn is_few(device: &Device, tokens: usize) -> bool {
    tokens <= FEW_TOKENS && device.rounding != Rounding::BatchInvariant
}

/// A kernel for tiles: `KERNELS` at the end of the file.
struct Tiling {
    slots: usize,
    columns: usize,
    threads: usize,
    stages: usize,
}

/// One for each of [`TILE_ROWS`].
const TILINGS: [Tiling; TILE_ROWS.len()] = [
    Tiling { slots: 16, columns: 64, threads: 128, stages: 5 },
    Tiling { slots: 64, columns: 64, threads: 256, stages: 4 },
    Tiling { slots: 128, columns: 128, threads: 256, stages: 3 },
];

impl Tiling {
    fn shared_bytes(&self) -> usize {
        self.stages * (self.slots + self.columns) * DEPTH * 2
    }
}

/// The kernels.
pub struct Kernels {
    few: Kernel,
    gated_few: Kernel,
    /// In the order of [`TILINGS`].
    tiled: Vec<Kernel>,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let (module, dtype) = (device.module("expert_linear")?, suffix(device.dtype));
        let kernel = |name: &str| Kernel::new(&module, &format!("{name}_{dtype}"));
        let tiled = TILINGS.iter().map(|tiling| {
            let kernel = kernel(&format!("expert_linear_t{}_c{}", tiling.slots, tiling.columns))?;
            kernel.allow_shared(tiling.shared_bytes())?;
            Ok(kernel)
        });
        let tiled = tiled.collect::<Result<_>>()?;
        Ok(Kernels { few: kernel("expert_linear_few")?, gated_few: kernel("gated_expert_linear_few")?, tiled })
    }

    /// Launches the layer. `slots_of_row`: that read one row of its input.
    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        layer: LayerInput<Tensor, Experts, Vector>,
        slots_of_row: usize,
        routes: &Routes,
    ) -> Result<()> {
        if is_few(device, routes.shape().tokens) {
            return self.launch_few(device, out, layer, slots_of_row, Results::Sums, routes);
        }
        let params = params(out, layer, slots_of_row, routes);
        let index = TILE_ROWS.iter().position(|&rows| rows == routes.tile_rows()).expect("one of them");
        let (tiling, kernel) = (&TILINGS[index], &self.tiled[index]);
        let blocks = [routes.tiles(), out.cols().div_ceil(tiling.columns), 1];
        kernel.launch(device.chaining, blocks, tiling.threads, tiling.shared_bytes(), &params)
    }

    /// Launches a layer of gates and up for few tokens. `false`: nothing was launched, because there are many.
    pub fn run_gated(
        &self,
        device: &Device,
        out: &mut Tensor,
        layer: LayerInput<Tensor, Experts, Vector>,
        activation: Activation,
        routes: &Routes,
    ) -> Result<bool> {
        let is_few = is_few(device, routes.shape().tokens);
        if is_few {
            self.launch_few(device, out, layer, routes.shape().chosen, Results::Gated(activation), routes)?;
        }
        Ok(is_few)
    }

    fn launch_few(
        &self,
        device: &Device,
        out: &mut Tensor,
        layer: LayerInput<Tensor, Experts, Vector>,
        slots_of_row: usize,
        results: Results,
        routes: &Routes,
    ) -> Result<()> {
        let (threads, rows) = FEW;
        let (kernel, outputs) = match results {
            Results::Sums => (&self.few, rows),
            Results::Gated(_) => (&self.gated_few, rows / 2),
        };
        let params = ExpertLinearParams {
            is_gelu_tanh: i32::from(results == Results::Gated(Activation::GeluTanh)),
            ..params(out, layer, slots_of_row, routes)
        };
        let blocks = [out.cols().div_ceil(outputs), routes.shape().slots(), 1];
        kernel.launch(device.chaining, blocks, threads, 0, &params)
    }
}

fn params(
    out: &Tensor,
    layer: LayerInput<Tensor, Experts, Vector>,
    slots_of_row: usize,
    routes: &Routes,
) -> ExpertLinearParams {
    let (LayerInput { x, weight, bias }, at) = (layer, routes.addresses());
    ExpertLinearParams {
        out: out.storage.address(),
        x: x.storage.address(),
        weight: weight.address(),
        bias: bias.map_or(0, |bias| bias.wide.address()),
        experts_of: at.experts,
        order: at.order,
        tiles: at.tiles,
        tile_count: at.tile_count,
        n: out.cols() as i32,
        k: x.cols() as i32,
        out_stride: out.storage.stride() as i32,
        x_stride: x.storage.stride() as i32,
        slots_of_row: slots_of_row as i32,
        is_gelu_tanh: 0,
    }
}
