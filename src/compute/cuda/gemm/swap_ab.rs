//! The launch of `kernels/gemm_swap_ab.cu`: how a linear layer is cut on compute capability 9.0.
//!
//! By default it computes 9 to 256 tokens, of which `swap_ab/m128.rs` takes some with the same bits, and `swap_ab/full_n.rs` layers with many weights.
//! Row counts form classes, those that a kernel's tile of tokens holds and 129 to 256. Within a class, k is divided in one way, so that a row has the
//! same bits among any number of rows of the class. How it is divided depends on the layer and on whether the tokens fill one tile of 128 or two:
//! the classes up to 128 share their bits.
//!
//! Batch-invariant layers have any number of tokens: `swap_ab/invariant.rs`.

mod full_n;
mod invariant;
mod m128;

use super::grid::Grid;
use super::plan::{Epilogue, Gemm};
use super::product::{LinearParams, Norms, Product, Results, RowNorms};
use crate::Activation;
use crate::cuda::device::Device;
use crate::cuda::driver::{Address, Facts, Memory};
use crate::cuda::kernels::{Chaining, Kernel, suffix};
use crate::cuda::params::params;
use crate::cuda::storage::RowFactors;
use crate::cuda::tensor_map::{BOX_COLUMNS, BoxedMatrix, TensorMap};
use base::error::Result;
use formats::DType;

params! {
    GemmSwapAbParams in "common/gemm_swap_ab.cuh" {
        weight: TensorMap,
        x: TensorMap,
        out: Address,
        bias: Address,
        m: i32,
        n: i32,
        k: i32,
        out_stride: i32,
        stages: i32,
        split: i32,
        parts: i32,
        is_gelu_tanh: i32,
        norms: RowNorms,
    }
}

/// Token counts that it computes.
const TOKENS_MIN: usize = 9;
const TOKENS_MAX: usize = 256;
/// Columns of a tile: `ROWS` of the kernel, since weights are its rows.
const COLUMNS: usize = 64;
const STAGES_MAX: usize = 16;
const SPLIT_MAX: usize = 8;
const BARRIER_BYTES: usize = 1024;
const THREADS: usize = 192;
/// Numbers of k in which k is divided.
const PART: usize = 128;

/// A kernel of the file: `KERNELS` at its end.
struct Tile {
    tokens: usize,
    /// [`BOX_COLUMNS`] of k in a step of the ring.
    depth: usize,
}

const TILES: [Tile; 5] = [
    Tile { tokens: 16, depth: 2 },
    Tile { tokens: 32, depth: 2 },
    Tile { tokens: 64, depth: 2 },
    Tile { tokens: 96, depth: 1 },
    Tile { tokens: 128, depth: 1 },
];

/// Tokens of the largest tile.
const TOKENS_OF_TILE: usize = 128;
/// Rows from which on a layer has tiles of half of that if all its thread blocks run at once. One H200, microseconds of the four products of a layer in a
/// graph, before and with it: 144 rows 27.5 and 27.8, 160 rows 27.9 and 27.4, 192 rows 28.5 and 27.0, 208 rows 32.3 and 31.7, 256 rows 33.3 and 31.1.
const HALVED_FROM: usize = 145;

/// Units of a tile, of 16 columns by 8 tokens, that lie side by side: `CONSUMERS`.
const UNITS: usize = 4;
const UNIT_TOKENS: usize = 8;
/// Tokens from which on `gemm_full_n.cu` computes layers with many weights: where a class of row counts begins. Decode steps of the 8B shape with 64 rows over
/// 555 tokens in a graph, by the kernels above and with it: one H200 5,604 and 5,288 us, one H100 7,362 and 7,264. Fewer rows were not compared on one device.
const FULL_N_TOKENS_MIN: usize = 33;
/// Parts at most in which the squares of the rows of a tile are added up, by one warp. One H200, decode step of the 8B shape, whose rows have 64 parts, with
/// norms apart and in the products: 32 rows 4,775 and 4,736 us, 64 rows 5,690 and 5,738.
const TILE_PARTS_MAX: usize = 2048;

