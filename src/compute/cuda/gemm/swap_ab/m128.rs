//! The launch of `kernels/gemm_m128.cu`: layers whose tiles of tokens are nearly full, with the bits of `gemm_swap_ab.cu`.

use super::{
    BARRIER_BYTES, BOX_COLUMNS, Boxes, Device, Epilogue, Facts, Gemm, Grid, Kernel, Results, STAGES_MAX, SWIZZLE_ROWS,
    TOKENS_OF_TILE, suffix,
};
use base::error::Result;

pub const THREADS: usize = 320;
/// Rows of weights of a tile, for sums and for gated results: `COLUMNS` of the kernels.
const SUMS_COLUMNS: usize = 64;
const GATED_COLUMNS: [usize; 2] = [64, 96];
/// Tokens of a tile from which on it is faster: tensor cores compute 128 of them in any case. One H200, microseconds of the four products of a layer in a graph,
/// by `gemm_swap_ab.cu` and with qkv, 4096 x 1024, in this kernel: 96 rows 21.4 and 21.5, 104 rows 24.9 and 24.1, 128 rows 25.5 and 24.9, 192 rows 28.5 and
/// 28.5, 208 rows 32.3 and 31.7, 256 rows 33.3 and 32.7; with gates and up, 6144 x 1024: 112 rows 25.0 and 25.1, 120 rows 25.3 and 24.5, 128 rows 25.5 and
/// 24.1, 224 rows 32.6 and 33.6, 240 rows 32.9 and 32.4, 256 rows 33.3 and 31.3.
const SUMS_TOKENS_MIN: usize = 104;
const GATED_TOKENS_MIN: usize = 120;

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rows of weights of a tile.
    pub columns: usize,
    tokens: usize,
    /// Tiles of tokens and of columns.
    pub grid: [usize; 2],
    pub stages: usize,
    pub shared_bytes: usize,
}

impl Plan {
    /// Of a layer whose k is not divided. `None` where `gemm_swap_ab.cu` is faster, and where not all tiles run at once.
    pub fn new(gemm: &Gemm, gpu: Facts) -> Option<Plan> {
        let [m, n, k] = gemm.sizes();
        let tiles = m.div_ceil(TOKENS_OF_TILE);
        let tokens = m.div_ceil(tiles).next_multiple_of(SWIZZLE_ROWS);
        let (least, all): (_, &[usize]) = match gemm.is_gated() {
            false => (SUMS_TOKENS_MIN, &[SUMS_COLUMNS]),
            true => (GATED_TOKENS_MIN, &GATED_COLUMNS),
        };
        let columns = *all.iter().find(|&&columns| tiles * n.div_ceil(columns) <= gpu.processors)?;
        if tokens < least {
            return None;
        }
        let stage = (TOKENS_OF_TILE + columns) * BOX_COLUMNS * 2;
        let stages = (k / BOX_COLUMNS).min((gpu.block_shared_bytes - BARRIER_BYTES) / stage).min(STAGES_MAX);
        let shared_bytes = BARRIER_BYTES + stages * stage;
        Some(Plan { columns, tokens, grid: [tiles, n.div_ceil(columns)], stages, shared_bytes })
    }

    pub fn grid(&self) -> Grid {
        let [tiles, columns] = self.grid;
        Grid { blocks: [tiles, columns, 1], threads: THREADS, shared_bytes: self.shared_bytes }
    }

    pub(super) fn boxes(&self) -> Boxes {
        Boxes { columns: self.columns, tokens: self.tokens, depth: 1 }
    }
}

/// The name of a kernel of the file.
pub fn name(columns: usize, epilogue: Epilogue) -> String {
    let prefix = if epilogue == Epilogue::Gated { "gated_" } else { "" };
    format!("gemm_m128_{prefix}c{columns}")
}

/// The kernels of the file.
pub struct Kernels {
    sums: Kernel,
    /// For [`GATED_COLUMNS`].
    gated: [Kernel; 2],
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module("gemm_m128")?;
        let load = |columns: usize, epilogue: Epilogue| {
            let kernel = Kernel::new(&module, &format!("{}_{}", name(columns, epilogue), suffix(device.dtype)))?;
            kernel.allow_shared(device.facts().block_shared_bytes)?;
            Ok(kernel)
        };
        let [narrow, wide] = GATED_COLUMNS;
        Ok(Kernels {
            sums: load(SUMS_COLUMNS, Epilogue::Store)?,
            gated: [load(narrow, Epilogue::Gated)?, load(wide, Epilogue::Gated)?],
        })
    }

    pub fn kernel(&self, plan: &Plan, results: Results) -> &Kernel {
        match results {
            Results::Sums => &self.sums,
            Results::Gated(_) => &self.gated[usize::from(plan.columns == GATED_COLUMNS[1])],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{H200, gemm};
    use super::*;

    #[test]
    fn full_tiles_of_tokens_take_it_if_all_run_at_once() {
        let columns = |sizes, epilogue| Plan::new(&gemm(sizes, epilogue), H200).map(|plan| (plan.columns, plan.stages));
        for (rows, sums, gates) in [
            (96, None, None),
            (104, Some((64, 9)), None),
            (128, Some((64, 9)), Some((64, 9))),
            (192, None, None),
            (208, Some((64, 9)), None),
            (256, Some((64, 9)), Some((96, 8))),
        ] {
            assert_eq!(columns([rows, 4096, 1024], Epilogue::Store), sums, "{rows} rows");
            assert_eq!(columns([rows, 6144, 1024], Epilogue::Gated), gates, "{rows} rows, gated");
        }
        assert_eq!(columns([256, 6144, 1024], Epilogue::Store), None, "192 tiles");
        assert_eq!(columns([128, 64, 64], Epilogue::Store), Some((64, 1)));
    }
}
