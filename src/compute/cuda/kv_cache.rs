//! Keys and values of all layers on the device.

use super::attention;
use super::driver::{Address, Context, Memory, Pinned};
use super::pieces::Pieces;
use crate::batch::BlockId;
use crate::{KvFormat, KvLayout, KvPlace, KvShape};
use base::error::{Error, Result};
use formats::DType;
use std::ops::Range;
use std::sync::Arc;

/// Keys and values of all layers, and the attention kernels for their heads.
pub struct KvCache {
    pub(super) blocks: KvBlocks,
    /// For each of the [kinds](KvLayout::kinds) of layers.
    pub(super) attention: Vec<attention::Kernels>,
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
    layout: KvLayout,
    memory: Memory,
    /// Each layer, in order.
    layers: Vec<CacheLayer>,
    /// How many [kinds](KvLayout::kinds) of layers there are.
    kinds: usize,
    /// Where each layer begins, and the end. `[layers + 1]`
    starts: Vec<usize>,
}

/// Keys and values of one layer. `[block][kv_head]`, each as [`KvFormat`] says
#[derive(Clone, Copy)]
pub struct CacheLayer {
    pub address: Address,
    /// Blocks of the cache.
    pub blocks: usize,
    /// Of this layer.
    pub shape: KvShape,
    /// Which of the [kinds](KvLayout::kinds) of layers it is.
    pub kind: usize,
    /// Bytes from a number of it to that of the next layer, 0 where that has another shape and in the last one.
    pub to_next: i64,
    /// Which block table of a row leads to its blocks.
    pub table: usize,
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
    pub fn check(layout: &KvLayout, dtype: DType) -> Result<()> {
        if layout.format != KvFormat::Int8 && layout.format != KvFormat::Plain(dtype) {
            let (format, weights) = (layout.format.name(), KvFormat::Plain(dtype).name());
            return Err(Error::Unsupported {
                what: format!(
                    "a KV cache in {format} with weights in {weights}: on CUDA both have one type, or the cache is in int8"
                ),
            });
        }
        if !layout.block_size.is_power_of_two() || !(16..=256).contains(&layout.block_size) {
            return Err(Error::Option {
                field: "kv_block_size",
                value: layout.block_size.to_string(),
                wanted: "a power of two from 16 to 256 on CUDA",
            });
        }
        Ok(())
    }

    /// Room for `blocks` blocks in every layer.
    pub fn new(context: &Arc<Context>, layout: &KvLayout, blocks: usize, dtype: DType) -> Result<KvBlocks> {
        KvBlocks::check(layout, dtype)?;
        let (what, knob) = ("the KV cache", "kv_cache_bytes");
        let too_large = || Error::OutOfMemory { what, bytes: u64::MAX, knob };
        let starts = layout.starts(blocks).ok_or_else(too_large)?;
        let layers = layout.layers.len();
        // A model without attention has none.
        let (bytes, piece) = (starts[layers], starts[layers] / layers.max(1) / LAYER_PIECES);
        let memory = match Pieces::map(context, bytes, piece, what, knob)? {
            Some(pieces) => Memory::of_pieces(context, bytes, pieces),
            None => Memory::new(context, bytes, what, knob)?,
        };
        let (shapes, kinds): (Vec<KvShape>, Vec<_>) = (layout.shapes().collect(), layout.kinds());
        let layer = |layer: usize| {
            let shape = shapes[layer];
            let is_followed = shapes.get(layer + 1) == Some(&shape);
            CacheLayer {
                address: memory.address() + starts[layer] as u64,
                blocks,
                shape,
                kind: kinds.iter().position(|kind| *kind == shape).expect("kinds are those of layers"),
                to_next: if is_followed { (starts[layer + 1] - starts[layer]) as i64 } else { 0 },
                table: 0,
            }
        };
        let layers = (0..layers).map(layer).collect();
        Ok(KvBlocks { layout: layout.clone(), memory, layers, kinds: kinds.len(), starts })
    }

