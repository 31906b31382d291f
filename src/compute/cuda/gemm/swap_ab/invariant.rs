//! Batch-invariant layers: how many parts of k are added up, and which kernels compute them.
//!
//! Layers have any number of tokens. Invariant: how many parts of k are added up depends on k alone, so that neither the rows of a batch nor the
//! columns that a rank or a slice of weights has change the bits of a result. Which thread blocks add them up is free: a part is one chain of
//! tensor-core products, which has the same bits in all kernels.

use super::{
    BARRIER_BYTES, BOX_COLUMNS, Boxes, Chaining, Device, Epilogue, Facts, Gemm, Grid, Kernel, Launch, LinearParams,
    Norms, Plan, Results, STAGES_MAX, SWIZZLE_ROWS, SwapAb, TILES, TOKENS_MAX, TOKENS_OF_TILE, m128, shared_of_two,
    sizes, swap_ab_params,
};
use base::error::Result;
use std::ops::RangeInclusive;

/// Columns of a tile of the kernels for many tokens, and their thread blocks: `LARGE_COLUMNS`, `LARGE_GROUPS` and `LARGE_PIECE`.
const LARGE_COLUMNS: usize = 128;
const LARGE_THREADS: usize = 384;
const LARGE_PIECE_BYTES: usize = 2 * 64 * 128;
/// Tokens of their tiles where k is one part, and where it is several, whose sums take as many registers again.
const LARGE_TOKENS: [usize; 2] = [256, 192];
/// Rows above which a layer may take them; up to [`TOKENS_MAX`], if one of their tiles holds the rows. One H200, microseconds by two tiles of `gemm_swap_ab` and
/// by one of these, with weights that come from memory: 151936 x 1024 with 129 tokens 145 / 106, with 192 tokens 148 / 113, with 256 tokens 173 / 123;
/// 16384 x 1024 with 129 tokens 16.3 / 14.2, with 256 tokens 18.4 / 15.1; 24576 x 4096 with 129 tokens 82 / 71, with 192 tokens 82 / 73; 151936 x 4096 with 129
/// tokens 513 / 333. Two of these: 24576 x 4096 with 256 tokens 93 / 148.
const LARGE_ABOVE: usize = 128;
/// Numbers of k from which on a batch-invariant layer adds up parts, and how many.
const PARTS_FROM: usize = 2048;
const PARTS: usize = 4;

/// Parts of k of a batch-invariant layer. Chains of fewer than 512 numbers would gain nothing: the thread blocks of a cluster take about 0.5 us to
/// add up their sums.
fn parts(k: usize) -> usize {
    if k < PARTS_FROM { 1 } else { PARTS }
}

/// Tokens with which gates are activated in the product, and of how many columns each. One H200, the 0.6B shape, products and norms of a step, in two launches and in
/// one: 16 rows 526 and 534 us, 24 rows 573 and 555, 64 rows 647 and 622, 80 rows 727 and 738, 112 rows 806 and 822, 120 rows 814 and 805, 128 rows 819 and 797, 192
/// rows 1,118 and 1,089, 256 rows 1,275 and 1,233.
const GATED_TOKENS: [RangeInclusive<usize>; 2] = [17..=64, 120..=TOKENS_MAX];
const GATED_COLUMNS: usize = 8;

/// Tokens up to which the thread blocks of a cluster divide k, where k is less than [`LONG_K`], and else. One H200, microseconds in clusters and in turn: 1024 x 2048
/// with 64 tokens 3.5 / 3.7, with 96 tokens 4.2 / 3.7, with 128 tokens 4.9 / 3.9, with 256 tokens 9.4 / 4.9; 1024 x 3072 with 64 tokens 4.0 / 4.9, with 96 tokens
/// 4.9 / 4.9, with 256 tokens 10.9 / 6.3. With longer k and so few columns, clusters are expected to stay ahead.
const CLUSTER_TOKENS: [usize; 2] = [64, 128];
const LONG_K: usize = 4096;

impl Plan {
    /// As batch-invariant layers are cut.
    fn invariant([m, n, k]: [usize; 3], gpu: Facts) -> Plan {
        let parts = parts(k);
        let cluster = Plan::divided([m, n, k], [parts, 1], TOKENS_OF_TILE, gpu);
        if parts == 1 || m <= CLUSTER_TOKENS[usize::from(k >= LONG_K)] && cluster.runs_at_once(gpu) {
            return cluster;
        }
        let tiles = |most| Plan::tiles(m, n, most).1.iter().product::<usize>();
        let most = if 4 * tiles(32) <= 3 * gpu.processors {
            32
        } else if tiles(64) <= gpu.processors {
            64
        } else {
            TOKENS_OF_TILE
        };
        Plan::divided([m, n, k], [1, parts], most, gpu)
    }

