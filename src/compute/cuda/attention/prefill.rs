//! The launch of `kernels/attention_prefill.cu`: attention of rows that bring several tokens, on every device, and of all rows where results must not
//! depend on the batch.

use super::{GROUP_MAX, Heads, Scaling, parts_of, sinks_of, spelled, tile_queries, variant, window_of};
use crate::cuda::device::Device;
use crate::cuda::device_batch::DeviceBatch;
use crate::cuda::driver::Address;
use crate::cuda::kernels::{Kernel, cache_suffix};
use crate::cuda::kv_cache::CacheLayer;
use crate::cuda::matrix::Vector;
use crate::cuda::params::params;
use crate::{KvFormat, KvShape, Reach, Scoring};
use base::error::Result;

params! {
    AttentionPrefillParams in "attention_prefill.cu" {
        out: Address,
        qkv: Address,
        cache: Address,
        tiles: Address,
        rows: Address,
        counts: Address,
        block_tables: Address,
        row_starts: Address,
        qkv_stride: i32,
        kv_heads: i32,
        group: i32,
        block_size_log2: i32,
        window: i32,
        ahead: i32,
        scale_log2: f32,
        tanh_scale: f32,
        sinks: Address,
        head_dim: i32,
        blocks_of_tile: i32,
    }
}

/// More positions behind a query than any row has, of which sums with positions do not overflow.
const AHEAD_MAX: i32 = 1 << 29;

/// Of a tile of queries.
pub const THREADS: usize = 128;

/// Which kernel of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// For rows with several new tokens.
    Prefill,
    /// For rows with one new token: one warp for the query heads of a KV head.
    Invariant,
}

impl Plan {
    /// The name of the kernel, without the types of numbers.
    pub fn kernel(self, head_dim: usize) -> String {
        let kind = match self {
            Plan::Prefill => "prefill",
            Plan::Invariant => "invariant",
        };
        format!("attention_{kind}_{}", spelled(head_dim))
    }
}

/// Attention of rows that bring several tokens, and of all rows where results must not depend on the batch.
pub struct Prefill {
    kernel: Kernel,
    shared_bytes: usize,
    /// Thread blocks that share the queries of a tile.
    blocks_of_tile: usize,
    /// For rows with one new token: one warp for the query heads of a KV head.
    invariant: Kernel,
    invariant_shared_bytes: usize,
}

impl Prefill {
    /// Loads the kernel for such heads.
    pub fn new(device: &Device, shape: &KvShape) -> Result<Prefill> {
        let variant = variant(shape.head_dim)?;
        let module = device.module("attention_prefill")?;
        let load = |plan: Plan, queries: usize| {
            let name = format!("{}_{}", plan.kernel(shape.head_dim), cache_suffix(device.dtype, shape.format));
            let kernel = Kernel::new(&module, &name)?;
            let shared_bytes = variant.prefill_bytes(queries, shape.format);
            kernel.allow_shared(shared_bytes)?;
            Ok((kernel, shared_bytes))
        };
        let (kernel, shared_bytes) = load(Plan::Prefill, variant.tile_queries)?;
        let (invariant, invariant_shared_bytes) = load(Plan::Invariant, GROUP_MAX)?;
        let blocks_of_tile = tile_queries(device.facts(), shape, device.rounding)?.div_ceil(variant.tile_queries);
        Ok(Prefill { kernel, shared_bytes, blocks_of_tile, invariant, invariant_shared_bytes })
    }

    /// Launches the attention of the rows of `device_batch` that `plan` is for.
    pub fn run(
        &self,
        device: &Device,
        scoring: Scoring<Vector>,
        heads: Heads,
        cache: CacheLayer,
        device_batch: &DeviceBatch,
        plan: Plan,
    ) -> Result<()> {
        let (Heads { out, qkv, .. }, spec, shape) = (heads, scoring.spec, cache.shape);
        let (at, tiles) = (device_batch.addresses_in(cache.table), device_batch.prefill_tiles(cache.kind));
        let decode_at = device_batch.decode_plan(cache.kind, spec.window);
        let Scaling { scale_log2, tanh_scale } = Scaling::of(spec);
        let (window, is_both_ways) = (window_of(spec), spec.reach == Reach::Both);
        assert!(!is_both_ways || shape.format != KvFormat::Int8, "an encoder has no cache in int8");
        let params = AttentionPrefillParams {
            out: out.storage.address(),
            qkv: qkv.storage.address(),
            cache: cache.address,
            tiles: tiles.at,
            rows: decode_at.rows,
            counts: decode_at.counts,
            block_tables: at.block_tables,
            row_starts: if is_both_ways { at.row_starts } else { 0 },
            qkv_stride: qkv.storage.stride() as i32,
            kv_heads: shape.kv_heads as i32,
            group: (spec.heads / shape.kv_heads) as i32,
            block_size_log2: shape.block_size.ilog2() as i32,
            window,
            ahead: if is_both_ways { window.saturating_sub(1).min(AHEAD_MAX) } else { 0 },
            scale_log2,
            tanh_scale,
            sinks: sinks_of(scoring),
            head_dim: shape.head_dim as i32,
            blocks_of_tile: self.blocks_of_tile as i32,
        };
        let blocks = match plan {
            // As many as the batch has, so that a graph stays right when fewer of a later one only pad.
            Plan::Invariant => shape.kv_heads * device_batch.batch().rows(),
            Plan::Prefill => spec.heads * tiles.len * self.blocks_of_tile,
        };
        let (kernel, threads, shared_bytes) = match plan {
            Plan::Prefill => (&self.kernel, THREADS, self.shared_bytes),
            Plan::Invariant => (&self.invariant, 32 * parts_of(shape.head_dim), self.invariant_shared_bytes),
        };
        kernel.launch(device.chaining, [blocks, 1, 1], threads, shared_bytes, &params)
    }
}
