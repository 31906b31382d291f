//! The launch of `kernels/gemm_quantized.cu`: how a linear layer over quantized weights is cut on compute capability 9.0.
//!
//! Row counts form the classes of `gemm/swap_ab.rs`: up to 16, 32, 64 and 128 tokens, and 129 to 256. Within a class, a layer is cut in one way, so that
//! a row has the same bits among any number of rows of the class.

use super::QuantizedProduct;
use super::weights::{COLUMNS as OCTET, DEPTH, Form};
use crate::Activation;
use crate::cuda::device::Device;
use crate::cuda::driver::{Address, Facts};
use crate::cuda::gemm::grid::Grid;
use crate::cuda::gemm::plan::{Gemm, Quantized};
use crate::cuda::gemm::product::{LinearParams, Results};
use crate::cuda::kernels::{Kernel, suffix};
use crate::cuda::params::params;
use crate::cuda::tensor_map::{BOX_COLUMNS, BoxedBytes, BoxedMatrix, TensorMap};
use base::error::Result;

params! {
    GemmQuantizedParams in "gemm_quantized.cu" {
        codes: TensorMap,
        x: TensorMap,
        out: Address,
        bias: Address,
        m: i32,
        n: i32,
        units_of_row: i32,
        out_stride: i32,
        stages: i32,
        split: i32,
        is_gated: i32,
        is_gelu_tanh: i32,
        is_arranged: i32,
        is_bf16: i32,
    }
    ArrangeRowsParams in "gemm_quantized.cu" {
        out: Address,
        x: Address,
        m: i32,
        k: i32,
        x_stride: i32,
        is_crossed: i32,
    }
}

/// Tokens up to which weights are read in codes by each tile. More are multiplied by weights that were decoded once.
const TOKENS_MAX: usize = 1024;
/// Tokens up to which each thread block arranges the rows that it reads.
const TOKENS_FEW: usize = 256;
/// Tokens of the largest tile that takes rows as they are.
const MANY: usize = 128;
/// Columns of a warpgroup, and threads.
const WARPGROUP_COLUMNS: usize = 64;
const WARPGROUP: usize = 128;
const STAGES_MAX: usize = 16;
const SPLIT_MAX: usize = 8;
const BARRIER_BYTES: usize = 1024;
/// Of a number of x.
const BYTES: usize = 2;
/// Units of k in which k is divided.
const PART: usize = 2;
/// A kernel of the file: `VARIANTS` at its end.
struct Tile {
    tokens: usize,
    /// Columns at most.
    columns: usize,
    /// Units of a step of the ring.
    units: usize,
    /// Thread blocks of which a multiprocessor has registers.
    per_processor: usize,
}

const fn tile(tokens: usize, columns: usize, units: usize, per_processor: usize) -> Tile {
    Tile { tokens, columns, units, per_processor }
}
const TILES: [Tile; 7] = [
    tile(16, 128, 2, 2),
    tile(16, 192, 2, 1),
    tile(32, 128, 2, 2),
    tile(32, 192, 2, 1),
    tile(64, 192, 2, 1),
    tile(128, 192, 1, 1),
    tile(256, 128, 1, 1),
];

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Which of [`Form::NAMES`].
    form: usize,
    /// Which kernel of [`TILES`].
    tile: usize,
    /// Warpgroups that multiply.
    warpgroups: usize,
    /// Thread blocks that divide k.
    pub split: usize,
    /// Whether the rows of x are arranged by a launch of their own.
    pub is_arranged: bool,
    /// Tiles at once.
    places: usize,
    /// Steps of the ring.
    stages: usize,
    shared_bytes: usize,
}

/// A layer: its rows and columns, units of a row and bytes of a unit.
#[derive(Clone, Copy, Debug)]
struct Layer {
    m: usize,
    n: usize,
    units: usize,
    unit_bytes: usize,
    /// Whether rows of x are arranged by a launch of their own.
    is_arranged: bool,
}

