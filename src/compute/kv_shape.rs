//! How are keys and values laid out in a KV cache, on every device?
//!
//! Invariant: all that belongs to the keys and values of a block in a layer lies in [`KvShape::head_bytes`] consecutive bytes per KV
//! head, so that whoever copies blocks, or the heads of a block, needs to know no format.

use formats::DType;

/// How keys and values are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvFormat {
    /// Numbers of one type. A head of a block is `[K|V][block_size][head_dim]`.
    Plain(DType),
    /// Integers from -127 to 127, with one scale per token, KV head, and key or value: `number = integer * scale`.
    ///
    /// A head of a block is `[K|V][block_size][head_dim]` in i8 and, behind it, the scales `[K|V][block_size]` in bf16. The scale is
    /// the greatest absolute value divided by 127, rounded to bf16, and each integer is `number * (1 / scale)` in f32, rounded to
    /// the nearest one, the even one of two. A scale that would not be a normal number is 0, and so are its integers.
    Int8,
}

impl From<DType> for KvFormat {
    fn from(dtype: DType) -> KvFormat {
        KvFormat::Plain(dtype)
    }
}

impl KvFormat {
    /// What messages call it.
    pub fn name(self) -> &'static str {
        match self {
            KvFormat::Plain(DType::F32) => "f32",
            KvFormat::Plain(DType::F16) => "f16",
            KvFormat::Plain(DType::Bf16) => "bf16",
            KvFormat::Int8 => "int8",
        }
    }

    /// Bytes of a number.
    pub const fn number_bytes(self) -> usize {
        match self {
            KvFormat::Plain(dtype) => dtype.bytes(),
            KvFormat::Int8 => 1,
        }
    }

    /// Bytes of a scale, of which each key and each value of a token has one; 0 without scales.
    pub const fn scale_bytes(self) -> usize {
        match self {
            KvFormat::Plain(_) => 0,
            KvFormat::Int8 => 2,
        }
    }
}

/// Which format the caller asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvCacheDtype {
    /// The number type of the weights.
    Auto,
    /// [`KvFormat::Int8`].
    Int8,
}

impl KvCacheDtype {
    /// The format for weights that are kept in `weights`.
    pub fn format(self, weights: DType) -> KvFormat {
        match self {
            KvCacheDtype::Auto => KvFormat::Plain(weights),
            KvCacheDtype::Int8 => KvFormat::Int8,
        }
    }
}

/// The keys and values of a token in one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvHeads {
    /// Heads that keys and values have.
    pub kv_heads: usize,
    /// Numbers in a head.
    pub head_dim: usize,
}

/// The shape of a KV cache: that of each of its layers, one after another. All have blocks of one size in one format, so that a block is a
/// number that means the same tokens in every layer.
///
/// A KV layer is what one layer of a model stores. Layers that store nothing have none, so that their numbers may differ from those of the
/// model's layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvLayout {
    /// Heads of each layer. `[layers]`
    pub layers: Vec<KvHeads>,
    /// Tokens of a block.
    pub block_size: usize,
    /// Encoding of keys and values.
    pub format: KvFormat,
}

impl KvLayout {
    /// The shape of one layer.
    ///
    /// # Panics
    ///
    /// If there is no such layer.
    pub fn layer(&self, layer: usize) -> KvShape {
        let KvHeads { kv_heads, head_dim } = self.layers[layer];
        KvShape { kv_heads, head_dim, block_size: self.block_size, format: self.format }
    }

    /// The shape of each layer.
    pub fn shapes(&self) -> impl Iterator<Item = KvShape> {
        (0..self.layers.len()).map(|layer| self.layer(layer))
    }

    /// The shapes of layers, each once, in the order in which layers first have them.
    pub fn kinds(&self) -> Vec<KvShape> {
        let mut kinds = Vec::new();
        for shape in self.shapes() {
            if !kinds.contains(&shape) {
                kinds.push(shape);
            }
        }
        kinds
    }

    /// Bytes of one block over all layers, keys and values.
    pub fn block_bytes(&self) -> usize {
        self.shapes().map(|shape| shape.block_bytes()).sum()
    }

    /// Bytes of a token over all layers, keys and values.
    pub fn token_bytes(&self) -> usize {
        self.block_bytes() / self.block_size
    }

    /// Where each layer of a cache of `blocks` blocks begins, and its end. `[layers + 1]`
    ///
    /// `None`: no address space holds it.
    pub fn starts(&self, blocks: usize) -> Option<Vec<usize>> {
        let mut starts = vec![0usize];
        for shape in self.shapes() {
            let bytes = shape.block_bytes().checked_mul(blocks)?;
            starts.push(starts[starts.len() - 1].checked_add(bytes)?);
        }
        Some(starts)
    }
}

/// The shape of one layer of a KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Heads that keys and values have.
    pub kv_heads: usize,
    /// Numbers in a head.
    pub head_dim: usize,
    /// Tokens of a block.
    pub block_size: usize,
    /// Encoding of keys and values.
    pub format: KvFormat,
}

impl KvShape {
    /// A cache of `layers` layers of this shape.
    pub fn layers(self, layers: usize) -> KvLayout {
        let KvShape { kv_heads, head_dim, block_size, format } = self;
        KvLayout { layers: vec![KvHeads { kv_heads, head_dim }; layers], block_size, format }
    }

    /// Bytes of one block in this layer, keys and values.
    pub fn block_bytes(&self) -> usize {
        self.kv_heads * self.head_bytes()
    }

