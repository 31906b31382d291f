//! How does a cached prefix become bytes, and how is it restored into the cache of another engine with the same model?
//!
//! The bytes begin with a header of 64 bytes, all numbers little-endian:
//!
//! | at | bytes | |
//! |----|-------|-|
//! | 0  | 8 | `NVLLM_KV` |
//! | 8  | 4 | version: 1, and 1 more with a recurrent state, 2 more with blocks of window tables |
//! | 12 | 4 | format of keys and values: 1 f32, 2 f16, 3 bf16, 4 int8 with scales |
//! | 16 | 16 | layers, heads of keys and values, numbers in a head, tokens of a block |
//! | 32 | 8 | fingerprint of decoder and weights |
//! | 40 | 8 | cache_salt |
//! | 48 | 8 | blocks |
//! | 56 | 8 | XXH3 of all other bytes |
//!
//! The tokens follow, and then the blocks, `[blocks][layer][kv_head]`, each in the layout of its [`KvFormat`]: the same on every
//! device. Behind them come the blocks of the last window, where the model has window tables, `[entries][tables]` in the same form, and then the recurrent
//! state after the last token. The checksum detects damage and not intent: whoever can write such bytes can make the model say anything.

use crate::api::inbox::Intake;
use crate::api::sampling_params::SamplingParams;
use crate::options::PrefixCache;
use crate::schedule::blocks::{PrefixId, SharedPrefix};
use crate::{Engine, Prompt};
use base::TokenId;
use base::error::{Error, Result};
use compute::batch::{BlockId, NO_STATE, StateSlot};
use compute::{KvFormat, KvHeads, KvLayout, KvValues};
use formats::DType;
use runner::ModelInfo;
use twox_hash::XxHash3_64;

const MAGIC: [u8; 8] = *b"NVLLM_KV";
/// Without what the next two add to it.
const FIRST_VERSION: u32 = 1;
const HAS_STATE: u32 = 1;
const HAS_WINDOWS: u32 = 2;
const HEADER_BYTES: usize = 64;
/// Where the checksum stands: last in the header.
const CHECKSUM_AT: usize = 56;

/// A prefix that was found in the cache: valid until the engine is used for anything else.
pub struct CachedPrefix {
    tokens: Vec<TokenId>,
    salt: u64,
    blocks: Vec<BlockId>,
    /// Those of the last window. `[entries, tables]`
    window: Vec<BlockId>,
    /// The recurrent state after them, or [`NO_STATE`].
    state: StateSlot,
    bytes: usize,
}

impl CachedPrefix {
    /// Number of its tokens: whole blocks.
    pub fn tokens(&self) -> usize {
        self.tokens.len()
    }

    /// Bytes of its saved form.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Engine {
    /// Finds the longest prefix of `tokens` that is cached for requests with `salt`.
    ///
    /// Blocks of running requests are cached as soon as they are full.
    ///
    /// # Errors
    ///
    /// [`Error::NotCached`] when there is none, [`Error::Unsupported`] without a prefix cache.
    pub fn find_prefix(&mut self, tokens: &[TokenId], salt: u64) -> Result<CachedPrefix> {
        self.check_prefix_cache()?;
        let block_size = self.handle.model_info().limits.block_size;
        let mut blocks = Vec::new();
        let SharedPrefix { state, .. } =
            self.scheduler.pool().find_to_keep(PrefixId::Empty { salt }, tokens, &mut blocks);
        if blocks.is_empty() {
            return Err(Error::NotCached { tokens: tokens.len(), block_size });
        }
        let tokens = tokens[..blocks.len() * block_size].to_vec();
        let pool = self.scheduler.pool();
        let in_window = &blocks[pool.first_kept(blocks.len())..];
        let window = in_window.iter().flat_map(|&block| pool.hanging_on(block)).copied().collect();
        let bytes = saved_bytes(blocks.len() as u64, self.handle.model_info()).expect("the cache itself is larger");
        Ok(CachedPrefix { tokens, salt, blocks, window, state, bytes })
    }