impl Plan {
    /// `None` if no kernel fits, or dequantized weights are faster.
    pub fn new(gemm: &Gemm, quantized: Quantized, gpu: Facts) -> Option<Plan> {
        let ([m, n, k], form) = (gemm.sizes(), &quantized.form);
        let is_known = gpu.is_hopper() && form.index().is_some() && quantized.skip == 0;
        if !is_known || m > TOKENS_MAX || k == 0 || !k.is_multiple_of(DEPTH) {
            return None;
        }
        // An octet of gates lies beside that of their ups, and pairs of results are stored.
        if gemm.is_gated() && !(n.is_multiple_of(2 * OCTET) && quantized.is_aligned) {
            return None;
        }
        let is_arranged = m > TOKENS_FEW && m * k * BYTES <= quantized.scratch_bytes;
        let layer = Layer { m, n, units: k / DEPTH, unit_bytes: form.unit_bytes(), is_arranged };
        let plan = Plan::fastest(layer, gpu).filter(|plan| plan.pays(layer, gpu))?;
        Some(Plan { form: form.index()?, ..plan })
    }

    /// The name of the kernel, without the number type.
    pub fn kernel(&self) -> String {
        name(Form::NAMES[self.form], &TILES[self.tile])
    }

    /// Of the product itself.
    pub fn grid(&self) -> Grid {
        Grid::line(self.places * self.split, (self.warpgroups + 1) * WARPGROUP, self.shared_bytes)
    }

    /// The fastest of all, by what the busiest multiprocessor computes.
    ///
    /// One H200, microseconds of 4 bits / 8 bits, cut into `split` parts, by columns of a tile. 16 tokens: 6144 x 4096 with 128 columns in 4 parts
    /// 9.6 / 11.0, 192 in 2 10.5 / 12.9; 4096 x 4096 with 128 in 7 7.9 / 9.8, 192 in 4 8.2 / 10.0; 24576 x 4096 with 192 in 1 22.6 / 29.8, 128 in 1
    /// 26.3 / 31.6; 4096 x 12288 with 128 in 7 15.8 / 18.2, 192 in 5 16.8 / 19.7. 64 tokens: 6144 x 4096 with 192 in 3 14.7 / 15.6, 128 in 2
    /// 15.2 / 16.2; 4096 x 12288 with 192 in 5 22.4 / 24.2, in 4 24.8 / 26.5; 28672 x 4096 with 128 in 1 47 / 54, 192 in 1 58 / 69.
    fn fastest(layer: Layer, gpu: Facts) -> Option<Plan> {
        let m = layer.m;
        // Rows of many tokens have tiles of two sizes, if they are arranged.
        let fewest = TILES.iter().map(|tile| tile.tokens).find(|&tokens| m <= tokens).unwrap_or(MANY).min(MANY);
        let takes = |tile: &Tile| tile.tokens == fewest || layer.is_arranged && tile.tokens > MANY;
        let cuts = TILES.iter().enumerate().filter(|(_, tile)| takes(tile)).flat_map(|(index, tile)| {
            // Tiles of 64 columns read x too often; those of 192 have kernels that can also take 128.
            let fewest = if tile.per_processor == 1 && tile.tokens > 32 { 2 } else { tile.columns / WARPGROUP_COLUMNS };
            let splits = move |warpgroups| (1..=SPLIT_MAX).map(move |split| (index, warpgroups, split));
            (fewest..=tile.columns / WARPGROUP_COLUMNS).rev().flat_map(splits)
        });
        let plans = cuts.filter_map(|(tile, warpgroups, split)| Plan::of(layer, gpu, tile, warpgroups, split));
        plans.min_by_key(|(cost, _)| *cost).map(|(_, plan)| plan)
    }

