//! Many rows by AMX: integers as bf16 numbers, which tiles multiply and add exactly.
//!
//! A tile of 16 rows and 16 columns has the sums of one group, or of half of one where halves have scales. It is stored, and while the next one
//! is multiplied, the sums are scaled and added up in registers.
#![allow(unsafe_code)]

use super::super::pack::Scratch;
use super::super::{Call, for_columns};
use super::codings::{Factors, Integers, Second, StepCodes};
use super::panel::{Layout, Panel, by_fours, chunk_columns, staged_numbers};
use super::tile_rows::{TileGroup, Tiles, tiles};
use super::{EDGE, LINE_BYTES, add_scaled, by_coding, store};
use crate::cpu::Pool;
use crate::cpu::amx::{Configured, Tile, group_product};
use crate::cpu::disjoint::Disjoint;
use crate::cpu::lanes::Avx512;
use crate::cpu::matrix::Segment;
use std::arch::x86_64::*;
use std::ops::Range;

/// Codes without their zeros, as bf16 numbers. `[pair][column][2]`
struct Words;

impl Layout for Words {
    type Target = Avx512<true>;
    type Step = Tile;

    #[inline(always)]
    unsafe fn write<D: Integers>(codes: StepCodes<Avx512<true>>, factors: &Factors, step: usize, to: &mut Tile) {
        // SAFETY: the caller says what the machine has; each row has 64 bytes.
        unsafe {
            for (to, four) in to.as_chunks_mut::<2>().0.iter_mut().zip(by_fours::<Avx512<true>>(codes)) {
                let pairs = match D::IS_SHORT {
                    true => short_words::<D>(four),
                    false => words(four, zeros::<D>(factors, step)),
                };
                for (to, pair) in to.iter_mut().zip(pairs) {
                    _mm512_storeu_si512(to.as_mut_ptr().cast(), pair);
                }
            }
        }
    }
}

/// What is taken from the codes of each column in a step.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn zeros<D: Integers>(factors: &Factors, step: usize) -> __m512 {
    // SAFETY: the caller says so; the array has 16 numbers.
    unsafe {
        match D::SECOND {
            Second::Minima => _mm512_setzero_ps(),
            Second::Zero(zero) => _mm512_set1_ps(f32::from(zero)),
            Second::Zeros => _mm512_load_ps(factors.seconds[step].as_ptr()),
        }
    }
}

/// Two pairs of bf16 numbers for each four codes: the codes less `zeros`.
///
/// A code becomes the end of the mantissa of 2^23, or of 2^15 where it lies a byte higher, and a subtraction leaves it alone: fewer instructions
/// than a conversion takes.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn words(four: __m512i, zeros: __m512) -> [__m512i; 2] {
    /// `one & mask | bits`
    const SELECT: i32 = 0xea;
    // SAFETY: the caller says so.
    unsafe {
        let (low_mask, high_mask) = (_mm512_set1_epi32(0xff), _mm512_set1_epi32(0xff00));
        let (low_base, high_base) = (_mm512_set1_ps((1u32 << 23) as f32), _mm512_set1_ps((1u32 << 15) as f32));
        // Sums of integers below 2^24 are exact.
        let (from_low, from_high) = (_mm512_add_ps(low_base, zeros), _mm512_add_ps(high_base, zeros));
        let (low_base, high_base) = (_mm512_castps_si512(low_base), _mm512_castps_si512(high_base));
        let mut pairs = [four, _mm512_srli_epi32::<16>(four)];
        for pair in &mut pairs {
            let first = _mm512_ternarylogic_epi32::<SELECT>(*pair, low_mask, low_base);
            let second = _mm512_ternarylogic_epi32::<SELECT>(*pair, high_mask, high_base);
            let first = _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(first), from_low));
            let second = _mm512_castps_si512(_mm512_sub_ps(_mm512_castsi512_ps(second), from_high));
            // The lower half of each is zero.
            *pair = _mm512_or_si512(_mm512_srli_epi32::<16>(first), second);
        }
        pairs
    }
}

/// Two pairs of bf16 numbers for each four codes below 32, which all columns take from one table.
///
/// # Safety
///
/// The machine has AVX-512.
#[inline(always)]
unsafe fn short_words<D: Integers>(four: __m512i) -> [__m512i; 2] {
    /// `mask ? one : other`
    const SELECT: i32 = 0xca;
    // SAFETY: the caller says so; the table has 64 bytes.
    unsafe {
        let table = const { &table(D::SECOND) };
        let table = _mm512_loadu_si512(table.as_ptr().cast());
        let low = _mm512_set1_epi32(0xffff);
        // The lowest five bits of each word are the code; others are not looked at.
        let first = _mm512_ternarylogic_epi32::<SELECT>(low, four, _mm512_slli_epi32::<8>(four));
        let (third, fourth) = (_mm512_srli_epi32::<16>(four), _mm512_srli_epi32::<8>(four));
        let second = _mm512_ternarylogic_epi32::<SELECT>(low, third, fourth);
        [_mm512_permutexvar_epi16(first, table), _mm512_permutexvar_epi16(second, table)]
    }
}

