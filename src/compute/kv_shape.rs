//! How are keys and values laid out in a KV cache, on every device?
//!
//! Invariant: all that belongs to the keys and values of a block in a layer lies in [`KvShape::head_bytes`] consecutive bytes per KV
//! head, so that whoever copies blocks, or the heads of a block, needs to know no format.

use crate::batch::Batch;
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
    ///
    /// A value that lies [in its key](KvValues::InKeys) has its own scale there, and the scale of the key is that of the numbers before it.
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
    /// Numbers in a key.
    pub head_dim: usize,
    /// Where its value is.
    pub values: KvValues,
}

/// Where the value of a head is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvValues {
    /// Behind the keys of its block, with as many numbers as a key.
    Stored,
    /// In the key: its last numbers, that many. Values take no memory.
    InKeys(usize),
}

impl KvValues {
    /// Vectors of a token and head that are stored: a key, and a value if it is no part of it.
    pub const fn vectors(self) -> usize {
        match self {
            KvValues::Stored => 2,
            KvValues::InKeys(_) => 1,
        }
    }

    /// Numbers in a value where a key has `head_dim`.
    pub const fn dim(self, head_dim: usize) -> usize {
        match self {
            KvValues::Stored => head_dim,
            KvValues::InKeys(dim) => dim,
        }
    }
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
    /// How layers of other heads lie in the same blocks, where a model has such groups.
    pub split: Option<KvSplit>,
    /// Tokens of a block.
    pub block_size: usize,
    /// Encoding of keys and values.
    pub format: KvFormat,
}

/// Layers of a model of which `parts` lie in one layer of the cache, so that a block has one size whichever layers it serves.
///
/// Block `b` of the cache is block `parts * b` of each of them: part `p` begins `p` of its own blocks behind the layer of the cache. Kernels
/// know layers with blocks of one size, and [`scale_blocks`](KvLayout::scale_blocks) makes the numbers in block tables theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvSplit {
    /// What each of these layers stores.
    pub heads: KvHeads,
    /// How many lie in a layer of the cache.
    pub parts: usize,
    /// Which block tables lead to them.
    pub tables: SplitTables,
}

/// The block tables of layers of which several lie in one layer of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitTables {
    /// That of the layers without a window.
    First,
    /// All others.
    Windows,
}

impl KvLayout {
    /// The shape of what lies at a place.
    ///
    /// # Panics
    ///
    /// If there is no such place.
    pub fn shape_at(&self, place: KvPlace) -> KvShape {
        match place.part {
            None => self.layer(place.layer),
            Some(_) => {
                let KvHeads { kv_heads, head_dim, values } =
                    self.split.expect("a layout whose layers have parts").heads;
                KvShape { kv_heads, head_dim, values, ..self.layer(place.layer) }
            }
        }
    }

    /// Bytes from the beginning of a layer to that of a part of it.
    pub fn part_begins(&self, place: KvPlace) -> usize {
        place.part.map_or(0, |part| part * self.shape_at(place).block_bytes())
    }

    /// Makes the blocks and slots of a batch, which are those of the cache, those of the layers to which each table leads.
    pub fn scale_blocks(&self, batch: &mut Batch) {
        let Some(KvSplit { parts, tables, .. }) = self.split else { return };
        let (parts, size) = (parts as u32, self.block_size as u32);
        let scale = |slots: &mut [u32], blocks: &mut [u32]| {
            slots.iter_mut().for_each(|slot| *slot += *slot / size * (parts - 1) * size);
            blocks.iter_mut().for_each(|block| *block *= parts);
        };
        match tables {
            SplitTables::First => scale(&mut batch.slots, &mut batch.block_tables),
            SplitTables::Windows => {
                batch.window_tables.iter_mut().for_each(|table| scale(&mut table.slots, &mut table.block_tables));
            }
        }
    }

    /// The greatest number of blocks whose slots all have a number of 32 bits.
    pub fn addressable_blocks(&self) -> u64 {
        u64::from(u32::MAX) / (self.block_size * self.split.map_or(1, |split| split.parts)) as u64
    }

    /// The shape of one layer.
    ///
    /// # Panics
    ///
    /// If there is no such layer.
    pub fn layer(&self, layer: usize) -> KvShape {
        let KvHeads { kv_heads, head_dim, values } = self.layers[layer];
        KvShape { kv_heads, head_dim, values, block_size: self.block_size, format: self.format }
    }

    /// The shape of each layer.
    pub fn shapes(&self) -> impl Iterator<Item = KvShape> {
        (0..self.layers.len()).map(|layer| self.layer(layer))
    }

