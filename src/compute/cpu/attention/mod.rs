//! See `ops/attention.rs` for the contract.
//!
//! Work is shared out in tiles: one key and value head, and up to [`TILE_QUERIES`] queries of one row that read it: the
//! query heads of its group, of as many tokens as fit. A decode row is a tile of one token, a prompt is many tiles.
//!
//! Per tile the keys come in steps of [`KEY_STEP`] positions, counted from the start of the sequence, with the softmax
//! carried from step to step; steps before the sliding window of all its queries are left out. All sums go by absolute
//! position in an order that the tile cannot change, so the output of a token has the same bits in a prompt, in a chunk of
//! it, and as a decode step; and for every block size.
//!
//! Keys and values with scales are taken as the integers that they are stored as: the scale of a key multiplies its scores, and that of
//! a value its weights, once the softmax has summed them. Where values lie in keys, a key has two scales, and its numbers are multiplied by them first.
//!
//! AMX has a loop of its own for keys and values in bf16 and in int8.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod amx;
mod inner;
mod query;
mod reference;
mod tile;

#[cfg(target_arch = "x86_64")]
pub use amx::Work;
pub use reference::reference;

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch};
use super::{Cpu, DeviceBatch, KvCache, KvNumber, Tensor, int8};
use crate::batch::Batch;
use crate::{AttentionSpec, KvFormat, KvPlace, KvShape, Scoring};
use formats::DType;
use half::{bf16, f16};
use std::ops::Range;

/// Queries that share the keys and values they read: a multiple of what the inner loops hold in registers.
const TILE_QUERIES: usize = 48;

/// Positions between two looks at the greatest score.
const KEY_STEP: usize = 64;

/// Multiplications that are worth waking a thread for: some microseconds of work.
const WORTH_SHARING: usize = 64 * 1024;

pub fn run(
    cpu: &mut Cpu,
    scoring: Scoring<Box<[f32]>>,
    out: &mut Tensor,
    qkv: &Tensor,
    cache: &KvCache,
    place: KvPlace,
    device_batch: &DeviceBatch,
) {
    #[cfg(target_arch = "x86_64")]
    if amx::serves(cpu.isa, &cache.shape(place)) {
        let Cpu { pool, work, .. } = cpu;
        let queries = amx::TILE_QUERIES;
        return match cache.shape(place).format {
            KvFormat::Plain(_) => {
                amx::run::<bf16>(pool, work, &Call::new(scoring, out, qkv, cache, place, device_batch, queries));
            }
            KvFormat::Int8 => {
                amx::run::<i8>(pool, work, &Call::new(scoring, out, qkv, cache, place, device_batch, queries))
            }
        };
    }
    match cache.shape(place).format {
        KvFormat::Plain(DType::F32) => share_out::<f32>(cpu, scoring, out, qkv, cache, place, device_batch),
        KvFormat::Plain(DType::F16) => share_out::<f16>(cpu, scoring, out, qkv, cache, place, device_batch),
        KvFormat::Plain(DType::Bf16) => share_out::<bf16>(cpu, scoring, out, qkv, cache, place, device_batch),
        KvFormat::Int8 => share_out::<i8>(cpu, scoring, out, qkv, cache, place, device_batch),
    }
}

/// One call of the op.
struct Call<'a, T> {
    /// `[tokens, heads * value_dim]`
    out: Disjoint<'a, f32>,
    /// `[tokens, cols]`, queries first
    qkv: &'a [f32],
    cols: usize,
    /// `[block][kv_head]`, each as [`KvFormat`] says
    layer: &'a [T],
    /// Which block table of a row leads to its blocks.
    table: usize,
    kv: KvShape,
    spec: &'a AttentionSpec,
    /// `[heads]`
    sinks: Option<&'a [f32]>,
    /// Query heads of a key and value head.
    group: usize,
    batch: &'a Batch,
    /// Queries of a tile, at most.
    tile_queries: usize,
}

