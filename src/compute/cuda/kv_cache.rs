//! Keys and values of all layers on the device.

use super::attention;
use super::driver::{Address, Context, Memory, Pinned};
use super::pieces::Pieces;
use crate::batch::BlockId;
use crate::{KvFormat, KvShape};
use base::error::{Error, Result};
use formats::DType;
use std::ops::Range;
use std::sync::Arc;

/// Keys and values of all layers, and the attention kernels for such heads.
pub struct KvCache {
    pub(super) blocks: KvBlocks,
    pub(super) attention: attention::Kernels,
}

impl KvCache {
    /// The whole cache, for tests.
    pub fn bytes(&self) -> Result<Vec<u8>> {
        self.blocks.bytes()
    }

    /// Fills the whole cache, for tests.
    pub fn fill(&mut self, bytes: &[u8]) -> Result<()> {
        self.blocks.fill(bytes)
    }
}

/// Per layer `[block][kv_head]`, each as [`KvFormat`] says; layers one after another.
pub struct KvBlocks {
    shape: KvShape,
    memory: Memory,
    layer_bytes: usize,
}

/// Keys and values of one layer. `[block][kv_head]`, each as [`KvFormat`] says
#[derive(Clone, Copy)]
pub struct CacheLayer {
    pub address: Address,
    /// Blocks of the cache.
    pub blocks: usize,
    /// That of the whole cache.
    pub shape: KvShape,
    /// Bytes from a number of it to that of the next layer, 0 in the last one.
    pub to_next: i64,
}

/// Pieces of a layer, if they are not smaller than the driver maps them: more would take longer to map, fewer hold on to more memory.
const LAYER_PIECES: usize = 32;

/// Maximum number of bytes of pinned memory that blocks pass through, unless a single part is larger.
const STAGING_BYTES: usize = 32 << 20;
const STAGING: &str = "pinned memory for KV blocks";

/// Bytes of pinned memory to copy `bytes` through: whole parts.
fn staging_bytes(part: usize, bytes: usize) -> usize {
    bytes.min((STAGING_BYTES / part).max(1) * part)
}

