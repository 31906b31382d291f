//! The launch of `kernels/gemm_full_n.cu`: layers with many weights, which are read once for all tokens.

use super::{
    BARRIER_BYTES, BOX_COLUMNS, Boxes, Device, Epilogue, Facts, Grid, Kernel, Norms, Results, STAGES_MAX, TOKENS_MAX,
    TOKENS_MIN, TOKENS_OF_TILE, suffix,
};
use base::error::Result;
use formats::DType;

/// Tokens of a tile, and warpgroups of 64 rows of weights each: `KERNELS` of the file.
const TOKENS: [usize; 4] = [64, 128, 192, 256];
const GROUPS: [usize; 3] = [1, 2, 3];
const ROWS: usize = 64;
const SPLIT_MAX: usize = 2;
/// Of shared memory: `TALL_BARRIER_BYTES`.
const FIXED_BYTES: usize = 2 * BARRIER_BYTES;
const STAGES_MIN: usize = 3;
/// Thread blocks that a multiprocessor computes one after another, at most.
const ROUNDS_MAX: usize = 2;
/// Layers with fewer bytes of weights are left to the other kernels.
const WEIGHT_BYTES_MIN: usize = (16 << 20) + 1;
/// Tokens of the largest tile that adds its sums to the stream.
const ADDED_TOKENS_MAX: usize = 128;
/// Parts of the squares of a row at most: of 64 columns each.
pub const PARTS_MAX: usize = 128;

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub groups: usize,
    pub tokens: usize,
    /// Thread blocks that divide k.
    pub split: usize,
    /// Tiles of columns.
    pub tiles: usize,
    pub stages: usize,
    pub shared_bytes: usize,
}

impl Plan {
    /// `None` where the layer has too few weights, or its tiles would leave too many multiprocessors idle. `n`: rows of weights. How k is divided does not depend on
    /// `m`.
    pub fn new([m, n, k]: [usize; 3], gpu: Facts) -> Option<Plan> {
        if !(TOKENS_MIN..=TOKENS_MAX).contains(&m) || 2 * n * k < WEIGHT_BYTES_MIN {
            return None;
        }
        let (groups, split) = choice(n, k, gpu)?;
        let tokens = *TOKENS.iter().find(|&&tokens| m <= tokens)?;
        let rows = ROWS * groups;
        let stage = (rows + tokens) * BOX_COLUMNS * 2;
        let steps = (k / BOX_COLUMNS).div_ceil(split);
        let stages = steps.min((gpu.block_shared_bytes - FIXED_BYTES) / stage).min(STAGES_MAX);
        // Sums of all tokens, where k is divided, and the results of those that a thread block stores.
        let sums = if split > 1 { rows * tokens * 4 } else { 0 };
        let results = rows * (tokens / 16).div_ceil(split) * 16 * 2;
        let shared_bytes = FIXED_BYTES + (stages * stage).max(sums + results);
        let fits = stages >= STAGES_MIN && shared_bytes <= gpu.block_shared_bytes;
        fits.then_some(Plan { groups, tokens, split, tiles: n.div_ceil(rows), stages, shared_bytes })
    }

    pub fn grid(&self) -> Grid {
        let threads = 128 * (self.groups + 1);
        Grid { blocks: [self.split, self.tiles, 1], threads, shared_bytes: self.shared_bytes }
    }

    /// `box_tokens`: of x.
    pub(super) fn boxes(&self, box_tokens: usize) -> Boxes {
        Boxes { columns: ROWS * self.groups, tokens: box_tokens, depth: 1 }
    }

    /// Parts in which the squares of a row are added up, if its kernels add to the stream and are faster then. One H200, decode step of the 8B shape in a graph, with
    /// norms apart and in the products: 64 rows 5,386 and 5,288 us, 96 rows 6,297 and 6,218, 128 rows 7,045 and 6,925, 144 rows 7,792 and 7,782, 192 rows 8,855 and
    /// 8,891, 256 rows 11,222 and 11,321. One H100: 192 rows 12,062 and 12,008, 256 rows 14,613 and 14,568.
    pub fn square_parts(&self) -> Option<usize> {
        let is_faster = self.tokens <= ADDED_TOKENS_MAX;
        (is_faster && self.groups == 1 && self.tiles <= PARTS_MAX).then_some(self.tiles)
    }
}

/// Warpgroups of a thread block, and thread blocks that divide k. The latter are those of `gemm_swap_ab.cu` for up to 128 tokens, whose bits these layers have; the
/// former let a multiprocessor read least, of weights and of x. `None` where seven tenths of the multiprocessors are not in use all the time.
fn choice(n: usize, k: usize, gpu: Facts) -> Option<(usize, usize)> {
    let split = super::Plan::new(TOKENS_OF_TILE, n, k, gpu).split;
    let read = |&groups: &usize| {
        let blocks = n.div_ceil(ROWS * groups) * split;
        let rounds = blocks.div_ceil(gpu.processors);
        let is_full = 10 * blocks >= 7 * rounds * gpu.processors;
        // Where k is divided, three warpgroups have no room for their sums, and two leave multiprocessors idle.
        let is_allowed = if split > 1 { groups == 1 && rounds == 1 } else { rounds <= ROUNDS_MAX };
        (is_full && is_allowed && split <= SPLIT_MAX).then_some(rounds * (ROWS * groups + TOKENS_OF_TILE))
    };
    let groups = GROUPS.into_iter().filter(|groups| read(groups).is_some()).min_by_key(read)?;
    Some((groups, split))
}

