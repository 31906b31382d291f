//! The launch of `kernels/linear_hopper_quantized.cu`: layers of quantized weights for 9 to 128 tokens that the shared memory of all multiprocessors
//! holds as plain numbers.

use super::{Added, Boxes, HopperParams, SWIZZLE_ROWS, THREADS, Tile, hopper_params};
use super::{
    BOX_COLUMNS, COLUMNS, Hopper, PART, Plan, Room, SPLIT_MAX, Side, TILES, TOKENS_MIN, TOKENS_OF_TILE, sizes,
};
use crate::cuda::coded::{COLUMNS as OCTET, CodedWeights};
use crate::cuda::coded_linear::CodedProduct;
use crate::cuda::device::Device;
use crate::cuda::kernels::{Kernel, suffix};
use crate::cuda::params::params;
use crate::cuda::product::Results;
use crate::cuda::storage::RowFactors;
use base::error::Result;
use formats::DType;

params! {
    HopperQuantizedParams in "linear_hopper_quantized.cu" { layer: HopperParams, units: CodedWeights, form: i32 }
}

/// The kernels, for all tiles.
pub struct Kernels {
    sums: Vec<Kernel>,
    gated: Vec<Kernel>,
    /// None in f16.
    added: Vec<Kernel>,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("linear_hopper_quantized")?;
        let load = |name: &str| {
            let load = |tile: &Tile| {
                let name = format!("linear_hopper_quantized_{name}t{}_{}", tile.tokens, suffix(device.dtype));
                let kernel = Kernel::new(&module, &name)?;
                kernel.allow_shared(device.facts().block_shared_bytes)?;
                Ok(kernel)
            };
            TILES.iter().map(load).collect::<Result<Vec<_>>>()
        };
        let added = if device.dtype == DType::Bf16 { load("added_")? } else { Vec::new() };
        Ok(Kernels { sums: load("")?, gated: load("gated_")?, added })
    }
}

impl Plan {
    /// How a layer is cut whose weights are all in the ring at once. Each thread block dequantizes what it multiplies: k is divided as far as multiprocessors are
    /// there for it.
    fn held([m, n, k]: [usize; 3], room: Room) -> Option<Plan> {
        let (_, grid) = Plan::tiles(m, n, TOKENS_OF_TILE);
        let tiles = grid[0] * grid[1];
        let mut split = 1;
        while 2 * split <= SPLIT_MAX.min(k.div_ceil(PART)) && 2 * split * tiles <= room.processors {
            split *= 2;
        }
        // One answer for all row counts: the largest tile needs the most.
        let largest = Plan::divided([TOKENS_OF_TILE, n, k], [split, 1], TOKENS_OF_TILE, room);
        let holds =
            |plan: &Plan| plan.stages * TILES[plan.tile].depth * BOX_COLUMNS >= k.div_ceil(PART).div_ceil(split) * PART;
        let plan = Plan::divided([m, n, k], [split, 1], TOKENS_OF_TILE, room);
        (tiles * split <= room.processors && holds(&largest) && holds(&plan)).then_some(plan)
    }
}

impl Hopper {
    /// How it computes a layer of `n` columns of quantized weights in one form, if it does.
    fn held(&self, sizes @ [m, _, k]: [usize; 3]) -> Option<Plan> {
        let is_served = (TOKENS_MIN..=TOKENS_OF_TILE).contains(&m) && k > 0 && k.is_multiple_of(BOX_COLUMNS);
        is_served.then(|| Plan::held(sizes, self.room)).flatten()
    }

    /// Whether [`run_quantized`](Hopper::run_quantized) computes a layer of that many rows, columns and k.
    pub fn holds(&self, sizes: [usize; 3]) -> bool {
        self.held(sizes).is_some()
    }

    /// Launches a layer of quantized weights. `factors`: of the rows of x. `false`: nothing was launched.
    pub fn run_quantized(
        &self,
        device: &Device,
        coded: &CodedProduct,
        results: Results,
        factors: Option<RowFactors>,
    ) -> Result<bool> {
        self.launch_quantized(device, coded, results, factors.map_or(Side::None, Side::Factors))
    }

