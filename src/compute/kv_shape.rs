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

/// Where a layer of a model finds its keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvPlace {
    /// Layer of the cache.
    pub layer: usize,
    /// Which [block table](crate::batch::Batch::block_table_of) of a row leads to its blocks.
    pub table: usize,
}

impl From<usize> for KvPlace {
    /// In a cache with one block table.
    fn from(layer: usize) -> KvPlace {
        KvPlace { layer, table: 0 }
    }
}

/// Which layers of a model share a block table.
///
/// Layers of one group share one; groups share the layers of the cache. The first group attends to all tokens before, or is the only one. The others attend
/// to a window and give back the blocks before it, so that a block holds some tokens in the layers of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroups {
    /// Where each layer that stores keys and values finds them, in the order of the model.
    pub places: Vec<KvPlace>,
    /// Layers of the cache.
    pub layers: usize,
    /// Groups after the first, and the tokens that a token attends to at most in their layers, itself included.
    pub windowed: Option<Windowed>,
}

/// Groups of layers whose blocks before a window are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windowed {
    /// How many groups, each with a block table of its own. At least one.
    pub tables: usize,
    /// Tokens that a token attends to at most, itself included.
    pub window: usize,
}

impl Windowed {
    /// Blocks of `block_size` tokens that a sequence holds at most per table between passes of `new` tokens.
    pub fn blocks(&self, new: usize, block_size: usize) -> usize {
        (self.window + new).div_ceil(block_size) + 1
    }

    /// The first block that the token after `blocks` full blocks of `block_size` tokens attends to.
    pub fn first_before(&self, blocks: usize, block_size: usize) -> usize {
        let first = (blocks.saturating_mul(block_size).saturating_add(1)).saturating_sub(self.window) / block_size;
        first.min(blocks.saturating_sub(1))
    }

    /// The first block that is kept of a prefix of `blocks` full blocks, for it to be continued. The last token of a prompt is always computed, so
    /// that a prompt that ends with a block continues the blocks before its last.
    pub fn first_kept(&self, blocks: usize, block_size: usize) -> usize {
        self.first_before(blocks.saturating_sub(1), block_size)
    }
}

/// Block tables of a model at most: more would take longer to write than their memory is worth.
const TABLES_MAX: usize = 32;
/// The most memory that grouped layers may take for a sequence within the window, as a multiple of what one table takes.
const PADDING_MAX: f32 = 1.2;
/// The least memory that groups must save for the longest sequence, as a part of what one table takes.
const SAVING_MIN: f32 = 0.1;

impl KvGroups {
    /// One group of all layers.
    pub fn one(layers: usize) -> KvGroups {
        KvGroups { places: (0..layers).map(KvPlace::from).collect(), layers, windowed: None }
    }

    /// Groups of layers, of which each stores `heads` and has a `window` or none, for sequences of up to `model_len` tokens.
    ///
    /// There are several groups where some layers have a window and some have none, all heads are alike, and it saves memory. The first group has the layers without
    /// a window; the others have as many layers each, but for the last one.
    pub fn new(heads: &[KvHeads], windows: &[Option<usize>], model_len: usize) -> KvGroups {
        let one = KvGroups::one(heads.len());
        let full = windows.iter().filter(|window| window.is_none()).count();
        let narrow = windows.len() - full;
        let Some(window) = windows.iter().flatten().copied().max().filter(|_| full > 0) else { return one };
        let tables = narrow.div_ceil(full);
        let padding = (full * (1 + tables)) as f32 / windows.len() as f32;
        let needed = full * (model_len + tables * window.min(model_len));
        let saved = 1.0 - needed as f32 / (windows.len() * model_len) as f32;
        let is_uniform = heads.windows(2).all(|pair| pair[0] == pair[1]);
        if !is_uniform || tables >= TABLES_MAX || padding > PADDING_MAX || saved < SAVING_MIN {
            return one;
        }
        let (mut wide, mut narrow) = (0.., 0..);
        let place = |window: &Option<usize>| match window {
            None => KvPlace { layer: wide.next().expect("endless"), table: 0 },
            Some(_) => {
                let index = narrow.next().expect("endless");
                KvPlace { layer: index % full, table: 1 + index / full }
            }
        };
        KvGroups {
            places: windows.iter().map(place).collect(),
            layers: full,
            windowed: Some(Windowed { tables, window }),
        }
    }

    /// Block tables after the first.
    pub fn window_tables(&self) -> usize {
        self.windowed.map_or(0, |windowed| windowed.tables)
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
    fn layers_with_a_window_form_groups_as_large_as_that_of_the_others() {
        let heads = [KvHeads { kv_heads: 2, head_dim: 8 }; 7];
        let windows: Vec<_> = [4, 4, 0, 4, 4, 0, 4].map(|window| (window > 0).then_some(window)).into();
        let groups = KvGroups::new(&heads, &windows, 100);
        assert_eq!((groups.layers, groups.windowed), (2, Some(Windowed { tables: 3, window: 4 })));
        let places: Vec<_> = groups.places.iter().map(|place| (place.table, place.layer)).collect();
        assert_eq!(places, [(1, 0), (1, 1), (0, 0), (2, 0), (2, 1), (0, 1), (3, 0)]);
        let one = KvGroups::one(7);
        assert_eq!(KvGroups::new(&heads, &windows, 4), one, "the window is never left");
        assert_eq!(KvGroups::new(&heads, &[None; 7], 100), one);
        assert_eq!(KvGroups::new(&heads, &[Some(4); 7], 100), one, "all blocks before the window are given back");
        let mut differ = heads;
        differ[3].kv_heads = 1;
        assert_eq!(KvGroups::new(&differ, &windows, 100), one);
        // 6 layers and one: a group of one layer would be padded to six.
        let mostly: Vec<_> = (0..7).map(|layer| (layer == 0).then_some(4)).collect();
        assert_eq!(KvGroups::new(&heads, &mostly, 100), one);
    }

    #[test]
    fn groups_of_published_models_save_what_their_windows_leave() {
        // Bytes of 32,768 tokens with groups and without, for a step of one token and blocks of 16.
        let share = |layers: usize, full: fn(usize) -> bool, window: usize| {
            let windows: Vec<_> = (0..layers).map(|layer| (!full(layer)).then_some(window)).collect();
            let groups = KvGroups::new(&vec![KvHeads { kv_heads: 8, head_dim: 128 }; layers], &windows, 32_768);
            let windowed = groups.windowed.expect("groups");
            let blocks = 32_768 / 16 + windowed.tables * windowed.blocks(1, 16);
            (groups.layers * blocks) as f32 / (layers * 32_768 / 16) as f32
        };
        let of_gemma3 = share(62, |layer| layer % 6 == 5, 1024);
        let of_gpt_oss = share(24, |layer| layer % 2 == 1, 128);
        assert!(of_gemma3 < 0.25 && of_gpt_oss < 0.52, "{of_gemma3} {of_gpt_oss}");
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
