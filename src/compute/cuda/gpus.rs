//! What is known of GPUs that need not be in this machine?
//!
//! Plans are pure functions of [`Facts`], so that those of any GPU here are explained, and tested, on a machine without one.

use super::driver::Facts;

/// A GPU by its data sheet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuModel {
    /// How options spell it.
    pub name: &'static str,
    /// How its maker does.
    pub title: &'static str,
    pub(super) facts: Facts,
    /// Bytes per second of its memory.
    pub bandwidth: u64,
    /// Operations per second of its tensor cores, on numbers of 16 bits with sums in f32, without sparsity.
    pub flops: u64,
}

pub(super) const H100: Facts =
    Facts { processors: 132, shared_bytes: 233_472, block_shared_bytes: 232_448, capability: 90 };
pub(super) const A100: Facts =
    Facts { processors: 108, shared_bytes: 167_936, block_shared_bytes: 166_912, capability: 80 };
pub(super) const RTX_4090: Facts =
    Facts { processors: 128, shared_bytes: 102_400, block_shared_bytes: 101_376, capability: 89 };

const GIGA: u64 = 1_000_000_000;

/// All of them.
pub const GPUS: [GpuModel; 4] = [
    GpuModel { name: "h100", title: "NVIDIA H100 SXM", facts: H100, bandwidth: 3_350 * GIGA, flops: 989_400 * GIGA },
    GpuModel { name: "h200", title: "NVIDIA H200 SXM", facts: H100, bandwidth: 4_800 * GIGA, flops: 989_400 * GIGA },
    GpuModel {
        name: "a100",
        title: "NVIDIA A100 SXM 80 GB",
        facts: A100,
        bandwidth: 2_039 * GIGA,
        flops: 312_000 * GIGA,
    },
    GpuModel {
        name: "rtx4090",
        title: "NVIDIA GeForce RTX 4090",
        facts: RTX_4090,
        bandwidth: 1_008 * GIGA,
        flops: 165_200 * GIGA,
    },
];

impl GpuModel {
    /// The GPU of this name.
    pub fn find(name: &str) -> Option<&'static GpuModel> {
        GPUS.iter().find(|gpu| gpu.name == name)
    }

    /// Streaming multiprocessors.
    pub fn processors(&self) -> usize {
        self.facts.processors
    }
}