impl<T> Call<'_, T> {
    /// One past the last position that a token of `row` attends to.
    #[inline(always)]
    fn window_end(&self, row: usize, position: usize) -> usize {
        self.spec.window_end(position, self.batch.context_lens[row] as usize)
    }
}

impl<'a, T: KvNumber> Call<'a, T> {
    fn new(
        Scoring { spec, sinks }: Scoring<'a, Box<[f32]>>,
        out: &'a mut Tensor,
        qkv: &'a Tensor,
        cache: &'a KvCache,
        place: KvPlace,
        device_batch: &'a DeviceBatch,
        tile_queries: usize,
    ) -> Call<'a, T> {
        let kv = cache.shape(place);
        Call {
            out: Disjoint::new(out.values_mut()),
            qkv: qkv.values(),
            cols: qkv.cols(),
            layer: cache.layer::<T>(place),
            table: place.table,
            kv,
            spec,
            sinks: sinks.map(|sinks| &**sinks),
            group: spec.heads / kv.kv_heads,
            batch: &device_batch.batch,
            tile_queries,
        }
    }

    /// The greatest score and the sum that the softmax of a head begins with, relative to that score.
    #[inline(always)]
    fn beginning(&self, head: usize) -> (f32, f32) {
        self.sinks.map_or((f32::NEG_INFINITY, 0.0), |sinks| (sinks[head], 1.0))
    }

    /// Tiles of a row for each key and value head.
    fn tiles(&self, row: usize) -> usize {
        (self.batch.row(row).len() * self.group).div_ceil(self.tile_queries)
    }

    /// Tiles of all rows and heads, and how many of them a thread takes at a time.
    fn sharing(&self) -> (usize, usize) {
        let tiles: usize = (0..self.batch.rows()).map(|row| self.tiles(row)).sum::<usize>() * self.kv.kv_heads;
        let attended = |row: usize| {
            let positions = self.batch.positions[self.batch.row(row)].iter().map(|&p| p as usize);
            positions.map(move |p| self.window_end(row, p) - self.spec.window_start(p)).sum::<usize>()
        };
        let keys: usize = (0..self.batch.rows()).map(attended).sum();
        let is_worth_sharing = keys * self.spec.heads * self.kv.head_dim >= WORTH_SHARING;
        (tiles, if is_worth_sharing { 1 } else { tiles })
    }

    /// Row, key and value head, and place within those, of a tile. Tiles are numbered through all heads of a tile of
    /// tokens, through the tiles of a row, through the rows.
    fn place(&self, tile: usize) -> (usize, usize, usize) {
        let (mut row, mut first) = (0, 0);
        while tile / self.kv.kv_heads >= first + self.tiles(row) {
            first += self.tiles(row);
            row += 1;
        }
        (row, tile % self.kv.kv_heads, tile / self.kv.kv_heads - first)
    }

    /// The keys of the step that begins at position `start`. Beyond the first `longest` positions, empty rows.
    #[inline(always)]
    fn keys(&self, row: usize, kv_head: usize, start: usize, longest: usize) -> [&'a [T]; KEY_STEP] {
        self.rows(row, kv_head, start, longest, (0, self.kv.head_dim))
    }

    /// Its values.
    #[inline(always)]
    fn values(&self, row: usize, kv_head: usize, start: usize, longest: usize) -> [&'a [T]; KEY_STEP] {
        self.rows(row, kv_head, start, longest, (self.kv.key_to_value(), self.kv.value_dim()))
    }

    /// `len` numbers of each token, `part` behind the beginning of its key.
    #[inline(always)]
    fn rows(
        &self,
        row: usize,
        kv_head: usize,
        start: usize,
        longest: usize,
        (part, len): (usize, usize),
    ) -> [&'a [T]; KEY_STEP] {
        let (kv, table) = (&self.kv, self.batch.block_table_of(self.table, row));
        let mut rows = [&self.layer[..0]; KEY_STEP];
        let mut left = longest.saturating_sub(start).min(KEY_STEP);
        let mut rest = &mut rows[..left];
        let (mut block, mut offset) = (start / kv.block_size, start % kv.block_size);
        while left > 0 {
            let run = left.min(kv.block_size - offset);
            let first = kv.key_at(table[block] as usize * kv.block_size + offset, kv_head) + part;
            let (these, others) = rest.split_at_mut(run);
            let numbers = &self.layer[first..first + (run - 1) * kv.head_dim + len];
            for (row, numbers) in these.iter_mut().zip(numbers.chunks(kv.head_dim)) {
                *row = &numbers[..len];
            }
            (rest, left, block, offset) = (others, left - run, block + 1, 0);
        }
        rows
    }

    /// The scales of the keys of a step. Beyond the first `longest` positions, zeros.
    #[inline(always)]
    fn key_scales(&self, row: usize, kv_head: usize, start: usize, longest: usize) -> [f32; KEY_STEP] {
        self.scales(row, kv_head, start, longest, 0)
    }

    /// Those of its values.
    #[inline(always)]
    fn value_scales(&self, row: usize, kv_head: usize, start: usize, longest: usize) -> [f32; KEY_STEP] {
        let part = self.kv.value_scale_at(0, 0) - self.kv.key_scale_at(0, 0);
        self.scales(row, kv_head, start, longest, part)
    }

    /// Of each key and of its value.
    #[inline(always)]
    fn both_scales(&self, row: usize, kv_head: usize, start: usize, longest: usize) -> [[f32; 2]; KEY_STEP] {
        let keys = self.key_scales(row, kv_head, start, longest);
        let values = self.value_scales(row, kv_head, start, longest);
        std::array::from_fn(|i| [keys[i], values[i]])
    }

    #[inline(always)]
    fn scales(&self, row: usize, kv_head: usize, start: usize, longest: usize, part: usize) -> [f32; KEY_STEP] {
        let (kv, table) = (&self.kv, self.batch.block_table_of(self.table, row));
        let bytes: &[i8] = bytemuck::cast_slice(self.layer);
        let mut scales = [0.0; KEY_STEP];
        let mut left = longest.saturating_sub(start).min(KEY_STEP);
        let mut rest = &mut scales[..left];
        let (mut block, mut offset) = (start / kv.block_size, start % kv.block_size);
        while left > 0 {
            let run = left.min(kv.block_size - offset);
            let first = kv.key_scale_at(table[block] as usize * kv.block_size + offset, kv_head) + part;
            let (these, others) = rest.split_at_mut(run);
            let stored = bytes[first..first + run * int8::SCALE_BYTES].as_chunks().0;
            these.iter_mut().zip(stored).for_each(|(scale, &stored)| *scale = int8::scale_of(stored));
            (rest, left, block, offset) = (others, left - run, block + 1, 0);
        }
        scales
    }
}

fn share_out<T: KvNumber>(
    cpu: &Cpu,
    scoring: Scoring<Box<[f32]>>,
    out: &mut Tensor,
    qkv: &Tensor,
    cache: &KvCache,
    place: KvPlace,
    device_batch: &DeviceBatch,
) {
    let call = Call::<T>::new(scoring, out, qkv, cache, place, device_batch, TILE_QUERIES);
    let (tiles, chunk) = call.sharing();
    cpu.pool.for_each(tiles, chunk, &|_, tiles| dispatch(cpu.isa, Tiles { call: &call, tiles }));
}

/// Some tiles of a call.
struct Tiles<'a, T> {
    call: &'a Call<'a, T>,
    tiles: Range<usize>,
}

impl<T: KvNumber> Kernel for Tiles<'_, T> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let mut scratch = tile::Scratch::new();
        for tile in self.tiles {
            let (row, kv_head, tile) = self.call.place(tile);
            tile::attend(lanes, &mut scratch, self.call, row, kv_head, tile);
        }
    }
}
