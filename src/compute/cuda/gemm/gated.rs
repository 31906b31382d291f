//! The launch of `kernels/gemm_gated.cu`: gates and up of many tokens on compute capability 9.0, which rows of weights share a tile, and
//! which layers are left to a product and the activation after it.

use super::grid::Grid;
use super::plan::Gemm;
use super::product::LinearParams;
use crate::Activation;
use crate::cuda::device::Device;
use crate::cuda::driver::{Address, Facts};
use crate::cuda::kernels::{Kernel, suffix};
use crate::cuda::params::params;
use crate::cuda::tensor_map::{BOX_COLUMNS, BoxedMatrix, BoxedResults, TensorMap};
use base::error::Result;

params! {
    GemmGatedParams in "gemm_gated.cu" {
        weight: TensorMap,
        x: TensorMap,
        out: TensorMap,
        bias: Address,
        m: i32,
        n: i32,
        k: i32,
    }
}

/// Rows above which it computes a layer.
pub const TOKENS_ABOVE: usize = 256;
/// Tokens of a tile, and of a copy of results: `TOKENS` and `GROUP_TOKENS`.
const TOKENS: usize = 128;
const GROUP_TOKENS: usize = 64;
const THREADS: usize = 384;
const BARRIER_BYTES: usize = 1024;
/// Rows of weights that lie side by side in a tile, of gate and of up.
const EIGHT: usize = 8;
/// Numbers of k during whose products a tile's results are computed, at least.
const K_MIN: usize = 512;

/// Numbers of k up to which it may be faster than cuBLASLt. One H200, interleaved under load, cuBLASLt and `activate_mul.cu` / this: 7168 x 8192 with
/// 8,192 tokens 2,755 and 2,874 / 2,747 and 2,907 us.
const K_PREFERRED_MAX: usize = 4096;

/// A kernel of the file: `Shape`.
struct Tile {
    /// Of weights.
    rows: usize,
    stages: usize,
    /// Columns of a copy of results.
    box_columns: usize,
}

const TILES: [Tile; 2] =
    [Tile { rows: 256, stages: 4, box_columns: 64 }, Tile { rows: 192, stages: 5, box_columns: 32 }];
const ACTIVATIONS: [(Activation, &str); 2] = [(Activation::Silu, "silu"), (Activation::GeluTanh, "gelu_tanh")];

impl Tile {
    /// Columns of the results.
    const fn columns(&self) -> usize {
        self.rows / 2
    }

    const fn shared_bytes(&self) -> usize {
        let stage = (TOKENS + self.rows) * BOX_COLUMNS * 2;
        BARRIER_BYTES + self.stages * stage + TOKENS * self.columns() * 2
    }
}

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which of [`TILES`].
    tile: usize,
    tiles: usize,
    /// Thread blocks.
    pub blocks: usize,
    /// Results for which the multiprocessors have time while the busiest one computes its tiles.
    room: usize,
}

impl Plan {
    /// With the tiles that take the least time.
    pub fn new(gemm: &Gemm, gpu: Facts) -> Plan {
        let [m, n, _] = sizes(gemm);
        let plan = |(tile, &Tile { rows, .. }): (usize, &Tile)| {
            let columns = rows / 2;
            let tiles = m.div_ceil(TOKENS) * n.div_ceil(columns);
            let room = tiles.div_ceil(gpu.processors) * gpu.processors * TOKENS * columns;
            Plan { tile, tiles, blocks: tiles.min(gpu.processors), room }
        };
        TILES.iter().enumerate().map(plan).min_by_key(|plan| plan.room).expect("there are tiles")
    }

    /// The name of the kernel, without the activation and the number type.
    pub fn kernel(&self) -> String {
        format!("gemm_gated_r{}", TILES[self.tile].rows)
    }

    pub fn grid(&self) -> Grid {
        Grid::line(self.blocks, THREADS, TILES[self.tile].shared_bytes())
    }
}

/// Whether it computes such a layer at all.
pub fn serves(gemm: &Gemm, gpu: Facts) -> bool {
    let [m, n, k] = sizes(gemm);
    let is_whole = n.is_multiple_of(EIGHT) && k >= K_MIN && k.is_multiple_of(BOX_COLUMNS);
    has_kernels(gpu) && m > TOKENS_ABOVE && is_whole
}

/// Whether it is faster than cuBLASLt and `activate_mul.cu`, which take about `1 + 256 / k` of the time of the products: activation is bound
/// by memory.
///
/// One H200, microseconds of both / this. 3072 x 1024 with 512 tokens 14.0 / 12.0, with 768 tokens 18.3 / 18.2 (not chosen), with 1,024 tokens
/// 24.7 / 19.6, with 8,192 tokens 185 / 155; 6144 x 2048 with 384 tokens 31.2 / 33.9 (not chosen), with 1,536 tokens 130 / 117; 12288 x 4096 with
/// 384 tokens 125 / 117, with 8,192 tokens 2,490 / 2,394; 14336 x 4096 with 512 tokens 192 / 198 (not chosen), with 640 tokens 238 / 230.
pub fn is_preferred(gemm: &Gemm, gpu: Facts) -> bool {
    let [m, n, k] = sizes(gemm);
    k <= K_PREFERRED_MAX && m * n * (k + 256) >= Plan::new(gemm, gpu).room * k
}