    /// Whether it is faster than to multiply by dequantized weights. Each tile of tokens decodes all weights, which pays where there are enough tiles.
    ///
    /// One H200, 512 rows, microseconds by dequantized weights and by this, 8 bits: 4096 x 1024 12.3 and 16.2, 1024 x 2048 8.7 and 18.6, 6144 x 1024 16.7
    /// and 22.6. 24576 x 4096 takes 177 by this, of which the product in bf16 is 131.
    fn pays(&self, layer: Layer, gpu: Facts) -> bool {
        /// Weights.
        const LARGE: usize = 8 << 20;
        let (tokens, columns) = (TILES[self.tile].tokens, self.warpgroups * WARPGROUP_COLUMNS);
        let is_large = layer.n * layer.units * DEPTH >= LARGE;
        layer.m <= TOKENS_FEW
            || is_large && 5 * self.places * self.split >= 3 * gpu.processors
            || layer.m.div_ceil(tokens) * layer.n.div_ceil(columns) >= 2 * gpu.processors
    }

    /// A plan and what it costs, `None` where it does not fit.
    fn of(layer: Layer, gpu: Facts, index: usize, warpgroups: usize, split: usize) -> Option<(usize, Plan)> {
        /// The cost of a step of a warpgroup, and of sending sums to other thread blocks.
        const STEP: usize = 20;
        const STEP_OF_MANY: usize = 31;
        const SPLIT: usize = 40;
        let (Layer { m, n, units, unit_bytes, is_arranged }, tile) = (layer, &TILES[index]);
        let columns = warpgroups * WARPGROUP_COLUMNS;
        let tiles = m.div_ceil(tile.tokens) * n.div_ceil(columns);
        let (blocks, parts) = (tiles * split, units.div_ceil(PART));
        // Clusters leave some multiprocessors of each group of them unused: on an H200, 66 clusters of 2 find room, 30 of 4 and 22 of 5, and 62 of 4
        // where a multiprocessor has room for two thread blocks.
        let most = match (tile.per_processor, split) {
            (_, 1) => usize::MAX,
            (1, 2) => gpu.processors,
            (1, _) => gpu.processors * 5 / 6,
            (_, _) => gpu.processors * 7 / 4,
        };
        if blocks > most || split > 1 && parts < 2 * split {
            return None;
        }
        let steps = parts.div_ceil(split);
        let of_processor = match (tile.per_processor, split) {
            (1, _) | (_, 1) => blocks.div_ceil(gpu.processors) * warpgroups * 2,
            // Some multiprocessors have two thread blocks though others have none.
            (_, _) => {
                if blocks > gpu.processors {
                    4 * warpgroups
                } else {
                    3 * warpgroups
                }
            }
        };
        // Two warpgroups wait for each other more often than three or four.
        let step = match tile.tokens {
            ..=MANY if warpgroups == 2 && (tile.per_processor == 1 || split == 1) => STEP + 1,
            ..=MANY => STEP,
            _ => STEP_OF_MANY,
        };
        let cost = of_processor * steps * step + if split > 1 { SPLIT * 2 } else { 0 };

        let places = if split == 1 { tiles.min(gpu.processors * tile.per_processor) } else { tiles };
        let most = match tile.per_processor {
            1 => gpu.block_shared_bytes,
            of_two => (gpu.shared_bytes / of_two - 1024).min(gpu.block_shared_bytes),
        };
        let codes = (columns / OCTET * tile.units * unit_bytes).next_multiple_of(1024);
        let stage = codes + tile.units * tile.tokens * BOX_COLUMNS * 2;
        // The sums of a tile lie where its ring was. Units of 16 columns by 8 tokens are what is sent.
        let sums = if split > 1 { columns * tile.tokens * size_of::<f32>() } else { 0 };
        let inbox = (split - 1) * (sums / 512).div_ceil(split) * 512;
        let all_steps = tiles.div_ceil(places) * steps * (PART / tile.units);
        let fitting = most.checked_sub(BARRIER_BYTES + inbox)? / stage;
        let stages = fitting.min(all_steps).min(STAGES_MAX).max(all_steps.min(2));
        let shared_bytes = BARRIER_BYTES + (stages * stage).max(sums) + inbox;
        let plan = Plan { form: 0, tile: index, warpgroups, split, is_arranged, places, stages, shared_bytes };
        (shared_bytes <= most).then_some((cost, plan))
    }
}