    /// The shapes of layers, each once, in the order in which layers first have them, and then that of layers that lie in parts.
    pub fn kinds(&self) -> Vec<KvShape> {
        let mut kinds = Vec::new();
        let split = self.split.map(|_| self.shape_at(KvPlace { layer: 0, part: Some(0), table: 0 }));
        for shape in self.shapes().chain(split) {
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
    /// Which [part](KvSplit) of it; `None` for the whole.
    pub part: Option<usize>,
    /// Which [block table](crate::batch::Batch::block_table_of) of a row leads to its blocks.
    pub table: usize,
}

impl From<usize> for KvPlace {
    /// In a cache with one block table.
    fn from(layer: usize) -> KvPlace {
        KvPlace { layer, part: None, table: 0 }
    }
}

/// Which layers of a model share a block table.
///
/// Layers of one group share one; groups share the layers of the cache, of which each holds several layers of a group whose heads are smaller. The first group attends to all tokens before, or is the only one. The others attend
/// to a window and give back the blocks before it, so that a block holds some tokens in the layers of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvGroups {
    /// Where each layer that stores keys and values finds them, in the order of the model.
    pub places: Vec<KvPlace>,
    /// Layers of the cache.
    pub layers: usize,
    /// Which layers of the model lie several in one layer of the cache.
    pub split: Option<KvSplit>,
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
        KvGroups { places: (0..layers).map(KvPlace::from).collect(), layers, split: None, windowed: None }
    }

