//! Copies KV blocks in every layer, for sequences that fork. `kernels/copy_blocks.cu` does the work.

use super::driver::{Address, Memory};
use super::params::params;
use super::{Cuda, KvCache};
use crate::batch::BlockId;
use crate::error::Result;

params! {
    CopyBlocksParams { cache: Address, pairs: Address, layer_bytes: i64, block_bytes: i32 }
}

/// Copies each block `pairs[i].0` to `pairs[i].1` in all layers. No block may be source and target at once.
pub fn run(cuda: &Cuda, cache: &mut KvCache, pairs: &[(BlockId, BlockId)]) -> Result<()> {
    let shape = cache.shape();
    let bytes: Vec<u8> = pairs.iter().flat_map(|p| [p.0.to_le_bytes(), p.1.to_le_bytes()]).flatten().collect();
    let device_pairs = Memory::new(&cuda.context, bytes.len(), "a list of blocks", "max_num_seqs")?;
    device_pairs.write(0, &bytes)?;
    let block_bytes = shape.block_bytes() / shape.layers;
    let params = CopyBlocksParams {
        cache: cache.layer(0),
        pairs: device_pairs.address(),
        layer_bytes: cache.layer_bytes() as i64,
        block_bytes: block_bytes as i32,
    };
    let slices = block_bytes.div_ceil(256 * 16).min(16);
    cuda.kernels.copy_blocks.launch(cuda.chaining, [pairs.len(), shape.layers, slices], 256, 0, &params)?;
    // The list is freed at the end.
    cuda.context.synchronize()
}