    /// Bytes of one KV head of a block in a layer, keys and values.
    pub fn head_bytes(&self) -> usize {
        2 * self.block_size * (self.head_dim * self.format.number_bytes() + self.format.scale_bytes())
    }

    /// Where the key at `slot`, which is `block * block_size + offset`, begins in a layer, counted in numbers.
    pub fn key_at(&self, slot: usize, kv_head: usize) -> usize {
        // A scale of int8 takes the place of two integers.
        let head = 2 * self.block_size * (self.head_dim + self.format.scale_bytes());
        (slot / self.block_size * self.kv_heads + kv_head) * head + slot % self.block_size * self.head_dim
    }

    /// Where the value at `slot` begins in a layer, counted in numbers.
    pub fn value_at(&self, slot: usize, kv_head: usize) -> usize {
        self.key_at(slot, kv_head) + self.block_size * self.head_dim
    }

    /// Where the scale of the key at `slot` begins in a layer, in bytes.
    pub fn key_scale_at(&self, slot: usize, kv_head: usize) -> usize {
        let numbers = 2 * self.block_size * self.head_dim * self.format.number_bytes();
        let head = (slot / self.block_size * self.kv_heads + kv_head) * self.head_bytes();
        head + numbers + slot % self.block_size * self.format.scale_bytes()
    }

    /// Where the scale of the value at `slot` begins in a layer, in bytes.
    pub fn value_scale_at(&self, slot: usize, kv_head: usize) -> usize {
        self.key_scale_at(slot, kv_head) + self.block_size * self.format.scale_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: KvShape = KvShape { kv_heads: 2, head_dim: 6, block_size: 5, format: KvFormat::Plain(DType::Bf16) };
    const INT8: KvShape = KvShape { format: KvFormat::Int8, ..PLAIN };

    #[test]
    fn every_byte_of_a_layer_belongs_to_one_key_value_or_scale() {
        let blocks = 4;
        for shape in [PLAIN, INT8] {
            let KvShape { kv_heads, head_dim, block_size, format } = shape;
            let mut owners = vec![0; shape.block_bytes() * blocks];
            let (number, scale) = (format.number_bytes(), format.scale_bytes());
            for (slot, head) in (0..blocks * block_size).flat_map(|slot| (0..kv_heads).map(move |head| (slot, head))) {
                for at in [shape.key_at(slot, head), shape.value_at(slot, head)] {
                    owners[at * number..(at + head_dim) * number].iter_mut().for_each(|n| *n += 1);
                }
                for at in [shape.key_scale_at(slot, head), shape.value_scale_at(slot, head)] {
                    owners[at..at + scale].iter_mut().for_each(|n| *n += 1);
                }
            }
            assert!(owners.iter().all(|&n| n == 1), "{shape:?}: {owners:?}");
        }
    }

    #[test]
    fn the_layout_is_block_then_head_then_key_or_value_then_offset() {
        // [block][kv_head][K|V][block_size][head_dim] = [_][2][2][5][6]
        assert_eq!(PLAIN.key_at(0, 0), 0);
        assert_eq!(PLAIN.key_at(1, 0), 6);
        assert_eq!(PLAIN.value_at(0, 0), 30);
        assert_eq!(PLAIN.key_at(0, 1), 60);
        assert_eq!(PLAIN.key_at(5, 0), 120);
        assert_eq!(PLAIN.value_at(7, 1), 120 + 60 + 30 + 12);
    }

    #[test]
    fn scales_lie_behind_the_integers_of_their_head() {
        // 60 integers and 2 * 5 scales of two bytes.
        assert_eq!((INT8.head_bytes(), INT8.key_at(0, 1), INT8.key_at(5, 0)), (80, 80, 160));
        assert_eq!((INT8.key_scale_at(0, 0), INT8.value_scale_at(0, 0)), (60, 70));
        assert_eq!((INT8.key_scale_at(7, 1), INT8.value_scale_at(7, 1)), (160 + 80 + 60 + 4, 160 + 80 + 70 + 4));
    }

    #[test]
    fn a_head_of_128_takes_half_the_memory_and_its_scales() {
        let shape = KvShape { kv_heads: 8, head_dim: 128, block_size: 16, format: KvFormat::Int8 };
        assert_eq!(shape.layers(28).token_bytes(), 28 * 8 * 2 * 130);
        assert_eq!(KvShape { format: DType::Bf16.into(), ..shape }.layers(28).token_bytes(), 28 * 8 * 2 * 256);
    }

    #[test]
    fn a_block_is_as_large_as_its_layers_together() {
        let heads = |kv_heads, head_dim| KvHeads { kv_heads, head_dim };
        let layers = vec![heads(8, 256), heads(8, 256), heads(1, 512)];
        let layout = KvLayout { layers, block_size: 16, format: DType::Bf16.into() };
        assert_eq!(layout.token_bytes(), 2 * 2 * (8 * 256 + 8 * 256 + 512));
        let block = |kv_heads: usize, head_dim: usize| 2 * 2 * 16 * kv_heads * head_dim;
        let starts = [0, 3 * block(8, 256), 6 * block(8, 256), 6 * block(8, 256) + 3 * block(1, 512)];
        assert_eq!(layout.starts(3).as_deref(), Some(&starts[..]));
        assert_eq!(layout.starts(usize::MAX / 2), None);
        assert_eq!(layout.kinds(), [layout.layer(0), layout.layer(2)]);
    }
}
