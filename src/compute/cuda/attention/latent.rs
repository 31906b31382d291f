//! The launch of `kernels/attention_latent.cu`: attention over keys that end with their values and that all query heads share.

use super::partition::{Cuts, Geometry};
use super::plan::Rows;
use crate::cuda::device::Device;
use crate::cuda::device_batch::DeviceBatch;
use crate::cuda::driver::{Address, Facts, Memory};
use crate::cuda::gemm::Grid;
use crate::cuda::kernels::{Kernel, suffix};
use crate::cuda::kv_cache::CacheLayer;
use crate::cuda::matrix::Vector;
use crate::cuda::params::params;
use crate::cuda::storage::Tensor;
use crate::{AttentionSpec, KvFormat, KvShape, Reach, Rounding, Scoring};
use base::error::{Error, Result};

params! {
    AttentionLatentParams in "attention_latent.cu" {
        out: Address,
        qkv: Address,
        cache: Address,
        partials: Address,
        partial_sums: Address,
        tiles: Address,
        rows: Address,
        counts: Address,
        block_tables: Address,
        out_stride: i32,
        qkv_stride: i32,
        heads: i32,
        key: i32,
        value: i32,
        block_size_log2: i32,
        parts: i32,
        row_count: i32,
        query_tiles: i32,
        scale_log2: f32,
    }
}

/// Queries of a thread block, from the fewest to the most.
const QUERIES: [usize; 3] = [16, 32, 64];
/// `KEYS` of the kernel.
const KEYS: usize = 32;
/// `WEIGHT_STRIDE` of the kernel, in bytes.
const WEIGHT_BYTES: usize = 80;
/// Numbers of a key, at most: two tiles of keys and 16 queries fit in the shared memory of every GPU.
const KEY_MAX: usize = 576;
/// Numbers of a value, at most: a quarter of them is what a warp has in registers.
const VALUE_MAX: usize = 512;
/// Parts of the keys of a row, at most: as many results are added up.
const PARTS_MAX: usize = 32;
/// Tokens of a prompt that are taken together.
const TILE_TOKENS: usize = 32;
const MERGE_THREADS: usize = 128;

/// How rows are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Of a thread block: one of [`QUERIES`].
    pub queries: usize,
    /// Parts of the keys of a row.
    pub parts: usize,
}

impl Plan {
    /// Rows with one new token. Batch-invariant sums are one chain, as in prompts.
    pub fn decode(shape: &KvShape, heads: usize, rows: usize, gpu: Facts, rounding: Rounding) -> Plan {
        let queries = queries(shape, heads, gpu);
        let parts = match rounding {
            Rounding::Fastest => 2 * gpu.processors / (rows * heads.div_ceil(queries)).max(1),
            Rounding::BatchInvariant => 1,
        };
        Plan { queries, parts: parts.clamp(1, PARTS_MAX) }
    }

    /// Rows with several.
    pub fn prompts(shape: &KvShape, heads: usize, gpu: Facts) -> Plan {
        Plan { queries: queries(shape, heads * TILE_TOKENS, gpu), parts: 1 }
    }

    /// The names of the kernels, without the number type.
    pub fn kernels(&self) -> String {
        let Plan { queries, parts } = self;
        match parts {
            1 => format!("attention_latent_q{queries}"),
            parts => format!("attention_latent_q{queries} in {parts} parts, attention_latent_merge"),
        }
    }

    fn threads(&self) -> usize {
        8 * self.queries
    }
}

/// The fewest queries of a thread block that take `wanted` at once, or as many as the shared memory has room for.
fn queries(shape: &KvShape, wanted: usize, gpu: Facts) -> usize {
    let fits = |queries: usize| queries == QUERIES[0] || shared_bytes(shape, queries) + 256 <= gpu.block_shared_bytes;
    let enough = QUERIES.into_iter().find(|&queries| queries >= wanted).unwrap_or(QUERIES[2]);
    QUERIES.into_iter().rev().find(|&queries| queries <= enough && fits(queries)).unwrap_or(QUERIES[0])
}

fn shared_bytes(shape: &KvShape, queries: usize) -> usize {
    let stride = (2 * shape.head_dim.div_ceil(16) + 1) * 16;
    (queries + 2 * KEYS) * stride + queries * (WEIGHT_BYTES + 16)
}

