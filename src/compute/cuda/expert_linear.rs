//! See `ops/expert_linear.rs` and `ops/gated_expert_linear.rs` for the contracts, `kernels/expert_linear.cu` for the work, and
//! `kernels/expert_linear_quantized.cu` for quantized weights.

use super::activate_mul::number_of;
use super::device::Device;
use super::driver::Address;
use super::experts::{Experts, Routes, TILE_ROWS, tile_rows, tiles_of};
use super::gemm::quantized::weights::{COLUMNS, Kind, QuantizedWeights};
use super::gemm::{Grid, Results};
use super::kernels::{Kernel, suffix};
use super::matrix::{Rows, Vector};
use super::params::params;
use super::storage::Tensor;
use crate::{Activation, LayerInput, Rounding, RoutesShape};
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
        activation: i32,
    }

    ExpertCodedParams in "expert_linear_quantized.cu" {
        out: Address,
        x: Address,
        bias: Address,
        experts_of: Address,
        order: Address,
        tiles: Address,
        tile_count: Address,
        weight: QuantizedWeights,
        n: i32,
        k: i32,
        out_stride: i32,
        x_stride: i32,
        slots_of_row: i32,
        activation: i32,
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
    takes_few(tokens, device.rounding)
}

fn takes_few(tokens: usize, rounding: Rounding) -> bool {
    tokens <= FEW_TOKENS && rounding != Rounding::BatchInvariant
}

/// The kernel of a product with `columns` columns of results, without the number type, and its launch, for explanations. `kind`: of codes. `None` where the
/// file has no kernel with these results for so many tokens.
pub fn describe(
    kind: Option<Kind>,
    columns: usize,
    results: Results,
    routes: RoutesShape,
    rounding: Rounding,
) -> Option<(String, Grid)> {
    let is_gated = results != Results::Sums;
    if takes_few(routes.tokens, rounding) {
        let gated = if is_gated { "gated_" } else { "" };
        let (threads, rows) = FEW;
        let outputs = if is_gated { rows / 2 } else { rows };
        let (name, columns, threads) = match kind {
            None => (format!("{gated}expert_linear_few"), columns.div_ceil(outputs), threads),
            Some(kind) => {
                let name = format!("{gated}expert_linear_quantized_{}_few", kind.name());
                (name, columns / COLUMNS, CODED_THREADS)
            }
        };
        return Some((name, Grid { blocks: [columns, routes.slots(), 1], threads, shared_bytes: 0 }));
    }
    if is_gated {
        return None;
    }
    let (rows, tiles) = (tile_rows(routes), tiles_of(routes));
    Some(match kind {
        Some(_) => {
            let [slots, of_block] = CODED_TILES[usize::from(rows > CODED_TILES[0][0])];
            let blocks = [tiles, columns.div_ceil(of_block), rows.div_ceil(slots)];
            let name = format!("expert_linear_quantized_t{slots}");
            (name, Grid { blocks, threads: CODED_THREADS, shared_bytes: 0 })
        }
        None => {
            let tiling = TILINGS.iter().find(|tiling| tiling.slots == rows)?;
            let blocks = [tiles, columns.div_ceil(tiling.columns), 1];
            let name = format!("expert_linear_t{}_c{}", tiling.slots, tiling.columns);
            (name, Grid { blocks, threads: tiling.threads, shared_bytes: tiling.shared_bytes() })
        }
    })
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

/// Slots and columns of a thread block of each of [`Kernels::coded_tiled`].
const CODED_TILES: [[usize; 2]; 2] = [[16, 32], [64, 16]];
/// Threads of a thread block that reads codes.
const CODED_THREADS: usize = 128;

/// The kernels.
pub struct Kernels {
    few: Kernel,
    gated_few: Kernel,
    /// In the order of [`TILINGS`].
    tiled: Vec<Kernel>,
    /// In the order of [`Kind::ALL`]: for sums, and for gated results.
    coded_few: Vec<[Kernel; 2]>,
    /// For tiles of 16 slots, and of more, which it computes 64 at a time.
    coded_tiled: [Kernel; 2],
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
        let of_codes = device.module("expert_linear_quantized")?;
        let coded = |name: &str| Kernel::new(&of_codes, &format!("{name}_{dtype}"));
        let coded_few = Kind::ALL.iter().map(|kind| {
            let name = format!("expert_linear_quantized_{}_few", kind.name());
            Ok([coded(&name)?, coded(&format!("gated_{name}"))?])
        });
        Ok(Kernels {
            few: kernel("expert_linear_few")?,
            gated_few: kernel("gated_expert_linear_few")?,
            tiled,
            coded_few: coded_few.collect::<Result<_>>()?,
            coded_tiled: [coded("expert_linear_quantized_t16")?, coded("expert_linear_quantized_t64")?],
        })
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
        let params = match layer.weight.weights(device.dtype) {
            Rows::Plain(weight) => ExpertLinearParams { weight, ..params },
            Rows::Coded { weights, .. } => {
                let rows = routes.tile_rows();
                let index = usize::from(rows > CODED_TILES[0][0]);
                let [slots, columns] = CODED_TILES[index];
                let blocks = [routes.tiles(), out.cols().div_ceil(columns), rows.div_ceil(slots)];
                let kernel = &self.coded_tiled[index];
                return kernel.launch(device.chaining, blocks, CODED_THREADS, 0, &of_codes(params, weights));
            }
        };
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
            activation: match results {
                Results::Gated(activation) => number_of(activation),
                Results::Sums => 0,
            },
            ..params(out, layer, slots_of_row, routes)
        };
        let params = match layer.weight.weights(device.dtype) {
            Rows::Plain(weight) => ExpertLinearParams { weight, ..params },
            Rows::Coded { form, weights, .. } => {
                let [sums, gated] = &self.coded_few[form.kind as usize];
                let kernel = if results == Results::Sums { sums } else { gated };
                let blocks = [out.cols() / COLUMNS, routes.shape().slots(), 1];
                return kernel.launch(device.chaining, blocks, CODED_THREADS, 0, &of_codes(params, weights));
            }
        };
        let blocks = [out.cols().div_ceil(outputs), routes.shape().slots(), 1];
        kernel.launch(device.chaining, blocks, threads, 0, &params)
    }
}

/// The same for quantized weights.
fn of_codes(params: ExpertLinearParams, weight: QuantizedWeights) -> ExpertCodedParams {
    let ExpertLinearParams { out, x, bias, experts_of, order, tiles, tile_count, n, k, .. } = params;
    let ExpertLinearParams { out_stride, x_stride, slots_of_row, activation, .. } = params;
    ExpertCodedParams {
        out,
        x,
        bias,
        experts_of,
        order,
        tiles,
        tile_count,
        weight,
        n,
        k,
        out_stride,
        x_stride,
        slots_of_row,
        activation,
    }
}

/// All but the weights.
fn params(
    out: &Tensor,
    layer: LayerInput<Tensor, Experts, Vector>,
    slots_of_row: usize,
    routes: &Routes,
) -> ExpertLinearParams {
    let (LayerInput { x, bias, .. }, at) = (layer, routes.addresses());
    ExpertLinearParams {
        out: out.storage.address(),
        x: x.storage.address(),
        weight: 0,
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
        activation: 0,
    }
}
