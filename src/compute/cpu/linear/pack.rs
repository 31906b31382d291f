//! Rewrites `x` into the order in which a kernel reads it.
//!
//! `[row tile][step][row of the tile][STEP]`: a kernel reads its tile from front to back. Numbers beyond the last input are
//! zero, so that a tail is a step like the others.
#![allow(unsafe_code)]

use super::kernels::{Order, STEP, TILE_ROWS};
use crate::cpu::disjoint::Disjoint;
use crate::cpu::{Pages, Pool};
use base::error::Result;

/// Numbers that are worth a thread's waking up.
const CHUNK_NUMBERS: usize = 16 << 10;

/// Memory in which `x` is rewritten, sized when the engine opens.
#[derive(Default)]
pub struct Scratch {
    pub(super) x: Pages<f32>,
    /// Weights, dequantized or rewritten, a part for each thread.
    pub(super) staged: Pages<f32>,
}

/// `x`, rewritten.
#[derive(Clone, Copy)]
pub struct Packed<'a> {
    bytes: &'a [u8],
    /// Steps of a row.
    steps: usize,
    number_bytes: usize,
}

impl Packed<'_> {
    /// `steps` steps of the tile whose first row is `row`. `[steps][rows][STEP]`
    pub fn tile(&self, row: usize, rows: usize, step: usize, steps: usize) -> &[u8] {
        let step_bytes = STEP * self.number_bytes;
        let start = (row * self.steps + step * rows) * step_bytes;
        &self.bytes[start..start + steps * rows * step_bytes]
    }
}

impl Scratch {
    /// Grows so that an `x` of `rows` rows of `cols` numbers fits in any order, beside `staged` numbers. Takes no room before it is used.
    pub fn fit(&mut self, rows: usize, cols: usize, staged: usize) -> Result<()> {
        // AMX packs 16 rows together, in half the bytes.
        let numbers = rows.next_multiple_of(16) * cols.next_multiple_of(STEP);
        if numbers > self.x.len() {
            self.x = Pages::zeroed(numbers, "the scratch of linear layers", "max_batched_tokens")?.in_large_pages();
        }
        if staged > self.staged.len() {
            self.staged = Pages::zeroed(staged, "the scratch of linear layers", "num_threads")?.in_large_pages();
        }
        Ok(())
    }
}

/// Rewrites `x` into `scratch`. `[tokens, inputs]`
///
/// # Panics
///
/// If it does not fit: every tensor of an engine is made through [`Cpu`](super::super::Cpu), which calls [`fit`](super::fit).
pub fn pack<'a>(
    pool: &Pool,
    scratch: &'a mut [f32],
    order: Order,
    x: &[f32],
    tokens: usize,
    inputs: usize,
) -> Packed<'a> {
    let steps = inputs.div_ceil(STEP);
    let numbers = tokens * steps * STEP;
    assert!(numbers <= scratch.len(), "scratch for {} numbers, x has {numbers}", scratch.len());
    let packed = &mut scratch[..numbers];
    let rows = Rows { x, tokens, inputs, steps };
    match order {
        Order::Straight => rows.pack(pool, packed, |to, from| *to = *from),
        Order::EvenOdd(8) => rows.pack(pool, packed, even_odd::<8>),
        Order::EvenOdd(_) => rows.pack(pool, packed, even_odd::<16>),
        Order::Bf16 => rows.pack(pool, bytemuck::cast_slice_mut(packed), |to, from| *to = from.map(round_to_bf16)),
    }
    let bytes = &bytemuck::cast_slice(packed)[..numbers * order.bytes()];
    Packed { bytes, steps, number_bytes: order.bytes() }
}

struct Rows<'a> {
    x: &'a [f32],
    tokens: usize,
    inputs: usize,
    steps: usize,
}