fn name(form: &str, Tile { tokens, columns, .. }: &Tile) -> String {
    format!("gemm_quantized_{form}_t{tokens}_c{columns}")
}

/// The kernels, for each form and tile.
pub struct Kernels {
    kernels: Vec<Vec<Kernel>>,
    arrange: Kernel,
}

impl Kernels {
    /// Loads them, where the device has the capability that they are compiled for.
    pub fn new(device: &Device) -> Result<Option<Kernels>> {
        let facts = device.facts();
        if !facts.is_hopper() {
            return Ok(None);
        }
        let module = device.module("gemm_quantized")?;
        let mut kernels = Vec::new();
        for form in Form::NAMES {
            let load = |tile: &Tile| {
                let kernel = Kernel::new(&module, &format!("{}_{}", name(form, tile), suffix(device.dtype)))?;
                kernel.allow_shared(facts.block_shared_bytes)?;
                Ok(kernel)
            };
            kernels.push(TILES.iter().map(load).collect::<Result<_>>()?);
        }
        let arrange = Kernel::new(&module, &format!("arrange_rows_{}", suffix(device.dtype)))?;
        Ok(Some(Kernels { kernels, arrange }))
    }

    /// Launches a product of at most [`TOKENS_MAX`] tokens. Rows of many tokens are arranged at `scratch`.
    pub fn run(
        &self,
        device: &Device,
        coded: &QuantizedProduct,
        results: Results,
        scratch: Address,
        plan: &Plan,
    ) -> Result<()> {
        let (QuantizedProduct { form, weights, .. }, params) = (coded, &coded.product.params);
        let [m, n, k] = [params.m, params.n, params.k].map(|size| size as usize);
        let (is_gated, is_arranged) = (results != Results::Sums, plan.is_arranged);
        let (Tile { tokens, units, .. }, columns) = (&TILES[plan.tile], plan.warpgroups * WARPGROUP_COLUMNS);
        let codes = BoxedBytes {
            at: weights.units,
            rows: n.div_ceil(OCTET),
            row_bytes: form.octet_bytes(k),
            box_rows: if is_gated { columns / 2 } else { columns } / OCTET,
            box_bytes: units * form.unit_bytes(),
        };
        if is_arranged {
            self.arrange(device, form, params, scratch)?;
        }
        let x = BoxedMatrix {
            at: if is_arranged { scratch } else { params.x },
            rows: m,
            cols: k,
            stride: if is_arranged { k } else { params.x_stride as usize },
            box_rows: *tokens,
            box_depth: *units,
            dtype: device.dtype,
        };
        let params = GemmQuantizedParams {
            codes: TensorMap::of_bytes(&codes)?,
            x: TensorMap::new(&x)?,
            out: params.out,
            bias: params.bias,
            m: params.m,
            n: results.columns(params.n),
            units_of_row: weights.units_of_row,
            out_stride: params.out_stride,
            stages: plan.stages as i32,
            split: plan.split as i32,
            is_gated: i32::from(is_gated),
            is_gelu_tanh: i32::from(results == Results::Gated(Activation::GeluTanh)),
            is_arranged: i32::from(is_arranged),
            is_bf16: weights.is_bf16,
        };
        let Grid { blocks, threads, shared_bytes } = plan.grid();
        let kernel = &self.kernels[plan.form][plan.tile];
        kernel.launch_clusters(device.chaining, blocks, plan.split, threads, shared_bytes, &params)
    }

