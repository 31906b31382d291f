//! Rewrites `x` into tiles of bf16 numbers.
#![allow(unsafe_code)]

use super::super::pack::round_to_bf16;
use crate::cpu::Pool;
use crate::cpu::amx::{EDGE, Operand, STEP, TILE_NUMBERS, Tile, transposed};
use crate::cpu::disjoint::Disjoint;
use std::ops::Range;

/// Numbers that are worth a thread's waking up.
const CHUNK_NUMBERS: usize = 16 << 10;

/// On which side of a product `x` stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A tile is `[token][pair of k]`, of 16 tokens.
    Left,
    /// A tile is `[pair of k][token]`, of this many tokens.
    Right(usize),
}

impl Side {
    /// The right side of a product with `tokens` tokens: a single block of them is as wide as it has tokens, so that less is read.
    pub fn right(tokens: usize) -> Side {
        Side::Right(tokens.min(EDGE))
    }

    /// Numbers of 32 bits in a tile.
    pub fn tile_numbers(self) -> usize {
        match self {
            Side::Left => TILE_NUMBERS,
            Side::Right(width) => EDGE * width,
        }
    }
}

/// Rewrites `x`: `[block of tokens][step][tile]`, two numbers in each 32 bits, zeros beyond the last token and input.
///
/// # Panics
///
/// If `scratch` is too small: `Scratch::fit` made it for 16 tokens at a time.
pub fn pack<'a>(pool: &Pool, scratch: &'a mut [f32], x: &[f32], tokens: usize, inputs: usize, side: Side) -> &'a [u32] {
    let (steps, blocks) = (inputs.div_ceil(STEP), tokens.div_ceil(EDGE));
    let tile_numbers = side.tile_numbers();
    let numbers = steps * blocks * tile_numbers;
    assert!(numbers <= scratch.len(), "scratch for {} numbers, x has {numbers}", scratch.len());
    // SAFETY: any bits are a valid u32, of the same size and alignment.
    let packed = unsafe { std::slice::from_raw_parts_mut(scratch.as_mut_ptr().cast::<u32>(), numbers) };
    let parts = Disjoint::new(packed);
    // Steps are handed out, not blocks, so that all threads pack even one block.
    pool.for_each(steps * blocks, CHUNK_NUMBERS / (STEP * EDGE), &|_, range| {
        for part in range {
            let (block, step) = (part / steps, part % steps);
            // SAFETY: parts do not overlap, and the ranges of `for_each` do not either.
            let to = unsafe { parts.part(part * tile_numbers..(part + 1) * tile_numbers) };
            let rows = EDGE.min(tokens - block * EDGE);
            let width = STEP.min(inputs - step * STEP);
            let x = &x[block * EDGE * inputs + step * STEP..];
            // SAFETY: this file serves `Isa::Amx`, which includes AVX-512.
            let tile = unsafe { rounded(x, inputs, rows, width) };
            match side {
                Side::Left => to.copy_from_slice(tile.as_flattened()),
                Side::Right(width) => {
                    for (to, tokens) in to.chunks_exact_mut(width).zip(transposed(&tile)) {
                        to.copy_from_slice(&tokens[..width]);
                    }
                }
            }
        }
    });
    packed
}

/// The right side of products over `steps` of `all` steps, from an `x` that was packed for it in `blocks` blocks.
///
/// # Panics
///
/// If `x` is shorter.
pub fn right_operand(x: &[u32], side: Side, all: usize, blocks: usize, steps: &Range<usize>) -> Operand {
    let tile_numbers = side.tile_numbers();
    let x = &x[steps.start * tile_numbers..];
    assert!(x.len() >= (blocks - 1) * all * tile_numbers + steps.len() * tile_numbers);
    Operand {
        at: x.as_ptr().cast(),
        row_bytes: tile_numbers / EDGE * 4,
        step_bytes: tile_numbers * 4,
        next_bytes: all * tile_numbers * 4,
    }
}

/// `rows` rows of `width` numbers, one row `stride` numbers after the other. The first of two numbers takes the lower half.
#[target_feature(enable = "avx512f,avx512bw")]
fn rounded(x: &[f32], stride: usize, rows: usize, width: usize) -> Tile {
    let mut tile = [[0; EDGE]; EDGE];
    for (row, pairs) in tile.iter_mut().enumerate().take(rows) {
        let x = &x[row * stride..][..width];
        let mut padded = [0.0; STEP];
        let numbers: &[f32; STEP] = match x.first_chunk() {
            Some(whole) => whole,
            None => {
                padded[..width].copy_from_slice(x);
                &padded
            }
        };
        for (pair, numbers) in pairs.iter_mut().zip(numbers.as_chunks::<2>().0) {
            let [first, second] = numbers.map(round_to_bf16);
            *pair = u32::from(first) | u32::from(second) << 16;
        }
    }
    tile
}
