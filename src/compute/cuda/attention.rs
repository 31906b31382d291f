//! See `ops/attention.rs` for the contract, `kernels/attention_decode.cu`, `kernels/attention_shared.cu`, `kernels/attention_units.cu`,
//! `kernels/attention_prefill.cu` and `kernels/attention_hopper.cu` for the work.

use super::attention_hopper::{AttentionHopper, Tiles};
use super::attention_shared::{self, AttentionShared, Scores};
use super::attention_units::{self, AttentionUnits, UnitsInput};
use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::{Address, Facts, Memory};
use super::kernels::{DEPENDENT_LAUNCH, Kernel, cache_suffix, suffix};
use super::kv_cache::CacheLayer;
use super::matrix::Vector;
use super::params::params;
use super::plan::{Costs, Cuts, Geometry};
use super::rope_and_attention::{self, RopeAndAttention};
use super::storage::Tensor;
use crate::{AttentionSpec, KvFormat, KvShape, QkNormRope, Reach, Rounding, Scoring};
use base::error::{Error, Result};

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
    }

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
    }
}

/// More positions behind a query than any row has, of which sums with positions do not overflow.
const AHEAD_MAX: i32 = 1 << 29;

/// Query heads of a KV head that the decode kernels know.
const GROUP_MAX: usize = 16;

/// What is fixed for a head dimension: `KERNELS` at the end of the two .cu files.
struct Variant {
    head_dim: usize,
    decode_warps: usize,
    tile_queries: usize,
    prefill_keys: usize,
}

/// The tiles of queries of heads of 64 and 128 are those of `attention_hopper.cu` as well.
///
/// Two tiles of decode and their merge, and the tiles of prefill, fit in the 99 KB per thread block of compute capability 8.6.
const VARIANTS: [Variant; 11] = [
    Variant { head_dim: 32, decode_warps: 4, tile_queries: 128, prefill_keys: 64 },
    Variant { head_dim: 48, decode_warps: 4, tile_queries: 128, prefill_keys: 64 },
    Variant { head_dim: 64, decode_warps: 4, tile_queries: 128, prefill_keys: 64 },
    Variant { head_dim: 80, decode_warps: 4, tile_queries: 128, prefill_keys: 64 },
    Variant { head_dim: 96, decode_warps: 4, tile_queries: 128, prefill_keys: 64 },
    Variant { head_dim: 112, decode_warps: 4, tile_queries: 128, prefill_keys: 64 },
    Variant { head_dim: 128, decode_warps: 4, tile_queries: 128, prefill_keys: 64 },
    Variant { head_dim: 160, decode_warps: 2, tile_queries: 128, prefill_keys: 32 },
    Variant { head_dim: 192, decode_warps: 2, tile_queries: 64, prefill_keys: 32 },
    Variant { head_dim: 256, decode_warps: 2, tile_queries: 64, prefill_keys: 32 },
    Variant { head_dim: 512, decode_warps: 1, tile_queries: 32, prefill_keys: 16 },
];

/// Warps that take the same queries in attention_prefill.cu: its `parts_of`.
fn parts_of(head_dim: usize) -> usize {
    if head_dim > 256 { 2 } else { 1 }
}

fn variant(head_dim: usize) -> Result<&'static Variant> {
    VARIANTS.iter().find(|v| v.head_dim == head_dim).ok_or_else(|| Error::UnsupportedModel {
        setting: "head_dim",
        value: head_dim.to_string(),
        supported: "32, 48, 64, 80, 96, 112, 128, 160, 192, 256 or 512 on CUDA",
    })
}

/// Whether the kernels know such heads, of which `heads` ask and `shape.kv_heads` answer.
pub fn check(shape: &KvShape, heads: usize) -> Result<()> {
    variant(shape.head_dim)?;
    let group = heads / shape.kv_heads;
    if group > GROUP_MAX {
        return Err(Error::UnsupportedModel {
            setting: "num_attention_heads for each of num_key_value_heads",
            value: group.to_string(),
            supported: "1 to 16 on CUDA",
        });
    }
    Ok(())
}

/// Bytes from row to row of a tile in shared memory: `Tile` in tensor_core.cuh.
pub fn row_bytes(head_dim: usize, number_bytes: usize) -> usize {
    let chunks = head_dim * number_bytes / 16;
    16 * if chunks.is_multiple_of(8) { chunks } else { chunks | 1 }
}

