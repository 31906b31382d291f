//! The launch of `kernels/attention_hopper.cu`: attention of rows that bring several new tokens, on compute capability 9.0.
//!
//! Serves heads of 64, 128, 256 and 512 numbers with keys and values in the type of the activations. All else is left to `attention_prefill.cu`.
//! Batch-invariant results come from kernels for heads of 64 and 128 that add up keys in units, as `units.rs` does for rows that bring one token.

use crate::cuda::device::Device;
use crate::cuda::driver::{Address, Facts};
use crate::cuda::kernels::{Kernel, suffix};
use crate::cuda::kv_cache::CacheLayer;
use crate::cuda::params::params;
use crate::cuda::storage::Tensor;
use crate::cuda::tensor_map::{BOX_COLUMNS, BoxedMatrix, TensorMap};
use crate::{KvFormat, KvShape, Rounding};
use base::error::Result;

params! {
    AttentionHopperParams in "attention_hopper.cu" {
        qkv: TensorMap,
        cache: TensorMap,
        out: Address,
        tiles: Address,
        counts: Address,
        block_tables: Address,
        tiles_len: i32,
        kv_heads: i32,
        group: i32,
        block_size_log2: i32,
        window: i32,
        scale_log2: f32,
        tanh_scale: f32,
        sinks: Address,
    }
}

/// Head dimensions that have a kernel for batch-invariant results, which are also those of the kernels for few rows: `KERNELS_IN_UNITS` at the end of the
/// file.
pub const HEAD_DIMS: [usize; 2] = [64, 128];

/// A kernel: `Sizes` in the file.
struct Sizes {
    head_dim: usize,
    /// Queries of a tile: 64 for each warpgroup, or for both.
    queries: usize,
    /// Keys of a tile.
    keys: usize,
    /// Tiles of keys, and of values, in shared memory.
    stages: usize,
    /// Tiles of queries there.
    query_stages: usize,
}

/// All.
const SIZES: [Sizes; 4] = [
    Sizes { head_dim: 64, queries: 128, keys: 128, stages: 4, query_stages: 2 },
    Sizes { head_dim: 128, queries: 128, keys: 128, stages: 2, query_stages: 2 },
    Sizes { head_dim: 256, queries: 128, keys: 64, stages: 2, query_stages: 1 },
    Sizes { head_dim: 512, queries: 64, keys: 32, stages: 2, query_stages: 1 },
];

const BARRIER_BYTES: usize = 1024;
pub const THREADS: usize = 384;
/// Queries of a box.
const BOX_QUERIES: usize = 64;

/// What [`AttentionHopper::run`] reads and writes besides queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Tiles {
    pub out: Address,
    /// `[len]` of [`PrefillTile`](super::plan::PrefillTile)
    pub tiles: Address,
    pub len: usize,
    pub counts: Address,
    pub block_tables: Address,
    /// Query heads.
    pub heads: usize,
    /// As the kernel takes them.
    pub window: i32,
    pub scale_log2: f32,
    pub tanh_scale: f32,
    pub sinks: Address,
}

/// Queries of a tile, where the device has the capability that the file is compiled for, and it has kernels for such a cache.
pub fn tile_queries(facts: Facts, shape: &KvShape, rounding: Rounding) -> Option<usize> {
    let sizes = sizes(shape)?;
    let is_known = rounding == Rounding::Fastest || HEAD_DIMS.contains(&shape.head_dim);
    (facts.is_hopper() && is_known && shape.format != KvFormat::Int8).then_some(sizes.queries)
}

fn sizes(shape: &KvShape) -> Option<&'static Sizes> {
    SIZES.iter().find(|sizes| sizes.head_dim == shape.head_dim)
}

/// The kernels for the heads of a cache.
pub struct AttentionHopper {
    kernel: Kernel,
    sizes: &'static Sizes,
    /// Thread blocks that run at once: one per multiprocessor.
    processors: usize,
}

impl Sizes {
    /// Shared memory of a thread block.
    fn shared_bytes(&self) -> usize {
        BARRIER_BYTES + (self.query_stages * self.queries + 2 * self.stages * self.keys) * self.head_dim * 2
    }
}

impl AttentionHopper {
    /// Loads the one for the rounding, where it [serves](tile_queries) such a cache.
    pub fn new(device: &Device, shape: &KvShape) -> Result<Option<AttentionHopper>> {
        let facts = device.facts();
        let Some(sizes) = sizes(shape).filter(|_| tile_queries(facts, shape, device.rounding).is_some()) else {
            return Ok(None);
        };
        let module = device.module("attention_hopper")?;
        let name = match device.rounding {
            Rounding::Fastest => "hopper",
            Rounding::BatchInvariant => "hopper_units",
        };
        let kernel = Kernel::new(&module, &format!("attention_{name}_d{}_{}", shape.head_dim, suffix(device.dtype)))?;
        kernel.allow_shared(sizes.shared_bytes())?;
        Ok(Some(AttentionHopper { kernel, sizes, processors: facts.processors }))
    }

    /// Launches the attention of the queries of `tiles`.
    pub fn run(&self, device: &Device, qkv: &Tensor, cache: CacheLayer, tiles: &Tiles) -> Result<()> {
        let KvShape { kv_heads, head_dim, block_size, .. } = cache.shape;
        let dtype = device.dtype;
        let queries = BoxedMatrix {
            at: qkv.storage.address(),
            rows: qkv.rows(),
            cols: qkv.cols(),
            stride: qkv.storage.stride(),
            box_rows: BOX_QUERIES,
            box_depth: head_dim / BOX_COLUMNS,
            dtype,
        };
        // A row of 128 bytes or more per key: their number fits the i32 of a box's place.
        let keys_and_values = BoxedMatrix {
            at: cache.address,
            rows: cache.blocks * kv_heads * 2 * block_size,
            cols: head_dim,
            stride: head_dim,
            box_rows: block_size.min(self.sizes.keys),
            box_depth: 1,
            dtype,
        };
        let params = AttentionHopperParams {
            qkv: TensorMap::new(&queries)?,
            cache: TensorMap::new(&keys_and_values)?,
            out: tiles.out,
            tiles: tiles.tiles,
            counts: tiles.counts,
            block_tables: tiles.block_tables,
            tiles_len: tiles.len as i32,
            kv_heads: kv_heads as i32,
            group: (tiles.heads / kv_heads) as i32,
            block_size_log2: block_size.ilog2() as i32,
            window: tiles.window,
            scale_log2: tiles.scale_log2,
            tanh_scale: tiles.tanh_scale,
            sinks: tiles.sinks,
        };
        let blocks = [self.processors.min(tiles.len * tiles.heads), 1, 1];
        self.kernel.launch(device.chaining, blocks, THREADS, self.sizes.shared_bytes(), &params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tiles_of_keys_and_of_values_fit_a_thread_block_of_hopper() {
        for sizes in &SIZES {
            assert!(sizes.stages >= 2 && sizes.shared_bytes() <= 232_448, "heads of {}", sizes.head_dim);
        }
    }
}
