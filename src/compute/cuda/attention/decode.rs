//! The launch of `kernels/attention_decode.cu`: attention of rows that bring one token, split over the keys.

use super::few;
use super::partition::Geometry;
use super::shared::{AttentionShared, Scores};
use super::{GROUP_MAX, Heads, Scaling, Variant, ctas_max, resident_ctas, shared_bytes_of, sinks_of, spelled, variant};
use crate::cuda::device::Device;
use crate::cuda::device_batch::DeviceBatch;
use crate::cuda::driver::{Address, Memory};
use crate::cuda::kernels::{Kernel, cache_suffix, suffix};
use crate::cuda::kv_cache::CacheLayer;
use crate::cuda::matrix::Vector;
use crate::cuda::params::params;
use crate::{KvShape, Scoring};
use base::error::Result;

params! {
    AttentionDecodeParams in "attention_decode.cu" {
        out: Address,
        qkv: Address,
        cache: Address,
        partials: Address,
        partial_sums: Address,
        arrived: Address,
        rows: Address,
        ctas: Address,
        counts: Address,
        block_tables: Address,
        qkv_stride: i32,
        kv_heads: i32,
        group: i32,
        block_size_log2: i32,
        stages: i32,
        scale_log2: f32,
        tanh_scale: f32,
        shared_parts: Address,
        shared_partials: Address,
        shared_sums: Address,
        to_next_layer: i64,
        query_norm: Address,
        key_norm: Address,
        rope: Address,
        slots: Address,
        eps: f32,
        sinks: Address,
        head_dim: i32,
    }
}

/// Which kernel of the file: those for groups of up to 8 and up to 16 query heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Whether keys that rows share are left to `attention_shared.cu`, which is launched before.
    pub is_shared: bool,
    /// Whether heads come as the projections made them.
    pub is_raw: bool,
    pub group_max: usize,
}

impl Plan {
    /// The name of the kernel, without the types of numbers.
    pub fn kernel(&self, head_dim: usize) -> String {
        let Plan { is_shared, is_raw, group_max } = *self;
        let heads = spelled(head_dim);
        match (is_shared, is_raw) {
            (_, true) => format!("attention_decode_raw_{heads}"),
            (true, false) => format!("attention_decode_shared_{heads}_g{group_max}"),
            (false, false) => format!("attention_decode_{heads}_g{group_max}"),
        }
    }
}

/// Attention of rows that bring one token.
pub struct Decode {
    /// For groups of up to 8 and up to 16 query heads.
    kernels: [Kernel; 2],
    /// The same, for plans with shared keys.
    shared_kernels: Option<[Kernel; 2]>,
    /// For groups of up to 8 query heads that come as the projections made them.
    raw_kernel: Option<Kernel>,
    variant: &'static Variant,
    /// Thread blocks of a launch.
    ctas: usize,
    /// Shared memory that leaves as much to the other CTAs of a multiprocessor, in bytes.
    shared_bytes: usize,
    /// Partial results `[ctas, 2, GROUP_MAX, head_dim]`, their sums `[.., 2]`, and arrival counts `[ctas]`.
    partials: Memory,
    partial_sums: Memory,
    arrived: Memory,
}

impl Decode {
    /// Loads the kernels for such heads.
    pub fn new(device: &Device, shape: &KvShape, geometry: &Geometry) -> Result<Decode> {
        let (d, variant) = (shape.head_dim, variant(shape.head_dim)?);
        let module = device.module("attention_decode")?;
        let types = cache_suffix(device.dtype, shape.format);
        let load = |is_shared| -> Result<[Kernel; 2]> {
            let name = |group_max| Plan { is_shared, is_raw: false, group_max }.kernel(d);
            Ok([
                Kernel::new(&module, &format!("{}_{types}", name(8)))?,
                Kernel::new(&module, &format!("{}_{types}", name(16)))?,
            ])
        };
        let kernels = load(false)?;
        let shared_kernels = geometry.sharing.map(|_| load(true)).transpose()?;
        let is_raw = few::knows_cache(device.facts(), shape);
        let raw = Plan { is_shared: false, is_raw: true, group_max: 8 }.kernel(d);
        let raw_name = format!("{raw}_{}", suffix(device.dtype));
        let raw_kernel = is_raw.then(|| Kernel::new(&module, &raw_name)).transpose()?;
        let context = &device.context;
        let facts = device.facts();
        let ctas = ctas_max(device);
        let shared_bytes = shared_bytes_of(facts, resident_ctas(facts, variant, shape.format).max(2));
        for kernel in kernels.iter().chain(shared_kernels.iter().flatten()).chain(&raw_kernel) {
            kernel.allow_shared(facts.block_shared_bytes - 256)?;
        }
        let parts = ctas * 2 * GROUP_MAX;
        let knob = "memory_utilization";
        Ok(Decode {
            kernels,
            shared_kernels,
            raw_kernel,
            variant,
            ctas: geometry.ctas,
            shared_bytes,
            partials: Memory::new(context, parts * d * 4, "attention scratch", knob)?,
            partial_sums: Memory::new(context, parts * 8, "attention scratch", knob)?,
            arrived: Memory::zeroed(context, ctas * 4, "attention scratch", knob)?,
        })
    }

