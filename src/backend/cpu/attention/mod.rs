//! See `ops/attention.rs` for the contract.
//!
//! Work is shared out in tiles: one key and value head, and up to [`TILE_QUERIES`] queries of one row that read it: the
//! query heads of its group, of as many tokens as fit. A decode row is a tile of one token, a prompt is many tiles.
//!
//! Per tile the keys come in steps of [`KEY_STEP`] positions, counted from the start of the sequence, with the softmax
//! carried from step to step. All sums go by absolute position in an order that the tile cannot change, so the output of
//! a token has the same bits in a prompt, in a chunk of it, and as a decode step; and for every block size.
#![allow(unsafe_code)]

mod inner;
mod reference;
mod tile;

pub use reference::reference;

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch};
use super::{Cpu, KvCache, Number, Step, Tensor};
use crate::backend::{DType, KvShape};
use crate::batch::Batch;
use half::{bf16, f16};
use std::ops::Range;

/// Queries that share the keys and values they read: a multiple of what the inner loops hold in registers.
const TILE_QUERIES: usize = 48;

/// Positions between two looks at the greatest score.
const KEY_STEP: usize = 64;

/// Multiplications that are worth waking a thread for: some microseconds of work.
const WORTH_SHARING: usize = 64 * 1024;

#[allow(clippy::too_many_arguments)]
pub fn run(
    cpu: &Cpu,
    out: &mut Tensor,
    qkv: &Tensor,
    cache: &KvCache,
    layer: usize,
    heads: usize,
    scale: f32,
    step: &Step,
) {
    match cache.shape().dtype {
        DType::F32 => share_out::<f32>(cpu, out, qkv, cache, layer, heads, scale, step),
        DType::F16 => share_out::<f16>(cpu, out, qkv, cache, layer, heads, scale, step),
        DType::Bf16 => share_out::<bf16>(cpu, out, qkv, cache, layer, heads, scale, step),
    }
}

/// One call of the op.
struct Call<'a, T> {
    /// `[tokens, heads * head_dim]`
    out: Disjoint<'a, f32>,
    /// `[tokens, (heads + 2 kv_heads) * head_dim]`
    qkv: &'a [f32],
    /// `[block][kv_head][K|V][block_size][head_dim]`
    layer: &'a [T],
    kv: KvShape,
    heads: usize,
    /// Query heads of a key and value head.
    group: usize,
    scale: f32,
    batch: &'a Batch,
}

impl<T> Call<'_, T> {
    /// Tiles of a row for each key and value head.
    fn tiles(&self, row: usize) -> usize {
        (self.batch.row(row).len() * self.group).div_ceil(TILE_QUERIES)
    }
}

#[allow(clippy::too_many_arguments)]
fn share_out<T: Number>(
    cpu: &Cpu,
    out: &mut Tensor,
    qkv: &Tensor,
    cache: &KvCache,
    layer: usize,
    heads: usize,
    scale: f32,
    step: &Step,
) {
    let (kv, batch) = (cache.shape(), &step.batch);
    let call = Call {
        out: Disjoint::new(out.values_mut()),
        qkv: qkv.values(),
        layer: cache.layer::<T>(layer),
        kv,
        heads,
        group: heads / kv.kv_heads,
        scale,
        batch,
    };
    let tiles: usize = (0..batch.rows()).map(|row| call.tiles(row)).sum::<usize>() * kv.kv_heads;
    let contexts: usize = batch.positions.iter().map(|&p| p as usize + 1).sum();
    if contexts * heads * kv.head_dim < WORTH_SHARING {
        dispatch(cpu.isa, Tiles { call: &call, tiles: 0..tiles });
    } else {
        cpu.pool.for_each(tiles, 1, &|_, tiles| dispatch(cpu.isa, Tiles { call: &call, tiles }));
    }
}

/// Some tiles of a call: numbered through all heads of a tile of tokens, through the tiles of a row, through the rows.
struct Tiles<'a, T> {
    call: &'a Call<'a, T>,
    tiles: Range<usize>,
}

impl<T: Number> Kernel for Tiles<'_, T> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let kv_heads = self.call.kv.kv_heads;
        let mut scratch = tile::Scratch::new();
        let (mut row, mut first) = (0, 0);
        for tile in self.tiles {
            while tile / kv_heads >= first + self.call.tiles(row) {
                first += self.call.tiles(row);
                row += 1;
            }
            tile::attend(lanes, &mut scratch, self.call, row, tile % kv_heads, tile / kv_heads - first);
        }
    }
}
