//! One tile of floats for all instruction sets: the walk over a slice of `k`, and products in vectors of f32.
#![allow(unsafe_code)]

use super::kernels::{STEP, Sums, TILE_COLUMNS, Tile, padded_tails};
use super::tiles::prefetch_line;
use crate::cpu::lanes::Lanes;
use half::{bf16, f16};
use std::arch::asm;
use std::marker::PhantomData;

/// How the numbers of a step are multiplied and added up.
///
/// # Safety
///
/// The functions require a machine that has the instructions.
pub trait Multiply {
    /// What is added up in registers, of `R` rows and `C` columns.
    type Sums<const R: usize, const C: usize>;
    /// Bytes of a number of `x`.
    const X_BYTES: usize;
    /// Bytes of a weight.
    const BYTES: usize;
    /// Whether weights are brought into the cache.
    const IS_FETCHED: bool;

    unsafe fn zero<const R: usize, const C: usize>() -> Self::Sums<R, C>;

    /// Adds one step. `x` holds `R * STEP` numbers, and `weight` and each further column `row_bytes` on hold [`STEP`].
    unsafe fn add<const R: usize, const C: usize>(
        sums: &mut Self::Sums<R, C>,
        x: *const u8,
        weight: *const u8,
        row_bytes: usize,
    );

    /// Adds up what stands for one row and column.
    unsafe fn write<const R: usize, const C: usize>(sums: Self::Sums<R, C>, to: &mut Sums);
}

/// Computes a tile.
///
/// # Safety
///
/// As [`Kernel`](super::kernels::Kernel).
#[inline(always)]
pub unsafe fn run<M: Multiply, const R: usize, const C: usize>(tile: &Tile, to: &mut Sums) {
    let (mut x, mut weight, mut ahead) = (tile.x, tile.weight, tile.ahead);
    // SAFETY: the caller says what the machine has; the tile has these steps and a tail. `x` has a whole step for that, and the copies of
    // weights are of a whole step.
    unsafe {
        let mut sums = M::zero::<R, C>();
        for _ in 0..tile.steps {
            for column in 0..if M::IS_FETCHED && tile.fetches { C } else { 0 } {
                let line = ahead.wrapping_add(column * tile.ahead_stride);
                prefetch_line(line);
                if M::BYTES == 4 {
                    prefetch_line(line.wrapping_add(64));
                }
            }
            M::add::<R, C>(&mut sums, x, weight, tile.row_bytes);
            x = x.add(STEP * M::X_BYTES * R);
            weight = weight.add(STEP * M::BYTES);
            ahead = ahead.wrapping_add(tile.ahead_step);
        }
        if tile.tail > 0 {
            let tails = padded_tails::<C>(weight, tile.row_bytes, tile.tail, M::BYTES);
            M::add::<R, C>(&mut sums, x, tails.as_ptr().cast(), STEP * 4);
        }
        M::write::<R, C>(sums, to);
    }
}

/// Where weights of a type lie, and how they become vectors of f32.
pub trait Weight {
    const BYTES: usize;
    /// Whether they are brought into the cache.
    const IS_FETCHED: bool = true;

    /// Two vectors of numbers at `at`, in the order of [`Kernels::order`](super::kernels::Kernels::order).
    ///
    /// # Safety
    ///
    /// They can be read.
    unsafe fn load<L: Lanes>(lanes: L, at: *const u8) -> [L::V; 2];
}

impl Weight for bf16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<L: Lanes>(lanes: L, at: *const u8) -> [L::V; 2] {
        // SAFETY: the caller says so.
        unsafe { lanes.load_two_bf16(at.cast()) }
    }
}

impl Weight for f16 {
    const BYTES: usize = 2;

    #[inline(always)]
    unsafe fn load<L: Lanes>(lanes: L, at: *const u8) -> [L::V; 2] {
        // SAFETY: the caller says so.
        unsafe { lanes.load_two_f16(at.cast()) }
    }
}

impl Weight for f32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<L: Lanes>(lanes: L, at: *const u8) -> [L::V; 2] {
        // SAFETY: the caller says so.
        unsafe { [lanes.load(at.cast()), lanes.load(at.cast::<f32>().add(L::N))] }
    }
}

/// A `T` in a thread's scratch, which is in the cache.
pub struct Dequantized<T>(PhantomData<T>);

