//! See `ops/copy_blocks.rs` for the contract, `kernels/copy_blocks.cu` for the work.

use super::device::Cuda;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kv_cache::KvCache;
use super::params::params;
use crate::error::Result;

params! {
    CopyBlocksParams { cache: Address, pairs: Address, layer_bytes: i64, block_bytes: i32 }
}

pub fn run(cuda: &Cuda, cache: &mut KvCache, device_batch: &DeviceBatch) -> Result<()> {
    let shape = cache.shape();
    let block_bytes = shape.block_bytes() / shape.layers;
    let params = CopyBlocksParams {
        cache: cache.layer(0),
        pairs: device_batch.extras().copies(),
        layer_bytes: cache.layer_bytes() as i64,
        block_bytes: block_bytes as i32,
    };
    let slices = block_bytes.div_ceil(256 * 16).min(16);
    let blocks = [device_batch.batch().copies.len(), shape.layers, slices];
    cuda.kernels.copy_blocks.launch(cuda.chaining, blocks, 256, 0, &params)
}
