//! The launch of `kernels/attention_units.cu`: batch-invariant attention of rows that bring one new token, on compute capability 9.0.
//!
//! Serves the caches that `hopper.rs` serves, whose kernels compute the same numbers for rows that bring several tokens.
//! Invariant: a query's units of keys and the order in which they are merged depend on its position and the window alone.

use crate::cuda::attention::hopper::tile_queries;
use crate::cuda::attention::partition::Costs;
use crate::cuda::device::Device;
use crate::cuda::driver::{Address, Facts, Memory};
use crate::cuda::kernels::{Kernel, suffix};
use crate::cuda::params::params;
use crate::{KvShape, Rounding};
use base::error::Result;

params! {
    AttentionUnitsParams in "attention_units.cu" {
        out: Address,
        qkv: Address,
        cache: Address,
        outputs: Address,
        sums: Address,
        arrived: Address,
        rows: Address,
        workers: Address,
        counts: Address,
        block_tables: Address,
        qkv_stride: i32,
        kv_heads: i32,
        group: i32,
        block_size_log2: i32,
        scale_log2: f32,
        tanh_scale: f32,
        capacity: i32,
        sinks: Address,
    }
}

/// `WARPS` of the kernel: the workers of a thread block.
const WARPS: usize = 4;
/// Keys of a unit: `UNIT` of the kernel, which are a tile of the plan.
pub const UNIT: usize = 64;
/// `RING_BYTES` of the kernel.
const RING_BYTES: usize = 24 * 1024;
/// Thread blocks of a multiprocessor.
const BLOCKS_PER_PROCESSOR: usize = 2;
/// Memory for the units of (row, KV head)s that are split over several workers. Of a line that is longer, only those are split that one worker hands over
/// to the next.
const UNITS_BYTES: usize = 64 << 20;

/// One H200. Three fifths of the workers read as fast as all: of rows of 555 tokens, 512 with 9 units each take 40.7 us per layer, 576 with 18 82.6, 768 with
/// 18 100.9, 1,024 with 18 131.3. To merge: split and as fast as memory, 144 rows 76.5 and 73.9 us per layer, 192 rows 100.9 and 98.5; 64 rows 42.3 and
/// 32.8, 96 rows 59.4 and 49.2.
pub const COSTS: Costs = Costs { busy: [3, 5], idle: [0, 1], merge: [3, 10], merge_many: [11, 10] };

/// Pairs of query heads of a KV head.
const PAIRS_MAX: usize = 8;

/// Workers of a launch.
pub fn workers(facts: Facts) -> usize {
    facts.processors * BLOCKS_PER_PROCESSOR * WARPS
}

/// Thread blocks of a launch, and threads of each.
pub fn grid(facts: Facts) -> (usize, usize) {
    (workers(facts) / WARPS, 32 * WARPS)
}

/// Whether the plan of attention over such a cache is for these workers.
pub fn is_chosen(facts: Facts, shape: &KvShape, rounding: Rounding) -> bool {
    rounding == Rounding::BatchInvariant && tile_queries(facts, shape, rounding).is_some()
}

/// What [`AttentionUnits::run`] reads and writes besides what the kernels' memory holds.
#[derive(Clone, Copy, Debug)]
pub struct UnitsInput {
    pub out: Address,
    pub qkv: Address,
    pub qkv_stride: usize,
    pub cache: Address,
    pub rows: Address,
    pub workers: Address,
    pub counts: Address,
    pub block_tables: Address,
    /// Query heads of a KV head.
    pub group: usize,
    /// As the kernel takes them.
    pub scale_log2: f32,
    pub tanh_scale: f32,
    pub sinks: Address,
}

/// The kernels for the heads of a cache.
pub struct AttentionUnits {
    /// For groups of up to 8 and up to 16 query heads.
    kernels: [Kernel; 2],
    shape: KvShape,
    workers: usize,
    /// Outputs of units and of what workers hand over, their sums, and arrival counts.
    outputs: Memory,
    sums: Memory,
    arrived: Memory,
}

impl AttentionUnits {
    /// Loads them, where they are [chosen](is_chosen).
    pub fn new(device: &Device, shape: &KvShape) -> Result<Option<AttentionUnits>> {
        let facts = device.facts();
        if !is_chosen(facts, shape, device.rounding) {
            return Ok(None);
        }
        let module = device.module("attention_units")?;
        let load = |group: usize| {
            let name = format!("attention_units_d{}_g{group}_{}", shape.head_dim, suffix(device.dtype));
            let kernel = Kernel::new(&module, &name)?;
            kernel.allow_shared(WARPS * RING_BYTES)?;
            Ok(kernel)
        };
        let (context, workers) = (&device.context, workers(facts));
        let pairs = capacity(shape.head_dim) + workers * PAIRS_MAX;
        let (what, knob) = ("attention scratch", "memory_utilization");
        Ok(Some(AttentionUnits {
            kernels: [load(8)?, load(16)?],
            shape: *shape,
            workers,
            outputs: Memory::new(context, pairs * shape.head_dim * 8, what, knob)?,
            sums: Memory::new(context, pairs * 16, what, knob)?,
            arrived: Memory::zeroed(context, workers * 4, what, knob)?,
        }))
    }

    /// Launches the attention of the rows of a plan that bring one token.
    pub fn run(&self, device: &Device, input: &UnitsInput) -> Result<()> {
        let params = AttentionUnitsParams {
            out: input.out,
            qkv: input.qkv,
            cache: input.cache,
            outputs: self.outputs.address(),
            sums: self.sums.address(),
            arrived: self.arrived.address(),
            rows: input.rows,
            workers: input.workers,
            counts: input.counts,
            block_tables: input.block_tables,
            qkv_stride: input.qkv_stride as i32,
            kv_heads: self.shape.kv_heads as i32,
            group: input.group as i32,
            block_size_log2: self.shape.block_size.ilog2() as i32,
            scale_log2: input.scale_log2,
            tanh_scale: input.tanh_scale,
            capacity: capacity(self.shape.head_dim) as i32,
            sinks: input.sinks,
        };
        let kernel = &self.kernels[usize::from(input.group > 8)];
        // All workers are launched, so that a graph stays right when a later plan uses more of them.
        let blocks = [self.workers / WARPS, 1, 1];
        kernel.launch(device.chaining, blocks, 32 * WARPS, WARPS * RING_BYTES, &params)
    }
}

/// Outputs of two query heads over one unit that the memory holds.
fn capacity(head_dim: usize) -> usize {
    UNITS_BYTES / (head_dim * 8 + 16)
}