/// Whether `gpu` has the capability that they are compiled for, and room for them.
fn has_kernels(gpu: Facts) -> bool {
    gpu.is_hopper() && TILES.iter().all(|tile| tile.shared_bytes() <= gpu.block_shared_bytes)
}

/// The kernels: for each of [`TILES`], for each of [`ACTIVATIONS`].
pub struct Kernels(Vec<[Kernel; 2]>);

impl Kernels {
    /// Loads them, where the device has the capability that they are compiled for, and room for them.
    pub fn new(device: &Device) -> Result<Option<Kernels>> {
        if !has_kernels(device.facts()) {
            return Ok(None);
        }
        let module = device.module("gemm_gated")?;
        let load = |tile: &Tile, activation: &str| {
            let name = format!("gemm_gated_{activation}_r{}_{}", tile.rows, suffix(device.dtype));
            let kernel = Kernel::new(&module, &name)?;
            kernel.allow_shared(tile.shared_bytes())?;
            Ok(kernel)
        };
        let [(_, silu), (_, gelu_tanh)] = ACTIVATIONS;
        let kernels = TILES.iter().map(|tile| Ok([load(tile, silu)?, load(tile, gelu_tanh)?]));
        Ok(Some(Kernels(kernels.collect::<Result<_>>()?)))
    }

    /// Launches the layer that `params` describes, which they [serve](serves).
    pub fn run(&self, device: &Device, params: &LinearParams, activation: Activation, plan: &Plan) -> Result<()> {
        let [m, n, k] = [params.m, params.n / 2, params.k].map(|size| size as usize);
        let tile = &TILES[plan.tile];
        let matrix = |at, rows, stride, box_rows| {
            let dtype = device.dtype;
            BoxedMatrix { at, rows, cols: k, stride, box_rows, box_depth: 1, dtype }
        };
        let results = BoxedResults {
            at: params.out,
            rows: m,
            cols: n,
            stride: params.out_stride as usize,
            box_rows: GROUP_TOKENS,
            box_cols: tile.box_columns,
            dtype: device.dtype,
        };
        let params = GemmGatedParams {
            weight: TensorMap::of_halves(&matrix(params.weight, 2 * n, k, tile.rows))?,
            x: TensorMap::new(&matrix(params.x, m, params.x_stride as usize, TOKENS))?,
            out: TensorMap::of_results(&results)?,
            bias: params.bias,
            m: params.m,
            n: n as i32,
            k: params.k,
        };
        let index = ACTIVATIONS.iter().position(|(a, _)| *a == activation).expect("all are there");
        let kernel = &self.0[plan.tile][index];
        let Grid { blocks, threads, shared_bytes } = plan.grid();
        kernel.launch(device.chaining, blocks, threads, shared_bytes, &params)
    }
}

/// The tokens, the columns of the results and the k of a layer.
fn sizes(gemm: &Gemm) -> [usize; 3] {
    [gemm.m, gemm.n / 2, gemm.k]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::gemm::plan::Epilogue;
    use crate::cuda::gemm::swap_ab::tests::{H200, gemm};

    fn layer(m: usize, n: usize, k: usize) -> Gemm {
        gemm([m, 2 * n, k], Epilogue::Gated)
    }

    #[test]
    fn the_tiles_that_take_the_least_time_are_chosen() {
        // Rows, columns of results; rows of weights of a tile, tiles.
        let cases = [
            (384, 3072, 192, 96),
            (640, 3072, 256, 120),
            (1024, 3072, 192, 256),
            (1280, 3072, 256, 240),
            (8192, 3072, 256, 1536),
            (512, 6144, 192, 256),
            (640, 14336, 192, 750),
            (1024, 14336, 256, 896),
        ];
        for (m, n, rows, tiles) in cases {
            let plan = Plan::new(&layer(m, n, 1024), H200);
            assert_eq!((TILES[plan.tile].rows, plan.tiles), (rows, tiles), "{m} x {n}");
        }
    }

    #[test]
    fn layers_are_gated_in_the_product_where_it_was_measured_to_be_faster() {
        // Rows, columns of results, k.
        let cases = [
            (264, 3072, 1024, false),
            (512, 3072, 1024, true),
            (1024, 3072, 1024, true),
            (8192, 3072, 1024, true),
            (384, 6144, 2048, false),
            (512, 6144, 2048, true),
            (512, 9728, 2560, false),
            (640, 9728, 2560, true),
            (264, 12288, 4096, false),
            (384, 12288, 4096, true),
            (8192, 12288, 4096, true),
            (512, 14336, 4096, false),
            (640, 14336, 4096, true),
            (8192, 7168, 8192, false),
        ];
        for (m, n, k, is_preferred) in cases {
            assert_eq!(super::is_preferred(&layer(m, n, k), H200), is_preferred, "{m} x {n} x {k}");
        }
    }

    #[test]
    fn tiles_fit_a_thread_block_and_their_copies_fit_them() {
        for tile in &TILES {
            assert!(tile.shared_bytes() <= 232_448, "{} rows", tile.rows);
            assert!(tile.columns().is_multiple_of(tile.box_columns), "{} rows", tile.rows);
            assert!(K_MIN / BOX_COLUMNS >= tile.stages && K_MIN / BOX_COLUMNS >= tile.columns() / 16);
        }
    }
}
