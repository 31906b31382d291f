//! Keys and values of all layers, in blocks.

use super::Pages;
use crate::backend::KvShape;
use crate::error::Result;

/// Per layer `[block][kv_head][K|V][block_size][head_dim]`, layers one after another.
pub struct KvCache {
    shape: KvShape,
    bytes: Pages<u8>,
    layer_bytes: usize,
}

impl KvCache {
    /// Room for `blocks` blocks in every layer.
    pub fn new(shape: &KvShape, blocks: usize) -> Result<KvCache> {
        let layer_bytes = shape.block_bytes() / shape.layers * blocks;
        let bytes = Pages::zeroed(layer_bytes * shape.layers, "the KV cache", "kv_cache_bytes")?;
        Ok(KvCache { shape: *shape, bytes, layer_bytes })
    }

    /// The shape this cache was made with.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// One layer. `[block][kv_head][K|V][block_size][head_dim]`, numbers of the shape's type
    pub fn layer(&self, layer: usize) -> &[u8] {
        &self.bytes[layer * self.layer_bytes..][..self.layer_bytes]
    }

    /// One layer, to be written.
    pub fn layer_mut(&mut self, layer: usize) -> &mut [u8] {
        &mut self.bytes[layer * self.layer_bytes..][..self.layer_bytes]
    }
}