/// The codes below 32 without their zero, as bf16 numbers.
const fn table(second: Second) -> [u16; 32] {
    let zero = match second {
        Second::Zero(zero) => zero,
        // Codings with zeros of each column are not short.
        Second::Minima | Second::Zeros => 0,
    };
    let (mut table, mut code) = ([0; 32], 0);
    while code < table.len() {
        table[code] = ((code as f32 - zero as f32).to_bits() >> 16) as u16;
        code += 1;
    }
    table
}

/// Computes the columns of `out` in `columns`.
pub fn run(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let by_segment: fn(&Pool, &mut Scratch, &Call, &[f32], Range<usize>) = by_coding!(call.coding, run_as);
    by_segment(pool, scratch, call, x, columns);
}

fn run_as<D: Integers>(pool: &Pool, scratch: &mut Scratch, call: &Call, x: &[f32], columns: Range<usize>) {
    let inputs = call.weight.cols();
    let Scratch { x: room, staged } = scratch;
    let x = tiles(pool, room, x, (call.tokens, inputs), D::FORMAT);
    let (chunk, numbers) = (chunk_columns(inputs, columns.len(), pool.threads()), staged_numbers(inputs));
    let staged = Disjoint::new(staged);
    for_columns(pool, columns, chunk, &|thread, range, later| {
        // SAFETY: no two calls with the same thread overlap.
        let staged = unsafe { staged.part(thread * numbers..(thread + 1) * numbers) };
        let _configured = Configured::with_pairs(if D::HAS_HALVES { EDGE / 2 } else { EDGE });
        for (segment, following) in call.segments(range, later) {
            // SAFETY: `run` chose this module for `Isa::Amx`, this thread is `Configured`, and the parts of `Pages` are whole lines of the cache.
            unsafe {
                let panel = Panel::<Words>::stage::<D>(staged, call.coding, &segment, inputs, following);
                for block in 0..call.tokens.div_ceil(EDGE) {
                    for group in 0..panel.groups {
                        multiply::<D>(call, &segment, &panel, x, block, group);
                    }
                }
            }
        }
    });
}

/// Two tiles of sums: of a group, and of the next one.
#[repr(align(64))]
struct Sums([[[f32; EDGE]; EDGE]; 2]);

/// Computes 16 columns for 16 rows.
///
/// # Safety
///
/// The machine has AVX-512, and this thread is [`Configured`] with as many pairs as a group or half of one has.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn multiply<D: Integers>(
    call: &Call,
    segment: &Segment,
    panel: &Panel<Words>,
    x: Tiles,
    block: usize,
    group: usize,
) {
    let (steps, halves) = (panel.steps, if D::HAS_HALVES { 2 } else { 1 });
    let codes = &panel.codes[group * steps..(group + 1) * steps];
    let factors = &panel.factors[group * steps..(group + 1) * steps];
    let (x_groups, x_tiles) = (&x.groups[block * steps..][..steps], &x.tiles[block * steps..][..steps]);
    let mut room = Sums([[[0.0; EDGE]; EDGE]; 2]);
    let mut sums = [_mm512_setzero_ps(); EDGE];
    let parts = steps * halves;
    for part in 0..=parts {
        if part < parts {
            let (step, half) = (part / halves, part % halves);
            // SAFETY: the caller says that this thread is `Configured`; both tiles and the room are there.
            unsafe {
                let x = x_tiles[step].as_ptr().cast::<u8>().add(half * LINE_BYTES / 2);
                let weights = codes[step].as_ptr().cast::<u8>().add(half * EDGE / 2 * LINE_BYTES);
                group_product(x, weights, room.0[part % 2].as_mut_ptr().cast(), part % 2);
            }
        }
        if part > 0 {
            let (step, half) = ((part - 1) / halves, (part - 1) % halves);
            let is_last = half + 1 == halves;
            // SAFETY: the caller says that the machine has AVX-512; the arrays have 16 numbers.
            unsafe {
                let scales = _mm512_load_ps(factors[step].scales[half].as_ptr());
                let minima = _mm512_load_ps(factors[step].seconds.as_ptr());
                let TileGroup { scales: x_scales, scaled_sums } = &x_groups[step];
                for row in 0..EDGE {
                    let integers = _mm512_load_ps(room.0[(part - 1) % 2][row].as_ptr());
                    sums[row] = add_scaled::<Avx512<true>>(sums[row], integers, scales, _mm512_set1_ps(x_scales[row]));
                    if let (Second::Minima, true) = (D::SECOND, is_last) {
                        sums[row] = _mm512_fmadd_ps(minima, _mm512_set1_ps(scaled_sums[row]), sums[row]);
                    }
                }
            }
        }
    }
    let rows = EDGE.min(call.tokens - block * EDGE);
    for (row, sums) in sums.into_iter().enumerate().take(rows) {
        // SAFETY: the threads' columns do not overlap by `Pool::for_each`.
        unsafe { store::<Avx512<true>>(call, segment, group * EDGE, block * EDGE + row, sums) };
    }
}
