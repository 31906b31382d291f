//! Keys and values of all layers, in blocks.

use super::{KvNumber, Pages};
use crate::KvShape;
use crate::batch::BlockId;
use base::error::{Result, filled};
use std::ops::Range;

/// Per layer `[block][kv_head]`, each as [`KvFormat`](crate::KvFormat) says; layers one after another.
pub struct KvCache {
    shape: KvShape,
    bytes: Pages<u8>,
    layer_bytes: usize,
    /// Which blocks have memory: those that were written, on Windows also those that are about to be. `[blocks]`
    committed: Vec<bool>,
    /// How many of them.
    committed_blocks: usize,
}

const WHAT: &str = "the KV cache";
const KNOB: &str = "kv_cache_bytes";

impl KvCache {
    /// Room for `blocks` blocks in every layer.
    pub fn new(shape: &KvShape, blocks: usize) -> Result<KvCache> {
        let layer_bytes = shape.block_bytes() / shape.layers * blocks;
        // Blocks lie anywhere. With small pages, decode at 4096 tokens of context reads 11 GB/s a thread, with large ones 17.
        let bytes = Pages::reserved(layer_bytes * shape.layers, WHAT, KNOB)?.in_large_pages();
        let committed = filled(false, blocks, WHAT, KNOB)?;
        Ok(KvCache { shape: *shape, bytes, layer_bytes, committed, committed_blocks: 0 })
    }