/// Parts of squares of all rows of a product, of as many tiles as there may be: in each row, parts are rounded up to four.
pub const SQUARES_MAX: usize = TOKENS_MAX.div_ceil(TOKENS_OF_TILE) * 4 * TILE_PARTS_MAX;
/// Rows after which the swizzle of shared memory repeats: `tokens_of_tile`.
const SWIZZLE_ROWS: usize = 8;

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which kernel of [`TILES`].
    tile: usize,
    /// Tiles of tokens and of columns.
    grid: [usize; 2],
    /// Thread blocks that divide k.
    split: usize,
    /// Chains in which each of them adds up its share of k.
    chains: usize,
    /// Steps of the ring.
    stages: usize,
    shared_bytes: usize,
}

/// Shared memory that each of two thread blocks of a multiprocessor may take.
fn shared_of_two(gpu: Facts) -> usize {
    gpu.shared_bytes / 2 - 1024
}

impl Plan {
    /// The tiles of a layer, of at most `most` tokens, and how many they are.
    fn tiles(m: usize, n: usize, most: usize) -> (usize, [usize; 2]) {
        let tiles = m.div_ceil(most);
        let tile = TILES.iter().position(|tile| m <= tiles * tile.tokens).expect("the last tile holds them");
        (tile, [tiles, n.div_ceil(COLUMNS)])
    }

    fn new(m: usize, n: usize, k: usize, gpu: Facts) -> Plan {
        let (_, grid) = Plan::tiles(m, n, TOKENS_OF_TILE);
        let tiles = grid[0] * grid[1];
        // Half of the multiprocessors are enough for short sums: to add up more parts takes longer than to read more weights.
        let mut split = 1;
        while 2 * split <= SPLIT_MAX.min(k.div_ceil(PART)) {
            let blocks = 2 * split * tiles;
            if 2 * blocks > gpu.processors && (blocks > gpu.processors || k / (2 * split) < 2048) {
                break;
            }
            split *= 2;
        }
        let plan = Plan::divided([m, n, k], [split, 1], TOKENS_OF_TILE, gpu);
        let halved = Plan::divided([m, n, k], [split, 1], TOKENS_OF_TILE / 2, gpu);
        // The bits of a row do not depend on its tile, if squares are added up alike.
        let fits = halved.grid[0] * halved.grid[1] * split <= gpu.processors;
        if m >= HALVED_FROM && fits && halved.square_parts() == plan.square_parts() { halved } else { plan }
    }

    /// With k divided among `split` thread blocks in as many `chains` each, in tiles of at most `most` tokens.
    fn divided([m, n, k]: [usize; 3], [split, chains]: [usize; 2], most: usize, gpu: Facts) -> Plan {
        let (tile, grid) = Plan::tiles(m, n, most);
        let Tile { tokens, depth } = TILES[tile];
        let tiles = grid[0] * grid[1];
        // Where not all thread blocks run at once, two share a multiprocessor: while one begins or ends, the other reads.
        let is_one_wave = tiles * split <= gpu.processors;
        let of_block = if is_one_wave { usize::MAX } else { shared_of_two(gpu) };
        let sums = COLUMNS * tokens * 4;
        let inbox = sums - sums / split;
        let stage = depth * (COLUMNS + tokens) * BOX_COLUMNS * 2;
        let steps = k.div_ceil(PART).div_ceil(split) * (PART / BOX_COLUMNS / depth);
        let most = (of_block.min(gpu.block_shared_bytes) - BARRIER_BYTES - inbox) / stage;
        // The ring is where the sums lie in the end.
        let stages = steps.max(sums.div_ceil(stage)).min(most).min(STAGES_MAX);
        Plan { tile, grid, split, chains, stages, shared_bytes: BARRIER_BYTES + stages * stage + inbox }
    }

