//! Inputs of the cases: numbers as a type can hold them, and batches over a shuffled cache.

pub use crate::inputs::{Random, limits};
use compute::batch::{Batch, Sampling};
use compute::cuda::{Cuda, DeviceBatch, Tensor};
use compute::{Device, HostMatrix, HostVector, KvFormat};
use formats::{DType, WeightFormat};
use half::{bf16, f16};
use os::HostBytes;

/// The greatest `|computed - expected| / |expected|`, as vectors.
pub fn bound(dtype: DType) -> f64 {
    if dtype == DType::Bf16 { 6e-3 } else { 1.5e-3 }
}

/// The formats of a KV cache on a device that computes in `dtype`.
pub fn formats(dtype: DType) -> [KvFormat; 2] {
    [dtype.into(), KvFormat::Int8]
}

/// Keys or values of a token and head as a cache in int8 has them: integers, and the scale as a number.
pub fn quantized(values: &[f32]) -> (Vec<i8>, bf16) {
    let scale = bf16::from_f32(values.iter().fold(0.0f32, |greatest, v| greatest.max(v.abs())) / 127.0);
    let inverse = 1.0 / scale.to_f32();
    (values.iter().map(|v| (v * inverse).round_ties_even() as i8).collect(), scale)
}

pub const DTYPES: [DType; 2] = [DType::Bf16, DType::F16];

/// Runs `test` on the first device for each number type.
pub fn on_device(test: impl Fn(&mut Cuda, DType)) {
    for dtype in DTYPES {
        test(&mut Cuda::open(0, dtype).unwrap(), dtype);
    }
}

/// Numbers from -`size` to `size`, as `dtype` can hold them.
pub fn numbers(random: &mut Random, len: usize, size: f32, dtype: DType) -> Vec<f32> {
    random.numbers(len, size).into_iter().map(|v| rounded(v, dtype)).collect()
}

pub fn rounded(v: f32, dtype: DType) -> f32 {
    match dtype {
        DType::Bf16 => bf16::from_f32(v).to_f32(),
        DType::F16 => f16::from_f32(v).to_f32(),
        DType::F32 => v,
    }
}

/// The unit roundoff of a number type: rounding a number to it is off by at most that share of the number.
pub fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::Bf16 => (-8f64).exp2(),
        DType::F16 => (-11f64).exp2(),
        DType::F32 => (-24f64).exp2(),
    }
}

/// A result in f64, and how far from it a correct kernel may be.
#[derive(Clone, Copy, Debug)]
pub struct Near {
    pub value: f64,
    pub within: f64,
}

impl Near {
    /// A result that is off by at most `error` before it is rounded to `dtype`.
    pub fn stored(value: f64, error: f64, dtype: DType) -> Near {
        // Half of the step of subnormal numbers; that of bf16 is below all that tests compute.
        let least = if dtype == DType::F16 { (-25f64).exp2() } else { 0.0 };
        // What is rounded is the result with its error.
        Near { value, within: error + unit(dtype) * (value.abs() + error) + least }
    }
}

/// A sum of products in f64, and what the errors of computing it grow with.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dot {
    pub value: f64,
    /// Of the magnitudes of the products.
    pub magnitude: f64,
    /// Of the squares of the products.
    pub squares: f64,
    pub terms: usize,
}

impl Dot {
    pub fn of(x: &[f32], w: &[f32]) -> Dot {
        Dot::sum(x.iter().zip(w).map(|(&a, &b)| f64::from(a) * f64::from(b)))
    }

    pub fn sum(products: impl Iterator<Item = f64>) -> Dot {
        let mut dot = Dot::default();
        products.for_each(|product| dot.add(product));
        dot
    }

    fn add(&mut self, product: f64) {
        self.value += product;
        self.magnitude += product.abs();
        self.squares += product * product;
        self.terms += 1;
    }

    /// With `bias` as one more product.
    pub fn plus(mut self, bias: f64) -> Dot {
        self.add(bias);
        self
    }