    /// Launches the attention of the rows of `device_batch` that bring one token. `shared`: where they share keys.
    pub fn run(
        &self,
        device: &Device,
        scoring: Scoring<Vector>,
        heads: Heads,
        cache: CacheLayer,
        device_batch: &DeviceBatch,
        (plan, shared): (Plan, Option<&AttentionShared>),
    ) -> Result<()> {
        let (Heads { out, qkv, raw }, spec, shape) = (heads, scoring.spec, cache.shape);
        let (at, decode_at) =
            (device_batch.addresses_in(cache.table), device_batch.decode_plan(cache.kind, spec.window));
        let Scaling { scale_log2, tanh_scale } = Scaling::of(spec);
        let group = spec.heads / shape.kv_heads;
        let merge = self.variant.merge_bytes(group, shape.head_dim);
        let stage = self.variant.stage_bytes(shape.format);
        if let Some(shared) = shared {
            let table_width = device_batch.batch().table_width;
            let scores =
                Scores { heads: spec.heads, block_tables: at.block_tables, table_width, scale_log2, tanh_scale };
            shared.run(device, qkv, cache, &decode_at, &scores)?;
        }
        let (shared_partials, shared_sums) = shared.map_or((0, 0), AttentionShared::parts);
        let stages = ((self.shared_bytes - merge.min(self.shared_bytes)) / stage).clamp(2, 6);
        let norm = raw.and_then(|raw| raw.norm.as_ref());
        let rope = raw.and_then(|raw| raw.rope.as_ref());
        let params = AttentionDecodeParams {
            out: out.storage.address(),
            qkv: qkv.storage.address(),
            cache: cache.address,
            partials: self.partials.address(),
            partial_sums: self.partial_sums.address(),
            arrived: self.arrived.address(),
            rows: decode_at.rows,
            ctas: decode_at.ctas,
            counts: decode_at.counts,
            block_tables: at.block_tables,
            qkv_stride: qkv.storage.stride() as i32,
            kv_heads: shape.kv_heads as i32,
            group: group as i32,
            block_size_log2: shape.block_size.ilog2() as i32,
            stages: stages as i32,
            scale_log2,
            tanh_scale,
            shared_parts: decode_at.shared_parts,
            shared_partials,
            shared_sums,
            to_next_layer: cache.to_next,
            query_norm: norm.map_or(0, |norm| norm.query.wide.address()),
            key_norm: norm.map_or(0, |norm| norm.key.wide.address()),
            rope: rope.map_or(0, |rope| rope.table.wide.address()),
            slots: at.slots,
            eps: norm.map_or(0.0, |norm| norm.eps),
            sinks: sinks_of(scoring),
            head_dim: shape.head_dim as i32,
        };
        let Plan { is_shared, is_raw, group_max } = plan;
        let of_group = usize::from(group_max > 8);
        let kernel = match (&self.shared_kernels, &self.raw_kernel) {
            (_, Some(raw)) if is_raw => raw,
            (Some(kernels), _) if is_shared => &kernels[of_group],
            _ => &self.kernels[of_group],
        };
        // All CTAs are launched, so that a graph stays right when a later plan uses more of them.
        let blocks = [self.ctas, 1, 1];
        let threads = 32 * self.variant.decode_warps * self.variant.decode_parts();
        kernel.launch(device.chaining, blocks, threads, stages * stage + merge, &params)
    }
}