impl<T: Weight> Weight for Dequantized<T> {
    const BYTES: usize = T::BYTES;
    const IS_FETCHED: bool = false;

    #[inline(always)]
    unsafe fn load<L: Lanes>(lanes: L, at: *const u8) -> [L::V; 2] {
        // SAFETY: the caller says so.
        unsafe { T::load(lanes, at) }
    }
}

/// Products in vectors of f32. One vector of each column's weights is in a register, and those of `x` pass by. With `BY_COLUMN`, two vectors of each row
/// of `x` are, and the columns pass by.
pub struct Vectors<L, W, const BY_COLUMN: bool>(PhantomData<(L, W)>);

impl<L: Lanes, W: Weight, const BY_COLUMN: bool> Multiply for Vectors<L, W, BY_COLUMN> {
    type Sums<const R: usize, const C: usize> = [[L::V; C]; R];
    const X_BYTES: usize = 4;
    const BYTES: usize = W::BYTES;
    const IS_FETCHED: bool = W::IS_FETCHED;

    #[inline(always)]
    unsafe fn zero<const R: usize, const C: usize>() -> [[L::V; C]; R] {
        // SAFETY: the caller says so.
        [[unsafe { L::token() }.splat(0.0); C]; R]
    }

    #[inline(always)]
    unsafe fn add<const R: usize, const C: usize>(
        sums: &mut [[L::V; C]; R],
        x: *const u8,
        weight: *const u8,
        row_bytes: usize,
    ) {
        // SAFETY: the caller says what the machine has, and that the step of each row and column can be read.
        unsafe {
            let lanes = L::token();
            let zero = lanes.splat(0.0);
            let x = x.cast::<f32>();
            if BY_COLUMN {
                for pair in 0..STEP / L::N / 2 {
                    let mut rows = [[zero; 2]; R];
                    for (row, vectors) in rows.iter_mut().enumerate() {
                        *vectors = f32::load(lanes, x.add(row * STEP + pair * 2 * L::N).cast());
                    }
                    for column in 0..C {
                        let at = weight.add(column * row_bytes + pair * 2 * L::N * W::BYTES);
                        let weights = W::load(lanes, at);
                        for (sums, x) in sums.iter_mut().zip(&rows) {
                            sums[column] = lanes.fma(x[0], weights[0], sums[column]);
                            sums[column] = lanes.fma(x[1], weights[1], sums[column]);
                        }
                    }
                }
                return;
            }
            for part in 0..STEP / L::N {
                let mut weights = [zero; C];
                let weight = if L::REGISTERS == 16 { unknown(weight) } else { weight };
                for (column, vector) in weights.iter_mut().enumerate() {
                    let at = weight.add(column * row_bytes + part / 2 * 2 * L::N * W::BYTES);
                    *vector = W::load(lanes, at)[part % 2];
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let x = lanes.load(x.add(row * STEP + part * L::N));
                    for (sum, &weight) in sums.iter_mut().zip(&weights) {
                        *sum = lanes.fma(x, weight, *sum);
                    }
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn write<const R: usize, const C: usize>(sums: [[L::V; C]; R], to: &mut Sums) {
        // SAFETY: the caller says so.
        write_sums(unsafe { L::token() }, sums, to);
    }
}

/// Writes the sum of each vector.
#[inline(always)]
pub fn write_sums<L: Lanes, const R: usize, const C: usize>(lanes: L, sums: [[L::V; C]; R], to: &mut Sums) {
    for row in 0..R {
        if C > 4 {
            let mut vectors = [lanes.splat(0.0); TILE_COLUMNS];
            vectors[..C].copy_from_slice(&sums[row]);
            to[row * C..][..C].copy_from_slice(&lanes.sum8(vectors)[..C]);
        } else {
            let mut vectors = [lanes.splat(0.0); 4];
            vectors[..C].copy_from_slice(&sums[row]);
            to[row * C..][..C].copy_from_slice(&lanes.sum4(vectors)[..C]);
        }
    }
}

/// The same pointer, of which the compiler knows nothing: it reads the weights again for the odd ones instead of keeping
/// them in registers that the sums need.
#[inline(always)]
fn unknown(mut pointer: *const u8) -> *const u8 {
    // SAFETY: no instruction is run.
    unsafe { asm!("/* {pointer} */", pointer = inout(reg) pointer, options(readonly, nostack, preserves_flags)) };
    pointer
}
