//! Keys and values of all layers on the device, and what attention needs besides.

use super::attention::{Decode, Prefill};
use super::driver::{Address, Context, Memory};
use crate::backend::{DType, KvShape};
use crate::error::{Error, Result};
use std::sync::Arc;

/// Per layer `[block][kv_head][K|V][block_size][head_dim]`, layers one after another.
pub struct KvCache {
    shape: KvShape,
    memory: Memory,
    layer_bytes: usize,
    pub(super) decode: Decode,
    pub(super) prefill: Prefill,
}

impl KvCache {
    /// Whether the kernels know such a cache.
    pub fn check(shape: &KvShape, dtype: DType) -> Result<()> {
        if shape.dtype != dtype {
            return Err(Error::Unsupported {
                what: format!("a KV cache in {:?} with weights in {dtype:?}: on CUDA both have one type", shape.dtype),
            });
        }
        if !shape.block_size.is_power_of_two() || !(16..=256).contains(&shape.block_size) {
            return Err(Error::Option {
                field: "kv_block_size",
                value: shape.block_size.to_string(),
                wanted: "a power of two from 16 to 256 on CUDA",
            });
        }
        Ok(())
    }

    /// Room for `blocks` blocks in every layer, and the attention kernels for such heads.
    pub fn new(context: &Arc<Context>, shape: &KvShape, blocks: usize, dtype: DType) -> Result<KvCache> {
        KvCache::check(shape, dtype)?;
        let layer_bytes = shape.block_bytes() / shape.layers * blocks;
        let memory = Memory::new(context, layer_bytes * shape.layers, "the KV cache", "kv_cache_bytes")?;
        let (decode, prefill) = (Decode::new(context, shape)?, Prefill::new(context, shape)?);
        Ok(KvCache { shape: *shape, memory, layer_bytes, decode, prefill })
    }

    /// The shape this cache was made with.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Where a layer begins.
    pub(super) fn layer(&self, layer: usize) -> Address {
        assert!(layer < self.shape.layers);
        self.memory.address() + (layer * self.layer_bytes) as u64
    }

    /// Bytes of a layer.
    pub(super) fn layer_bytes(&self) -> usize {
        self.layer_bytes
    }

    /// The whole cache, for tests.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.memory.bytes()];
        self.memory.read(0, &mut bytes)?;
        Ok(bytes)
    }

    /// Fills the whole cache, for tests.
    pub fn fill(&mut self, bytes: &[u8]) -> Result<()> {
        self.memory.write(0, bytes)
    }
}