    /// As [`run_added`](Hopper::run_added).
    pub fn run_quantized_added(
        &self,
        device: &Device,
        coded: &CodedProduct,
        added: Added,
    ) -> Result<Option<RowFactors>> {
        let sizes @ [_, n, _] = sizes(&coded.product.params);
        let parts = self.held(sizes).and_then(|plan| plan.square_parts());
        let Some(parts) = parts.filter(|_| n.is_multiple_of(BOX_COLUMNS) && !self.quantized.added.is_empty()) else {
            return Ok(None);
        };
        let factors = RowFactors { squares: self.squares.address(), parts, eps: added.eps };
        let is_launched = self.launch_quantized(device, coded, Results::Sums, Side::Added(added, factors))?;
        Ok(is_launched.then_some(factors))
    }

    fn launch_quantized(&self, device: &Device, coded: &CodedProduct, results: Results, side: Side) -> Result<bool> {
        let CodedProduct { product, form, weights, skip } = coded;
        let params = &product.params;
        let is_gated = results != Results::Sums;
        if *skip != 0 || is_gated && !(params.n as usize).is_multiple_of(2 * OCTET) {
            return Ok(false);
        }
        let (Some(plan), Some(form)) = (self.held(sizes(params)), form.index()) else {
            return Ok(false);
        };
        let kernels = match (results, side) {
            (_, Side::Added(..)) => &self.quantized.added,
            (Results::Gated(_), _) => &self.quantized.gated,
            (Results::Sums, _) => &self.quantized.sums,
        };
        let Tile { tokens, depth } = TILES[plan.tile];
        let tokens = if depth == 1 { (params.m as usize).next_multiple_of(SWIZZLE_ROWS) } else { tokens };
        let boxes = Boxes { columns: COLUMNS, tokens, depth };
        let layer = hopper_params(device, params, boxes, [plan.stages, plan.split, plan.split], (results, side))?;
        let quantized = HopperQuantizedParams { layer, units: *weights, form: form as i32 };
        let blocks = [plan.grid[0] * plan.split, plan.grid[1], 1];
        kernels[plan.tile].launch_clusters(
            device.chaining,
            blocks,
            plan.split,
            THREADS,
            plan.shared_bytes,
            &quantized,
        )?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::H200;
    use super::*;

    fn split(m: usize, n: usize, k: usize) -> Option<usize> {
        Plan::held([m, n, k], H200).map(|plan| plan.split)
    }

    #[test]
    fn the_layers_of_a_small_model_are_held() {
        for m in [9, 16, 17, 32, 64, 65, 96, 128] {
            let splits = [(4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072)].map(|(n, k)| split(m, n, k));
            assert_eq!(splits, [Some(2), Some(8), Some(1), Some(8)], "{m} rows");
        }
    }

    #[test]
    fn large_layers_are_not() {
        for (n, k) in [(4096, 4096), (6144, 4096), (24_576, 4096), (151_936, 1024)] {
            assert_eq!(split(16, n, k), None, "{n} x {k}");
        }
    }

    #[test]
    fn every_plan_holds_all_of_its_weights() {
        for (n, k) in [(64, 64), (1003, 1088), (4096, 1024), (2048, 2048), (5000, 704), (8448, 512), (1024, 8192)] {
            for m in TOKENS_MIN..=TOKENS_OF_TILE {
                let Some(plan) = Plan::held([m, n, k], H200) else { continue };
                let pairs = k.div_ceil(PART);
                let most =
                    (0..plan.split).map(|part| pairs * (part + 1) / plan.split - pairs * part / plan.split).max();
                let depth = TILES[plan.tile].depth * BOX_COLUMNS;
                assert!(plan.stages * depth >= most.unwrap() * PART, "{m} x {n} x {k}: {plan:?}");
                assert_eq!(Plan::held([9, n, k], H200).map(|plan| plan.split), Some(plan.split), "{m} x {n} x {k}");
            }
        }
    }
}
