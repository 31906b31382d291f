//! See `ops/count_experts.rs` for the contract, `kernels/count_experts.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::{Address, Context, Memory};
use super::experts::Routes;
use super::kernels::Kernel;
use super::params::params;
use base::error::Result;
use std::sync::Arc;

params! {
    CountExpertsParams in "count_experts.cu" {
        counts: Address,
        experts_of: Address,
        slots: Address,
        len: i32,
        chosen: i32,
    }
}

const THREADS: usize = 256;

/// How often each expert of a layer was chosen. `[experts]`
pub struct ExpertCounts {
    memory: Memory,
    experts: usize,
}

impl ExpertCounts {
    /// Zeros.
    pub(super) fn new(context: &Arc<Context>, experts: usize) -> Result<ExpertCounts> {
        let bytes = experts * size_of::<u64>();
        let memory = Memory::zeroed(context, bytes, "the counts of experts on the device", "expert_statistics")?;
        Ok(ExpertCounts { memory, experts })
    }

    /// What was counted so far.
    pub(super) fn read(&self) -> Result<Vec<u64>> {
        let mut bytes = vec![0; self.experts * size_of::<u64>()];
        self.memory.read(0, &mut bytes)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|&count| u64::from_le_bytes(count)).collect())
    }

    pub(super) fn experts(&self) -> usize {
        self.experts
    }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(Kernel::new(&device.module("count_experts")?, "count_experts")?))
    }

    pub fn run(
        &self,
        device: &Device,
        counts: &ExpertCounts,
        routes: &Routes,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let len = routes.shape().slots();
        let params = CountExpertsParams {
            counts: counts.memory.address(),
            experts_of: routes.addresses().experts,
            slots: device_batch.addresses().slots,
            len: len as i32,
            chosen: routes.shape().chosen as i32,
        };
        self.0.launch(device.chaining, [len.div_ceil(THREADS), 1, 1], THREADS, 0, &params)
    }
}
