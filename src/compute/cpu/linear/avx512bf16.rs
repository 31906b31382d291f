//! Kernels of AVX512-BF16: 32 products of bf16 numbers an instruction, added in pairs to sixteen sums.
//!
//! `x` is rounded to bf16, as a GPU has it. The instruction takes denormal numbers for zero.
#![allow(unsafe_code)]

use super::avx512::WIDE_PANEL;
use super::kernels::{Kernels, Order, STEP, Sums, Tile, padded_tails, table};
use super::tile::{Dequantized, Multiply, Weight, run, write_sums};
use super::tiles::prefetch_line;
use crate::cpu::lanes::{Avx512, Lanes};
use half::bf16;
use std::arch::x86_64::*;
use std::marker::PhantomData;

// 2,048 numbers of four rows are 16 KiB, half of the first-level cache or less.
pub static BF16: Kernels = Kernels {
    wide_panel: WIDE_PANEL,
    row_ahead: Some(2 << 10),
    ..table!(Order::Bf16, 2048, 6, tile<bf16>, [6, 6, 6, 6])
};
pub static DEQUANTIZED: Kernels = table!(Order::Bf16, 2048, 6, tile<Dequantized<bf16>>, [6, 6, 6, 6]);

/// # Safety
///
/// As [`Kernel`](super::kernels::Kernel).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn tile<W: Weight, const R: usize, const C: usize>(tile: &Tile, sums: &mut Sums) {
    // SAFETY: the caller says so.
    unsafe {
        if R == 1 && W::IS_FETCHED && tile.is_only_row {
            row::<C>(tile, sums)
        } else {
            run::<Pairs<W>, R, C>(tile, sums)
        }
    }
}

/// One row of `x`: the columns are read one after the other, in the order of memory. Their chains of sums overlap, because a core begins the next ones while
/// it waits.
///
/// # Safety
///
/// As [`tile`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn row<const C: usize>(tile: &Tile, to: &mut Sums) {
    // SAFETY: the caller says what the machine has; the tile has these steps and a tail. `x` has a whole step for that.
    unsafe {
        let mut sums = [[_mm512_setzero_ps(); C]; 1];
        let mut ahead = tile.ahead;
        for (column, sum) in sums[0].iter_mut().enumerate() {
            let (mut x, mut weight) = (tile.x, tile.weight.add(column * tile.row_bytes));
            for _ in 0..tile.steps {
                prefetch_line(ahead);
                let weights = pairs(_mm512_loadu_si512(weight.cast()));
                *sum = _mm512_dpbf16_ps(*sum, pairs(_mm512_loadu_si512(x.cast())), weights);
                (x, weight, ahead) = (x.add(STEP * 2), weight.add(STEP * 2), ahead.wrapping_add(STEP * 2));
            }
            if tile.tail > 0 {
                let tails = padded_tails::<1>(weight, tile.row_bytes, tile.tail, 2);
                let weights = pairs(_mm512_loadu_si512(tails.as_ptr().cast()));
                *sum = _mm512_dpbf16_ps(*sum, pairs(_mm512_loadu_si512(x.cast())), weights);
            }
        }
        write_sums(Avx512::<true>::token(), sums, to);
    }
}

/// Products of pairs of bf16 numbers, which lie where `W` says.
struct Pairs<W>(PhantomData<W>);

impl<W: Weight> Multiply for Pairs<W> {
    type Sums<const R: usize, const C: usize> = [[__m512; C]; R];
    const X_BYTES: usize = 2;
    const BYTES: usize = W::BYTES;
    const IS_FETCHED: bool = W::IS_FETCHED;

    #[inline(always)]
    unsafe fn zero<const R: usize, const C: usize>() -> [[__m512; C]; R] {
        // SAFETY: the caller says so.
        [[unsafe { _mm512_setzero_ps() }; C]; R]
    }

    #[inline(always)]
    unsafe fn add<const R: usize, const C: usize>(
        sums: &mut [[__m512; C]; R],
        x: *const u8,
        weight: *const u8,
        row_bytes: usize,
    ) {
        // SAFETY: the caller says so; 64 bytes are 32 numbers.
        unsafe {
            let mut weights = [_mm512_setzero_si512(); C];
            for (column, vector) in weights.iter_mut().enumerate() {
                *vector = _mm512_loadu_si512(weight.add(column * row_bytes).cast());
            }
            for (row, sums) in sums.iter_mut().enumerate() {
                let x = pairs(_mm512_loadu_si512(x.add(row * STEP * 2).cast()));
                for (sum, &weight) in sums.iter_mut().zip(&weights) {
                    *sum = _mm512_dpbf16_ps(*sum, x, pairs(weight));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn write<const R: usize, const C: usize>(sums: [[__m512; C]; R], to: &mut Sums) {
        // SAFETY: the caller says so.
        write_sums(unsafe { Avx512::<true>::token() }, sums, to);
    }
}

/// The same bits as bf16 numbers.
#[inline(always)]
fn pairs(bits: __m512i) -> __m512bh {
    // SAFETY: both are 64 bytes that may hold anything.
    unsafe { std::mem::transmute(bits) }
}
