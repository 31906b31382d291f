//! See `ops/linear.rs` for the contract.
//!
//! Each number of the result is one sum over `k` whose order is fixed by the instruction set and the coding of its
//! weights alone: neither the other rows of `x`, nor the columns, nor the threads can change a bit of it.
//!
//! The weights are read from memory once a call, where they lie in the file. Only `x` is rewritten, into the order in which a
//! kernel reads it ([`pack`]). Threads share the columns; [`tiles`] walks a thread's columns for all instruction sets
//! except AMX, which has a loop of its own.
//!
//! Weights in a coding with scales are dequantized on the way to the kernels, slice by slice ([`dequantize`]), or are multiplied as the integers that
//! they are ([`integer`]). Which of the two depends on the instruction set and the coding.
#![allow(unsafe_code)]

mod choice;
mod dequantize;
mod kernels;
mod pack;
mod portable;
mod reference;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod tile;
mod tiles;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512bf16;
#[cfg(target_arch = "aarch64")]
mod bfmmla;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod integer;
#[cfg(target_arch = "aarch64")]
mod neon;

pub use dequantize::reads;
pub use pack::Scratch;
pub use reference::reference;

use super::disjoint::Disjoint;
use super::matrix::Segment;
use super::{Cpu, Isa, Matrix, Pool, Tensor};
use base::error::Result;
use formats::WeightFormat;
use std::ops::Range;
use tiles::Shares;

/// One call, or the columns of one whose weights share a coding, as the threads see it.
struct Call<'a> {
    /// `[tokens, outputs]`
    out: Disjoint<'a, f32>,
    /// Rows of `x` and of `out`.
    tokens: usize,
    weight: &'a Matrix,
    /// Of the columns that are computed.
    coding: WeightFormat,
    /// Bytes of the weights of one column.
    row_bytes: usize,
    /// `[outputs]`
    bias: Option<&'a [f32]>,
}

/// Makes `scratch` large enough for an `x` of `rows` rows of `cols` numbers.
pub fn fit(scratch: &mut Scratch, pool: &Pool, isa: Isa, rows: usize, cols: usize) -> Result<()> {
    let staged = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Amx => amx::staged_numbers(cols).max(tiles::DEQUANTIZED_NUMBERS).max(integer::staged_numbers(cols)),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 | Isa::Avx512Bf16 => tiles::DEQUANTIZED_NUMBERS.max(integer::staged_numbers(cols)),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon | Isa::DotProd | Isa::I8mm | Isa::Bf16 => {
            tiles::DEQUANTIZED_NUMBERS.max(integer::staged_numbers(cols))
        }
        _ => tiles::DEQUANTIZED_NUMBERS,
    };
    scratch.fit(rows, cols, pool.threads() * staged)
}

/// What products do with activations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// They are rounded to what the instruction set multiplies fastest: beside quantized weights to integers, beside those in bf16 to bf16.
    #[default]
    Rounded,
    /// They stay in f32, and quantized weights become the numbers in f32 that they stand for.
    F32,
}

/// How products are computed.
#[derive(Clone, Copy, Debug)]
pub struct Arithmetic {
    pub isa: Isa,
    pub activations: Activations,
}

/// What explanations call the kernels for weights in `coding`: what they multiply.
pub fn kernel_name(isa: Isa, activations: Activations, coding: WeightFormat) -> &'static str {
    let isa = match activations {
        Activations::Rounded => isa,
        Activations::F32 => isa.in_f32(),
    };
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if activations == Activations::Rounded && integer::takes(isa, coding) {
        return "integers";
    }
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Amx && matches!(coding, WeightFormat::Bf16 | WeightFormat::Scaled(_)) {
        return if coding.is_plain() { "tiles of bf16" } else { "tiles of bf16, dequantized by slices" };
    }
    let rounds = isa.rounds_activations() && !matches!(coding, WeightFormat::F32 | WeightFormat::F16);
    match (coding.is_plain(), rounds) {
        (true, true) => "bf16",
        (true, false) => "f32",
        (false, true) => "bf16, dequantized by slices",
        (false, false) => "f32, dequantized by slices",
    }
}

/// The rows of a product.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// `[tokens, outputs]`
    pub out: Disjoint<'a, f32>,
    /// `[tokens, inputs]`
    pub x: &'a [f32],
    /// How many there are.
    pub tokens: usize,
}

