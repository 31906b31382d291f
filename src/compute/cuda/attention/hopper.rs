//! The launch of `kernels/attention_hopper.cu`: attention of rows that bring several new tokens, on compute capability 9.0.
//!
//! Serves heads of 64 and 128 numbers with keys and values in the type of the activations. All else is left to `attention_prefill.cu`.
//! Batch-invariant results come from kernels that add up keys in units, as `units.rs` does for rows that bring one token.

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

/// Head dimensions that have a kernel: `KERNELS` at the end of the file.
pub const HEAD_DIMS: [usize; 2] = [64, 128];
/// Queries of a tile, 64 per warpgroup.
pub const TILE_QUERIES: usize = 128;
/// `KEYS` of the kernel.
const TILE_KEYS: usize = 128;
const QUERY_STAGES: usize = 2;
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

/// Whether the device has the capability that the files for Hopper are compiled for, and they have kernels for such a cache.
pub fn is_served(facts: Facts, shape: &KvShape) -> bool {
    facts.is_hopper() && HEAD_DIMS.contains(&shape.head_dim) && shape.format != KvFormat::Int8
}

/// The kernels for the heads of a cache.
pub struct AttentionHopper {
    kernel: Kernel,
    /// For batch-invariant results.
    in_units: Kernel,
    shared_bytes: usize,
    /// Thread blocks that run at once: one per multiprocessor.
    processors: usize,
}

/// Shared memory of a thread block: queries, and as many tiles of keys and of values as 256 numbers of a head go into.
fn shared_bytes(head_dim: usize) -> usize {
    let stages = 256 / head_dim;
    BARRIER_BYTES + (QUERY_STAGES * TILE_QUERIES + 2 * stages * TILE_KEYS) * head_dim * 2
}

impl AttentionHopper {
    /// Loads them, where they [serve](is_served) such a cache.
    pub fn new(device: &Device, shape: &KvShape) -> Result<Option<AttentionHopper>> {
        let facts = device.facts();
        if !is_served(facts, shape) {
            return Ok(None);
        }
        let module = device.module("attention_hopper")?;
        let shared_bytes = shared_bytes(shape.head_dim);
        let load = |name: &str| {
            let kernel =
                Kernel::new(&module, &format!("attention_{name}_d{}_{}", shape.head_dim, suffix(device.dtype)))?;
            kernel.allow_shared(shared_bytes)?;
            Ok(kernel)
        };
        let (kernel, in_units) = (load("hopper")?, load("hopper_units")?);
        Ok(Some(AttentionHopper { kernel, in_units, shared_bytes, processors: facts.processors }))
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
            box_rows: block_size.min(TILE_KEYS),
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
        let kernel = if device.rounding == Rounding::BatchInvariant { &self.in_units } else { &self.kernel };
        kernel.launch(device.chaining, blocks, THREADS, self.shared_bytes, &params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_tiles_of_keys_and_of_values_fit_a_thread_block_of_hopper() {
        for head_dim in HEAD_DIMS {
            assert!(256 / head_dim >= 2 && shared_bytes(head_dim) <= 232_448, "heads of {head_dim}");
        }
    }
}
