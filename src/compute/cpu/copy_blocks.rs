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
    for layer in 0..cache.layout().layers.len() {
        let block_bytes = cache.shape(layer).block_bytes();
        reference(cache.layer_bytes_mut(layer), block_bytes, &device_batch.batch.copies);
    }
}