    /// The shape this cache was made with.
    pub fn shape(&self) -> KvShape {
        self.shape
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
            for part in self.parts(&[block]) {
                self.bytes.commit(part, WHAT, KNOB)?;
            }
            self.committed[block as usize] = true;
            self.committed_blocks += 1;
        }
        Ok(())
    }

    /// Bytes of the blocks that have memory.
    pub fn committed_bytes(&self) -> u64 {
        (self.committed_blocks * self.shape.block_bytes()) as u64
    }

    /// Gives the pages back that lie whole in blocks that `unused` names; returns their bytes. `[blocks]`
    pub fn release(&mut self, unused: &[bool]) -> u64 {
        let mut bytes = 0usize;
        let is_released: Vec<bool> = self.committed.iter().zip(unused).map(|(&has, &unused)| has && unused).collect();
        let (part, layer_bytes) = (self.part_bytes(), self.layer_bytes);
        let mut first = 0;
        for run in is_released.chunk_by(|a, b| a == b) {
            let blocks = first..first + run.len();
            first = blocks.end;
            if run[0] {
                for layer in 0..self.shape.layers {
                    let start = layer * layer_bytes;
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
        assert_eq!(to.len(), blocks.len() * self.shape.block_bytes());
        for (to, from) in to.chunks_exact_mut(self.part_bytes()).zip(self.parts(blocks)) {
            to.copy_from_slice(&self.bytes[from]);
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
        assert_eq!(from.len(), blocks.len() * self.shape.block_bytes());
        self.commit(blocks.iter().copied())?;
        for (from, to) in from.chunks_exact(self.part_bytes()).zip(self.parts(blocks)) {
            self.bytes[to].copy_from_slice(from);
        }
        Ok(())
    }

    /// Bytes of one block in one layer.
    fn part_bytes(&self) -> usize {
        self.shape.block_bytes() / self.shape.layers
    }

    /// Where each layer of each block lies.
    fn parts<'a>(&self, blocks: &'a [BlockId]) -> impl Iterator<Item = Range<usize>> + use<'a> {
        let (part, layer_bytes, layers) = (self.part_bytes(), self.layer_bytes, self.shape.layers);
        blocks.iter().flat_map(move |&block| {
            let start = block as usize * part;
            assert!(start + part <= layer_bytes, "block {block} does not exist");
            (0..layers).map(move |layer| layer * layer_bytes + start..layer * layer_bytes + start + part)
        })
    }

    /// One layer, in which [`KvShape`] says where numbers and scales lie.
    ///
    /// # Panics
    ///
    /// If `T` is not the number type of the shape.
    pub fn layer<T: KvNumber>(&self, layer: usize) -> &[T] {
        assert_eq!(T::FORMAT, self.shape.format);
        bytemuck::cast_slice(&self.bytes[layer * self.layer_bytes..][..self.layer_bytes])
    }

    /// The bytes of one layer, to be written.
    pub fn layer_bytes_mut(&mut self, layer: usize) -> &mut [u8] {
        &mut self.bytes[layer * self.layer_bytes..][..self.layer_bytes]
    }

    /// One layer, to be written.
    ///
    /// # Panics
    ///
    /// If `T` is not the number type of the shape.
    pub fn layer_mut<T: KvNumber>(&mut self, layer: usize) -> &mut [T] {
        assert_eq!(T::FORMAT, self.shape.format);
        bytemuck::cast_slice_mut(&mut self.bytes[layer * self.layer_bytes..][..self.layer_bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KvFormat;
    use formats::DType;
    use half::bf16;

    const SHAPE: KvShape =
        KvShape { layers: 3, kv_heads: 2, head_dim: 6, block_size: 5, format: KvFormat::Plain(DType::Bf16) };

    #[test]
    fn layers_do_not_overlap() {
        let mut cache = KvCache::new(&SHAPE, 4).unwrap();
        for layer in 0..SHAPE.layers {
            cache.layer_mut::<bf16>(layer).fill(bf16::from_f32(1.0 + layer as f32));
        }
        for layer in 0..SHAPE.layers {
            let numbers = cache.layer::<bf16>(layer);
            assert_eq!(numbers.len(), 4 * 2 * 2 * 5 * 6);
            assert!(numbers.iter().all(|&n| n == bf16::from_f32(1.0 + layer as f32)));
        }
    }

    #[test]
    #[should_panic(expected = "Bf16")]
    fn numbers_of_another_type_are_refused() {
        KvCache::new(&SHAPE, 1).unwrap().layer::<f32>(0);
    }

    #[test]
    #[cfg(any(target_os = "linux", target_os = "android", windows))]
    fn whole_pages_of_unused_blocks_are_given_back() {
        // Blocks of 4 pages and a bit in each layer.
        let shape = KvShape { layers: 2, kv_heads: 1, head_dim: 2080, block_size: 2, ..SHAPE };
        let part = shape.block_bytes() / shape.layers;
        let mut cache = KvCache::new(&shape, 8).unwrap();
        assert_eq!((part, cache.release(&[true; 8])), (16640, 0), "nothing was used");
        cache.commit(1..7).unwrap();
        cache.layer_bytes_mut(0)[part..7 * part].fill(1);
        cache.layer_bytes_mut(1)[part..7 * part].fill(2);
        assert_eq!(cache.committed_bytes(), 6 * shape.block_bytes() as u64);
        // Block 3 is in use.
        let unused = [true, true, true, false, true, true, true, true];
        let bytes = cache.release(&unused);
        assert!(bytes.is_multiple_of(4096) && (5 * 2 * 16640 - 8 * 4096..=5 * 2 * 16640).contains(&bytes), "{bytes}");
        assert_eq!((cache.committed_bytes(), cache.release(&unused)), (shape.block_bytes() as u64, 0));
        cache.commit(1..7).unwrap();
        for (layer, value) in [(0, 1), (1, 2)] {
            let bytes = cache.layer_bytes_mut(layer);
            assert!(bytes[3 * part..4 * part].iter().all(|&byte| byte == value), "a block in use keeps what it holds");
            assert!(bytes[part + 4096..3 * part - 4096].iter().all(|&byte| byte == 0), "the others are zero");
        }
    }

    #[test]
    fn a_cache_beyond_the_address_space_is_an_error() {
        let refused = KvCache::new(&KvShape { layers: 1, ..SHAPE }, 1 << 52);
        assert!(matches!(refused, Err(base::error::Error::OutOfMemory { knob: "kv_cache_bytes", .. })));
    }
}