    /// Writes a prefix that was just found to `out`, whose length is [`CachedPrefix::bytes`].
    pub fn save_prefix(&mut self, prefix: &CachedPrefix, out: &mut [u8]) -> Result<()> {
        assert_eq!(out.len(), prefix.bytes);
        let (header, content) = out.split_at_mut(HEADER_BYTES);
        let (tokens, blocks) = content.split_at_mut(prefix.tokens.len() * size_of::<TokenId>());
        for (to, token) in tokens.chunks_exact_mut(size_of::<TokenId>()).zip(&prefix.tokens) {
            to.copy_from_slice(&token.to_le_bytes());
        }
        let (blocks, state) = blocks.split_at_mut(blocks.len() - self.handle.model_info().states.bytes);
        let (blocks, window) =
            blocks.split_at_mut(prefix.blocks.len() * self.handle.model_info().kv_layout.block_bytes());
        self.runner.read_blocks(&prefix.blocks, blocks)?;
        self.runner.read_blocks(&prefix.window, window)?;
        if prefix.state != NO_STATE {
            self.runner.read_state(prefix.state, state)?;
        }
        let numbers = Header::new(self.handle.model_info(), prefix.salt, prefix.blocks.len() as u64);
        numbers.write(version(self.handle.model_info()), header);
        let sum = checksum(header, content);
        header[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        Ok(())
    }

    /// Restores a saved prefix into the cache, where requests with this prefix find it. Returns the number of its tokens.
    ///
    /// Its blocks are free, so they may be reused for something else before such a request comes.
    ///
    /// # Errors
    ///
    /// [`Error::SavedPrefix`] when the bytes are damaged or of another model, [`Error::NoFreeBlocks`],
    /// [`Error::Unsupported`] without a prefix cache. The cache is unchanged then.
    pub fn restore_prefix(&mut self, bytes: &[u8]) -> Result<usize> {
        self.check_prefix_cache()?;
        // Prompts that were released before this call are free.
        self.take_inbox(Intake::All);
        let info = self.handle.model_info();
        let (layout, state_bytes) = (info.kv_layout.clone(), info.states.bytes);
        let header = check(bytes, info)?;
        let content = &bytes[HEADER_BYTES..];
        let (tokens, contents) = content.split_at(header.blocks as usize * layout.block_size * size_of::<TokenId>());
        let (contents, state) = contents.split_at(contents.len() - state_bytes);
        let (words, _) = tokens.as_chunks();
        let tokens: Vec<TokenId> = words.iter().copied().map(TokenId::from_le_bytes).collect();

        let Engine { scheduler, runner, .. } = self;
        let pool = scheduler.pool();
        let empty = PrefixId::Empty { salt: header.salt };
        let mut table = Vec::with_capacity(header.blocks as usize);
        let shared = loop {
            let lacking = match pool.try_adopt(empty, &tokens, &mut table) {
                Ok(shared) => break shared,
                Err(lacking) => lacking.free_blocks,
            };
            let free = pool.free_blocks();
            if !pool.grow(lacking - free, &mut |blocks| runner.restore_blocks(blocks))? {
                return Err(Error::NoFreeBlocks { blocks: lacking, free });
            }
        };
        let (contents, window) = contents.split_at(header.blocks as usize * layout.block_bytes());
        let first = pool.first_kept(table.len());
        let mut entries = Vec::new();
        for _ in first..table.len() {
            let is_there = pool.take_window_entry(&mut entries);
            assert!(is_there, "as many were free");
        }
        let written =
            self.runner.write_blocks(&table[shared.blocks..], &contents[shared.blocks * layout.block_bytes()..]);
        let written = written.and_then(|()| self.runner.write_blocks(&entries, window));
        let written = written.and_then(|()| match state_bytes {
            0 => Ok(NO_STATE),
            _ => self.restore_state(state),
        });
        let pool = self.scheduler.pool();
        if let Ok(slot) = written {
            let mut prefix = shared.prefix;
            for (content, block) in tokens.chunks_exact(layout.block_size).zip(&mut table).skip(shared.blocks) {
                prefix = pool.cache_block(prefix, content, block);
            }
            let tables = pool.window_tables().max(1);
            for (entry, &block) in entries.chunks_exact_mut(tables).zip(&table[first..]) {
                pool.hang_window_entry(block, entry);
            }
            match table.last() {
                _ if slot == NO_STATE => {}
                Some(&last) => pool.hang_checkpoint(last, slot),
                None => pool.states().give_up(slot),
            }
        }
        pool.release(&mut table);
        pool.release(&mut entries);
        self.publish_stats();
        written.map(|_| tokens.len())
    }

    /// Writes a recurrent state to a slot, which the caller gets.
    fn restore_state(&mut self, state: &[u8]) -> Result<StateSlot> {
        let slot = self.scheduler.pool().take_state().ok_or(Error::NoFreeState)?;
        let written = self.runner.write_state(slot, state);
        if written.is_err() {
            self.scheduler.pool().states().give_up(slot);
        }
        written.map(|()| slot)
    }

    /// Adds a request whose prompt is all tokens so far of completion `index` of another request. The new request has the same
    /// salt, and shares the computed blocks through the prefix cache, if there is one.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownRequest`] when that completion has ended, [`Error::Option`] when `params` have another salt, and the
    /// errors of [`EngineHandle::add_request`](crate::EngineHandle::add_request).
    pub fn fork(&mut self, request_id: u64, index: u32, params: SamplingParams) -> Result<u64> {
        self.take_inbox(Intake::All);
        let key = self.handle.key(request_id)?.completion(index);
        let sequence = self.scheduler.find(key).ok_or(Error::UnknownRequest { id: request_id })?;
        let cache_salt = sequence.cache_salt();
        if params.cache_salt != 0 && params.cache_salt != cache_salt {
            let value = params.cache_salt.to_string();
            return Err(Error::Option { field: "cache_salt", value, wanted: "0 or that of the request to be forked" });
        }
        if !sequence.has_tokens_alone() {
            return Err(Error::Unsupported { what: "a fork of a request whose prompt has embeddings".to_owned() });
        }
        self.handle.add_request(Prompt::Tokens(sequence.known_tokens()), SamplingParams { cache_salt, ..params })
    }

    fn check_prefix_cache(&self) -> Result<()> {
        match self.handle.prefix_cache() {
            PrefixCache::On => Ok(()),
            PrefixCache::Off => {
                let what = "saved prefixes live in the prefix cache: set enable_prefix_cache to 1".to_owned();
                Err(Error::Unsupported { what })
            }
        }
    }
}

/// The numbers of a header, but for the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    shape: [u32; 5],
    fingerprint: u64,
    salt: u64,
    blocks: u64,
}