/// Shared memory for a tile of keys and values of a decode CTA.
fn stage_bytes(warps: usize, head_dim: usize, format: KvFormat) -> usize {
    warps * 2 * 16 * (row_bytes(head_dim, format.number_bytes()) + format.scale_bytes())
}

/// Shared memory in which the warps of a decode CTA add up their parts.
fn merge_bytes(warps: usize, group: usize, head_dim: usize) -> usize {
    warps * group * (head_dim + 2) * 4
}

impl Variant {
    /// Shared memory of a prefill CTA: its queries and two stages of keys and values, or one of numbers and one of bytes, with
    /// scales as they are stored and in f32.
    fn prefill_bytes(&self, queries: usize, format: KvFormat) -> usize {
        let (row, keys_and_values) = (row_bytes(self.head_dim, 2), 2 * self.prefill_keys);
        let next = match format {
            KvFormat::Plain(_) => row,
            KvFormat::Int8 => self.head_dim + format.scale_bytes() + 4,
        };
        queries * row + keys_and_values * (row + next)
    }
}

/// CTAs per multiprocessor that share out the keys of rows with one new token, at most: `int8_ctas` at the end of attention_decode.cu. One
/// H200, 256 rows of 512 tokens in int8: 102 us with two, 88 with three, 85 with four.
fn ctas_per_processor(format: KvFormat) -> usize {
    match format {
        KvFormat::Plain(_) => 2,
        KvFormat::Int8 => 4,
    }
}

/// CTAs of a decode plan at most, whatever the cache holds.
pub fn ctas_max(device: &Device) -> usize {
    let ctas = ctas_per_processor(KvFormat::Int8) * device.facts().processors;
    match device.rounding {
        Rounding::Fastest => ctas,
        Rounding::BatchInvariant => ctas.max(attention_units::workers(device.facts())),
    }
}

/// CTAs of a multiprocessor that run at once. At least as many as groups of few heads have room for.
fn resident_ctas(facts: Facts, variant: &Variant, format: KvFormat) -> usize {
    let least = 2 * stage_bytes(variant.decode_warps, variant.head_dim, format)
        + merge_bytes(variant.decode_warps, 1, variant.head_dim);
    (2..=ctas_per_processor(format)).rev().find(|&ctas| least <= shared_bytes_of(facts, ctas)).unwrap_or(1)
}

/// Shared memory of one of `ctas` CTAs of a multiprocessor. The driver keeps 1 KiB of each for itself.
pub fn shared_bytes_of(facts: Facts, ctas: usize) -> usize {
    facts.block_shared_bytes.min(facts.shared_bytes / ctas - 1024 - 256)
}

/// One H200, 0.6B shape: a tile of each CTA takes 1.9 us. Microseconds per layer that parts which end with a (row, KV head) take more or less than equal ones: 64
/// rows of 256 tokens, 256 CTAs with 8 tiles each, -1.1; 128 of 256 -0.4; 192 of 256 -0.5; 256 of 256 -0.2; 256 of 555 +1.1; 192 of 555 +1.2; 96 of 555 +0.6; 48 of
/// 555, 192 CTAs with 18 tiles, +2.0; 80 of 555, 214 CTAs with 27, +3.4. With less than one for each CTA: 32 rows of 256 -3.4, 32 of 555 -1.7, 24 of 256 -3.8, 24
/// of 555 -0.7, 32 of 300 to 800 +0.5, 32 of 100 to 2,000 +8.4.
pub const COSTS: Costs = Costs { busy: [0, 1], idle: [37, 100], merge: [7, 25], merge_many: [13, 10] };

/// How passes are shared out for such heads, which `heads` query heads ask if that is known.
pub fn geometry(device: &Device, shape: &KvShape, heads: Option<usize>) -> Result<Geometry> {
    let (variant, facts) = (variant(shape.head_dim)?, device.facts());
    let (tile_tokens, ctas, cuts) = match attention_units::is_chosen(facts, shape, device.rounding) {
        true => (attention_units::UNIT, attention_units::workers(facts), Cuts::WholeIfFaster(attention_units::COSTS)),
        false => {
            let ctas = facts.processors * resident_ctas(facts, variant, shape.format);
            (16 * variant.decode_warps, ctas, Cuts::WholeIfFaster(COSTS))
        }
    };
    let sharing = heads.and_then(|heads| attention_shared::sharing(facts, shape, heads));
    Ok(Geometry { kv_heads: shape.kv_heads, tile_tokens, tile_queries: variant.tile_queries, ctas, cuts, sharing })
}