    /// The error of a sum in f32 of exact products. The worst case is `terms * 2^-24 * magnitude`, when all roundings have one sign. The bound here
    /// is probabilistic: roundings of either sign grow with the root of their number, and partial sums are smaller than the magnitude. A tensor
    /// core cuts off instead of rounding, up to twice 2^-24 of its accumulator. For products of either sign that gives at most 1 to 2 times
    /// `sqrt(terms) * 2^-24 * magnitude`; 8 leaves room of 4 or more.
    fn error_of_sum(&self) -> f64 {
        8.0 * (self.terms.max(1) as f64).sqrt() * unit(DType::F32) * self.magnitude
    }

    /// The error if each product, or each partial sum, was rounded to `dtype` once more. Each rounding is uniform in `unit` of its product, so the
    /// error has a standard deviation of at most `unit / sqrt(3)` of the root of the sum of squares. Among a million results the greatest is five
    /// of these, 2.9 units. A scale and an offset that are rounded besides double the variance: 4.1 units. 12 leaves room of 3 to 4 beyond the
    /// greatest, and of 20 beyond the usual error.
    pub fn error_of_rounding(&self, dtype: DType) -> f64 {
        12.0 * unit(dtype) * self.squares.sqrt()
    }

    /// The sum of exact products, added up in f32 and stored in `dtype`.
    pub fn near(&self, dtype: DType) -> Near {
        Near::stored(self.value, self.error_of_sum(), dtype)
    }

    /// The same where a factor of each product, or partial sums, were rounded to `dtype` on the way.
    pub fn near_rounded(&self, dtype: DType) -> Near {
        Near::stored(self.value, self.error_of_sum() + self.error_of_rounding(dtype), dtype)
    }
}

/// What arithmetic in f32 loses of a few terms of one magnitude, as a share of it: a dozen operations, rounded or by instructions that are
/// off by two units (`rsqrtf`, `ex2.approx`), give about 8 units of 2^-24. 32 leaves room of 4.
pub const FEW_OPERATIONS: f64 = 32.0 / (1u64 << 24) as f64;

/// Results of a normalization of rows, stored in `dtype`: `weights.len()` numbers each, computed from `x`. A layer norm subtracts a mean whose error
/// is a share of the greatest magnitude of the row, which after the division by the deviation is that share of `greatest / deviation`.
pub fn near_normalized(values: &[f64], x: &[f32], weights: &[f32], dtype: DType) -> Vec<Near> {
    let errors = errors_of_norm(x, weights);
    values.iter().zip(errors).map(|(&value, error)| Near::stored(value, error, dtype)).collect()
}

/// How far the numbers of a normalized row may be off before they are rounded.
pub fn errors_of_norm(x: &[f32], weights: &[f32]) -> Vec<f64> {
    let rows = x.chunks_exact(weights.len()).flat_map(|row| {
        let count = row.len() as f64;
        let mean = row.iter().map(|&v| f64::from(v)).sum::<f64>() / count;
        let variance = row.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / count;
        let greatest = row.iter().fold(0.0, |greatest: f64, &v| greatest.max(f64::from(v).abs()));
        let share = FEW_OPERATIONS * greatest / variance.sqrt();
        weights.iter().map(move |&w| share * f64::from(w).abs())
    });
    rows.collect()
}

/// Asserts of every result that it is as near as it says, and of all of them that the L2 norm of the error is at most `bound` of theirs.
/// An element alone hardly changes the norm, and an error of all elements by their own bounds would be greater than the norm allows: so both.
pub fn assert_near(computed: &[f32], expected: &[Near], bound: f64, what: &str) {
    assert_eq!(computed.len(), expected.len(), "{what}");
    let pairs = || computed.iter().zip(expected).map(|(&a, b)| (f64::from(a), b));
    let ratio = |(a, b): (f64, &Near)| {
        let error = (a - b.value).abs();
        // Infinite results and NaN are never near.
        if error.is_nan() {
            f64::INFINITY
        } else if error == 0.0 {
            0.0
        } else {
            error / b.within
        }
    };
    let mut worst = (0.0, 0);
    for (at, pair) in pairs().enumerate() {
        let ratio = ratio(pair);
        if ratio > worst.0 {
            worst = (ratio, at);
        }
    }
    let error = pairs().map(|(a, b)| (a - b.value).powi(2)).sum::<f64>().sqrt();
    let norm = expected.iter().map(|b| b.value * b.value).sum::<f64>().sqrt();
    let place = match computed.get(worst.1) {
        None => String::new(),
        Some(found) => {
            let Near { value, within } = expected[worst.1];
            format!(
                "number {} of {} is {found:e} instead of {value:e} within {within:.2e}, {:.2} of its bound",
                worst.1,
                computed.len(),
                worst.0
            )
        }
    };
    assert!(worst.0 <= 1.0, "{what}: {place}");
    assert!(
        error <= bound * norm,
        "{what}: relative error {:.2e}, at most {bound:.0e} is allowed; {place}",
        error / norm
    );
}