/// The formats of keys and values, in the order of their numbers from 1.
const FORMATS: [KvFormat; 4] =
    [KvFormat::Plain(DType::F32), KvFormat::Plain(DType::F16), KvFormat::Plain(DType::Bf16), KvFormat::Int8];

/// Which number of a shape is the format.
const FORMAT: usize = 0;

/// What the numbers of a shape are, in the header's order.
const SHAPE: [&str; 5] =
    ["KV cache format", "number of layers", "number of KV heads", "size of a head", "kv_block_size"];

impl Header {
    fn new(info: &ModelInfo, salt: u64, blocks: u64) -> Header {
        let KvLayout { ref layers, block_size, format, .. } = info.kv_layout;
        // Where layers differ, the fingerprint knows how.
        let is_uniform = layers.windows(2).all(|pair| pair[0] == pair[1]);
        let heads = layers.first().filter(|_| is_uniform);
        let &KvHeads { kv_heads, head_dim, .. } =
            heads.unwrap_or(&KvHeads { kv_heads: 0, head_dim: 0, values: KvValues::Stored });
        let format = 1 + FORMATS.iter().position(|&known| known == format).expect("every format is listed");
        let shape = [format as u32, layers.len() as u32, kv_heads as u32, head_dim as u32, block_size as u32];
        Header { shape, fingerprint: info.fingerprint, salt, blocks }
    }

    fn write(&self, version: u32, to: &mut [u8]) {
        to[..8].copy_from_slice(&MAGIC);
        to[8..12].copy_from_slice(&version.to_le_bytes());
        for (to, number) in to[12..32].chunks_exact_mut(4).zip(self.shape) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        for (to, number) in to[32..56].chunks_exact_mut(8).zip([self.fingerprint, self.salt, self.blocks]) {
            to.copy_from_slice(&number.to_le_bytes());
        }
    }
}