/// The kernels of a pass and the thread blocks of the first, for explanations.
pub fn describe(
    spec: &AttentionSpec,
    shape: &KvShape,
    rows: Rows,
    tokens: usize,
    gpu: Facts,
    rounding: Rounding,
) -> (String, Grid) {
    let (plan, queries) = match rows.has_prompts {
        false => (Plan::decode(shape, spec.heads, rows.rows, gpu, rounding), spec.heads),
        true => (Plan::prompts(shape, spec.heads, gpu), spec.heads * tokens),
    };
    let blocks = rows.rows * queries.div_ceil(plan.queries) * plan.parts;
    (format!("latent_cache, {}", plan.kernels()), Grid::line(blocks, plan.threads(), 0))
}

/// Whether the kernels know such a cache.
pub fn check(shape: &KvShape) -> Result<()> {
    let [key, value] = [shape.head_dim, shape.value_dim()];
    if shape.format == KvFormat::Int8 {
        let what = "an int8 KV cache of latent attention on CUDA: its own cache is smaller, leave kv_cache_dtype out";
        return Err(Error::Unsupported { what: what.to_owned() });
    }
    let is_known = |number: usize, most: usize| number.is_multiple_of(8) && number <= most;
    match is_known(key, KEY_MAX) && is_known(value, VALUE_MAX) && shape.kv_heads == 1 {
        true => Ok(()),
        false => Err(Error::UnsupportedModel {
            setting: "kv_lora_rank and qk_rope_head_dim",
            value: format!("{value} and {}", key - value),
            supported: "multiples of 8, at most 512 and together at most 576 on CUDA",
        }),
    }
}

/// How passes are planned: rows and tiles of prompts are read, and no row is cut for thread blocks.
pub fn geometry() -> Geometry {
    let (tile_tokens, tile_queries) = (KEYS, TILE_TOKENS);
    Geometry { kv_heads: 1, tile_tokens, tile_queries, ctas: 1, cuts: Cuts::Equal, merged_heads: None, sharing: None }
}

/// The kernels.
pub struct Latent {
    /// Of [`QUERIES`], those that the device has room for.
    kernels: Vec<(usize, Kernel)>,
    merge: Kernel,
    /// Partial results and their sums.
    partials: Memory,
    partial_sums: Memory,
}

impl Latent {
    /// Loads the kernels for such keys.
    pub fn new(device: &Device, shape: &KvShape) -> Result<Latent> {
        check(shape)?;
        let (module, facts) = (device.module("attention_latent")?, device.facts());
        let name = |kind: &str| format!("attention_latent_{kind}_{}", suffix(device.dtype));
        let mut kernels = Vec::new();
        for queries in QUERIES.into_iter().filter(|&queries| queries <= self::queries(shape, usize::MAX, facts)) {
            let kernel = Kernel::new(&module, &name(&format!("q{queries}")))?;
            kernel.allow_shared(shared_bytes(shape, queries))?;
            kernels.push((queries, kernel));
        }
        // More than one part has a row only where all thread blocks together are at most these.
        let results = 2 * facts.processors * QUERIES[2];
        let (context, what, knob) = (&device.context, "attention scratch", "memory_utilization");
        Ok(Latent {
            kernels,
            merge: Kernel::new(&module, &name("merge"))?,
            partials: Memory::new(context, results * shape.value_dim() * 4, what, knob)?,
            partial_sums: Memory::new(context, results * 8, what, knob)?,
        })
    }

    /// Attention of a pass.
    ///
    /// # Panics
    ///
    /// If the layer has a window, a softcap or sinks, or looks both ways: no model with latent attention has.
    pub fn run(
        &self,
        device: &Device,
        Scoring { spec, sinks }: Scoring<Vector>,
        (out, qkv): (&mut Tensor, &Tensor),
        cache: CacheLayer,
        device_batch: &DeviceBatch,
        rows: Rows,
    ) -> Result<()> {
        assert!(spec.window.is_none() && spec.softcap.is_none() && sinks.is_none() && spec.reach == Reach::Back);
        let (shape, heads) = (cache.shape, spec.heads);
        let (at, decode_at) = (device_batch.addresses_in(cache.table), device_batch.decode_plan(cache.kind, None));
        // As many as the batch has, so that a graph stays right when fewer of a later one only pad.
        let row_count = device_batch.batch().rows();
        let params = AttentionLatentParams {
            out: out.storage.address(),
            qkv: qkv.storage.address(),
            cache: cache.address,
            partials: self.partials.address(),
            partial_sums: self.partial_sums.address(),
            tiles: 0,
            rows: decode_at.rows,
            counts: decode_at.counts,
            block_tables: at.block_tables,
            out_stride: out.storage.stride() as i32,
            qkv_stride: qkv.storage.stride() as i32,
            heads: heads as i32,
            key: shape.head_dim as i32,
            value: shape.value_dim() as i32,
            block_size_log2: shape.block_size.ilog2() as i32,
            parts: 1,
            row_count: row_count as i32,
            query_tiles: 1,
            scale_log2: spec.scale * std::f32::consts::LOG2_E,
        };
        if rows.has_decode {
            let plan = Plan::decode(&shape, heads, row_count, device.facts(), device.rounding);
            let query_tiles = heads.div_ceil(plan.queries);
            let params = AttentionLatentParams { parts: plan.parts as i32, query_tiles: query_tiles as i32, ..params };
            self.launch(device, &shape, plan, row_count * query_tiles, &params)?;
            if plan.parts > 1 {
                self.merge.launch(device.chaining, [row_count * heads, 1, 1], MERGE_THREADS, 0, &params)?;
            }
        }
        if rows.has_prompts {
            let tiles = device_batch.prefill_tiles(cache.kind);
            let plan = Plan::prompts(&shape, heads, device.facts());
            let query_tiles = (heads * TILE_TOKENS).div_ceil(plan.queries);
            let params = AttentionLatentParams { tiles: tiles.at, query_tiles: query_tiles as i32, ..params };
            self.launch(device, &shape, plan, tiles.len * query_tiles, &params)?;
        }
        Ok(())
    }