    fn grid(&self) -> Grid {
        let blocks = [self.grid[0] * self.split, self.grid[1], 1];
        Grid { blocks, threads: THREADS, shared_bytes: self.shared_bytes }
    }

    /// What stands before the tokens of a tile in the name of its kernel.
    fn prefix(&self, epilogue: Epilogue) -> &'static str {
        match epilogue {
            Epilogue::AddNorm => "added_",
            Epilogue::Gated => "gated_",
            Epilogue::Store if self.chains > 1 => "in_turn_",
            Epilogue::Store => "",
        }
    }

    /// Parts in which the squares of a row are added up: of the columns that a thread block stores of a token. `None` where it does not store the same columns
    /// of all its tokens, and where a tile has more parts than pay. One answer for each class of row counts.
    fn square_parts(&self) -> Option<usize> {
        let Tile { tokens, depth } = TILES[self.tile];
        let units = |tile: &Tile| tile.tokens / UNIT_TOKENS * UNITS / self.split;
        // Tiles of depth 1 share a class.
        let mut alike = TILES.iter().filter(|tile| tile.tokens == tokens || (tile.depth, depth) == (1, 1));
        let is_even = alike.all(|tile| units(tile).is_multiple_of(UNITS) || UNITS.is_multiple_of(units(tile)));
        let parts = self.grid[1] * (UNITS / units(&TILES[self.tile]).min(UNITS));
        let largest = if depth == 1 { TILES[TILES.len() - 1].tokens } else { tokens };
        (is_even && parts * largest <= TILE_PARTS_MAX).then_some(parts)
    }
}

/// The kernel of a layer, and its cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    /// `gemm_swap_ab.cu`.
    Tile(Plan),
    /// `gemm_swap_ab.cu`, for many tokens.
    Large(invariant::LargePlan),
    /// `gemm_m128.cu`.
    M128(m128::Plan),
    /// `gemm_full_n.cu`.
    FullN(full_n::Plan),
}

/// How a layer that they [serve](SwapAb::serves) is computed by default.
pub fn plan(gemm: &Gemm, gpu: Facts) -> Launch {
    let [m, n, k] = gemm.sizes();
    if let Some(plan) = full_n([m, n, k], gpu) {
        return Launch::FullN(plan);
    }
    let plan = Plan::new(m, n, k, gpu);
    if plan.split == 1
        && !matches!(gemm.epilogue, Epilogue::AddNorm)
        && let Some(plan) = m128::Plan::new(gemm, gpu)
    {
        return Launch::M128(plan);
    }
    Launch::Tile(plan)
}

/// How a layer whose k they [serve](SwapAb::serves_invariant) is computed such that a result depends on its row and column alone. Gated layers are those whose
/// sums are [one chain](SwapAb::is_one_chain).
pub fn plan_invariant(gemm: &Gemm, gpu: Facts) -> Launch {
    invariant::plan(gemm, gpu)
}

/// How `gemm_full_n.cu` computes such a layer, if it does by default.
fn full_n(sizes @ [m, ..]: [usize; 3], gpu: Facts) -> Option<full_n::Plan> {
    full_n::Plan::new(sizes, gpu).filter(|_| m >= FULL_N_TOKENS_MIN)
}