impl KvBlocks {
    /// Whether the kernels know such a cache.
    pub fn check(shape: &KvShape, dtype: DType) -> Result<()> {
        if shape.format != KvFormat::Int8 && shape.format != KvFormat::Plain(dtype) {
            let (format, weights) = (shape.format.name(), KvFormat::Plain(dtype).name());
            return Err(Error::Unsupported {
                what: format!(
                    "a KV cache in {format} with weights in {weights}: on CUDA both have one type, or the cache is in int8"
                ),
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

    /// Room for `blocks` blocks in every layer.
    pub fn new(context: &Arc<Context>, shape: &KvShape, blocks: usize, dtype: DType) -> Result<KvBlocks> {
        KvBlocks::check(shape, dtype)?;
        let layer_bytes = shape.block_bytes() / shape.layers * blocks;
        let (bytes, piece) = (layer_bytes * shape.layers, layer_bytes / LAYER_PIECES);
        let (what, knob) = ("the KV cache", "kv_cache_bytes");
        let memory = match Pieces::map(context, bytes, piece, what, knob)? {
            Some(pieces) => Memory::of_pieces(context, bytes, pieces),
            None => Memory::new(context, bytes, what, knob)?,
        };
        Ok(KvBlocks { shape: *shape, memory, layer_bytes })
    }

    /// The shape this cache was made with.
    pub fn shape(&self) -> KvShape {
        self.shape
    }

    /// Copies blocks out, one after the other with all their layers, once all that was launched has ended.
    /// `[blocks][layer][kv_head]`, each as [`KvFormat`] says.
    ///
    /// # Panics
    ///
    /// If `to` has another size, or a block does not exist.
    pub fn read_blocks(&self, context: &Arc<Context>, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        assert_eq!(to.len(), blocks.len() * self.shape.block_bytes());
        let part = self.part_bytes();
        let mut staging = Pinned::zeroed(context, staging_bytes(part, to.len()), STAGING, "kv_block_size")?;
        let mut parts = self.parts(blocks);
        for to in to.chunks_mut(staging.bytes().len()) {
            for at in (0..to.len()).step_by(part) {
                staging.download_to(
                    at,
                    &self.memory,
                    parts.next().expect("as many as the buffer has room for"),
                    part,
                )?;
            }
            context.synchronize()?;
            to.copy_from_slice(&staging.bytes()[..to.len()]);
        }
        Ok(())
    }

    /// Copies blocks in, in the same form, after all that was launched.
    ///
    /// # Panics
    ///
    /// If `from` has another size, or a block does not exist.
    pub fn write_blocks(&mut self, context: &Arc<Context>, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        assert_eq!(from.len(), blocks.len() * self.shape.block_bytes());
        let part = self.part_bytes();
        let mut staging = Pinned::zeroed(context, staging_bytes(part, from.len()), STAGING, "kv_block_size")?;
        let mut parts = self.parts(blocks);
        for from in from.chunks(staging.bytes().len()) {
            staging.bytes_mut()[..from.len()].copy_from_slice(from);
            for at in (0..from.len()).step_by(part) {
                staging.upload(at..at + part, &self.memory, parts.next().expect("as many as the bytes are"))?;
            }
            context.synchronize()?;
        }
        Ok(())
    }

    /// Bytes that have memory.
    pub fn mapped_bytes(&self) -> u64 {
        let unmapped = self.memory.pieces.as_ref().map_or(0, |pieces| pieces.unmapped_bytes());
        self.memory.bytes().saturating_sub(unmapped) as u64
    }

    /// Gives back the pieces in which only blocks lie that `unused` names, once all that was launched has ended; returns their bytes.
    /// `[blocks]`
    pub fn release(&mut self, unused: &[bool]) -> Result<u64> {
        let (part, layer_bytes, end) = (self.part_bytes(), self.layer_bytes, self.memory.bytes());
        // Entries that pad a block table are 0: block 0 stays, in case that a kernel computes an address with them.
        let is_used = |block: usize| block == 0 || !unused[block];
        let is_needed = |piece: Range<usize>| {
            let (first, last) = (piece.start, piece.end.min(end));
            (first / layer_bytes..last.div_ceil(layer_bytes)).any(|layer| {
                let start = layer * layer_bytes;
                let (first, last) = (first.saturating_sub(start), (last - start).min(layer_bytes));
                (first / part..last.div_ceil(part)).any(is_used)
            })
        };
        let pieces = self.memory.pieces.as_mut();
        pieces.map_or(Ok(0), |pieces| pieces.release(is_needed)).map(|bytes| bytes as u64)
    }

    /// Gets memory for blocks that may have lost it.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`]. Nothing has changed then.
    pub fn restore(&mut self, blocks: &[BlockId]) -> Result<()> {
        let part = self.part_bytes();
        let parts = self.parts(blocks).map(|start| start..start + part);
        self.memory.pieces.as_mut().map_or(Ok(()), |pieces| pieces.restore(parts))
    }

    /// Bytes of one block in one layer.
    fn part_bytes(&self) -> usize {
        self.shape.block_bytes() / self.shape.layers
    }

    /// Where each layer of each block begins.
    fn parts<'a>(&self, blocks: &'a [BlockId]) -> impl Iterator<Item = usize> + use<'a> {
        let (part, layer_bytes, layers) = (self.part_bytes(), self.layer_bytes, self.shape.layers);
        blocks.iter().flat_map(move |&block| {
            let start = block as usize * part;
            assert!(start + part <= layer_bytes, "block {block} does not exist");
            (0..layers).map(move |layer| layer * layer_bytes + start)
        })
    }

    /// One layer.
    pub(super) fn layer(&self, layer: usize) -> CacheLayer {
        assert!(layer < self.shape.layers);
        CacheLayer {
            address: self.memory.address() + (layer * self.layer_bytes) as u64,
            blocks: self.layer_bytes / self.part_bytes(),
            shape: self.shape,
            to_next: if layer + 1 < self.shape.layers { self.layer_bytes as i64 } else { 0 },
        }
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