    /// Whether the clusters of a layer find room at once: where not, they wait for each other. One H200, microseconds in clusters and in turn: 4096 x 4096 with 8
    /// tokens 12.0 / 10.0, with 64 tokens 15.5 / 10.6; 2048 x 6144 with 8 tokens 10.6 / 9.0, with 64 tokens 12.8 / 9.7; 2560 x 4096 with 8 tokens 6.9 / 7.4; 2048 x
    /// 2048, of which two thread blocks share a multiprocessor up to 32 tokens, with 32 tokens 3.4 / 4.2, with 64 tokens 6.7 / 4.5.
    fn runs_at_once(&self, gpu: Facts) -> bool {
        let blocks = self.grid[0] * self.grid[1] * self.split;
        let is_shared = self.shared_bytes <= shared_of_two(gpu);
        4 * blocks <= 3 * gpu.processors || is_shared && 4 * blocks <= 5 * gpu.processors
    }
}

/// How a layer of many tokens is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargePlan {
    pub tokens: usize,
    pub tiles: usize,
    stages: usize,
    shared_bytes: usize,
}

impl LargePlan {
    /// `None` where its tiles would leave a quarter of the multiprocessors idle, or more, and where `gemm_swap_ab` has as few tiles of tokens.
    fn new(m: usize, n: usize, k: usize, gpu: Facts) -> Option<LargePlan> {
        let tokens = LARGE_TOKENS[usize::from(parts(k) > 1)];
        let tiles = m.div_ceil(tokens) * n.div_ceil(LARGE_COLUMNS);
        let is_two_tiles = m <= TOKENS_MAX && m > tokens;
        if m <= LARGE_ABOVE || is_two_tiles || 4 * tiles < 3 * gpu.processors {
            return None;
        }
        let stage = (LARGE_COLUMNS + tokens) * BOX_COLUMNS * 2;
        let fixed = BARRIER_BYTES + LARGE_PIECE_BYTES;
        let stages = ((gpu.block_shared_bytes - fixed) / stage).min(STAGES_MAX);
        Some(LargePlan { tokens, tiles, stages, shared_bytes: fixed + stages * stage })
    }

    pub fn grid(&self, gpu: Facts) -> Grid {
        Grid::line(self.tiles.min(gpu.processors), LARGE_THREADS, self.shared_bytes)
    }

    /// What stands before the tokens of a tile in the name of its kernel.
    pub fn prefix(&self) -> &'static str {
        if self.tokens == LARGE_TOKENS[0] { "large_" } else { "large_in_turn_" }
    }
}

/// How a layer is computed: see [`super::plan_invariant`].
pub fn plan(gemm: &Gemm, gpu: Facts) -> Launch {
    let [m, n, k] = gemm.sizes();
    if parts(k) == 1
        && let Some(plan) = m128::Plan::new(gemm, gpu)
    {
        return Launch::M128(plan);
    }
    match LargePlan::new(m, n, k, gpu).filter(|_| gemm.epilogue == Epilogue::Store) {
        Some(plan) => Launch::Large(plan),
        None => Launch::Tile(Plan::invariant([m, n, k], gpu)),
    }
}

/// The kernels of `gemm_swap_ab.cu` for these layers alone.
pub struct Kernels {
    /// Sequential split-K, for all tiles.
    pub in_turn: Vec<Kernel>,
    /// For [`LARGE_TOKENS`].
    large: [Kernel; 2],
}

impl Kernels {
    /// `load`: by what stands in a name before the tokens of a tile, and these.
    pub fn new(load: impl Fn(&str, usize) -> Result<Kernel>) -> Result<Kernels> {
        Ok(Kernels {
            in_turn: TILES.iter().map(|tile| load("in_turn_", tile.tokens)).collect::<Result<_>>()?,
            large: [load("large_", LARGE_TOKENS[0])?, load("large_in_turn_", LARGE_TOKENS[1])?],
        })
    }
}

impl SwapAb {
    /// Whether it computes batch-invariant layers of such k, whatever their rows and columns.
    pub fn serves_invariant(k: usize) -> bool {
        k > 0 && k.is_multiple_of(BOX_COLUMNS)
    }

    /// Whether the sums of such layers are one chain each.
    pub fn is_one_chain(k: usize) -> bool {
        parts(k) == 1
    }

    /// Whether gated results of such a layer are faster by one launch than by two.
    pub fn prefers_invariant_gated(gemm: &Gemm) -> bool {
        let is_served = SwapAb::serves_invariant(gemm.k) && parts(gemm.k) == 1;
        let is_whole = gemm.n.is_multiple_of(2 * GATED_COLUMNS);
        is_served && is_whole && GATED_TOKENS.iter().any(|tokens| tokens.contains(&gemm.m))
    }