/// Computes the columns of `out` in `columns`.
pub fn run(cpu: &mut Cpu, out: &mut Tensor, x: &Tensor, weight: &Matrix, bias: Option<&[f32]>, columns: Range<usize>) {
    let arithmetic = cpu.arithmetic();
    let Cpu { pool, scratch, .. } = cpu;
    let rows = Rows { tokens: x.rows(), out: Disjoint::new(out.values_mut()), x: x.values() };
    product(pool, arithmetic, scratch.get_mut(), rows, weight, bias, columns);
}

/// As [`run`], with a scratch that [`fit`] made large enough for the rows. No other thread may write these rows and columns meanwhile.
pub fn product(
    pool: &Pool,
    arithmetic: Arithmetic,
    scratch: &mut Scratch,
    rows: Rows,
    weight: &Matrix,
    bias: Option<&[f32]>,
    columns: Range<usize>,
) {
    let Rows { out, x, tokens } = rows;
    if tokens == 0 {
        return;
    }
    for (coding, columns) in weight.runs(columns) {
        let row_bytes = coding.row_bytes(weight.cols());
        let call = Call { out, tokens, weight, coding, row_bytes, bias };
        run_coded(pool, arithmetic, scratch, &call, x, columns);
    }
}

/// Computes columns that share a coding.
fn run_coded(
    pool: &Pool,
    Arithmetic { isa, activations }: Arithmetic,
    scratch: &mut Scratch,
    call: &Call,
    x: &[f32],
    columns: Range<usize>,
) {
    let isa = match activations {
        Activations::Rounded => isa,
        Activations::F32 => isa.in_f32(),
    };
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    if activations == Activations::Rounded && integer::takes(isa, call.coding) {
        return integer::run(pool, isa, scratch, call, x, columns);
    }
    let route = choice::choose(isa, call.coding);
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Amx && matches!(call.coding, WeightFormat::Bf16 | WeightFormat::Scaled(_)) {
        return amx::run(pool, scratch, call, route.dequantizer, x, columns);
    }
    let Scratch { x: packed, staged } = scratch;
    let packed = pack::pack(pool, packed, route.kernels.order, x, call.tokens, call.weight.cols());
    let shares = tiles::shares(call, route, columns.len(), pool.threads());
    let staged = Disjoint::new(staged);
    for_shares(pool, columns, &shares, &|thread, range, later| {
        let dequantized = thread * tiles::DEQUANTIZED_NUMBERS..(thread + 1) * tiles::DEQUANTIZED_NUMBERS;
        // SAFETY: no two calls with the same thread overlap.
        let dequantized = unsafe { staged.part(dequantized) };
        tiles::run(call, route, packed, dequantized, range, later);
    });
}

/// Calls `work(thread, range, later)` until the ranges, of `chunk` columns each, have covered `columns`. The thread will
/// probably take `later` next: threads take turns, more or less.
fn for_columns(
    pool: &Pool,
    columns: Range<usize>,
    chunk: usize,
    work: &(dyn Fn(usize, Range<usize>, Range<usize>) + Sync),
) {
    for_shares(pool, columns.clone(), &Shares::of(columns.len(), chunk), work);
}

/// As [`for_columns`], with ranges that may differ.
fn for_shares(
    pool: &Pool,
    columns: Range<usize>,
    shares: &Shares,
    work: &(dyn Fn(usize, Range<usize>, Range<usize>) + Sync),
) {
    let of = |i: usize| {
        let range = shares.range(i);
        columns.start + range.start..columns.start + range.end
    };
    pool.for_each(shares.count(), 1, &|thread, ranges| {
        for i in ranges {
            work(thread, of(i), of(i + pool.threads()));
        }
    });
}

impl<'a> Call<'a> {
    /// The weights of `range`, cut where matrices meet, each part with the bytes that are probably read after it.
    fn segments(&self, range: Range<usize>, later: Range<usize>) -> impl Iterator<Item = (Segment<'a>, &'a [u8])> {
        let weight = self.weight;
        let after = weight.segments(range.clone()).chain(weight.segments(later)).skip(1);
        weight.segments(range).zip(after.map(|segment| segment.bytes).chain([&[][..]]))
    }
}