/// The kernels that `launch` launches, by their names.
pub fn launched(cuda: &mut Cuda, launch: impl FnOnce(&mut Cuda)) -> Vec<String> {
    cuda.take_launches();
    launch(cuda);
    cuda.take_launches()
}

pub fn filled(cuda: &mut Cuda, values: &[f32], cols: usize) -> Tensor {
    let mut tensor = cuda.tensor(values.len() / cols, cols).unwrap();
    tensor.set_rows(values.len() / cols);
    cuda.write(&mut tensor, values).unwrap();
    tensor
}

pub fn poisoned(cuda: &mut Cuda, rows: usize, cols: usize) -> Tensor {
    filled(cuda, &vec![f32::NAN; rows * cols], cols)
}

/// Numbers as a model file has them.
pub fn coded(values: &[f32], dtype: DType) -> Vec<u8> {
    let mut bytes = vec![0; dtype.bytes() * values.len()];
    WeightFormat::from(dtype).encode(values.iter().copied(), &mut bytes);
    bytes
}

pub fn host_matrix(values: &[f32], [rows, cols]: [usize; 2], dtype: DType) -> HostMatrix {
    HostMatrix::new(HostBytes::owned(coded(values, dtype).into()), dtype.into(), rows, cols)
}

pub fn host_vector(values: &[f32], dtype: DType) -> HostVector {
    HostVector::new(HostBytes::owned(coded(values, dtype).into()), dtype.into(), values.len())
}

pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// Sequences with blocks from all over a cache, and a batch of them.
pub struct Scene {
    pub batch: Batch,
    pub blocks: usize,
    pub block_size: usize,
}

impl Scene {
    /// `rows` name the tokens of each row before and in this batch.
    pub fn new(rows: &[(usize, usize)], block_size: usize, random: &mut Random) -> Scene {
        let needed = |&(before, new): &(usize, usize)| (before + new).div_ceil(block_size);
        let blocks = rows.iter().map(needed).sum::<usize>() + 2;
        let mut free = random.permutation(blocks);
        let width = rows.iter().map(needed).max().unwrap_or(1) + 1;
        let mut batch = Batch { row_starts: vec![0], table_width: width, ..Batch::default() };
        for row in rows {
            let mut table = free.split_off(free.len() - needed(row));
            table.resize(width, 0);
            for position in row.0..row.0 + row.1 {
                batch.token_ids.push(random.below(50) as u32);
                batch.positions.push(position as u32);
                batch.slots.push(table[position / block_size] * block_size as u32 + (position % block_size) as u32);
            }
            batch.row_starts.push(batch.token_ids.len() as u32);
            batch.context_lens.push((row.0 + row.1) as u32);
            batch.block_tables.extend(table);
            batch.sampled_tokens.push(batch.tokens() as u32 - 1);
            batch.sampling.push(Sampling::GREEDY);
        }
        Scene { batch, blocks, block_size }
    }

    pub fn slot(&self, row: usize, position: usize) -> usize {
        let block = self.batch.block_table(row)[position / self.block_size] as usize;
        block * self.block_size + position % self.block_size
    }
}

pub fn staged(cuda: &mut Cuda, batch: &Batch) -> DeviceBatch {
    let mut device_batch = cuda.device_batch(&limits(batch)).unwrap();
    cuda.upload(&mut device_batch, batch).unwrap();
    device_batch
}
