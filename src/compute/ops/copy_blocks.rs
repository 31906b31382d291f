//! Copies the keys and values of whole blocks in all layers, for sequences that fork: each of the batch's
//! [`copies`](crate::batch::Batch::copies), before anything else of the pass.

use crate::Backend;

/// | tensor | shape |
/// |--------|-------|
/// | `cache` | per layer `[block][kv_head][K\|V][block_size][head_dim]` |
///
/// # Panics
///
/// If a block is a source and a target at once: the order of the copies would matter.
pub fn copy_blocks<B: Backend>(backend: &mut B, cache: &mut B::KvCache, device_batch: &B::DeviceBatch) {
    let copies = &B::batch(device_batch).copies;
    debug_assert!(copies.iter().all(|copy| copies.iter().all(|other| other.from != copy.to)), "{copies:?}");
    if !copies.is_empty() {
        backend.copy_blocks(cache, device_batch);
    }
}
