//! Keys and values of all layers, in blocks.

use super::{KvNumber, Pages};
use crate::batch::BlockId;
use crate::{KvLayout, KvPlace, KvShape};
use base::error::{Error, Result, filled};
use std::ops::Range;

/// Per layer `[block][kv_head]`, each as [`KvFormat`](crate::KvFormat) says; layers one after another.
pub struct KvCache {
    layout: KvLayout,
    bytes: Pages<u8>,
    /// Where each layer begins, and the end. `[layers + 1]`
    starts: Vec<usize>,
    /// Which blocks have memory: those that were written, on Windows also those that are about to be. `[blocks]`
    committed: Vec<bool>,
    /// How many of them.
    committed_blocks: usize,
}

const WHAT: &str = "the KV cache";
const KNOB: &str = "kv_cache_bytes";

impl KvCache {
    /// Room for `blocks` blocks in every layer.
    pub fn new(layout: &KvLayout, blocks: usize) -> Result<KvCache> {
        let too_large = || Error::OutOfMemory { what: WHAT, bytes: u64::MAX, knob: KNOB };
        let starts = layout.starts(blocks).ok_or_else(too_large)?;
        // Blocks lie anywhere. With small pages, decode at 4096 tokens of context reads 11 GB/s a thread, with large ones 17.
        let bytes = Pages::reserved(starts[layout.layers.len()], WHAT, KNOB)?.in_large_pages();
        let committed = filled(false, blocks, WHAT, KNOB)?;
        Ok(KvCache { layout: layout.clone(), bytes, starts, committed, committed_blocks: 0 })
    }

    /// The shape this cache was made with.
    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// The shape of what lies at a place.
    pub fn shape(&self, place: impl Into<KvPlace>) -> KvShape {
        self.layout.shape_at(place.into())
    }

    /// Gives `blocks` memory, before they are written first.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](base::error::Error::OutOfMemory) on Windows, where memory is charged here.
    pub fn commit(&mut self, blocks: impl Iterator<Item = BlockId>) -> Result<()> {
        for block in blocks {
            if self.committed[block as usize] {
                continue;
            }
            for part in parts(&self.layout, &self.starts, &[block]) {
                self.bytes.commit(part, WHAT, KNOB)?;
            }
            self.committed[block as usize] = true;
            self.committed_blocks += 1;
        }
        Ok(())
    }

    /// Bytes of the blocks that have memory.
    pub fn committed_bytes(&self) -> u64 {
        (self.committed_blocks * self.layout.block_bytes()) as u64
    }

    /// Gives the pages back that lie whole in blocks that `unused` names; returns their bytes. `[blocks]`
    pub fn release(&mut self, unused: &[bool]) -> u64 {
        let mut bytes = 0usize;
        let is_released: Vec<bool> = self.committed.iter().zip(unused).map(|(&has, &unused)| has && unused).collect();
        let mut first = 0;
        for run in is_released.chunk_by(|a, b| a == b) {
            let blocks = first..first + run.len();
            first = blocks.end;
            if run[0] {
                for (shape, start) in self.layout.shapes().zip(&self.starts) {
                    let part = shape.block_bytes();
                    bytes += self.bytes.release(start + blocks.start * part..start + blocks.end * part);
                }
            }
        }
        if bytes > 0 {
            self.committed_blocks -= is_released.iter().filter(|&&is_released| is_released).count();
            self.committed.iter_mut().zip(&is_released).for_each(|(has, is_released)| *has &= !is_released);
        }
        bytes as u64
    }

    /// Gets memory for blocks where the system says now whether there is some.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn restore(&mut self, blocks: &[BlockId]) -> Result<()> {
        if cfg!(windows) { self.commit(blocks.iter().copied()) } else { Ok(()) }
    }

    /// Copies blocks out, one after the other with all their layers. `[blocks][layer][kv_head]`, each as
    /// [`KvFormat`](crate::KvFormat) says.
    ///
    /// # Panics
    ///
    /// If `to` has another size, or a block does not exist.
    pub fn read_blocks(&self, blocks: &[BlockId], to: &mut [u8]) {
        assert_eq!(to.len(), blocks.len() * self.layout.block_bytes());
        let mut to = to;
        for from in parts(&self.layout, &self.starts, blocks) {
            let (part, rest) = to.split_at_mut(from.len());
            part.copy_from_slice(&self.bytes[from]);
            to = rest;
        }
    }

    /// Copies blocks in, in the same form.
    ///
    /// # Panics
    ///
    /// If `from` has another size, or a block does not exist.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    pub fn write_blocks(&mut self, blocks: &[BlockId], from: &[u8]) -> Result<()> {
        assert_eq!(from.len(), blocks.len() * self.layout.block_bytes());
        self.commit(blocks.iter().copied())?;
        let mut from = from;
        for to in parts(&self.layout, &self.starts, blocks) {
            let (part, rest) = from.split_at(to.len());
            self.bytes[to].copy_from_slice(part);
            from = rest;
        }
        Ok(())
    }

    /// From the beginning of a layer, or of a part of it, to the end of the layer.
    fn range(&self, place: KvPlace) -> Range<usize> {
        self.starts[place.layer] + self.layout.part_begins(place)..self.starts[place.layer + 1]
    }

    /// What lies at a place, in which [`KvShape`] says where numbers and scales lie.
    ///
    /// # Panics
    ///
    /// If `T` is not the number type of the shape.
    pub fn layer<T: KvNumber>(&self, place: impl Into<KvPlace>) -> &[T] {
        assert_eq!(T::FORMAT, self.layout.format);
        bytemuck::cast_slice(&self.bytes[self.range(place.into())])
    }

    /// The bytes of one layer, to be written.
    pub fn layer_bytes_mut(&mut self, layer: usize) -> &mut [u8] {
        let range = self.range(layer.into());
        &mut self.bytes[range]
    }

    /// The same, to be written.
    ///
    /// # Panics
    ///
    /// If `T` is not the number type of the shape.
    pub fn layer_mut<T: KvNumber>(&mut self, place: impl Into<KvPlace>) -> &mut [T] {
        assert_eq!(T::FORMAT, self.layout.format);
        let range = self.range(place.into());
        bytemuck::cast_slice_mut(&mut self.bytes[range])
    }
}

