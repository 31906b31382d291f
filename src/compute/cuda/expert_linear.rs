//! See `ops/expert_linear.rs` and `ops/gated_expert_linear.rs` for the contracts, `kernels/expert_linear.cu` for the work, and
//! `kernels/expert_linear_quantized.cu` for quantized weights.

use super::activate_mul::number_of;
use super::device::Device;
use super::driver::Address;
use super::experts::{Experts, Routes, TILE_ROWS, tile_rows, tiles_of};
use super::gemm::quantized::weights::{COLUMNS, Form, Kind, QuantizedWeights};
use super::gemm::{Grid, Results};
use super::kernels::{Kernel, suffix};
use super::matrix::{Rows, Vector};
use super::params::params;
use super::storage::Tensor;
use crate::{LayerInput, Rounding, RoutesShape};
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
        first_expert: i32,
        experts: i32,
        is_chosen: i32,
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
        first_expert: i32,
        experts: i32,
    }
}

/// Tokens up to which slots need not be grouped by expert: one answer for all from 1 to 8 tokens, as for linear layers.
const FEW_TOKENS: usize = 8;
/// Rows of weights that a thread block for few tokens reads, and its warps: `FEW_ROWS` and `FEW_WARPS` in `kernels/common/expert_few.cuh`.
const FEW_ROWS: usize = 16;
const FEW_WARPS: usize = 4;
/// k of a stage of a tile.
const DEPTH: usize = 64;

/// Whether tokens are few, so that slots need not be grouped by expert.
pub fn is_few(device: &Device, tokens: usize) -> bool {
    takes_few(tokens, device.rounding)
}

fn takes_few(tokens: usize, rounding: Rounding) -> bool {
    tokens <= FEW_TOKENS && rounding != Rounding::BatchInvariant
}

/// The kernel of a product with `columns` columns of results, without the number type, and its launch, for explanations. `form`: of codes.
pub fn describe(
    form: Option<Form>,
    columns: usize,
    results: Results,
    routes: RoutesShape,
    rounding: Rounding,
) -> (String, Grid) {
    let (is_few, rows) = (takes_few(routes.tokens, rounding), tile_rows(routes));
    let name = match form.map(|form| form.kind) {
        None if is_few => "expert_linear_few".to_owned(),
        None => format!("expert_linear_t{rows}_c{}", TILINGS[index_of(rows)].columns),
        Some(kind) if is_few => format!("expert_linear_quantized_{}_few", kind.name()),
        Some(kind) => format!("expert_linear_quantized_{}_t{rows}", kind.name()),
    };
    (name, grid(form, columns, results, routes, is_few))
}

fn grid(form: Option<Form>, columns: usize, results: Results, routes: RoutesShape, is_few: bool) -> Grid {
    // A gate and its up are one column of results.
    let rows = if results == Results::Sums { columns } else { 2 * columns };
    let (tiles, index) = (tiles_of(routes), index_of(tile_rows(routes)));
    match form {
        _ if is_few => {
            let blocks = [rows.div_ceil(FEW_ROWS), routes.slots(), 1];
            Grid { blocks, threads: THREADS, shared_bytes: form.map_or(FEW_SHARED_BYTES, |_| 0) }
        }
        None => {
            let tiling = &TILINGS[index];
            let blocks = [tiles, rows.div_ceil(tiling.columns), 1];
            Grid { blocks, threads: tiling.threads, shared_bytes: tiling.shared_bytes() }
        }
        Some(form) => {
            let blocks = [rows.div_ceil(QUANTIZED_ROWS), tiles, 1];
            Grid { blocks, threads: THREADS, shared_bytes: quantized_shared_bytes(index, form.kind) }
        }
    }
}

/// Shared memory of a thread block for few tokens over plain weights: a ring of `STAGES` pieces for each warp. Quantized weights stay in registers.
const FEW_SHARED_BYTES: usize = FEW_WARPS * 4 * FEW_ROWS * DEPTH * 2;