/// Whether it is faster than cuBLASLt, or as fast: its neighbours overlap with it. One answer for each class of row counts.
///
/// One H200, microseconds of `gemm_swap_ab` / cuBLASLt with weights that come from memory. 4096 x 1024 with 16 tokens 3.1 / 5.3, with 64
/// tokens 4.1 / 5.2, with 128 tokens 4.8 / 5.3, with 256 tokens 5.9 / 6.2; 1024 x 3072 with 64 tokens 3.9 / 7.1, with 256 tokens 7.3 / 7.2;
/// 6144 x 1024 with 256 tokens 8.0 / 7.6; 4096 x 4096 with 64 tokens 10.6 / 12.1; 6144 x 4096 with 64 tokens 14.8 / 15.9, with 256 tokens
/// 26.7 / 21.6; 4096 x 14336 with 64 tokens 30.3 / 34.3; 28672 x 4096 with 64 tokens 61.5 / 60.0, with 128 tokens 67.4 / 64.2; 151936 x 1024
/// with 32 tokens 76.5 / 80.9, with 128 tokens 102 / 88.
///
/// Whole decode steps, whose layers have 4 to 12 MB of weights, over 555 tokens: with 144 rows 3.30 / 3.53 ms, with 192 rows 4.08 / 4.29 ms,
/// with 256 rows 5.21 / 5.31 ms. The same of the 8B shape, for which `gemm_full_n.cu` stands: with 96 rows 6.22 / 6.90 ms, with 128 rows 6.92 / 7.50 ms, with
/// 144 rows 7.78 / 8.08 ms, with 192 rows 8.86 / 9.59 ms, with 256 rows 11.22 / 11.30 ms.
pub fn is_preferred(gemm: &Gemm, gpu: Facts) -> bool {
    let [m, n, k] = gemm.sizes();
    let most = match m {
        0..=32 => 400 << 20,
        33..=64 => 256 << 20,
        65..=128 => 16 << 20,
        _ => 12 << 20,
    };
    2 * n * k <= most || full_n([m, n, k], gpu).is_some()
}

impl Launch {
    /// Partial sums of the squares of a row, where the epilogue [adds](Epilogue::AddNorm) to the residual stream. `None`: no kernel does.
    pub fn squares(&self, gemm: &Gemm, dtype: DType) -> Option<usize> {
        let squares = match self {
            Launch::Tile(plan) => plan.square_parts(),
            Launch::FullN(plan) => plan.square_parts(),
            Launch::Large(_) | Launch::M128(_) => None,
        };
        // Every part of squares is stored where whole boxes of columns are. In f16, a row that is not divided could be out of range.
        squares.filter(|_| gemm.n.is_multiple_of(BOX_COLUMNS) && dtype == DType::Bf16)
    }

    /// The name of the kernel, without the number type.
    pub fn kernel(&self, epilogue: Epilogue) -> String {
        match self {
            Launch::Tile(plan) => tile_name(plan.prefix(epilogue), TILES[plan.tile].tokens),
            Launch::Large(plan) => tile_name(plan.prefix(), plan.tokens),
            Launch::M128(plan) => m128::name(plan.columns, epilogue),
            Launch::FullN(plan) => full_n::name(plan.groups, plan.tokens, epilogue),
        }
    }

    /// Thread blocks that divide k.
    pub fn split(&self) -> usize {
        match self {
            Launch::Tile(plan) => plan.split,
            Launch::FullN(plan) => plan.split,
            Launch::Large(_) | Launch::M128(_) => 1,
        }
    }

    pub fn grid(&self, gpu: Facts) -> Grid {
        match self {
            Launch::Tile(plan) => plan.grid(),
            Launch::Large(plan) => plan.grid(gpu),
            Launch::M128(plan) => plan.grid(),
            Launch::FullN(plan) => plan.grid(),
        }
    }
}

/// The name of a kernel of `gemm_swap_ab.cu` whose tiles hold `tokens`.
fn tile_name(prefix: &str, tokens: usize) -> String {
    format!("gemm_swap_ab_{prefix}t{tokens}")
}

/// The kernels, for all tiles.
pub struct SwapAb {
    kernels: Vec<Kernel>,
    /// Those for [`Results::Gated`].
    gated: Vec<Kernel>,
    /// Those for [`Added`]; none in f16.
    added: Vec<Kernel>,
    /// Of rows of the stream, for as many tiles as there may be. `[TOKENS_MAX / 128, TILE_PARTS_MAX]`, or `[TOKENS_MAX, full_n::PARTS_MAX]`
    squares: Memory,
    invariant: invariant::Kernels,
    m128: m128::Kernels,
    full_n: full_n::Kernels,
}

