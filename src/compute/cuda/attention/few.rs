//! See `ops/rope_and_attention.rs` for the contract, `kernels/attention_few.cu` and, batch-invariant, `kernels/attention_few_units.cu` for the
//! work: few rows with one new token each. More rows are the work of `kernels/attention_decode.cu`, which `decode.rs` launches: what all
//! know is here.
//!
//! Serves heads of 64 and 128 numbers that turn whole, in halves, with keys and values in the type of the activations. A cluster of
//! thread blocks takes a (row, KV head): as many as find a multiprocessor each, so that the weights of the next product find room beside them.

use crate::cuda::attention::few_units::FewUnits;
use crate::cuda::attention::hopper::HEAD_DIMS;
use crate::cuda::attention::sinks_of;
use crate::cuda::device::Device;
use crate::cuda::device_batch::DeviceBatch;
use crate::cuda::driver::{Address, Facts};
use crate::cuda::kernels::{DEPENDENT_LAUNCH, Kernel, suffix};
use crate::cuda::kv_cache::CacheLayer;
use crate::cuda::matrix::Vector;
use crate::cuda::params::params;
use crate::cuda::storage::Tensor;
use crate::{
    AttentionSpec, HeadRows, KvFormat, KvShape, NormExtent, NormOrder, Pairing, QkNormRope, RopeTable, Rounding,
    Scoring,
};
use base::error::Result;

params! {
    AttentionFewParams in "attention_few.cu" {
        out: Address,
        qkv: Address,
        cache: Address,
        query_norm: Address,
        key_norm: Address,
        rope: Address,
        positions: Address,
        slots: Address,
        rows: Address,
        counts: Address,
        block_tables: Address,
        qkv_stride: i32,
        heads: i32,
        kv_heads: i32,
        group: i32,
        block_size_log2: i32,
        stages: i32,
        eps: f32,
        scale_log2: f32,
        sinks: Address,
    }
}

/// Rows at most.
pub const ROWS_MAX: usize = 8;
/// Multiprocessors for one thread block at most: more would be idle in a long context.
const PROCESSORS_OF_BLOCK_MAX: usize = 3;
/// Query heads of a KV head at most.
pub const GROUP_MAX: usize = 8;
/// Thread blocks of a cluster, for few rows and for more.
pub const CLUSTERS: [usize; 3] = [8, 4, 2];
/// The same for the fewest (row, KV head): eight would leave most multiprocessors idle in a long context. One H200, decode step of Qwen3-30B-A3B in
/// Q4_K_M of 12 layers at batch 1 after 32,000 tokens: 1.26 ms by `attention_decode.cu`, 0.98 with sixteen.
pub const WIDE_CLUSTER: usize = 16;
const WARPS: usize = 4;
pub const THREADS: usize = 32 * WARPS;
/// Tokens of a unit.
const UNIT_TOKENS: usize = 16;
/// Copies of a unit. A fourth one takes the memory of the next product's thread block. One H200, decode step of the 0.6B shape at batch 1 and
/// context 547: 659 us with three, 710 with four; at batch 2: 697 and 866.
const STAGES: usize = 3;

/// Thread blocks for each of `pairs` (row, KV head).
pub fn cluster(pairs: usize, gpu: Facts, rounding: Rounding) -> Option<usize> {
    let fits = |cluster: &usize| {
        let blocks = pairs * cluster;
        blocks <= gpu.processors && blocks * PROCESSORS_OF_BLOCK_MAX >= gpu.processors
    };
    let wide = (gpu.is_hopper() && rounding == Rounding::Fastest).then_some(WIDE_CLUSTER);
    CLUSTERS.into_iter().chain(wide).find(fits)
}

/// Whether the device has kernels that prepare heads themselves for such a cache.
pub fn knows_cache(gpu: Facts, shape: &KvShape) -> bool {
    gpu.capability >= DEPENDENT_LAUNCH && HEAD_DIMS.contains(&shape.head_dim) && shape.format != KvFormat::Int8
}

/// Whether a thread block has room for the heads of such a cache.
pub fn fits(gpu: Facts, shape: &KvShape) -> bool {
    shared_bytes(GROUP_MAX, shape.head_dim, WIDE_CLUSTER, true) <= gpu.block_shared_bytes
}

/// Whether they know what is done to the heads: those of 64 and 128 numbers that turn whole, in halves, normalized before or not at all.
pub fn knows_heads(spec: &AttentionSpec, transform: &QkNormRope<Vector, Tensor>, shape: &KvShape) -> bool {
    let turns_whole = |rope: &RopeTable<Vector>| rope.rotary == shape.head_dim && rope.pairing == Pairing::Halves;
    spec.heads / shape.kv_heads <= GROUP_MAX
        && transform.rope.as_ref().is_some_and(turns_whole)
        && transform.norm.as_ref().is_none_or(|norm| norm.extent == NormExtent::Head(NormOrder::BeforeRope))
        && transform.temperature.is_none()
        && transform.value_norm.is_none()
}