    fn launch(
        &self,
        device: &Device,
        shape: &KvShape,
        plan: Plan,
        blocks: usize,
        params: &AttentionLatentParams,
    ) -> Result<()> {
        let kernel = self.kernels.iter().find(|(queries, _)| *queries == plan.queries);
        let (_, kernel) = kernel.expect("a plan for this device");
        let shared_bytes = shared_bytes(shape, plan.queries);
        kernel.launch(device.chaining, [blocks, plan.parts, 1], plan.threads(), shared_bytes, params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KvValues;
    use crate::cuda::gpus::{A100, H100, RTX_4090};
    use formats::DType;
    use std::fmt::Write;

    const SHAPE: KvShape = KvShape {
        kv_heads: 1,
        head_dim: 576,
        values: KvValues::InKeys(512),
        block_size: 64,
        format: KvFormat::Plain(DType::Bf16),
    };

    /// `NVLLM_WRITE_PLANS=1` writes the file instead: what changes in it is to be read.
    #[test]
    fn plans_are_those_of_the_committed_file() {
        let mut text = "Kernels of latent attention: Plan in src/compute/cuda/attention/latent.rs.\n".to_owned();
        for (name, gpu) in [("H100", H100), ("A100", A100), ("RTX 4090", RTX_4090)] {
            for (model, heads) in [("DeepSeek-V2-Lite", 16), ("GLM-4.7-Flash", 20), ("DeepSeek-V3", 128)] {
                writeln!(text, "\n{name}, {model}, {heads} heads").expect("a string");
                writeln!(text, "  prompts: {}", Plan::prompts(&SHAPE, heads, gpu).kernels()).expect("a string");
                for rows in [1, 4, 16, 64, 256] {
                    let plan = |rounding| Plan::decode(&SHAPE, heads, rows, gpu, rounding).kernels();
                    let [fastest, invariant] = [Rounding::Fastest, Rounding::BatchInvariant].map(plan);
                    writeln!(text, "  decode, {rows:>3} rows: {fastest}; batch-invariant {invariant}")
                        .expect("a string");
                }
            }
        }
        crate::cuda::gemm::compare_with_committed("attention_latent", &text);
    }

    #[test]
    fn partial_results_have_room() {
        for (gpu, heads) in
            [H100, A100, RTX_4090].into_iter().flat_map(|gpu| [1, 16, 20, 128].map(|heads| (gpu, heads)))
        {
            assert!(shared_bytes(&SHAPE, queries(&SHAPE, usize::MAX, gpu)) + 256 <= gpu.block_shared_bytes);
            for rows in 1..600 {
                let Plan { parts, .. } = Plan::decode(&SHAPE, heads, rows, gpu, Rounding::Fastest);
                assert!(
                    parts == 1 || rows * heads * parts <= 2 * gpu.processors * QUERIES[2],
                    "{rows} rows, {heads} heads"
                );
            }
        }
    }

    #[test]
    fn what_the_kernels_do_not_know_is_refused_by_name() {
        assert!(check(&SHAPE).is_ok());
        for (shape, named) in [
            (KvShape { format: KvFormat::Int8, ..SHAPE }, "int8"),
            (KvShape { head_dim: 640, ..SHAPE }, "kv_lora_rank"),
            (KvShape { values: KvValues::InKeys(520), ..SHAPE }, "kv_lora_rank"),
        ] {
            assert!(check(&shape).unwrap_err().to_string().contains(named));
        }
    }
}
