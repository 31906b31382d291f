//! The launch of `kernels/attention_few_units.cu`: batch-invariant attention of few rows that bring one new token, with what prepares it.
//!
//! Its bits are those of `attention_units.cu`, so that the number of rows may choose between them. What both of few rows know, and how many thread
//! blocks take a (row, KV head), is in few.rs.

use crate::cuda::attention::few::{CLUSTERS, GROUP_MAX};
use crate::cuda::attention::sinks_of;
use crate::cuda::attention::units;
use crate::cuda::device::Device;
use crate::cuda::device_batch::DeviceBatch;
use crate::cuda::driver::Address;
use crate::cuda::kernels::{Kernel, suffix};
use crate::cuda::kv_cache::CacheLayer;
use crate::cuda::matrix::Vector;
use crate::cuda::params::params;
use crate::cuda::storage::Tensor;
use crate::{HeadRows, KvShape, QkNormRope, Scoring};
use base::error::Result;

params! {
    AttentionFewUnitsParams in "attention_few_units.cu" {
        out: Address,
        qkv: Address,
        cache: Address,
        query_norm: Address,
        key_norm: Address,
        rope: Address,
        slots: Address,
        rows: Address,
        counts: Address,
        block_tables: Address,
        qkv_stride: i32,
        kv_heads: i32,
        group: i32,
        block_size_log2: i32,
        eps: f32,
        scale_log2: f32,
        sinks: Address,
    }
}

/// `WARPS` of the kernel. A fourth one, with a ring of its own, takes the memory of the next product's thread block.
const WARPS: usize = 3;
pub const THREADS: usize = 32 * WARPS;
/// `RING_BYTES` of the kernel.
const RING_BYTES: usize = 32 * 1024;
/// Thread blocks for each (row, KV head) at least: two have more units than warps, and what is not asked for before the wait comes late. One H200,
/// decode step of 8 rows of the 0.6B shape: 879 us by `attention_units.cu`, 894 with two; over 8,192 tokens 4,008 and 4,358.
pub const CLUSTER_MIN: usize = 4;

/// The kernel for the heads of a cache.
pub struct FewUnits {
    kernel: Kernel,
}

/// Shared memory of one of `cluster` thread blocks.
fn shared_bytes(group: usize, head_dim: usize, cluster: usize) -> usize {
    WARPS * RING_BYTES + 2 * WARPS * group * (head_dim * 4 + cluster * 8)
}

impl FewUnits {
    /// Loads it, where the attention of the cache is that of `attention_units.cu`.
    pub fn new(device: &Device, shape: &KvShape) -> Result<Option<FewUnits>> {
        if !units::is_chosen(device.facts(), shape, device.rounding) {
            return Ok(None);
        }
        let module = device.module("attention_few_units")?;
        let kernel =
            Kernel::new(&module, &format!("attention_few_units_d{}_{}", shape.head_dim, suffix(device.dtype)))?;
        kernel.allow_shared(shared_bytes(GROUP_MAX, shape.head_dim, CLUSTERS[0]))?;
        Ok(Some(FewUnits { kernel }))
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
        let (HeadRows { qkv, out }, spec) = (heads, scoring.spec);
        let KvShape { kv_heads, head_dim, block_size, .. } = cache.shape;
        let (group, pairs) = (spec.heads / kv_heads, qkv.rows() * kv_heads);
        let (at, plan) = (device_batch.addresses_in(cache.table), device_batch.decode_plan(cache.kind, spec.window));
        let norm = transform.norm.as_ref();
        let params = AttentionFewUnitsParams {
            out: out.storage.address(),
            qkv: qkv.storage.address(),
            cache: cache.address,
            query_norm: norm.map_or(0, |norm| norm.query.wide.address()),
            key_norm: norm.map_or(0, |norm| norm.key.wide.address()),
            rope: transform.rope.as_ref().map_or(0, |rope| rope.table.wide.address()),
            slots: at.slots,
            rows: plan.rows,
            counts: plan.counts,
            block_tables: at.block_tables,
            qkv_stride: qkv.storage.stride() as i32,
            kv_heads: kv_heads as i32,
            group: group as i32,
            block_size_log2: block_size.ilog2() as i32,
            eps: norm.map_or(0.0, |norm| norm.eps),
            scale_log2: spec.scale * std::f32::consts::LOG2_E,
            sinks: sinks_of(scoring),
        };
        let (blocks, shared_bytes) = ([pairs * cluster, 1, 1], shared_bytes(group, head_dim, cluster));
        self.kernel.launch_clusters(device.chaining, blocks, cluster, THREADS, shared_bytes, &params)
    }
}
