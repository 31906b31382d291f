//! The launch of `kernels/attention_shared.cu`: attention of rows with one new token to the keys that several of them share.
//!
//! Serves heads of 64 and 128 numbers. Rows of other heads share nothing: [`sharing`] has no answer for them.

use crate::cuda::attention::partition::Geometry;
use crate::cuda::attention::shared_partition::{Sharing, UNIT_QUERIES};
use crate::cuda::attention::{row_bytes, shared_bytes_of};
use crate::cuda::device::Device;
use crate::cuda::device_batch::PlacedDecodePlan;
use crate::cuda::driver::{Address, Facts, Memory};
use crate::cuda::kernels::{Kernel, cache_suffix};
use crate::cuda::kv_cache::CacheLayer;
use crate::cuda::params::params;
use crate::cuda::storage::Tensor;
use crate::{KvFormat, KvShape};
use base::error::Result;

params! {
    AttentionSharedParams in "attention_shared.cu" {
        partials: Address,
        partial_sums: Address,
        qkv: Address,
        cache: Address,
        units: Address,
        rows: Address,
        block_tables: Address,
        table_width: i32,
        qkv_stride: i32,
        kv_heads: i32,
        group: i32,
        block_size_log2: i32,
        stages: i32,
        scale_log2: f32,
        tanh_scale: f32,
    }
}

/// Head dimensions that have a kernel: `KERNELS` at the end of the file.
const HEAD_DIMS: [usize; 2] = [64, 128];
const THREADS: usize = 128;
/// Keys of a tile.
const TILE_TOKENS: usize = 64;
/// Thread blocks of a multiprocessor.
const CTAS_PER_PROCESSOR: usize = 2;
/// Thread blocks whose parts there is room for. More than run at once, because units of small groups are not full.
const PARTS_OF_CTAS: usize = 3;
/// Bytes of keys and values per layer that sharing saves at least: 12 rows of 2,048 tokens, with 8 KV heads of 128 numbers in bf16. A pass
/// that shares is launched kernel by kernel and not as a graph, which takes about 30 us of the host's time per layer. One H200, 0.6B
/// shape: a step of 16 rows takes 1.27 ms instead of 1.34, of 64 rows 1.83 instead of 3.08.
const SAVED_BYTES: usize = 96 << 20;
/// Tokens that a stretch saves at least.
const STRETCH_SAVES: usize = 256;

/// How rows share keys of such a shape, which `heads` query heads ask for. `None` where they do not.
pub fn sharing(facts: Facts, shape: &KvShape, heads: usize) -> Option<Sharing> {
    let KvShape { kv_heads, head_dim, block_size, format, .. } = *shape;
    let token_bytes = 2 * kv_heads * (head_dim * format.number_bytes() + format.scale_bytes());
    HEAD_DIMS.contains(&head_dim).then(|| Sharing {
        block_size,
        unit_rows: UNIT_QUERIES / (heads / kv_heads),
        ctas: CTAS_PER_PROCESSOR * facts.processors,
        parts_max: queries_max(facts) / heads,
        stretch_saves: STRETCH_SAVES,
        pass_saves: SAVED_BYTES / token_bytes,
    })
}

/// Queries, of a row and a head, whose parts there is room for.
fn queries_max(facts: Facts) -> usize {
    PARTS_OF_CTAS * facts.processors * UNIT_QUERIES
}

/// Shared memory of a thread block with `stages` copies of a tile of keys and values.
fn shared_bytes(head_dim: usize, format: KvFormat, stages: usize) -> usize {
    let (row, keys_and_values) = (row_bytes(head_dim, 2), 2 * TILE_TOKENS);
    match format {
        KvFormat::Plain(_) => (UNIT_QUERIES + stages * keys_and_values) * row,
        KvFormat::Int8 => {
            (UNIT_QUERIES + keys_and_values) * row + keys_and_values * (4 + stages * (head_dim + format.scale_bytes()))
        }
    }
}

/// The kernel for the heads of a cache, and room for what it leaves.
pub struct AttentionShared {
    kernel: Kernel,
    stages: usize,
    /// Partial results `[queries, head_dim]`, and their maxima and sums `[queries, 2]`.
    partials: Memory,
    partial_sums: Memory,
}

/// What a launch needs besides queries, keys and values.
#[derive(Clone, Copy, Debug)]
pub struct Scores {
    /// Query heads.
    pub heads: usize,
    pub block_tables: Address,
    pub table_width: usize,
    /// As the kernel takes them.
    pub scale_log2: f32,
    pub tanh_scale: f32,
}

impl AttentionShared {
    /// Loads it, where rows share keys of this shape.
    pub fn new(device: &Device, shape: &KvShape, geometry: &Geometry) -> Result<Option<AttentionShared>> {
        if geometry.sharing.is_none() {
            return Ok(None);
        }
        let (facts, d) = (device.facts(), shape.head_dim);
        let module = device.module("attention_shared")?;
        let kernel =
            Kernel::new(&module, &format!("attention_shared_d{d}_{}", cache_suffix(device.dtype, shape.format)))?;
        let fits = |stages: usize| shared_bytes(d, shape.format, stages) <= shared_bytes_of(facts, CTAS_PER_PROCESSOR);
        let stages = if fits(3) { 3 } else { 2 };
        kernel.allow_shared(shared_bytes(d, shape.format, stages))?;
        let (queries, knob) = (queries_max(facts), "memory_utilization");
        Ok(Some(AttentionShared {
            kernel,
            stages,
            partials: Memory::new(&device.context, queries * d * 4, "attention scratch", knob)?,
            partial_sums: Memory::new(&device.context, queries * 8, "attention scratch", knob)?,
        }))
    }

    /// Where the parts are: results, and their maxima and sums.
    pub fn parts(&self) -> (Address, Address) {
        (self.partials.address(), self.partial_sums.address())
    }

    /// Launches the attention to the keys that rows share.
    pub fn run(
        &self,
        device: &Device,
        qkv: &Tensor,
        cache: CacheLayer,
        at: &PlacedDecodePlan,
        scores: &Scores,
    ) -> Result<()> {
        let KvShape { kv_heads, head_dim, block_size, format, .. } = cache.shape;
        let params = AttentionSharedParams {
            partials: self.partials.address(),
            partial_sums: self.partial_sums.address(),
            qkv: qkv.storage.address(),
            cache: cache.address,
            units: at.shared_units,
            rows: at.shared_rows,
            block_tables: scores.block_tables,
            table_width: scores.table_width as i32,
            qkv_stride: qkv.storage.stride() as i32,
            kv_heads: kv_heads as i32,
            group: (scores.heads / kv_heads) as i32,
            block_size_log2: block_size.ilog2() as i32,
            stages: self.stages as i32,
            scale_log2: scores.scale_log2,
            tanh_scale: scores.tanh_scale,
        };
        let blocks = [at.plan.shared.units.len() * kv_heads, 1, 1];
        let shared = shared_bytes(head_dim, format, self.stages);
        self.kernel.launch(device.chaining, blocks, THREADS, shared, &params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use formats::DType;

    #[test]
    fn two_tiles_of_keys_fit_the_shared_memory_of_every_gpu() {
        for (head_dim, format) in HEAD_DIMS.into_iter().flat_map(|d| [(d, DType::Bf16.into()), (d, KvFormat::Int8)]) {
            assert!(shared_bytes(head_dim, format, 2) <= 99 * 1024, "heads of {head_dim}, {format:?}");
        }
    }
}