    /// Writes the rows of x as the product reads them. `[m, k]`
    fn arrange(&self, device: &Device, form: &Form, params: &LinearParams, out: Address) -> Result<()> {
        const THREADS: usize = 256;
        const NUMBERS: usize = 32;
        let LinearParams { x, m, k, x_stride, .. } = *params;
        let arrange = ArrangeRowsParams { out, x, m, k, x_stride, is_crossed: i32::from(form.is_crossed()) };
        let blocks = (m as usize * (k as usize / NUMBERS)).div_ceil(THREADS);
        self.arrange.launch(device.chaining, [blocks, 1, 1], THREADS, 0, &arrange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::cuda::gemm::swap_ab::tests::H200;

    fn layer(m: usize, n: usize, k: usize, unit_bytes: usize) -> Layer {
        Layer { m, n, units: k.div_ceil(DEPTH), unit_bytes, is_arranged: m > TOKENS_FEW }
    }

    #[test]
    fn layers_are_cut_as_they_were_measured_to_be_fast() {
        // Rows, columns, k; columns of a tile, thread blocks that divide k.
        let cases = [
            (16, 6144, 4096, 128, 4),
            (16, 4096, 4096, 128, 7),
            (16, 24576, 4096, 192, 1),
            (16, 4096, 12288, 128, 7),
            (16, 28672, 4096, 128, 1),
            (16, 151936, 4096, 192, 1),
            (64, 6144, 4096, 192, 3),
            (64, 4096, 4096, 192, 5),
            (64, 24576, 4096, 192, 1),
            (64, 28672, 4096, 128, 1),
            (128, 6144, 4096, 192, 3),
            (128, 4096, 12288, 192, 5),
            (256, 6144, 4096, 192, 2),
            (256, 4096, 4096, 128, 2),
            (256, 24576, 4096, 192, 1),
        ];
        for (m, n, k, columns, split) in cases {
            let plan = Plan::fastest(layer(m, n, k, 288), H200).unwrap();
            let found = (plan.warpgroups * WARPGROUP_COLUMNS, plan.split);
            assert_eq!(found, (columns, split), "{m} x {n} x {k}: {plan:?}");
        }
    }

    #[test]
    fn every_plan_fits_the_device_and_holds_its_sums() {
        for processors in [1, 114, 132] {
            let gpu = Facts { processors, ..H200 };
            for m in (1..=256).chain([257, 512, 1000, TOKENS_MAX]) {
                for (n, k) in
                    [(1, 64), (72, 64), (512, 896), (1003, 1088), (4096, 14336), (151_936, 1024), (64, 65_536)]
                {
                    for unit_bytes in [288, 448, 576] {
                        let plan = Plan::fastest(layer(m, n, k, unit_bytes), gpu).unwrap();
                        let (tile, columns) = (&TILES[plan.tile], plan.warpgroups * WARPGROUP_COLUMNS);
                        let codes = (columns / OCTET * tile.units * unit_bytes).next_multiple_of(1024);
                        let ring = plan.stages * (codes + tile.units * tile.tokens * 128);
                        let what = format!("{m} x {n} x {k}: {plan:?}");
                        let room = plan.shared_bytes - BARRIER_BYTES;
                        assert!(plan.split == 1 || room >= ring.max(columns * tile.tokens * 4), "{what}");
                        assert!(plan.shared_bytes <= gpu.block_shared_bytes, "{what}");
                        assert!(plan.stages >= 2 || k <= 128, "{what}");
                        assert!(plan.stages <= STAGES_MAX && plan.split <= SPLIT_MAX, "{what}");
                        assert!(plan.split * PART * DEPTH < k + PART * DEPTH, "a part of k is empty: {what}");
                    }
                }
            }
        }
    }

    #[test]
    fn row_counts_of_a_class_are_cut_alike() {
        let classes = [1..=16, 17..=32, 33..=64, 65..=128, 129..=256];
        for (n, k) in [(4096, 1024), (1024, 3072), (896, 4864), (6144, 4096), (4096, 14336)] {
            for class in &classes {
                let plan = |m| Plan::fastest(layer(m, n, k, 544), H200);
                assert!(class.clone().all(|m| plan(m) == plan(*class.start())), "{class:?}, {n} x {k}");
            }
        }
    }
}
