//! See `ops/count_experts.rs` for the contract.

use super::DeviceBatch;
use super::experts::Routes;
use base::error::{Result, room};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often each expert of a layer was chosen. `[experts]`
pub struct ExpertCounts(Vec<AtomicU64>);

impl ExpertCounts {
    /// Zeros.
    pub(super) fn new(experts: usize) -> Result<ExpertCounts> {
        let mut counts = room(experts, "the counts of experts", "expert_statistics")?;
        counts.extend((0..experts).map(|_| AtomicU64::new(0)));
        Ok(ExpertCounts(counts))
    }

    /// What was counted so far.
    pub(super) fn read(&self) -> Vec<u64> {
        self.0.iter().map(|count| count.load(Relaxed)).collect()
    }

    pub(super) fn experts(&self) -> usize {
        self.0.len()
    }
}

pub fn run(counts: &ExpertCounts, routes: &Routes, device_batch: &DeviceBatch) {
    let (experts, _) = routes.choices();
    let chosen = routes.shape().chosen;
    for (experts, &slot) in experts.chunks_exact(chosen).zip(&device_batch.batch.slots) {
        if slot != u32::MAX {
            experts.iter().for_each(|&expert| _ = counts.0[expert as usize].fetch_add(1, Relaxed));
        }
    }
}