/// What kernels are given of sinks.
pub fn sinks_of(scoring: Scoring<Vector>) -> Address {
    scoring.sinks.map_or(0, |sinks| sinks.wide.address())
}

/// What a launch reads of heads, and where the results go.
pub struct Heads<'a> {
    pub out: &'a mut Tensor,
    pub qkv: &'a Tensor,
    /// What is done to heads that come as the projections made them, in batches that the kernels [prepare](Kernels::prepares).
    pub raw: Option<&'a QkNormRope<'a, Vector, Tensor>>,
}

/// Attention over a cache of one shape.
pub struct Kernels {
    decode: Decode,
    prefill: Prefill,
    /// Attention of rows that bring several tokens, where the device has it.
    hopper: Option<AttentionHopper>,
    /// Attention to keys that rows with one new token share, where they do.
    shared: Option<AttentionShared>,
    /// Batch-invariant attention of rows that bring one token, where the device has it.
    units: Option<AttentionUnits>,
    /// Attention of few rows that bring one token, with what prepares it, where the device has it.
    pub few: Option<RopeAndAttention>,
}

/// Attention of rows that bring one token.
struct Decode {
    /// For groups of up to 8 and up to 16 query heads.
    kernels: [Kernel; 2],
    /// The same, for plans with shared keys.
    shared_kernels: Option<[Kernel; 2]>,
    /// For groups of up to 8 query heads that come as the projections made them.
    raw_kernel: Option<Kernel>,
    warps: usize,
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
    fn new(device: &Device, shape: &KvShape, geometry: &Geometry) -> Result<Decode> {
        let (d, variant) = (shape.head_dim, variant(shape.head_dim)?);
        let module = device.module("attention_decode")?;
        let types = cache_suffix(device.dtype, shape.format);
        let load = |kind: &str| -> Result<[Kernel; 2]> {
            Ok([
                Kernel::new(&module, &format!("attention_{kind}_d{d}_g8_{types}"))?,
                Kernel::new(&module, &format!("attention_{kind}_d{d}_g16_{types}"))?,
            ])
        };
        let kernels = load("decode")?;
        let shared_kernels = geometry.sharing.map(|_| load("decode_shared")).transpose()?;
        let is_raw = device.facts().capability >= DEPENDENT_LAUNCH && rope_and_attention::knows_cache(shape);
        let raw_name = format!("attention_decode_raw_d{d}_{}", suffix(device.dtype));
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
            warps: variant.decode_warps,
            ctas: geometry.ctas,
            shared_bytes,
            partials: Memory::new(context, parts * d * 4, "attention scratch", knob)?,
            partial_sums: Memory::new(context, parts * 8, "attention scratch", knob)?,
            arrived: Memory::zeroed(context, ctas * 4, "attention scratch", knob)?,
        })
    }
}

/// Attention of rows that bring several tokens, and of all rows where results must not depend on the batch.
struct Prefill {
    kernel: Kernel,
    /// For queries that attend to keys behind them too. Not over int8.
    both_ways: Option<Kernel>,
    shared_bytes: usize,
    /// For rows with one new token: one warp for the query heads of a KV head.
    invariant: Kernel,
    invariant_shared_bytes: usize,
}

impl Prefill {
    /// Loads the kernel for such heads.
    fn new(device: &Device, shape: &KvShape) -> Result<Prefill> {
        let variant = variant(shape.head_dim)?;
        let module = device.module("attention_prefill")?;
        let load = |kind: &str, queries: usize| {
            let name = format!("attention_{kind}_d{}_{}", shape.head_dim, cache_suffix(device.dtype, shape.format));
            let kernel = Kernel::new(&module, &name)?;
            let shared_bytes = variant.prefill_bytes(queries, shape.format);
            kernel.allow_shared(shared_bytes)?;
            Ok((kernel, shared_bytes))
        };
        let (kernel, shared_bytes) = load("prefill", variant.tile_queries)?;
        let (invariant, invariant_shared_bytes) = load("invariant", GROUP_MAX)?;
        let is_plain = shape.format != KvFormat::Int8;
        let both_ways = is_plain.then(|| load("both_ways", variant.tile_queries)).transpose()?;
        let both_ways = both_ways.map(|(kernel, _)| kernel);
        Ok(Prefill { kernel, both_ways, shared_bytes, invariant, invariant_shared_bytes })
    }
}