impl SwapAb {
    /// Loads them, where the device has the capability that they are compiled for.
    pub fn new(device: &Device) -> Result<Option<SwapAb>> {
        let facts = device.facts();
        if !facts.is_hopper() {
            return Ok(None);
        }
        let module = device.module("gemm_swap_ab")?;
        let load = |prefix: &str, tokens: usize| {
            let kernel = Kernel::new(&module, &format!("{}_{}", tile_name(prefix, tokens), suffix(device.dtype)))?;
            kernel.allow_shared(facts.block_shared_bytes)?;
            Ok(kernel)
        };
        let all = |prefix: &str| TILES.iter().map(|tile| load(prefix, tile.tokens)).collect::<Result<Vec<_>>>();
        let added = if device.dtype == DType::Bf16 { all("added_")? } else { Vec::new() };
        let square_bytes = SQUARES_MAX.max(TOKENS_MAX * full_n::PARTS_MAX) * size_of::<f32>();
        Ok(Some(SwapAb {
            kernels: all("")?,
            gated: all("gated_")?,
            added,
            squares: Memory::new(&device.context, square_bytes, "sums of squares", "memory_utilization")?,
            invariant: invariant::Kernels::new(load)?,
            m128: m128::Kernels::new(device)?,
            full_n: full_n::Kernels::new(device)?,
        }))
    }

    /// Whether it computes such a layer by default at all.
    pub fn serves(gemm: &Gemm) -> bool {
        (TOKENS_MIN..=TOKENS_MAX).contains(&gemm.m) && gemm.k > 0 && gemm.k.is_multiple_of(BOX_COLUMNS)
    }

    /// Launches a layer. [`Results::Gated`]: `out` gets `activation(gate) * up` of weights that are gate over up, a multiple of 8 rows each.
    /// [`Norms::Added`], in bf16: it gets the rows of the stream times the weights of the norm, which are still to be multiplied by factors.
    pub fn run(
        &self,
        device: &Device,
        chaining: Chaining,
        product: &Product,
        launch: &Launch,
        results: Results,
    ) -> Result<()> {
        self.launch(device, chaining, &product.params, launch, (results, product.norms))
    }

    /// Where the squares of added results go, in `parts` [parts](Launch::squares) of each row.
    pub fn factors(&self, parts: usize, eps: f32) -> RowFactors {
        RowFactors { squares: self.squares.address(), parts, eps }
    }

    fn launch(
        &self,
        device: &Device,
        chaining: Chaining,
        params: &LinearParams,
        launch: &Launch,
        results: (Results, Norms),
    ) -> Result<()> {
        match launch {
            Launch::Tile(plan) => self.launch_tile(device, chaining, params, plan, results),
            Launch::Large(plan) => self.launch_large(device, chaining, params, plan),
            Launch::M128(plan) => self.launch_m128(device, chaining, params, plan, results),
            Launch::FullN(plan) => self.launch_full_n(device, chaining, params, plan, results),
        }
    }

    /// By a kernel of `gemm_full_n.cu`.
    fn launch_full_n(
        &self,
        device: &Device,
        chaining: Chaining,
        params: &LinearParams,
        plan: &full_n::Plan,
        results: (Results, Norms),
    ) -> Result<()> {
        let boxes = plan.boxes((params.m as usize).next_multiple_of(SWIZZLE_ROWS));
        let params = swap_ab_params(device, params, boxes, [plan.stages, plan.split, plan.split], results)?;
        let (kernel, Grid { blocks, threads, shared_bytes }) = (self.full_n.kernel(plan, results), plan.grid());
        kernel.launch_clusters(chaining, blocks, plan.split, threads, shared_bytes, &params)
    }

    /// By a kernel of `gemm_m128.cu`.
    fn launch_m128(
        &self,
        device: &Device,
        chaining: Chaining,
        params: &LinearParams,
        plan: &m128::Plan,
        results: (Results, Norms),
    ) -> Result<()> {
        let params = swap_ab_params(device, params, plan.boxes(), [plan.stages, 1, 1], results)?;
        let (kernel, Grid { blocks, threads, shared_bytes }) = (self.m128.kernel(plan, results.0), plan.grid());
        kernel.launch(chaining, blocks, threads, shared_bytes, &params)
    }