impl Rows<'_> {
    /// Writes each step of each row by `write`.
    fn pack<T: Send + Sync>(&self, pool: &Pool, packed: &mut [T], write: impl Fn(&mut [T; STEP], &[f32; STEP]) + Sync) {
        let packed = Disjoint::new(packed);
        let chunk = CHUNK_NUMBERS.div_ceil(self.inputs.max(1) * TILE_ROWS);
        pool.for_each(self.tokens.div_ceil(TILE_ROWS), chunk, &|_, tiles| {
            for first in tiles.map(|tile| tile * TILE_ROWS) {
                let rows = TILE_ROWS.min(self.tokens - first);
                let row_len = self.steps * STEP;
                // SAFETY: tiles do not overlap, and the ranges of `for_each` do not either.
                let tile = unsafe { packed.part(first * row_len..(first + rows) * row_len) };
                self.pack_tile(tile, first, rows, &write);
            }
        });
    }

    fn pack_tile<T>(&self, tile: &mut [T], first: usize, rows: usize, write: impl Fn(&mut [T; STEP], &[f32; STEP])) {
        for row in 0..rows {
            let x = &self.x[(first + row) * self.inputs..][..self.inputs];
            let (whole, tail) = x.as_chunks::<STEP>();
            let mut steps = tile.as_chunks_mut::<STEP>().0[row..].iter_mut().step_by(rows);
            for (to, from) in steps.by_ref().take(whole.len()).zip(whole) {
                write(to, from);
            }
            if let (Some(to), false) = (steps.next(), tail.is_empty()) {
                let mut padded = [0.0; STEP];
                padded[..tail.len()].copy_from_slice(tail);
                write(to, &padded);
            }
        }
    }
}

/// In groups of `2 * LANES`: the even ones, then the odd ones.
pub(super) fn even_odd<const LANES: usize>(to: &mut [f32; STEP], from: &[f32; STEP]) {
    for (to, from) in to.chunks_exact_mut(2 * LANES).zip(from.chunks_exact(2 * LANES)) {
        for i in 0..LANES {
            to[i] = from[2 * i];
            to[LANES + i] = from[2 * i + 1];
        }
    }
}

/// To the nearest, to the even one of two; a NaN stays one. Without branches, so that the compiler makes vectors of it.
#[inline(always)]
pub(super) fn round_to_bf16(number: f32) -> u16 {
    let bits = number.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40;
    (if bits & 0x7fff_ffff > 0x7f80_0000 { quiet } else { rounded }) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(order: Order, tokens: usize, inputs: usize) -> (Vec<u8>, Vec<f32>) {
        let x: Vec<f32> = (0..tokens * inputs).map(|i| (i + 1) as f32).collect();
        let (pool, mut scratch) = (Pool::new(2), Scratch::default());
        scratch.fit(tokens, inputs, 0).unwrap();
        scratch.x.fill(f32::NAN);
        let packed = pack(&pool, &mut scratch.x, order, &x, tokens, inputs);
        let all = (0..tokens).step_by(TILE_ROWS);
        let bytes = all.flat_map(|row| packed.tile(row, TILE_ROWS.min(tokens - row), 0, packed.steps).to_vec());
        (bytes.collect(), x)
    }

    #[test]
    fn a_tile_holds_a_step_of_each_row_then_the_next_step() {
        let (tokens, inputs) = (6, 70);
        let (bytes, x) = packed(Order::Straight, tokens, inputs);
        let numbers: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
        let mut wanted = Vec::new();
        for (first, rows) in [(0, 4), (4, 2)] {
            for step in 0..3 {
                for row in first..first + rows {
                    let number = |k: usize| if k < inputs { x[row * inputs + k] } else { 0.0 };
                    wanted.extend((step * STEP..(step + 1) * STEP).map(number));
                }
            }
        }
        assert_eq!(numbers, wanted);
    }

    #[test]
    fn even_numbers_of_a_group_come_before_its_odd_ones() {
        for lanes in [8, 16] {
            let (bytes, _) = packed(Order::EvenOdd(lanes), 1, 32);
            let numbers: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_ne_bytes(*b)).collect();
            let wanted: Vec<f32> = (0..32)
                .map(|i| {
                    let (group, place) = (i / (2 * lanes), i % (2 * lanes));
                    let within = if place < lanes { 2 * place } else { 2 * (place - lanes) + 1 };
                    (group * 2 * lanes + within + 1) as f32
                })
                .collect();
            assert_eq!(numbers, wanted, "{lanes} lanes");
        }
    }

    #[test]
    fn rounding_to_bf16_is_that_of_the_half_crate() {
        let edges = [0u32, 0x8000_0000, 0x3f80_8000, 0x3f81_8000, 0x3f80_7fff, 0x3f80_8001, 0x7f7f_ffff, 0x7f80_0000];
        let nans = [0x7f80_0001u32, 0xffc0_0000, 0x7fff_ffff];
        let spread = (0..100_000u32).map(|i| i.wrapping_mul(0x9e37_79b9));
        for bits in edges.into_iter().chain(nans).chain(spread) {
            let number = f32::from_bits(bits);
            let wanted = half::bf16::from_f32(number);
            let found = half::bf16::from_bits(round_to_bf16(number));
            assert!(
                found == wanted && found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan(),
                "{bits:x}"
            );
        }
    }
}