/// The name of a kernel of the file.
pub fn name(groups: usize, tokens: usize, epilogue: Epilogue) -> String {
    let prefix = match epilogue {
        Epilogue::Store => "",
        Epilogue::Gated => "gated_",
        Epilogue::AddNorm => "added_",
    };
    format!("gemm_full_n_{prefix}g{groups}_t{tokens}")
}

/// The kernels of the file, by [`TOKENS`] and [`GROUPS`].
pub struct Kernels {
    sums: Vec<Vec<Kernel>>,
    gated: Vec<Vec<Kernel>>,
    /// Of one warpgroup, which add to the residual stream; none in f16.
    added: Vec<Kernel>,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("gemm_full_n")?;
        let load = |epilogue: Epilogue, groups: usize, tokens: usize| {
            let name = format!("{}_{}", name(groups, tokens, epilogue), suffix(device.dtype));
            let kernel = Kernel::new(&module, &name)?;
            kernel.allow_shared(device.facts().block_shared_bytes)?;
            Ok(kernel)
        };
        let all = |epilogue: Epilogue| -> Result<Vec<Vec<Kernel>>> {
            let of_tokens = |tokens| GROUPS.iter().map(|&groups| load(epilogue, groups, tokens)).collect();
            TOKENS.into_iter().map(of_tokens).collect()
        };
        let adds = TOKENS.iter().filter(|&&tokens| device.dtype == DType::Bf16 && tokens <= ADDED_TOKENS_MAX);
        Ok(Kernels {
            sums: all(Epilogue::Store)?,
            gated: all(Epilogue::Gated)?,
            added: adds.map(|&tokens| load(Epilogue::AddNorm, 1, tokens)).collect::<Result<_>>()?,
        })
    }

    pub fn kernel(&self, plan: &Plan, (results, side): (Results, Norms)) -> &Kernel {
        let tokens = TOKENS.iter().position(|&tokens| tokens == plan.tokens).expect("a plan has one of them");
        let groups = plan.groups - 1;
        match (results, side) {
            (_, Norms::Added(..)) => &self.added[tokens],
            (Results::Gated(_), _) => &self.gated[tokens][groups],
            (Results::Sums, _) => &self.sums[tokens][groups],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::H200;
    use super::*;

    #[test]
    fn large_layers_take_it_if_the_multiprocessors_are_in_use() {
        // Rows of weights, k; warpgroups, thread blocks that divide k, tiles, stages for 64 and for 256 tokens.
        for (n, k, groups, split, tiles, stages) in [
            (4096, 4096, 1, 2, 64, [14, 5]),
            (4096, 12288, 1, 2, 64, [14, 5]),
            (6144, 4096, 1, 1, 96, [14, 5]),
            (7168, 5120, 1, 1, 112, [14, 5]),
            (12288, 1024, 2, 1, 96, [9, 4]),
            (24576, 4096, 3, 1, 128, [7, 4]),
            (28672, 4096, 2, 1, 224, [9, 4]),
            (34816, 5120, 0, 0, 0, [0, 0]),
            (2560, 9728, 0, 0, 0, [0, 0]),
            (5120, 5120, 0, 0, 0, [0, 0]),
            (4096, 2048, 0, 0, 0, [0, 0]),
            (151_936, 4096, 0, 0, 0, [0, 0]),
        ] {
            for (m, stages) in [64, 256].into_iter().zip(stages) {
                let plan = Plan::new([m, n, k], H200).map(|p| (p.groups, p.split, p.tiles, p.stages));
                let expected = (groups > 0).then_some((groups, split, tiles, stages));
                assert_eq!(plan, expected, "{m} x {n} x {k}");
            }
        }
    }

    #[test]
    fn every_plan_fits_the_device_and_divides_k_whatever_the_rows_are() {
        for processors in [78, 114, 132] {
            let gpu = Facts { processors, ..H200 };
            for (n, k) in
                [(4096, 4096), (3000, 8192), (2048, 8192), (6144, 4096), (16384, 1024), (24576, 4096), (28672, 4096)]
            {
                let plans: Vec<_> = (TOKENS_MIN..=TOKENS_MAX).filter_map(|m| Plan::new([m, n, k], gpu)).collect();
                assert!(plans.is_empty() || plans.len() == TOKENS_MAX + 1 - TOKENS_MIN, "{n} x {k} on {processors}");
                assert!(plans.iter().all(|p| p.split == plans[0].split && p.groups == plans[0].groups), "{n} x {k}");
                let mut of_others = (TOKENS_MIN..=TOKENS_OF_TILE).map(|m| super::super::Plan::new(m, n, k, gpu).split);
                assert!(plans.is_empty() || of_others.all(|split| split == plans[0].split), "{n} x {k}");
                for plan in plans {
                    let ring = plan.stages * (ROWS * plan.groups + plan.tokens) * BOX_COLUMNS * 2;
                    assert!(FIXED_BYTES + ring <= plan.shared_bytes, "{n} x {k}: {plan:?}");
                    assert!(plan.shared_bytes <= gpu.block_shared_bytes, "{n} x {k}: {plan:?}");
                    assert!(plan.tiles * plan.groups * ROWS >= n, "{n} x {k}: {plan:?}");
                }
            }
        }
    }
}