/// The kernels for the heads of a cache.
pub struct RopeAndAttention {
    kernel: Kernel,
    /// Thread blocks of a cluster that the device holds at once, at most.
    cluster_max: usize,
    /// The batch-invariant one, where the device has it.
    units: Option<FewUnits>,
}

/// Shared memory of one of `cluster` thread blocks. `is_alone`: so much that heads of 128 numbers, in groups of eight, leave no room for another one.
fn shared_bytes(group: usize, head_dim: usize, cluster: usize, is_alone: bool) -> usize {
    let ring = WARPS * STAGES * 2 * UNIT_TOKENS * head_dim * 2;
    let of_warps = WARPS * group * 2 * 4;
    let of_blocks = group * (head_dim + 2 * cluster) * 4;
    let unused = if is_alone { WARPS * group * head_dim * 4 } else { 0 };
    ring + (group + 2) * head_dim * 2 + of_warps + of_blocks + unused
}

impl RopeAndAttention {
    /// Loads it, where the device has clusters and there is one for such a cache.
    pub fn new(device: &Device, shape: &KvShape) -> Result<Option<RopeAndAttention>> {
        if !knows_cache(device.facts(), shape) || !fits(device.facts(), shape) {
            return Ok(None);
        }
        let module = device.module("attention_few")?;
        let kernel = Kernel::new(&module, &format!("attention_few_d{}_{}", shape.head_dim, suffix(device.dtype)))?;
        let shared_bytes = shared_bytes(GROUP_MAX, shape.head_dim, WIDE_CLUSTER, true);
        kernel.allow_shared(shared_bytes)?;
        let holds_wide = device.facts().is_hopper() && kernel.allow_cluster(WIDE_CLUSTER, THREADS, shared_bytes)?;
        let cluster_max = if holds_wide { WIDE_CLUSTER } else { CLUSTERS[0] };
        Ok(Some(RopeAndAttention { kernel, cluster_max, units: FewUnits::new(device, shape)? }))
    }

    /// Launches the attention of a batch with `cluster` thread blocks for each (row, KV head).
    pub fn run(
        &self,
        device: &Device,
        scoring: Scoring<Vector>,
        heads: HeadRows<Tensor>,
        (cluster, transform): (usize, &QkNormRope<Vector, Tensor>),
        cache: CacheLayer,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        if let Some(units) = self.units.as_ref().filter(|_| device.rounding == Rounding::BatchInvariant) {
            return units.run(device, scoring, heads, (cluster, transform), cache, device_batch);
        }
        let (HeadRows { qkv, out }, spec) = (heads, scoring.spec);
        let KvShape { kv_heads, head_dim, block_size, .. } = cache.shape;
        let (group, pairs) = (spec.heads / kv_heads, qkv.rows() * kv_heads);
        let (at, plan) = (device_batch.addresses_in(cache.table), device_batch.decode_plan(cache.kind, spec.window));
        let norm = transform.norm.as_ref();
        let params = AttentionFewParams {
            out: out.storage.address(),
            qkv: qkv.storage.address(),
            cache: cache.address,
            query_norm: norm.map_or(0, |norm| norm.query.wide.address()),
            key_norm: norm.map_or(0, |norm| norm.key.wide.address()),
            rope: transform.rope.as_ref().map_or(0, |rope| rope.table.wide.address()),
            positions: at.positions,
            slots: at.slots,
            rows: plan.rows,
            counts: plan.counts,
            block_tables: at.block_tables,
            qkv_stride: qkv.storage.stride() as i32,
            heads: spec.heads as i32,
            kv_heads: kv_heads as i32,
            group: group as i32,
            block_size_log2: block_size.ilog2() as i32,
            stages: STAGES as i32,
            eps: norm.map_or(0.0, |norm| norm.eps),
            scale_log2: spec.scale * std::f32::consts::LOG2_E,
            sinks: sinks_of(scoring),
        };
        let cluster = cluster.min(self.cluster_max);
        let blocks = pairs * cluster;
        // Not all clusters find room at once where each thread block takes a multiprocessor, but few of them read faster then. One H200, decode step of
        // Qwen3-30B-A3B in Q4_K_M of 12 layers: 8 rows 1.140 ms with one for each, 1.084 with two; one row after 32,000 tokens 0.951 and 0.987.
        let is_alone = 2 * blocks <= device.facts().processors;
        let shared_bytes = shared_bytes(group, head_dim, cluster.max(CLUSTERS[0]), is_alone);
        self.kernel.launch_clusters(device.chaining, [blocks, 1, 1], cluster, THREADS, shared_bytes, &params)
    }
}