    pub(super) fn launch_large(
        &self,
        device: &Device,
        chaining: Chaining,
        params: &LinearParams,
        plan: &LargePlan,
    ) -> Result<()> {
        let [m, _, k] = sizes(params);
        let parts = parts(k);
        let tokens = plan.tokens.min(m.next_multiple_of(SWIZZLE_ROWS));
        let boxes = Boxes { columns: LARGE_COLUMNS, tokens, depth: 1 };
        let params = swap_ab_params(device, params, boxes, [plan.stages, 1, parts], (Results::Sums, Norms::None))?;
        let kernel = &self.invariant.large[usize::from(parts > 1)];
        let Grid { blocks, threads, shared_bytes } = plan.grid(device.facts());
        kernel.launch(chaining, blocks, threads, shared_bytes, &params)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::H200;
    use super::super::{COLUMNS, PART, Tile};
    use super::*;

    #[test]
    fn batch_invariant_plans_fit_the_device_and_divide_k_by_k_alone() {
        for processors in [78, 114, 132] {
            let gpu = Facts { processors, ..H200 };
            for (n, k) in [(1, 64), (72, 1984), (512, 2048), (1003, 2112), (4096, 14336), (151_936, 1024), (64, 65_536)]
            {
                for m in [1, 8, 9, 64, 96, 128, 129, 192, 256, 257, 512, 3000, 16384] {
                    let what = format!("{m} x {n} x {k} on {processors}");
                    let plan = Plan::invariant([m, n, k], gpu);
                    let Tile { tokens, depth } = TILES[plan.tile];
                    let ring = plan.stages * depth * (COLUMNS + tokens) * BOX_COLUMNS * 2;
                    assert!(ring >= COLUMNS * tokens * 4, "{what}: {plan:?}");
                    assert!(plan.shared_bytes <= gpu.block_shared_bytes, "{what}: {plan:?}");
                    assert!(plan.split == 1 || plan.split == parts(k), "{what}: {plan:?}");
                    assert_eq!(plan.split * plan.chains, parts(k), "{what}: {plan:?}");
                    assert!(k.div_ceil(PART) >= parts(k), "a part of k is empty: {what}");
                    if let Some(plan) = LargePlan::new(m, n, k, gpu) {
                        assert!(plan.stages >= 4 && plan.shared_bytes <= gpu.block_shared_bytes, "{what}: {plan:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn batch_invariant_layers_are_cut_as_they_were_measured_to_be_fast() {
        // Rows, columns, k; thread blocks that divide k, tokens of a tile, thread blocks.
        for (m, n, k, split, tokens, blocks) in [
            (1, 1024, 2048, 4, 16, 64),
            (64, 1024, 3072, 4, 64, 64),
            (96, 1024, 2048, 1, 32, 48),
            (128, 1024, 3072, 1, 32, 64),
            (192, 1024, 3072, 1, 32, 96),
            (256, 1024, 2048, 1, 64, 64),
            (512, 1024, 3072, 1, 64, 128),
            (1024, 1024, 3072, 1, 128, 128),
            (32, 2048, 2048, 4, 32, 128),
            (64, 2048, 2048, 1, 32, 64),
            (8, 2048, 6144, 1, 16, 32),
            (8, 2560, 4096, 4, 16, 160),
            (64, 4096, 4096, 1, 64, 64),
            (128, 4096, 12288, 1, 64, 128),
            (128, 896, 4864, 4, 128, 56),
            (1, 6144, 1024, 1, 16, 96),
            (1, 6144, 4096, 1, 16, 96),
        ] {
            let plan = Plan::invariant([m, n, k], H200);
            let found = (plan.split, TILES[plan.tile].tokens, plan.grid[0] * plan.grid[1] * plan.split);
            assert_eq!(found, (split, tokens, blocks), "{m} x {n} x {k}");
            assert_eq!(plan.split * plan.chains, parts(k), "{m} x {n} x {k}");
        }
        assert_eq!(LargePlan::new(4096, 4096, 1024, H200).map(|plan| (plan.tokens, plan.tiles)), Some((256, 512)));
        assert_eq!(LargePlan::new(256, 6144, 1024, H200), None);
        let large = |m, k| LargePlan::new(m, 151_936, k, H200).map(|plan| plan.tokens);
        assert_eq!([128, 129, 256].map(|m| large(m, 1024)), [None, Some(256), Some(256)]);
        assert_eq!([128, 192, 193, 256, 257].map(|m| large(m, 4096)), [None, Some(192), None, None, Some(192)]);
    }
}