    fn launch_tile(
        &self,
        device: &Device,
        chaining: Chaining,
        params: &LinearParams,
        plan: &Plan,
        results: (Results, Norms),
    ) -> Result<()> {
        let Tile { tokens, depth } = TILES[plan.tile];
        let kernel = match results {
            (_, Norms::Added(..)) => &self.added[plan.tile],
            (Results::Gated(_), _) => &self.gated[plan.tile],
            (Results::Sums, _) if plan.chains > 1 => &self.invariant.in_turn[plan.tile],
            (Results::Sums, _) => &self.kernels[plan.tile],
        };
        let tokens = if depth == 1 || plan.split == 1 && plan.chains > 1 {
            (params.m as usize).div_ceil(plan.grid[0]).next_multiple_of(SWIZZLE_ROWS)
        } else {
            tokens
        };
        let boxes = Boxes { columns: COLUMNS, tokens, depth };
        let params =
            swap_ab_params(device, params, boxes, [plan.stages, plan.split, plan.split * plan.chains], results)?;
        let Grid { blocks, threads, shared_bytes } = plan.grid();
        kernel.launch_clusters(chaining, blocks, plan.split, threads, shared_bytes, &params)
    }
}

/// The rows, columns and k of a layer.
fn sizes(params: &LinearParams) -> [usize; 3] {
    [params.m, params.n, params.k].map(|size| size as usize)
}

/// What is copied at once: rows of weights and of x, and [`BOX_COLUMNS`] of k.
struct Boxes {
    columns: usize,
    tokens: usize,
    depth: usize,
}

/// What the kernels take, with `[stages, split, parts]`.
fn swap_ab_params(
    device: &Device,
    params: &LinearParams,
    boxes: Boxes,
    [stages, split, parts]: [usize; 3],
    (results, norms): (Results, Norms),
) -> Result<GemmSwapAbParams> {
    let [m, n, k] = sizes(params);
    let matrix = |at, rows, stride, box_rows| {
        let box_depth = boxes.depth;
        BoxedMatrix { at, rows, cols: k, stride, box_rows, box_depth, dtype: device.dtype }
    };
    let weight = matrix(params.weight, n, k, boxes.columns);
    let (weight, n, is_gelu_tanh) = match results {
        Results::Sums => (TensorMap::new(&weight)?, n, false),
        Results::Gated(activation) => (TensorMap::of_halves(&weight)?, n / 2, activation == Activation::GeluTanh),
    };
    Ok(GemmSwapAbParams {
        weight,
        x: TensorMap::new(&matrix(params.x, m, params.x_stride as usize, boxes.tokens))?,
        out: params.out,
        bias: params.bias,
        m: params.m,
        n: n as i32,
        k: params.k,
        out_stride: params.out_stride,
        stages: stages as i32,
        split: split as i32,
        parts: parts as i32,
        is_gelu_tanh: is_gelu_tanh.into(),
        norms: norms.params(),
    })
}

#[cfg(test)]
pub mod tests {
    use super::super::plan::Weights;
    use super::*;
    pub(in crate::cuda) use crate::cuda::gpus::H100 as H200;

    /// A layer of plain weights.
    pub fn gemm([m, n, k]: [usize; 3], epilogue: Epilogue) -> Gemm {
        Gemm { m, n, k, weights: Weights::Plain, epilogue }
    }

