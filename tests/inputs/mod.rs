//! Inputs that the CPU and other devices are tested with alike: one table for each op that chooses tokens.

#[allow(dead_code)] // the CPU's cases have codings of their own
pub mod codings;
#[allow(dead_code)] // not every program computes with experts
pub mod experts;
pub mod logprobs;
pub mod process_logits;
#[allow(dead_code)] // not every program computes with states
pub mod recurrent;
pub mod sample;

use base::TokenId;
use compute::batch::{Batch, BatchLimits, LogitBias, Sampling};
use compute::ops;
use compute::{Backend, Tensor};

/// Numbers that look random and are the same in every run (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number from 0 to `end`, exclusive.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// Numbers from -`size` to `size`.
    pub fn numbers(&mut self, len: usize, size: f32) -> Vec<f32> {
        (0..len).map(|_| ((self.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0) * size).collect()
    }

    /// `0..len` in any order.
    pub fn permutation(&mut self, len: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..len as u32).collect();
        for i in (1..len).rev() {
            order.swap(i, self.below(i + 1));
        }
        order
    }

    /// `len` different tokens of `vocab`.
    pub fn tokens(&mut self, len: usize, vocab: usize) -> Vec<TokenId> {
        let mut tokens = std::collections::BTreeSet::new();
        while tokens.len() < len {
            tokens.insert(self.below(vocab) as TokenId);
        }
        tokens.into_iter().collect()
    }
}

/// Limits that hold `batch`.
pub fn limits(batch: &Batch) -> BatchLimits {
    BatchLimits {
        tokens: batch.tokens().max(1),
        rows: batch.rows().max(batch.samples() + batch.pooled_rows()).max(1),
        model_len: batch.table_width.max(1),
        block_size: 1,
        window_tables: batch.window_tables.len(),
        ..BatchLimits::NONE
    }
}

/// Adds a sample, with adjustments of its own, to a batch that has nothing else.
pub fn ask(batch: &mut Batch, sampling: Sampling, adjustments: impl IntoIterator<Item = LogitBias>) {
    let adjusted_start = batch.adjustments.len() as u32;
    batch.adjustments.extend(adjustments);
    batch.sampled_tokens.push(batch.samples() as u32);
    let adjusted_end = batch.adjustments.len() as u32;
    batch.sampling.push(Sampling { adjusted_start, adjusted_end, ..sampling });
}

/// Multiples of `grid`; 0 leaves numbers as they are.
pub fn on_grid(numbers: &mut [f32], grid: f32) {
    if grid > 0.0 {
        numbers.iter_mut().for_each(|it| *it = (*it / grid).round() * grid);
    }
}

/// `batch` on the device, where it begins a pass.
pub fn uploaded<B: Backend>(backend: &mut B, batch: &Batch) -> B::DeviceBatch {
    let mut device_batch = backend.device_batches(&limits(batch)).unwrap().swap_remove(0);
    backend.upload(&mut device_batch, batch).unwrap();
    device_batch
}

/// Ends a pass and waits for it: its results can be read.
pub fn ended<B: Backend>(backend: &mut B, device_batch: &mut B::DeviceBatch) {
    backend.finish(device_batch).unwrap();
    assert!(backend.poll(device_batch, None).unwrap(), "no deadline was given");
}

/// Uploads `batch` and makes all of its wishes come true, as the decoder does.
pub fn answered<B: Backend>(backend: &mut B, batch: &Batch, logits: &mut Tensor<B::Storage>) -> B::DeviceBatch {
    let mut device_batch = uploaded(backend, batch);
    if batch.processes_logits() {
        ops::process_logits(backend, &mut device_batch, logits);
    }
    ops::sample(backend, &mut device_batch, logits);
    if batch.wants_logprobs() {
        ops::logprobs(backend, &mut device_batch, logits);
    }
    ended(backend, &mut device_batch);
    device_batch
}

/// A NaN as a number that compares with itself.
pub fn comparable(numbers: &[f32]) -> Vec<f32> {
    numbers.iter().map(|&v| if v.is_nan() { 1e38 } else { v }).collect()
}