    /// Groups of layers, of which each stores `heads` and has a `window` or none, for sequences of up to `model_len` tokens.
    ///
    /// There are several groups where some layers have a window and some have none, and it saves memory. The heads of the layers with a window are alike, and so are
    /// those of the others; if they differ, the numbers of one are a multiple of those of the other. The first group has the layers without a window; the
    /// others have as many numbers each, but for the last one.
    pub fn new(heads: &[KvHeads], windows: &[Option<usize>], model_len: usize) -> KvGroups {
        let one = KvGroups::one(heads.len());
        let of =
            |is_narrow: bool| heads.iter().zip(windows).filter(move |(_, w)| w.is_some() == is_narrow).map(|(h, _)| *h);
        let (Some(wide), Some(narrow)) = (of(false).next(), of(true).next()) else { return one };
        let Some(window) = windows.iter().flatten().copied().max() else { return one };
        let [full, narrow_layers] = [of(false).count(), of(true).count()];
        let is_uniform = of(false).all(|heads| heads == wide) && of(true).all(|heads| heads == narrow);
        let numbers = |heads: KvHeads| heads.kv_heads * heads.head_dim * heads.values.vectors();
        let (larger, smaller) = (numbers(wide).max(numbers(narrow)), numbers(wide).min(numbers(narrow)));
        if !is_uniform || !larger.is_multiple_of(smaller) {
            return one;
        }
        // Layers of each kind that lie in a layer of the cache.
        let [of_wide, of_narrow] = [wide, narrow].map(|heads| larger / numbers(heads));
        let layers = full.div_ceil(of_wide);
        let tables = narrow_layers.div_ceil(layers * of_narrow);
        // In layers of the cache.
        let in_one_table = full as f32 / of_wide as f32 + narrow_layers as f32 / of_narrow as f32;
        let padding = (layers * (1 + tables)) as f32 / in_one_table;
        let needed = layers * (model_len + tables * window.min(model_len));
        let saved = 1.0 - needed as f32 / (in_one_table * model_len as f32);
        if tables >= TABLES_MAX || padding > PADDING_MAX || saved < SAVING_MIN {
            return one;
        }
        let split = (wide != narrow).then_some(match of_wide > 1 {
            true => KvSplit { heads: wide, parts: of_wide, tables: SplitTables::First },
            false => KvSplit { heads: narrow, parts: of_narrow, tables: SplitTables::Windows },
        });
        let place = |index: usize, parts: usize, tables: SplitTables| {
            let in_table = index % (layers * parts);
            let is_part = split.is_some_and(|split| split.tables == tables);
            let part = is_part.then_some(in_table % parts);
            KvPlace { layer: in_table / parts, part, table: index / (layers * parts) }
        };
        let (mut wide, mut narrow) = (0.., 0..);
        let place = |window: &Option<usize>| match window {
            None => place(wide.next().expect("endless"), of_wide, SplitTables::First),
            Some(_) => {
                let place = place(narrow.next().expect("endless"), of_narrow, SplitTables::Windows);
                KvPlace { table: 1 + place.table, ..place }
            }
        };
        KvGroups {
            places: windows.iter().map(place).collect(),
            layers,
            split,
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
    /// Numbers in a key.
    pub head_dim: usize,
    /// Where its value is.
    pub values: KvValues,
    /// Tokens of a block.
    pub block_size: usize,
    /// Encoding of keys and values.
    pub format: KvFormat,
}

impl KvShape {
    /// A cache of `layers` layers of this shape.
    pub fn layers(self, layers: usize) -> KvLayout {
        let KvShape { kv_heads, head_dim, values, block_size, format } = self;
        KvLayout { layers: vec![KvHeads { kv_heads, head_dim, values }; layers], split: None, block_size, format }
    }

    /// Bytes of one block in this layer, keys and values.
    pub fn block_bytes(&self) -> usize {
        self.kv_heads * self.head_bytes()
    }

    /// Numbers in a value.
    pub fn value_dim(&self) -> usize {
        self.values.dim(self.head_dim)
    }

    /// Bytes of one KV head of a block in a layer, keys and values.
    pub fn head_bytes(&self) -> usize {
        let numbers = self.values.vectors() * self.head_dim;
        self.block_size * (numbers * self.format.number_bytes() + 2 * self.format.scale_bytes())
    }

    /// Where the key at `slot`, which is `block * block_size + offset`, begins in a layer, counted in numbers.
    pub fn key_at(&self, slot: usize, kv_head: usize) -> usize {
        // A scale of int8 takes the place of two integers.
        let head = self.block_size * (self.values.vectors() * self.head_dim + 2 * self.format.scale_bytes());
        (slot / self.block_size * self.kv_heads + kv_head) * head + slot % self.block_size * self.head_dim
    }

    /// Numbers from the beginning of a key to that of its value.
    pub fn key_to_value(&self) -> usize {
        match self.values {
            KvValues::Stored => self.block_size * self.head_dim,
            KvValues::InKeys(dim) => self.head_dim - dim,
        }
    }

    /// Numbers of a key that its own scale belongs to. Those of a value in it have the scale of the value.
    pub fn scaled_as_key(&self) -> usize {
        match self.values {
            KvValues::Stored => self.head_dim,
            KvValues::InKeys(dim) => self.head_dim - dim,
        }
    }

    /// Where the value at `slot` begins in a layer, counted in numbers.
    pub fn value_at(&self, slot: usize, kv_head: usize) -> usize {
        self.key_at(slot, kv_head) + self.key_to_value()
    }

    /// Where the scale of the key at `slot` begins in a layer, in bytes.
    pub fn key_scale_at(&self, slot: usize, kv_head: usize) -> usize {
        let numbers = self.values.vectors() * self.block_size * self.head_dim * self.format.number_bytes();
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

    const PLAIN: KvShape = KvShape {
        kv_heads: 2,
        head_dim: 6,
        values: KvValues::Stored,
        block_size: 5,
        format: KvFormat::Plain(DType::Bf16),
    };
    const INT8: KvShape = KvShape { format: KvFormat::Int8, ..PLAIN };

    #[test]
    fn every_byte_of_a_layer_belongs_to_one_key_value_or_scale() {
        let blocks = 4;
        for shape in [PLAIN, INT8] {
            let KvShape { kv_heads, head_dim, block_size, format, .. } = shape;
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
        let shape =
            KvShape { kv_heads: 8, head_dim: 128, values: KvValues::Stored, block_size: 16, format: KvFormat::Int8 };
        assert_eq!(shape.layers(28).token_bytes(), 28 * 8 * 2 * 130);
        assert_eq!(KvShape { format: DType::Bf16.into(), ..shape }.layers(28).token_bytes(), 28 * 8 * 2 * 256);
    }

    #[test]
    fn layers_with_a_window_form_groups_as_large_as_that_of_the_others() {
        let alike = [heads(2, 8); 7];
        let windows: Vec<_> = [4, 4, 0, 4, 4, 0, 4].map(|window| (window > 0).then_some(window)).into();
        let groups = KvGroups::new(&alike, &windows, 100);
        assert_eq!((groups.layers, groups.windowed), (2, Some(Windowed { tables: 3, window: 4 })));
        let places: Vec<_> = groups.places.iter().map(|place| (place.table, place.layer)).collect();
        assert_eq!(places, [(1, 0), (1, 1), (0, 0), (2, 0), (2, 1), (0, 1), (3, 0)]);
        let one = KvGroups::one(7);
        assert_eq!(KvGroups::new(&alike, &windows, 4), one, "the window is never left");
        assert_eq!(KvGroups::new(&alike, &[None; 7], 100), one);
        assert_eq!(KvGroups::new(&alike, &[Some(4); 7], 100), one, "all blocks before the window are given back");
        let mut differ = alike;
        differ[3].kv_heads = 1;
        assert_eq!(KvGroups::new(&differ, &windows, 100), one, "layers with a window that differ");
        let differ: Vec<_> = windows.iter().map(|w| heads(if w.is_some() { 3 } else { 2 }, 8)).collect();
        assert_eq!(KvGroups::new(&differ, &windows, 100), one);
        // 6 layers and one: a group of one layer would be padded to six.
        let mostly: Vec<_> = (0..7).map(|layer| (layer == 0).then_some(4)).collect();
        assert_eq!(KvGroups::new(&alike, &mostly, 100), one);
    }

    #[test]
    fn groups_of_published_models_save_what_their_windows_leave() {
        // Bytes of 32,768 tokens with groups and without, for a step of one token and blocks of 16.
        let share = |layers: usize, full: fn(usize) -> bool, window: usize| {
            let windows: Vec<_> = (0..layers).map(|layer| (!full(layer)).then_some(window)).collect();
            let groups = KvGroups::new(
                &vec![KvHeads { kv_heads: 8, head_dim: 128, values: KvValues::Stored }; layers],
                &windows,
                32_768,
            );
            let windowed = groups.windowed.expect("groups");
            let blocks = 32_768 / 16 + windowed.tables * windowed.blocks(1, 16);
            (groups.layers * blocks) as f32 / (layers * 32_768 / 16) as f32
        };
        let of_gemma3 = share(62, |layer| layer % 6 == 5, 1024);
        let of_gpt_oss = share(24, |layer| layer % 2 == 1, 128);
        assert!(of_gemma3 < 0.25 && of_gpt_oss < 0.52, "{of_gemma3} {of_gpt_oss}");
    }

    const fn heads(kv_heads: usize, head_dim: usize) -> KvHeads {
        KvHeads { kv_heads, head_dim, values: KvValues::Stored }
    }

    #[test]
    fn layers_of_smaller_heads_lie_several_in_a_layer_of_the_cache() {
        let windows: Vec<_> = (0..12).map(|layer| (layer % 6 != 5).then_some(4)).collect();
        let with = |wide, narrow| {
            let heads: Vec<_> = windows.iter().map(|window| if window.is_some() { narrow } else { wide }).collect();
            let groups = KvGroups::new(&heads, &windows, 100);
            let places: Vec<_> =
                groups.places.iter().map(|place| (place.table, place.layer, place.part.unwrap_or(9))).collect();
            (groups, places)
        };
        let (groups, places) = with(heads(1, 16), heads(4, 8));
        let split = KvSplit { heads: heads(1, 16), parts: 2, tables: SplitTables::First };
        assert_eq!((groups.layers, groups.split, groups.window_tables()), (1, Some(split), 10));
        assert_eq!(places[..6], [(1, 0, 9), (2, 0, 9), (3, 0, 9), (4, 0, 9), (5, 0, 9), (0, 0, 0)]);
        assert_eq!(places[11], (0, 0, 1));
        let (groups, places) = with(heads(1, 16), heads(1, 8));
        let split = KvSplit { heads: heads(1, 8), parts: 2, tables: SplitTables::Windows };
        assert_eq!((groups.layers, groups.split, groups.window_tables()), (2, Some(split), 3));
        assert_eq!(places[..6], [(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1), (2, 0, 0), (0, 0, 9)]);
        let (groups, places) = with(heads(1, 16), heads(2, 8));
        assert_eq!((groups.layers, groups.split.map(|split| split.parts)), (2, Some(1)), "as many numbers");
        assert_eq!(places[..3], [(1, 0, 0), (1, 1, 0), (2, 0, 0)]);
    }

    #[test]
    fn each_block_of_each_layer_has_bytes_of_its_own() {
        let split = KvSplit { heads: heads(1, 8), parts: 3, tables: SplitTables::First };
        let layout = KvLayout { split: Some(split), ..KvShape { kv_heads: 3, head_dim: 8, ..PLAIN }.layers(2) };
        let blocks = 4;
        // The tokens of block b in the layers of table b % 2.
        let mut batch = Batch { table_width: 1, window_tables: vec![Default::default()], ..Batch::default() };
        batch.slots.extend((0..blocks).flat_map(|block| (0..5).map(move |offset| block * 5 + offset)));
        batch.block_tables.extend(0..blocks);
        (batch.window_tables[0].slots, batch.window_tables[0].block_tables) =
            (batch.slots.clone(), (0..blocks).collect());
        layout.scale_blocks(&mut batch);
        assert_eq!(
            (&batch.block_tables[..], &batch.window_tables[0].block_tables[..]),
            (&[0, 3, 6, 9][..], &[0, 1, 2, 3][..])
        );
        let starts = layout.starts(blocks as usize).unwrap();
        let mut owners = vec![0; starts[2]];
        let places = [(Some(0), 0), (Some(1), 0), (Some(2), 0), (None, 1)];
        for place in (0..2).flat_map(|layer| places.map(|(part, table)| KvPlace { layer, part, table })) {
            let (shape, begins) = (layout.shape_at(place), starts[place.layer] + layout.part_begins(place));
            let own = (0..blocks as usize * 5).filter(|slot| slot / 5 % 2 == place.table);
            for (slot, head) in own.flat_map(|slot| (0..shape.kv_heads).map(move |head| (slot, head))) {
                let slot = batch.slots_of(place.table)[slot] as usize;
                for at in [shape.key_at(slot, head), shape.value_at(slot, head)] {
                    owners[begins + 2 * at..][..2 * shape.head_dim].iter_mut().for_each(|n| *n += 1);
                }
            }
        }
        assert!(owners.iter().all(|&n| n == 1), "{owners:?}");
    }

    #[test]
    fn values_in_keys_take_no_memory() {
        let shape = KvShape { kv_heads: 2, head_dim: 6, values: KvValues::InKeys(4), ..PLAIN };
        assert_eq!((shape.value_dim(), shape.head_bytes(), shape.key_at(5, 1)), (4, 60, 90));
        assert_eq!(shape.value_at(7, 1) - shape.key_at(7, 1), 2);
        // All layers of 32,768 tokens in bf16: GLM-4.7-Flash, DeepSeek-V2-Lite, DeepSeek-V3. With heads of their own: decision 116.
        let latent = KvShape { kv_heads: 1, head_dim: 576, values: KvValues::InKeys(512), block_size: 16, ..PLAIN };
        let own = |kv_heads, head_dim| KvShape { kv_heads, head_dim, values: KvValues::Stored, ..latent };
        for (layers, heads, head_dim, bytes) in
            [(47, 20, 256, [54_144, 962_560]), (27, 16, 192, [31_104, 331_776]), (61, 128, 192, [70_272, 5_996_544])]
        {
            assert_eq!([latent, own(heads, head_dim)].map(|shape| shape.layers(layers).token_bytes()), bytes);
        }
    }

    #[test]
    fn groups_of_heads_of_two_sizes_save_what_their_windows_leave() {
        // Bytes of a sequence of 32,768 tokens, in bf16, with one table and with groups.
        let bytes = |layers: usize, wide: KvHeads, narrow: KvHeads| {
            let windows: Vec<_> = (0..layers).map(|layer| (layer % 6 != 5).then_some(1024)).collect();
            let all: Vec<_> = windows.iter().map(|window| if window.is_some() { narrow } else { wide }).collect();
            let groups = KvGroups::new(&all, &windows, 32_768);
            let windowed = groups.windowed.expect("groups");
            let token = |heads: KvHeads| 2 * 2 * heads.kv_heads * heads.head_dim;
            let larger = token(wide).max(token(narrow));
            let blocks = 32_768 / 16 + windowed.tables * windowed.blocks(1, 16);
            (all.iter().map(|heads| token(*heads) * 32_768).sum::<usize>(), groups.layers * larger * blocks * 16)
        };
        // Gemma 4 of 12B and of 31B parameters.
        assert_eq!(bytes(48, heads(1, 512), heads(8, 256)), (11_274_289_152, 882_900_992));
        assert_eq!(bytes(60, heads(4, 512), heads(16, 256)), (29_527_900_160, 3_549_429_760));
    }

    #[test]
    fn a_block_is_as_large_as_its_layers_together() {
        let layers = vec![heads(8, 256), heads(8, 256), heads(1, 512)];
        let layout = KvLayout { layers, split: None, block_size: 16, format: DType::Bf16.into() };
        assert_eq!(layout.token_bytes(), 2 * 2 * (8 * 256 + 8 * 256 + 512));
        let block = |kv_heads: usize, head_dim: usize| 2 * 2 * 16 * kv_heads * head_dim;
        let starts = [0, 3 * block(8, 256), 6 * block(8, 256), 6 * block(8, 256) + 3 * block(1, 512)];
        assert_eq!(layout.starts(3).as_deref(), Some(&starts[..]));
        assert_eq!(layout.starts(usize::MAX / 2), None);
        assert_eq!(layout.kinds(), [layout.layer(0), layout.layer(2)]);
    }
}