impl Kernels {
    /// Loads the kernels for such heads.
    pub fn new(device: &Device, shape: &KvShape, geometry: &Geometry) -> Result<Kernels> {
        Ok(Kernels {
            decode: Decode::new(device, shape, geometry)?,
            prefill: Prefill::new(device, shape)?,
            hopper: AttentionHopper::new(device, shape)?,
            shared: AttentionShared::new(device, shape, geometry)?,
            units: AttentionUnits::new(device, shape)?,
            few: RopeAndAttention::new(device, shape)?,
        })
    }

    /// Whether [`run`](Self::run) prepares the heads of the batch itself.
    pub fn prepares(
        &self,
        device: &Device,
        spec: &AttentionSpec,
        transform: &QkNormRope<Vector, Tensor>,
        cache: &CacheLayer,
        device_batch: &DeviceBatch,
    ) -> bool {
        self.decode.raw_kernel.is_some()
            && device.rounding == Rounding::Fastest
            && rope_and_attention::knows_heads(spec, transform, &cache.shape)
            && rope_and_attention::knows_rows(spec, cache.kind, device_batch)
    }

    pub fn run(
        &self,
        device: &Device,
        scoring: Scoring<Vector>,
        heads: Heads,
        cache: CacheLayer,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let (Heads { out, qkv, raw }, spec) = (heads, scoring.spec);
        let sinks = sinks_of(scoring);
        let shape = cache.shape;
        let group = spec.heads / shape.kv_heads;
        assert!(group <= GROUP_MAX, "{group} query heads share a KV head, but the kernels know {GROUP_MAX}");
        let (at, tiles) = (device_batch.addresses_in(cache.table), device_batch.prefill_tiles(cache.kind));
        let decode_at = device_batch.decode_plan(cache.kind, spec.window);
        let has_decode_rows = decode_at.plan.rows.len() > 1;
        // With a softcap a score is multiplied in two steps: before the tanh and after it.
        let (factor, tanh_scale) = spec.softcap.map_or((spec.scale, 0.0), |softcap| (softcap, spec.scale / softcap));
        let scale_log2 = factor * std::f32::consts::LOG2_E;
        let block_size_log2 = shape.block_size.ilog2() as i32;

        let is_invariant = device.rounding == Rounding::BatchInvariant;
        if has_decode_rows && !is_invariant {
            let decode = &self.decode;
            let merge = merge_bytes(decode.warps, group, shape.head_dim);
            let stage = stage_bytes(decode.warps, shape.head_dim, shape.format);
            // Only where the kernels are there does a plan share keys.
            let shared = self.shared.as_ref().filter(|_| !decode_at.plan.shared.units.is_empty());
            if let Some(shared) = shared {
                let table_width = device_batch.batch().table_width;
                let scores =
                    Scores { heads: spec.heads, block_tables: at.block_tables, table_width, scale_log2, tanh_scale };
                shared.run(device, qkv, cache, &decode_at, &scores)?;
            }
            let (shared_partials, shared_sums) = shared.map_or((0, 0), AttentionShared::parts);
            let stages = ((decode.shared_bytes - merge.min(decode.shared_bytes)) / stage).clamp(2, 6);
            let norm = raw.and_then(|raw| raw.norm.as_ref());
            let rope = raw.and_then(|raw| raw.rope.as_ref());
            let params = AttentionDecodeParams {
                out: out.storage.address(),
                qkv: qkv.storage.address(),
                cache: cache.address,
                partials: decode.partials.address(),
                partial_sums: decode.partial_sums.address(),
                arrived: decode.arrived.address(),
                rows: decode_at.rows,
                ctas: decode_at.ctas,
                counts: decode_at.counts,
                block_tables: at.block_tables,
                qkv_stride: qkv.storage.stride() as i32,
                kv_heads: shape.kv_heads as i32,
                group: group as i32,
                block_size_log2,
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
                sinks,
            };
            let kernels = decode.shared_kernels.as_ref().filter(|_| shared.is_some()).unwrap_or(&decode.kernels);
            let raw_kernel = decode.raw_kernel.as_ref().filter(|_| raw.is_some());
            let kernel = raw_kernel.unwrap_or(&kernels[usize::from(group > 8)]);
            // All CTAs are launched, so that a graph stays right when a later plan uses more of them.
            let blocks = [decode.ctas, 1, 1];
            kernel.launch(device.chaining, blocks, 32 * decode.warps, stages * stage + merge, &params)?;
        }
        let units = self.units.as_ref().filter(|_| is_invariant);
        if let Some(units) = units
            && has_decode_rows
        {
            let input = UnitsInput {
                out: out.storage.address(),
                qkv: qkv.storage.address(),
                qkv_stride: qkv.storage.stride(),
                cache: cache.address,
                rows: decode_at.rows,
                workers: decode_at.ctas,
                counts: decode_at.counts,
                block_tables: at.block_tables,
                group,
                scale_log2,
                tanh_scale,
                sinks,
            };
            units.run(device, &input)?;
        }
        let window = spec.window.map_or(i32::MAX, |window| window.try_into().unwrap_or(i32::MAX));
        if let Some(hopper) = &self.hopper
            && (units.is_some() || !is_invariant)
            && spec.reach == Reach::Back
        {
            if tiles.len > 0 {
                let tiles = Tiles {
                    out: out.storage.address(),
                    tiles: tiles.at,
                    len: tiles.len,
                    counts: decode_at.counts,
                    block_tables: at.block_tables,
                    heads: spec.heads,
                    window,
                    scale_log2,
                    tanh_scale,
                    sinks,
                };
                hopper.run(device, qkv, cache, &tiles)?;
            }
            return Ok(());
        }
        if tiles.len > 0 || is_invariant {
            let prefill = &self.prefill;
            let params = AttentionPrefillParams {
                out: out.storage.address(),
                qkv: qkv.storage.address(),
                cache: cache.address,
                tiles: tiles.at,
                rows: decode_at.rows,
                counts: decode_at.counts,
                block_tables: at.block_tables,
                row_starts: at.row_starts,
                qkv_stride: qkv.storage.stride() as i32,
                kv_heads: shape.kv_heads as i32,
                group: group as i32,
                block_size_log2,
                window,
                ahead: match spec.reach {
                    Reach::Back => 0,
                    Reach::Both => window.saturating_sub(1).min(AHEAD_MAX),
                },
                scale_log2,
                tanh_scale,
                sinks,
            };
            if is_invariant && has_decode_rows && units.is_none() {
                // As many as the batch has, so that a graph stays right when fewer of a later one only pad.
                let blocks = [shape.kv_heads * device_batch.batch().rows(), 1, 1];
                let threads = 32 * parts_of(shape.head_dim);
                prefill.invariant.launch(device.chaining, blocks, threads, prefill.invariant_shared_bytes, &params)?;
            }
            let blocks = [spec.heads * tiles.len, 1, 1];
            let kernel = match spec.reach {
                Reach::Back => &prefill.kernel,
                Reach::Both => prefill.both_ways.as_ref().expect("an encoder has no cache in int8"),
            };
            kernel.launch(device.chaining, blocks, 128, prefill.shared_bytes, &params)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::attention_hopper::{HEAD_DIMS, TILE_QUERIES};
    use crate::cuda::plan::TILE_QUERIES_MIN;
    use formats::DType;

    /// Bytes that compute capability 8.6 has for a thread block, the least of all that are supported; `Decode` leaves 256 of them
    /// to variables of the kernels.
    const SHARED_BYTES: usize = 99 * 1024 - 256;

    #[test]
    fn every_head_dimension_fits_the_shared_memory_of_every_gpu() {
        let formats = [KvFormat::Plain(DType::Bf16), KvFormat::Int8];
        for (variant, format) in VARIANTS.iter().flat_map(|variant| formats.map(|format| (variant, format))) {
            let Variant { head_dim, decode_warps, tile_queries, .. } = *variant;
            let merge = merge_bytes(decode_warps, GROUP_MAX, head_dim);
            let decode = 2 * stage_bytes(decode_warps, head_dim, format) + merge;
            assert!(decode <= SHARED_BYTES, "heads of {head_dim}, {format:?}: {decode} bytes for decode");
            let prefill = variant.prefill_bytes(tile_queries, format);
            assert!(prefill <= SHARED_BYTES, "heads of {head_dim}, {format:?}: {prefill} bytes for prefill");
        }
    }

    #[test]
    fn plans_have_room_for_the_tiles_of_every_head_dimension() {
        assert!(VARIANTS.iter().all(|variant| variant.tile_queries >= TILE_QUERIES_MIN));
    }

    #[test]
    fn plans_for_hopper_have_the_tiles_of_its_kernel() {
        assert!(HEAD_DIMS.iter().all(|&d| variant(d).is_ok_and(|variant| variant.tile_queries == TILE_QUERIES)));
    }
}
