//! See `ops/copy_blocks.rs` for the contract.

use super::{DeviceBatch, KvCache};
use crate::batch::BlockCopy;

/// The specification. `layer` has blocks of `block` numbers.
pub fn reference<T: Copy>(layer: &mut [T], block: usize, copies: &[BlockCopy]) {
    for copy in copies {
        let from = copy.from as usize * block;
        layer.copy_within(from..from + block, copy.to as usize * block);
    }
}

/// A few blocks per pass are too little to share among threads.
pub fn run(cache: &mut KvCache, device_batch: &DeviceBatch) {
    let shape = cache.shape();
    let block_bytes = shape.block_bytes() / shape.layers;
    for layer in 0..shape.layers {
        reference(cache.layer_bytes_mut(layer), block_bytes, &device_batch.batch.copies);
    }
}