/// The header of bytes that an engine with the model of `info` can restore.
fn check(bytes: &[u8], info: &ModelInfo) -> Result<Header> {
    let refuse = |what, found: String, wanted: String| Err(Error::SavedPrefix { what, found, wanted });
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    if bytes.len() < HEADER_BYTES {
        return refuse("length", bytes.len().to_string(), format!("at least {HEADER_BYTES} bytes"));
    }
    if bytes[..8] != MAGIC {
        let found = String::from_utf8_lossy(&bytes[..8]).into_owned();
        return refuse("beginning", format!("{found:?}"), "\"NVLLM_KV\"".to_owned());
    }
    let wanted = version(info);
    if word(8) != wanted {
        let (found, here) = (word(8).wrapping_sub(FIRST_VERSION), wanted - FIRST_VERSION);
        let why = match found {
            0..=3 if found & HAS_STATE < here & HAS_STATE => {
                ": this model keeps recurrent state, and the saved prefix has none"
            }
            0..=3 if found & HAS_STATE > here & HAS_STATE => {
                ": the saved prefix has a recurrent state, and this model keeps none"
            }
            0..=3 if found < here => {
                ": this engine keeps the blocks of layers with a window apart, and the saved prefix does not: save it again with this library and max_model_len"
            }
            0..=3 => {
                ": the saved prefix keeps the blocks of layers with a window apart, and this engine does not: set max_model_len as in the engine that saved it"
            }
            _ => "",
        };
        return refuse("version", word(8).to_string(), format!("{wanted}{why}"));
    }
    let blocks = long(48);
    let here = Header::new(info, long(40), blocks);
    for (i, wanted) in here.shape.into_iter().enumerate() {
        let found = word(12 + 4 * i);
        if found != wanted && i == FORMAT {
            let name = |number: u32| FORMATS.get(number.wrapping_sub(1) as usize).map(|format| format.name());
            let found = name(found).map_or_else(|| format!("number {found}"), str::to_owned);
            let wanted = name(wanted).unwrap_or_default();
            return refuse(SHAPE[i], found, format!("{wanted}, as in this engine: set kv_cache_dtype or dtype"));
        }
        if found != wanted {
            return refuse(SHAPE[i], found.to_string(), format!("{wanted}, as in this engine"));
        }
    }
    if long(32) != here.fingerprint {
        let wanted = format!("{:016x}: it is of another model", here.fingerprint);
        return refuse("fingerprint of the model", format!("{:016x}", long(32)), wanted);
    }
    let length = saved_bytes(blocks, info);
    if length != Some(bytes.len()) {
        let wanted = length.map_or("less".to_owned(), |bytes| bytes.to_string());
        return refuse("length", bytes.len().to_string(), format!("{wanted} for {blocks} blocks"));
    }
    let (header, content) = bytes.split_at(HEADER_BYTES);
    if checksum(header, content) != long(CHECKSUM_AT) {
        let found = format!("{:016x}", checksum(header, content));
        return refuse("checksum", found, format!("{:016x}: it is damaged", long(CHECKSUM_AT)));
    }
    Ok(here)
}

/// Which version of the form a model's prefixes have.
fn version(info: &ModelInfo) -> u32 {
    let has_state = u32::from(info.states.slots > 0) * HAS_STATE;
    FIRST_VERSION + has_state + u32::from(info.windowed.is_some()) * HAS_WINDOWS
}

/// Bytes of a saved prefix of `blocks` blocks in the first table; `None` when their number overflows.
fn saved_bytes(blocks: u64, info: &ModelInfo) -> Option<usize> {
    let (layout, blocks) = (&info.kv_layout, usize::try_from(blocks).ok()?);
    let tokens = layout.block_size.checked_mul(size_of::<TokenId>())?;
    let entries = info.windowed.map_or(0, |windowed| blocks - windowed.first_kept(blocks, layout.block_size));
    let window = entries.checked_mul(info.windowed.map_or(0, |windowed| windowed.tables))?;
    let window = window.checked_mul(layout.block_bytes())?;
    let all = blocks.checked_mul(layout.block_bytes() + tokens)?.checked_add(window)?;
    all.checked_add(info.states.bytes)?.checked_add(HEADER_BYTES)
}

fn checksum(header: &[u8], content: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(XxHash3_64::oneshot(&header[..CHECKSUM_AT]), content)
}
