//! See `ops/norm.rs` for the contract.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::lanes::{Kernel, Lanes, dispatch};
use super::{Cpu, Tensor};
use crate::{NormKind, NormWeights};

/// The specification.
pub fn reference(out: &mut [f32], x: &[f32], norm: NormWeights<Box<[f32]>>) {
    out.iter_mut().zip(reference_wide(x, norm)).for_each(|(out, v)| *out = v as f32);
}

/// The specification, in f64 so that its own rounding stays out of comparisons.
pub fn reference_wide(x: &[f32], norm: NormWeights<Box<[f32]>>) -> Vec<f64> {
    let hidden = norm.weight.len() / norm.kind.weights(1);
    let (weight, bias) = norm.weight.split_at(hidden);
    let rows = x.chunks_exact(hidden).map(|row| row.iter().map(|&v| f64::from(v)).collect::<Vec<f64>>());
    let normalized = rows.flat_map(|row| {
        let mean = match norm.kind {
            NormKind::Rms => 0.0,
            NormKind::Layer | NormKind::LayerBiased => row.iter().sum::<f64>() / hidden as f64,
        };
        let squares: f64 = row.iter().map(|v| (v - mean) * (v - mean)).sum();
        let divisor = (squares / hidden as f64 + f64::from(norm.eps)).sqrt();
        let added = bias.iter().map(|&bias| f64::from(bias)).chain(std::iter::repeat(0.0));
        let numbers = row.into_iter().zip(weight).zip(added);
        numbers.map(move |((v, &weight), bias)| (v - mean) / divisor * f64::from(weight) + bias)
    });
    normalized.collect()
}

pub fn run(cpu: &Cpu, out: &mut Tensor, x: &Tensor, norm: NormWeights<Box<[f32]>>) {
    let (rows, hidden, x) = (x.rows(), x.cols(), x.values());
    let out = Disjoint::new(out.values_mut());
    cpu.for_rows(rows, hidden, &|rows| {
        let numbers = rows.start * hidden..rows.end * hidden;
        // SAFETY: the ranges of `for_rows` do not overlap.
        let out = unsafe { out.part(numbers.clone()) };
        dispatch(cpu.isa, Normalize { hidden, out, x: &x[numbers], norm });
    });
}

/// Rows of `hidden` numbers.
struct Normalize<'a> {
    hidden: usize,
    out: &'a mut [f32],
    x: &'a [f32],
    norm: NormWeights<'a, Box<[f32]>>,
}

impl Kernel for Normalize<'_> {
    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let hidden = self.hidden;
        for (out, x) in self.out.chunks_exact_mut(hidden).zip(self.x.chunks_exact(hidden)) {
            normalize(lanes, out, x, self.norm, |out, v| *out = v);
        }
    }
}

/// Normalizes the row `x` and puts each number into its place in `out`.
#[inline(always)]
pub fn normalize<L: Lanes>(
    lanes: L,
    out: &mut [f32],
    x: &[f32],
    norm: NormWeights<Box<[f32]>>,
    put: impl Fn(&mut f32, f32),
) {
    let numbers = out.iter_mut().zip(x).zip(norm.weight);
    match norm.kind {
        NormKind::Rms => {
            let scale = inverse_rms(lanes, x, norm.eps);
            numbers.for_each(|((out, &x), &weight)| put(out, x * scale * weight));
        }
        NormKind::Layer => {
            let mean = sum(lanes, x, 0.0, |sum, v| lanes.add(sum, v)) / x.len() as f32;
            let scale = inverse_deviation(lanes, x, mean, norm.eps);
            numbers.for_each(|((out, &x), &weight)| put(out, (x - mean) * scale * weight));
        }
        NormKind::LayerBiased => {
            let mean = sum(lanes, x, 0.0, |sum, v| lanes.add(sum, v)) / x.len() as f32;
            let scale = inverse_deviation(lanes, x, mean, norm.eps);
            let bias = &norm.weight[x.len()..];
            numbers.zip(bias).for_each(|(((out, &x), &weight), &bias)| put(out, (x - mean) * scale * weight + bias));
        }
    }
}

