//! Inputs of the cases: numbers as a type can hold them, and batches over a shuffled cache.

pub use crate::inputs::{Random, limits};
use compute::batch::{Batch, Sampling};
use compute::cuda::{Cuda, DeviceBatch, Tensor};
use compute::{Backend, HostMatrix, HostVector, KvFormat};
use formats::{Coding, DType};
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

pub fn assert_near(computed: &[f32], expected: &[f64], bound: f64, what: &str) {
    assert_eq!(computed.len(), expected.len(), "{what}");
    let pairs = || computed.iter().zip(expected).map(|(&a, &b)| (f64::from(a), b));
    let error = pairs().map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    let norm = expected.iter().map(|b| b * b).sum::<f64>().sqrt();
    assert!(error <= bound * norm, "{what}: relative error {:.2e}, at most {bound:.0e} is allowed", error / norm);
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
    Coding::from(dtype).encode(values.iter().copied(), &mut bytes);
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