/// The index of the kernel for tiles of `rows` slots.
fn index_of(rows: usize) -> usize {
    TILE_ROWS.iter().position(|&of| of == rows).expect("one of them")
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

/// Threads of a thread block for few tokens, and of one for quantized weights.
const THREADS: usize = 128;
/// Rows of weights of a thread block for tiles over quantized weights, in units of eight.
const QUANTIZED_ROWS: usize = 128;
/// Stages of its ring, for each of [`TILE_ROWS`].
const QUANTIZED_STAGES: [usize; TILE_ROWS.len()] = [5, 4, 3];

/// Room for the longest headers of a unit.
fn quantized_shared_bytes(index: usize, kind: Kind) -> usize {
    let unit_max = kind.code_bytes() + 8 * COLUMNS;
    QUANTIZED_STAGES[index] * (TILE_ROWS[index] * DEPTH * 2 + QUANTIZED_ROWS / COLUMNS * unit_max)
}

/// Kernels for codes of one kind.
struct QuantizedKernels {
    few: Kernel,
    /// One for each of [`TILE_ROWS`].
    tiled: Vec<Kernel>,
}

/// The kernels.
pub struct Kernels {
    few: Kernel,
    /// In the order of [`TILINGS`].
    tiled: Vec<Kernel>,
    /// In the order of [`Kind::ALL`].
    quantized: Vec<QuantizedKernels>,
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
        let few = kernel("expert_linear_few")?;
        few.allow_shared(FEW_SHARED_BYTES)?;
        let module = device.module("expert_linear_quantized")?;
        let quantized = Kind::ALL.iter().map(|&kind| {
            let kernel = |variant: &str| {
                Kernel::new(&module, &format!("expert_linear_quantized_{}_{variant}_{dtype}", kind.name()))
            };
            let tiled = TILE_ROWS.iter().enumerate().map(|(index, rows)| {
                let kernel = kernel(&format!("t{rows}"))?;
                kernel.allow_shared(quantized_shared_bytes(index, kind))?;
                Ok(kernel)
            });
            Ok(QuantizedKernels { few: kernel("few")?, tiled: tiled.collect::<Result<_>>()? })
        });
        let quantized = quantized.collect::<Result<_>>()?;
        Ok(Kernels { few, tiled, quantized })
    }

    /// Launches the layer. `slots_of_row`: that read one row of its input.
    pub fn run(
        &self,
        device: &Device,
        out: &mut Tensor,
        layer: LayerInput<Tensor, Experts, Vector>,
        slots_of_row: usize,
        results: Results,
        routes: &Routes,
    ) -> Result<()> {
        let columns = out.cols();
        let (shape, is_few, index) =
            (routes.shape(), is_few(device, routes.shape().tokens), index_of(routes.tile_rows()));
        let activation = match results {
            Results::Gated(activation) => number_of(activation),
            Results::Sums => -1,
        };
        let params = ExpertLinearParams { activation, ..params(out, layer, slots_of_row, routes) };
        let launch = |form| grid(form, columns, results, shape, is_few);
        match layer.weight.weights(device.dtype) {
            Rows::Plain(weight) => {
                let kernel = if is_few { &self.few } else { &self.tiled[index] };
                let Grid { blocks, threads, shared_bytes } = launch(None);
                let is_chosen = i32::from(is_few && routes.note_product());
                let params = ExpertLinearParams { weight, is_chosen, ..params };
                kernel.launch(device.chaining, blocks, threads, shared_bytes, &params)
            }
            Rows::Coded { form, weights, .. } => {
                let kernels = &self.quantized[form.kind as usize];
                let kernel = if is_few { &kernels.few } else { &kernels.tiled[index] };
                let Grid { blocks, threads, shared_bytes } = launch(Some(form));
                kernel.launch(device.chaining, blocks, threads, shared_bytes, &of_codes(params, weights))
            }
        }
    }
}

/// The same for quantized weights.
fn of_codes(params: ExpertLinearParams, weight: QuantizedWeights) -> ExpertCodedParams {
    let ExpertLinearParams { out, x, bias, experts_of, order, tiles, tile_count, n, k, .. } = params;
    let ExpertLinearParams { out_stride, x_stride, slots_of_row, activation, first_expert, experts, .. } = params;
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
        first_expert,
        experts,
    }
}

/// All but the weights.
fn params(
    out: &Tensor,
    layer: LayerInput<Tensor, Experts, Vector>,
    slots_of_row: usize,
    routes: &Routes,
) -> ExpertLinearParams {
    let (LayerInput { x, weight, bias, .. }, at) = (layer, routes.addresses());
    let held = weight.shape();
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
        activation: -1,
        first_expert: held.first as i32,
        experts: held.experts as i32,
        is_chosen: 0,
    }
}