    #[test]
    fn layers_are_cut_as_they_were_measured_to_be_fast() {
        // Rows, columns, k; thread blocks that divide k, steps of the ring.
        let cases = [
            (16, 4096, 1024, 1, 8),
            (64, 4096, 1024, 1, 7),
            (256, 4096, 1024, 1, 9),
            (32, 1024, 2048, 4, 4),
            (144, 1024, 2048, 2, 10),
            (256, 1024, 2048, 2, 6),
            (64, 1024, 3072, 4, 6),
            (128, 6144, 1024, 1, 9),
            (256, 6144, 1024, 1, 4),
            (64, 4096, 4096, 2, 6),
            (64, 3072, 4096, 2, 6),
            (64, 4096, 2048, 1, 7),
            (128, 4096, 14336, 2, 8),
            (64, 28672, 4096, 1, 3),
        ];
        for (m, n, k, split, stages) in cases {
            let plan = Plan::new(m, n, k, H200);
            assert_eq!((plan.split, plan.stages), (split, stages), "{m} x {n} x {k}: {plan:?}");
        }
    }

    #[test]
    fn every_plan_fits_the_device_and_holds_its_sums() {
        for processors in [1, 114, 132] {
            let gpu = Facts { processors, ..H200 };
            for m in TOKENS_MIN..=TOKENS_MAX {
                for (n, k) in
                    [(1, 64), (72, 64), (512, 896), (1003, 1088), (4096, 14336), (151_936, 1024), (64, 65_536)]
                {
                    let plan = Plan::new(m, n, k, gpu);
                    let Tile { tokens, depth } = TILES[plan.tile];
                    let ring = plan.stages * depth * (COLUMNS + tokens) * BOX_COLUMNS * 2;
                    assert!(ring >= COLUMNS * tokens * 4, "{m} x {n} x {k}: {plan:?}");
                    assert!(plan.shared_bytes <= gpu.block_shared_bytes, "{m} x {n} x {k}: {plan:?}");
                    assert!((1..=STAGES_MAX).contains(&plan.stages), "{m} x {n} x {k}: {plan:?}");
                    assert!(plan.split.is_power_of_two() && plan.split <= SPLIT_MAX, "{m} x {n} x {k}: {plan:?}");
                    assert!(plan.split * PART < k + PART, "a part of k is empty: {m} x {n} x {k}: {plan:?}");
                    assert!(plan.grid[0] * tokens >= m && plan.grid[1] * COLUMNS >= n, "{m} x {n} x {k}: {plan:?}");
                }
            }
        }
    }

    #[test]
    fn the_squares_of_a_class_of_rows_are_added_up_alike_and_fit() {
        let largest = TILES.map(|tile| tile.tokens);
        for (n, k) in [(64, 2048), (200, 576), (512, 64), (896, 4864), (1024, 3072), (2560, 9728), (4096, 4096)] {
            for class in [9..=16, 17..=32, 33..=64, 65..=128, 129..=256] {
                let parts = class.clone().map(|m| Plan::new(m, n, k, H200).square_parts()).collect::<Vec<_>>();
                assert!(parts.iter().all(|p| *p == parts[0]), "{n} x {k}, {class:?}: {parts:?}");
                let tokens = largest.iter().find(|&&tokens| *class.end() <= tokens).unwrap_or(&largest[4]);
                for parts in parts.into_iter().flatten() {
                    assert!(parts >= n.div_ceil(COLUMNS) && parts * tokens <= TILE_PARTS_MAX, "{n} x {k}, {class:?}");
                }
            }
        }
        assert_eq!([16, 32, 128].map(|m| Plan::new(m, 1024, 2048, H200).square_parts()), [32, 16, 16].map(Some));
        assert_eq!([32, 64].map(|m| Plan::new(m, 4096, 4096, H200).square_parts()), [Some(64), None]);
        assert_eq!(
            Plan::new(100, 64, 2048, H200).square_parts(),
            None,
            "eight thread blocks share twelve units of 16 columns"
        );
    }

    #[test]
    fn row_counts_up_to_128_divide_k_in_the_same_way() {
        for (n, k) in [(4096, 1024), (1024, 3072), (896, 4864), (3072, 4096), (4096, 14336)] {
            let split = Plan::new(TOKENS_MIN, n, k, H200).split;
            assert!((TOKENS_MIN..=128).all(|m| Plan::new(m, n, k, H200).split == split), "{n} x {k}");
        }
    }
}