    /// The shape this cache was made with.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// Copies blocks out, one after the other with all their layers, once all that was launched has ended.
    /// `[blocks][layer][kv_head]`, each as [`KvFormat`] says.
    ///
    /// # Panics
    ///
    /// If `to` has another size, or a block does not exist.
    pub fn read_blocks(&self, context: &Arc<Context>, blocks: &[BlockId], to: &mut [u8]) -> Result<()> {
        assert_eq!(to.len(), blocks.len() * self.layout.block_bytes());
        let room = staging_bytes(self.part_bytes_max(), to.len());
        let mut staging = Pinned::zeroed(context, room, STAGING, "kv_block_size")?;
        let (mut parts, mut to) = (self.parts(blocks).peekable(), to);
        while parts.peek().is_some() {
            let mut end = 0;
            while let Some(part) = parts.next_if(|part| end + part.len() <= room) {
                staging.download_to(end, &self.memory, part.start, part.len())?;
                end += part.len();
            }
            context.synchronize()?;
            let (filled, rest) = to.split_at_mut(end);
            filled.copy_from_slice(&staging.bytes()[..end]);
            to = rest;
        }
        Ok(())
    }

    /// Copies blocks in, in the same form, after all that was launched.
    ///
    /// # Panics
    ///
    /// If `from` has another size, or a block does not exist.
    pub fn write_blocks(&mut self, context: &Arc<Context>, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        assert_eq!(from.len(), blocks.len() * self.layout.block_bytes());
        let room = staging_bytes(self.part_bytes_max(), from.len());
        let mut staging = Pinned::zeroed(context, room, STAGING, "kv_block_size")?;
        let (mut parts, mut from) = (self.parts(blocks).peekable(), from);
        while parts.peek().is_some() {
            let mut end = 0;
            while let Some(part) = parts.next_if(|part| end + part.len() <= room) {
                let place = end..end + part.len();
                staging.bytes_mut()[place.clone()].copy_from_slice(&from[place.clone()]);
                end = place.end;
                staging.upload(place, &self.memory, part.start)?;
            }
            context.synchronize()?;
            from = &from[end..];
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
        let (layers, starts, end) = (&self.layers, &self.starts, self.memory.bytes());
        // Entries that pad a block table are 0: block 0 stays, in case that a kernel computes an address with them.
        let is_used = |block: usize| block == 0 || !unused[block];
        let is_needed = |piece: Range<usize>| {
            let (first, last) = (piece.start, piece.end.min(end));
            let from = starts.partition_point(|&start| start <= first) - 1;
            let layers = layers.iter().zip(starts.windows(2)).skip(from).take_while(|(_, layer)| layer[0] < last);
            layers.into_iter().any(|(layer, bounds)| {
                let part = layer.shape.block_bytes();
                let (first, last) = (first.saturating_sub(bounds[0]), last.min(bounds[1]) - bounds[0]);
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
        let parts = parts_of(&self.layers, &self.starts, blocks);
        self.memory.pieces.as_mut().map_or(Ok(()), |pieces| pieces.restore(parts))
    }

    /// Bytes of one block in the layer where it has the most.
    fn part_bytes_max(&self) -> usize {
        self.layers.iter().map(|layer| layer.shape.block_bytes()).max().unwrap_or(1)
    }

    /// Where each layer of each block lies.
    fn parts(&self, blocks: &[BlockId]) -> impl Iterator<Item = Range<usize>> {
        parts_of(&self.layers, &self.starts, blocks)
    }

    /// All layers.
    pub(super) fn layers(&self) -> &[CacheLayer] {
        &self.layers
    }

    /// What lies at a place.
    pub(super) fn layer(&self, place: KvPlace) -> CacheLayer {
        let layer = CacheLayer { table: place.table, ..self.layers[place.layer] };
        let (Some(split), Some(part)) = (self.layout.split, place.part) else { return layer };
        CacheLayer {
            address: layer.address + self.layout.part_begins(place) as u64,
            // Up to the end of the layer of the cache.
            blocks: layer.blocks * split.parts - part,
            shape: self.layout.shape_at(place),
            // That of layers in parts is the last one.
            kind: self.kinds - 1,
            to_next: 0,
            ..layer
        }
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

/// Where each of `layers`, which begin at `starts`, has each of `blocks`.
fn parts_of(layers: &[CacheLayer], starts: &[usize], blocks: &[BlockId]) -> impl Iterator<Item = Range<usize>> {
    blocks.iter().flat_map(move |&block| {
        layers.iter().zip(starts).map(move |(layer, start)| {
            assert!((block as usize) < layer.blocks, "block {block} does not exist");
            let part = layer.shape.block_bytes();
            let start = start + block as usize * part;
            start..start + part
        })
    })
}