/// `1 / sqrt(mean(x^2) + eps)`, summed in an order that depends on the length alone.
#[inline(always)]
pub fn inverse_rms<L: Lanes>(lanes: L, x: &[f32], eps: f32) -> f32 {
    inverse_root(sum(lanes, x, 0.0, |sum, v| lanes.fma(v, v, sum)), x.len(), eps)
}

/// `1 / sqrt(mean((x - mean)^2) + eps)`, likewise. The mean of squares alone would lose its digits where the mean is large.
#[inline(always)]
fn inverse_deviation<L: Lanes>(lanes: L, x: &[f32], mean: f32, eps: f32) -> f32 {
    let means = lanes.splat(mean);
    let squares = sum(lanes, x, mean, |sum, v| {
        let deviation = lanes.sub(v, means);
        lanes.fma(deviation, deviation, sum)
    });
    inverse_root(squares, x.len(), eps)
}

/// `1 / sqrt(squares / len + eps)`
#[inline(always)]
fn inverse_root(squares: f32, len: usize, eps: f32) -> f32 {
    1.0 / (squares / len as f32 + eps).sqrt()
}

/// A sum over `x`, to which `add` adds a vector, in an order that depends on the length alone. `pad` is a number that adds nothing.
#[inline(always)]
fn sum<L: Lanes>(lanes: L, x: &[f32], pad: f32, add: impl Fn(L::V, L::V) -> L::V) -> f32 {
    // Four sums, so that an addition need not wait for the one before it.
    let mut sums = [lanes.splat(0.0); 4];
    let mut quads = x.chunks_exact(4 * L::N);
    for quad in &mut quads {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the chunk has 4 N numbers.
            *sum = add(*sum, unsafe { lanes.load(quad.as_ptr().add(i * L::N)) });
        }
    }
    let mut vectors = quads.remainder().chunks_exact(L::N);
    for vector in &mut vectors {
        // SAFETY: the chunk has N numbers.
        sums[0] = add(sums[0], unsafe { lanes.load(vector.as_ptr()) });
    }
    let rest = vectors.remainder();
    if !rest.is_empty() {
        let mut padded = [pad; 16];
        padded[..rest.len()].copy_from_slice(rest);
        const { assert!(L::N <= 16) };
        // SAFETY: no vector has more than 16 numbers.
        sums[1] = add(sums[1], unsafe { lanes.load(padded.as_ptr()) });
    }
    lanes.sum(lanes.add(lanes.add(sums[0], sums[1]), lanes.add(sums[2], sums[3])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::Isa;

    /// One row, normalized.
    fn normalized(isa: Isa, x: &[f32], kind: NormKind) -> Vec<f32> {
        let weight = vec![1.0; x.len()].into_boxed_slice();
        let mut out = vec![f32::NAN; x.len()];
        dispatch(
            isa,
            Normalize { hidden: x.len(), out: &mut out, x, norm: NormWeights { weight: &weight, eps: 0.0, kind } },
        );
        out
    }

    #[test]
    fn a_layer_norm_keeps_its_digits_where_the_mean_is_large() {
        for isa in Isa::available() {
            for len in [2, 5, 16, 37, 64, 200] {
                // Half of the numbers lie 1 below the mean and half 1 above, as far as they are even.
                let x: Vec<f32> = (0..len / 2 * 2).map(|i| 100_000.0 + if i % 2 == 0 { -1.0 } else { 1.0 }).collect();
                let out = normalized(*isa, &x, NormKind::Layer);
                let wanted: Vec<f32> = x.iter().map(|v| v - 100_000.0).collect();
                assert_eq!(out, wanted, "{isa:?}, {len} numbers");
            }
        }
    }

    #[test]
    fn a_row_of_equal_numbers_has_no_deviation() {
        for isa in Isa::available() {
            let weight = vec![1.0; 21].into_boxed_slice();
            let mut out = vec![f32::NAN; 21];
            let norm = NormWeights { weight: &weight, eps: 1e-5, kind: NormKind::Layer };
            dispatch(*isa, Normalize { hidden: 21, out: &mut out, x: &[3.0; 21], norm });
            assert_eq!(out, [0.0; 21], "{isa:?}");
        }
    }
}