/// Where each layer of each of `blocks` lies.
fn parts<'a>(layout: &'a KvLayout, starts: &'a [usize], blocks: &'a [BlockId]) -> impl Iterator<Item = Range<usize>> {
    blocks.iter().flat_map(move |&block| {
        layout.shapes().zip(starts.windows(2)).map(move |(shape, layer)| {
            let part = shape.block_bytes();
            let start = layer[0] + block as usize * part;
            assert!(start + part <= layer[1], "block {block} does not exist");
            start..start + part
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{KvFormat, KvHeads, KvValues};
    use formats::DType;
    use half::bf16;

    const SHAPE: KvShape = KvShape {
        kv_heads: 2,
        head_dim: 6,
        values: KvValues::Stored,
        block_size: 5,
        format: KvFormat::Plain(DType::Bf16),
    };

    #[test]
    fn layers_do_not_overlap() {
        let mut cache = KvCache::new(&SHAPE.layers(3), 4).unwrap();
        for layer in 0..3 {
            cache.layer_mut::<bf16>(layer).fill(bf16::from_f32(1.0 + layer as f32));
        }
        for layer in 0..3 {
            let numbers = cache.layer::<bf16>(layer);
            assert_eq!(numbers.len(), 4 * 2 * 2 * 5 * 6);
            assert!(numbers.iter().all(|&n| n == bf16::from_f32(1.0 + layer as f32)));
        }
    }

    #[test]
    fn blocks_of_layers_of_several_shapes_are_read_layer_after_layer() {
        let heads = |kv_heads, head_dim| KvHeads { kv_heads, head_dim, values: KvValues::Stored };
        let layout = KvLayout { layers: vec![heads(2, 6), heads(1, 4), heads(2, 6)], block_size: 5, ..SHAPE.layers(0) };
        let mut cache = KvCache::new(&layout, 4).unwrap();
        let parts = [240, 80, 240];
        for (layer, part) in parts.into_iter().enumerate() {
            let bytes = cache.layer_bytes_mut(layer);
            assert_eq!(bytes.len(), 4 * part);
            bytes.chunks_exact_mut(part).enumerate().for_each(|(block, bytes)| bytes.fill((10 * layer + block) as u8));
        }
        let block = |block: u8| parts.into_iter().zip([0, 10, 20]).flat_map(move |(n, at)| vec![at + block; n]);
        let mut read = vec![0; 2 * layout.block_bytes()];
        cache.read_blocks(&[3, 1], &mut read);
        assert_eq!(read, block(3).chain(block(1)).collect::<Vec<u8>>());
        cache.write_blocks(&[0, 2], &read).unwrap();
        let mut again = vec![0; 4 * layout.block_bytes()];
        cache.read_blocks(&[0, 1, 2, 3], &mut again);
        assert_eq!(again, [3, 1, 1, 3].into_iter().flat_map(block).collect::<Vec<u8>>());
    }

    #[test]
    #[should_panic(expected = "Bf16")]
    fn numbers_of_another_type_are_refused() {
        KvCache::new(&SHAPE.layers(1), 1).unwrap().layer::<f32>(0);
    }

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android", windows))]
    fn whole_pages_of_unused_blocks_are_given_back() {
        // Blocks of 4 pages and a bit in each layer.
        let shape = KvShape { kv_heads: 1, head_dim: 2080, block_size: 2, ..SHAPE };
        let (part, layout) = (shape.block_bytes(), shape.layers(2));
        let mut cache = KvCache::new(&layout, 8).unwrap();
        assert_eq!((part, cache.release(&[true; 8])), (16640, 0), "nothing was used");
        cache.commit(1..7).unwrap();
        cache.layer_bytes_mut(0)[part..7 * part].fill(1);
        cache.layer_bytes_mut(1)[part..7 * part].fill(2);
        assert_eq!(cache.committed_bytes(), 6 * layout.block_bytes() as u64);
        // Block 3 is in use.
        let unused = [true, true, true, false, true, true, true, true];
        let bytes = cache.release(&unused);
        assert!(bytes.is_multiple_of(4096) && (5 * 2 * 16640 - 8 * 4096..=5 * 2 * 16640).contains(&bytes), "{bytes}");
        assert_eq!((cache.committed_bytes(), cache.release(&unused)), (layout.block_bytes() as u64, 0));
        cache.commit(1..7).unwrap();
        for (layer, value) in [(0, 1), (1, 2)] {
            let bytes = cache.layer_bytes_mut(layer);
            assert!(bytes[3 * part..4 * part].iter().all(|&byte| byte == value), "a block in use keeps what it holds");
            assert!(bytes[part + 4096..3 * part - 4096].iter().all(|&byte| byte == 0), "the others are zero");
        }
    }

    #[test]
    fn a_cache_beyond_the_address_space_is_an_error() {
        let refused = KvCache::new(&SHAPE.layers(1), 1 << 52);
        assert!(matches!(refused, Err(base::error::Error::OutOfMemory { knob: "kv_cache_bytes", .. })));
    }
}
