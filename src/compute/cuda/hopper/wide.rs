//! The launch of `kernels/linear_hopper_wide.cu`: layers whose tiles of tokens are nearly full, with the bits of `linear_hopper.cu`.

use super::{
    BARRIER_BYTES, BOX_COLUMNS, Boxes, Device, Kernel, Results, Room, STAGES_MAX, SWIZZLE_ROWS, TOKENS_OF_TILE, suffix,
};
use base::error::Result;

pub const THREADS: usize = 320;
/// Rows of weights of a tile, for sums and for gated results: `COLUMNS` of the kernels.
const SUMS_COLUMNS: usize = 64;
const GATED_COLUMNS: [usize; 2] = [64, 96];
/// Tokens of a tile from which on it is faster: tensor cores compute 128 of them in any case. One H200, microseconds of the four products of a layer in a graph,
/// by `linear_hopper.cu` and with qkv, 4096 x 1024, in this kernel: 96 rows 21.4 and 21.5, 104 rows 24.9 and 24.1, 128 rows 25.5 and 24.9, 192 rows 28.5 and
/// 28.5, 208 rows 32.3 and 31.7, 256 rows 33.3 and 32.7; with gates and up, 6144 x 1024: 112 rows 25.0 and 25.1, 120 rows 25.3 and 24.5, 128 rows 25.5 and
/// 24.1, 224 rows 32.6 and 33.6, 240 rows 32.9 and 32.4, 256 rows 33.3 and 31.3.
const SUMS_TOKENS_MIN: usize = 104;
const GATED_TOKENS_MIN: usize = 120;

/// How a layer is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Rows of weights of a tile.
    columns: usize,
    tokens: usize,
    /// Tiles of tokens and of columns.
    pub grid: [usize; 2],
    pub stages: usize,
    pub shared_bytes: usize,
}

impl Plan {
    /// Of a layer whose k is not divided. `None` where `linear_hopper.cu` is faster, and where not all tiles run at once.
    pub fn new([m, n, k]: [usize; 3], results: Results, room: Room) -> Option<Plan> {
        let tiles = m.div_ceil(TOKENS_OF_TILE);
        let tokens = m.div_ceil(tiles).next_multiple_of(SWIZZLE_ROWS);
        let (least, all): (_, &[usize]) = match results {
            Results::Sums => (SUMS_TOKENS_MIN, &[SUMS_COLUMNS]),
            Results::Gated(_) => (GATED_TOKENS_MIN, &GATED_COLUMNS),
        };
        let columns = *all.iter().find(|&&columns| tiles * n.div_ceil(columns) <= room.processors)?;
        if tokens < least {
            return None;
        }
        let stage = (TOKENS_OF_TILE + columns) * BOX_COLUMNS * 2;
        let stages = (k / BOX_COLUMNS).min((room.block_shared_bytes - BARRIER_BYTES) / stage).min(STAGES_MAX);
        let shared_bytes = BARRIER_BYTES + stages * stage;
        Some(Plan { columns, tokens, grid: [tiles, n.div_ceil(columns)], stages, shared_bytes })
    }

    pub fn boxes(&self) -> Boxes {
        Boxes { columns: self.columns, tokens: self.tokens, depth: 1 }
    }
}

/// The kernels of the file.
pub struct Wide {
    sums: Kernel,
    /// For [`GATED_COLUMNS`].
    gated: [Kernel; 2],
}

impl Wide {
    pub fn new(device: &Device) -> Result<Wide> {
        let module = device.module("linear_hopper_wide")?;
        let load = |name: &str| {
            let kernel = Kernel::new(&module, &format!("linear_hopper_{name}_{}", suffix(device.dtype)))?;
            kernel.allow_shared(device.facts().block_shared_bytes)?;
            Ok(kernel)
        };
        Ok(Wide { sums: load("wide_c64")?, gated: [load("wide_gated_c64")?, load("wide_gated_c96")?] })
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
    use super::super::tests::H200;
    use super::*;
    use crate::Activation;

    #[test]
    fn full_tiles_of_tokens_take_it_if_all_run_at_once() {
        let gated = Results::Gated(Activation::Silu);
        let columns = |sizes, results| Plan::new(sizes, results, H200).map(|plan| (plan.columns, plan.stages));
        for (rows, sums, gates) in [
            (96, None, None),
            (104, Some((64, 9)), None),
            (128, Some((64, 9)), Some((64, 9))),
            (192, None, None),
            (208, Some((64, 9)), None),
            (256, Some((64, 9)), Some((96, 8))),
        ] {
            assert_eq!(columns([rows, 4096, 1024], Results::Sums), sums, "{rows} rows");
            assert_eq!(columns([rows, 6144, 1024], gated), gates, "{rows} rows, gated");
        }
        assert_eq!(columns([256, 6144, 1024], Results::Sums), None, "192 tiles");
        assert_eq!(columns([128, 64, 64], Results::Sums), Some((64, 1)));
    }
}
