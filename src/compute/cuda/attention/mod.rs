//! Attention over the KV cache. See `ops/attention.rs` for the contract.
//!
//! `plan.rs` chooses the kernels of a layer, `partition.rs` shares out the keys of a pass among thread blocks; each other file is the launch of one file
//! of kernels.

mod decode;
mod few;
mod few_units;
mod hopper;
mod latent;
pub mod partition;
mod plan;
mod prefill;
mod shared;
pub mod shared_partition;
mod units;

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::{Address, Facts};
use super::kv_cache::CacheLayer;
use super::matrix::Vector;
use super::storage::Tensor;
use crate::cuda::gemm::Grid;
use crate::explain::{AttentionHeads, Pass};
use crate::{AttentionSpec, HeadRows, KvFormat, KvShape, KvValues, QkNormRope, Reach, Rounding, Scoring};
use base::error::{Error, Result};
use decode::Decode;
use few::RopeAndAttention;
use hopper::{AttentionHopper, Tiles};
use latent::Latent;
use partition::{Costs, Cuts, Geometry};
use plan::{PreparedHeads, Rows};
use prefill::Prefill;
use shared::AttentionShared;
use units::{AttentionUnits, UnitsInput};

/// Why a kernel is there: plans name those of the device and the cache alone.
const PLANNED: &str = "a plan for this device and cache";

/// Query heads of a KV head that the decode kernels know.
const GROUP_MAX: usize = 16;

/// The kernels of the attention of a layer, and thread blocks and threads of the one that reads the keys, for explanations.
pub fn describe(heads: &AttentionHeads, pass: &Pass, facts: Facts, rounding: Rounding) -> Result<(String, Grid)> {
    let AttentionHeads { spec, kv_heads, head_dim, values, is_common } = *heads;
    let shape = KvShape { block_size: 16, kv_heads, head_dim, values, format: pass.kv_format };
    check(&shape, spec.heads)?;
    let is_decode = pass.tokens == 1 && spec.reach == Reach::Back;
    let rows = Rows { rows: pass.rows, is_decode, has_decode: is_decode, has_prompts: !is_decode, shares_keys: false };
    if values != KvValues::Stored {
        return Ok(latent::describe(&spec, &shape, rows, pass.tokens, facts, rounding));
    }
    let variant = variant(head_dim)?;
    let attention = plan::Attention { spec: &spec, shape, rows };
    let prepared = PreparedHeads { are_known: is_common && spec.heads / kv_heads <= few::GROUP_MAX };
    let kernels = plan::describe(&attention, prepared, facts, rounding);
    let tiles = |queries: usize| pass.rows * pass.tokens.div_ceil(queries) * spec.heads;
    let decode = || {
        let (warps, ctas) = (variant.decode_warps, resident_ctas(facts, variant, shape.format));
        (facts.processors * ctas, 32 * warps * variant.decode_parts())
    };
    let (blocks, threads) = match plan::fused(&attention, prepared, facts, rounding) {
        Some(plan::Fused::Few { cluster }) => {
            let is_invariant = rounding == Rounding::BatchInvariant;
            (pass.rows * kv_heads * cluster, if is_invariant { few_units::THREADS } else { few::THREADS })
        }
        Some(plan::Fused::Decode(_)) => decode(),
        None => match plan::plan(&attention, facts, rounding) {
            plan::Plan { decode: Some(plan::Decode::Split(_)), .. } => decode(),
            plan::Plan { decode: Some(plan::Decode::Units), .. } => units::grid(facts),
            plan::Plan { decode: Some(plan::Decode::Invariant), .. } => (kv_heads * pass.rows, 32 * parts_of(head_dim)),
            plan::Plan { prompts: Some(plan::Prompts::Hopper), .. } => {
                (facts.processors.min(tiles(tile_queries(facts, &shape, rounding)?)), hopper::THREADS)
            }
            plan::Plan { .. } => (tiles(variant.tile_queries), prefill::THREADS),
        },
    };
    Ok((kernels, Grid::line(blocks, threads, 0)))
}

/// What is fixed for a class of head dimensions: `KERNELS` at the end of the two .cu files.
struct Variant {
    /// Numbers of a head that tiles have room for.
    head_dim: usize,
    /// Each with its own tokens of a tile, and with [`parts`](Variant::decode_parts) of a head as many warps.
    decode_warps: usize,
    /// Queries that a thread block of attention_prefill.cu takes.
    tile_queries: usize,
    prefill_keys: usize,
}

/// Two tiles of decode and their merge, and the tiles of prefill, fit in the 99 KB per thread block of compute capability 8.6.
const VARIANTS: [Variant; 4] = [
    Variant { head_dim: 64, decode_warps: 4, tile_queries: 128, prefill_keys: 64 },
    Variant { head_dim: 128, decode_warps: 4, tile_queries: 128, prefill_keys: 64 },
    Variant { head_dim: 256, decode_warps: 2, tile_queries: 64, prefill_keys: 32 },
    Variant { head_dim: 512, decode_warps: 1, tile_queries: 32, prefill_keys: 16 },
];

/// Other head dimensions, which have a kernel with room for more: that of 128 or of 256 numbers.
const WITH_ROOM: [(usize, usize); 7] = [(32, 128), (48, 128), (80, 128), (96, 128), (112, 128), (160, 256), (192, 256)];

/// Warps that take the same queries in attention_prefill.cu: its `parts_of`.
fn parts_of(head_dim: usize) -> usize {
    if head_dim > 256 { 2 } else { 1 }
}

/// The head dimension that the tiles of a kernel have room for.
fn class_of(head_dim: usize) -> usize {
    WITH_ROOM.iter().find(|(dim, _)| *dim == head_dim).map_or(head_dim, |(_, class)| *class)
}

/// The heads of a kernel, as its name spells them.
fn spelled(head_dim: usize) -> String {
    match class_of(head_dim) {
        class if class == head_dim => format!("d{class}"),
        class => format!("to{class}"),
    }
}

fn variant(head_dim: usize) -> Result<&'static Variant> {
    VARIANTS.iter().find(|v| v.head_dim == class_of(head_dim)).ok_or_else(|| Error::UnsupportedModel {
        setting: "head_dim",
        value: head_dim.to_string(),
        supported: "32, 48, 64, 80, 96, 112, 128, 160, 192, 256 or 512 on CUDA",
    })
}

/// Queries of a tile of prompts: of `attention_hopper.cu` where it serves such a cache, and of `attention_prefill.cu`, of which several thread blocks may
/// share a tile.
fn tile_queries(facts: Facts, shape: &KvShape, rounding: Rounding) -> Result<usize> {
    let least = variant(shape.head_dim)?.tile_queries;
    Ok(hopper::tile_queries(facts, shape, rounding).unwrap_or(least))
}

/// Whether the kernels know such heads, of which `heads` ask and `shape.kv_heads` answer.
pub fn check(shape: &KvShape, heads: usize) -> Result<()> {
    if shape.values != KvValues::Stored {
        return latent::check(shape);
    }
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

impl Variant {
    /// Warps that share the numbers of a head in attention_decode.cu: its `parts_of`.
    fn decode_parts(&self) -> usize {
        (self.head_dim / 128).max(1)
    }

    /// Shared memory for a tile of keys and values of a decode CTA.
    fn stage_bytes(&self, format: KvFormat) -> usize {
        let parts = self.decode_parts();
        let row = row_bytes(self.head_dim / parts, format.number_bytes()) + format.scale_bytes();
        self.decode_warps * parts * 2 * 16 * row
    }

    /// Shared memory in which the warps of a decode CTA add up the scores of heads that they share, and their parts of results.
    fn merge_bytes(&self, group: usize, head_dim: usize) -> usize {
        let fragment = 32 * 16 * group.div_ceil(8);
        let scores = if self.decode_parts() > 1 { 2 * self.decode_parts() * fragment } else { 0 };
        self.decode_warps * (group * (head_dim + 2) * 4).max(scores)
    }

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
        Rounding::BatchInvariant => ctas.max(units::workers(device.facts())),
    }
}

/// CTAs of a multiprocessor that run at once. At least as many as groups of few heads have room for.
fn resident_ctas(facts: Facts, variant: &Variant, format: KvFormat) -> usize {
    let least = 2 * variant.stage_bytes(format) + variant.merge_bytes(1, variant.head_dim);
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

/// How passes are shared out for such heads, which `heads` query heads ask if that is known. `may_share`: whether rows may share keys.
pub fn geometry(device: &Device, shape: &KvShape, heads: Option<usize>, may_share: bool) -> Result<Geometry> {
    if shape.values != KvValues::Stored {
        return Ok(latent::geometry());
    }
    let (variant, facts) = (variant(shape.head_dim)?, device.facts());
    let (tile_tokens, ctas, cuts) = match units::is_chosen(facts, shape, device.rounding) {
        true => (units::UNIT, units::workers(facts), Cuts::WholeIfFaster(units::COSTS)),
        false => {
            let ctas = facts.processors * resident_ctas(facts, variant, shape.format);
            (16 * variant.decode_warps, ctas, Cuts::WholeIfFaster(COSTS))
        }
    };
    let sharing = heads.filter(|_| may_share).and_then(|heads| shared::sharing(facts, shape, heads));
    let merged_heads = heads.filter(|_| variant.decode_parts() > 1).map(|heads| heads / shape.kv_heads);
    let (kv_heads, tile_queries) = (shape.kv_heads, tile_queries(facts, shape, device.rounding)?);
    Ok(Geometry { kv_heads, tile_tokens, tile_queries, ctas, cuts, merged_heads, sharing })
}

/// What kernels are given of sinks.
pub fn sinks_of(scoring: Scoring<Vector>) -> Address {
    scoring.sinks.map_or(0, |sinks| sinks.wide.address())
}

/// What a launch reads of heads, and where the results go.
pub struct Heads<'a> {
    pub out: &'a mut Tensor,
    pub qkv: &'a Tensor,
    /// What is done to heads that come as the projections made them, in batches that a kernel [prepares](Kernels::fused).
    pub raw: Option<&'a QkNormRope<'a, Vector, Tensor>>,
}

/// Attention over a cache of one shape.
pub enum Kernels {
    /// Values lie behind keys.
    Stored(Box<Stored>),
    /// Values lie in keys.
    Latent(Box<Latent>),
}

impl Kernels {
    /// Loads the kernels for such heads.
    pub fn new(device: &Device, shape: &KvShape, geometry: &Geometry) -> Result<Kernels> {
        Ok(match shape.values {
            KvValues::Stored => Kernels::Stored(Box::new(Stored::new(device, shape, geometry)?)),
            KvValues::InKeys(_) => Kernels::Latent(Box::new(Latent::new(device, shape)?)),
        })
    }

    /// The kernels that may prepare heads themselves.
    pub fn stored(&self) -> Option<&Stored> {
        match self {
            Kernels::Stored(kernels) => Some(kernels),
            Kernels::Latent(_) => None,
        }
    }

    /// Attention of heads that are prepared.
    pub fn run(
        &self,
        device: &Device,
        scoring: Scoring<Vector>,
        out: &mut Tensor,
        qkv: &Tensor,
        cache: CacheLayer,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        match self {
            Kernels::Stored(kernels) => kernels.run(device, scoring, out, qkv, cache, device_batch),
            Kernels::Latent(kernels) => {
                let rows = rows(scoring.spec, cache.kind, device_batch);
                kernels.run(device, scoring, (out, qkv), cache, device_batch, rows)
            }
        }
    }
}

/// Attention over a cache whose values lie behind keys.
pub struct Stored {
    decode: Decode,
    prefill: Prefill,
    /// Attention of rows that bring several tokens, where the device has it.
    hopper: Option<AttentionHopper>,
    /// Attention to keys that rows with one new token share, where they do.
    shared: Option<AttentionShared>,
    /// Batch-invariant attention of rows that bring one token, where the device has it.
    units: Option<AttentionUnits>,
    /// Attention of few rows that bring one token, with what prepares it, where the device has it.
    few: Option<RopeAndAttention>,
}

impl Stored {
    /// Loads the kernels for such heads.
    fn new(device: &Device, shape: &KvShape, geometry: &Geometry) -> Result<Stored> {
        Ok(Stored {
            decode: Decode::new(device, shape, geometry)?,
            prefill: Prefill::new(device, shape)?,
            hopper: AttentionHopper::new(device, shape)?,
            shared: AttentionShared::new(device, shape, geometry)?,
            units: AttentionUnits::new(device, shape)?,
            few: RopeAndAttention::new(device, shape)?,
        })
    }

    /// Which kernel prepares the heads of the batch, attends, and stores keys and values. `None`: there is none.
    pub fn fused(
        &self,
        device: &Device,
        spec: &AttentionSpec,
        transform: &QkNormRope<Vector, Tensor>,
        cache: &CacheLayer,
        device_batch: &DeviceBatch,
    ) -> Option<plan::Fused> {
        let heads = PreparedHeads { are_known: few::knows_heads(spec, transform, &cache.shape) };
        let rows = rows(spec, cache.kind, device_batch);
        plan::fused(&plan::Attention { spec, shape: cache.shape, rows }, heads, device.facts(), device.rounding)
    }

    /// Launches what [`fused`](Self::fused) has planned.
    pub fn run_fused(
        &self,
        device: &Device,
        scoring: Scoring<Vector>,
        heads: HeadRows<Tensor>,
        (fused, transform): (plan::Fused, &QkNormRope<Vector, Tensor>),
        cache: CacheLayer,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        match fused {
            plan::Fused::Few { cluster } => {
                let few = self.few.as_ref().expect(PLANNED);
                few.run(device, scoring, heads, (cluster, transform), cache, device_batch)
            }
            plan::Fused::Decode(plan) => {
                let heads = Heads { out: heads.out, qkv: heads.qkv, raw: Some(transform) };
                self.decode.run(device, scoring, heads, cache, device_batch, (plan, None))
            }
        }
    }

    /// Attention of heads that are prepared.
    fn run(
        &self,
        device: &Device,
        scoring: Scoring<Vector>,
        out: &mut Tensor,
        qkv: &Tensor,
        cache: CacheLayer,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let (spec, shape) = (scoring.spec, cache.shape);
        let group = spec.heads / shape.kv_heads;
        assert!(group <= GROUP_MAX, "{group} query heads share a KV head, but the kernels know {GROUP_MAX}");
        let rows = rows(spec, cache.kind, device_batch);
        let attention = plan::Attention { spec, shape, rows };
        let plan = plan::plan(&attention, device.facts(), device.rounding);
        if let Some(decode) = plan.decode {
            let heads = Heads { out, qkv, raw: None };
            self.run_decode(device, scoring, heads, cache, device_batch, decode)?;
        }
        match plan.prompts {
            Some(plan::Prompts::Hopper) => {
                let (at, tiles) = (device_batch.addresses_in(cache.table), device_batch.prefill_tiles(cache.kind));
                let Scaling { scale_log2, tanh_scale } = Scaling::of(spec);
                let tiles = Tiles {
                    out: out.storage.address(),
                    tiles: tiles.at,
                    len: tiles.len,
                    counts: device_batch.decode_plan(cache.kind, spec.window).counts,
                    block_tables: at.block_tables,
                    heads: spec.heads,
                    window: window_of(spec),
                    scale_log2,
                    tanh_scale,
                    sinks: sinks_of(scoring),
                };
                self.hopper.as_ref().expect(PLANNED).run(device, qkv, cache, &tiles)
            }
            Some(plan::Prompts::Prefill(plan)) => {
                let heads = Heads { out, qkv, raw: None };
                self.prefill.run(device, scoring, heads, cache, device_batch, plan)
            }
            None => Ok(()),
        }
    }

    fn run_decode(
        &self,
        device: &Device,
        scoring: Scoring<Vector>,
        heads: Heads,
        cache: CacheLayer,
        device_batch: &DeviceBatch,
        plan: plan::Decode,
    ) -> Result<()> {
        let (spec, shape) = (scoring.spec, cache.shape);
        match plan {
            plan::Decode::Split(plan) => {
                let shared = self.shared.as_ref().filter(|_| plan.is_shared);
                self.decode.run(device, scoring, heads, cache, device_batch, (plan, shared))
            }
            plan::Decode::Units => {
                let (at, decode_at) =
                    (device_batch.addresses_in(cache.table), device_batch.decode_plan(cache.kind, spec.window));
                let Scaling { scale_log2, tanh_scale } = Scaling::of(spec);
                let input = UnitsInput {
                    out: heads.out.storage.address(),
                    qkv: heads.qkv.storage.address(),
                    qkv_stride: heads.qkv.storage.stride(),
                    cache: cache.address,
                    rows: decode_at.rows,
                    workers: decode_at.ctas,
                    counts: decode_at.counts,
                    block_tables: at.block_tables,
                    group: spec.heads / shape.kv_heads,
                    scale_log2,
                    tanh_scale,
                    sinks: sinks_of(scoring),
                };
                self.units.as_ref().expect(PLANNED).run(device, &input)
            }
            plan::Decode::Invariant => {
                self.prefill.run(device, scoring, heads, cache, device_batch, prefill::Plan::Invariant)
            }
        }
    }
}

/// What plans depend on of the rows of a batch, in layers of a kind.
fn rows(spec: &AttentionSpec, kind: usize, device_batch: &DeviceBatch) -> Rows {
    let (batch, plan) = (device_batch.batch(), device_batch.decode_plan(kind, spec.window).plan);
    let has_prompts = device_batch.prefill_tiles(kind).len > 0;
    Rows {
        rows: batch.rows(),
        is_decode: batch.rows() == batch.tokens() && !has_prompts,
        has_decode: plan.rows.len() > 1,
        has_prompts,
        shares_keys: !plan.shared.units.is_empty(),
    }
}

/// What a score is multiplied by: in two steps with a softcap, before the tanh and after it.
struct Scaling {
    scale_log2: f32,
    tanh_scale: f32,
}

impl Scaling {
    fn of(spec: &AttentionSpec) -> Scaling {
        let (factor, tanh_scale) = spec.softcap.map_or((spec.scale, 0.0), |softcap| (softcap, spec.scale / softcap));
        Scaling { scale_log2: factor * std::f32::consts::LOG2_E, tanh_scale }
    }
}

/// The window as kernels take it.
fn window_of(spec: &AttentionSpec) -> i32 {
    spec.window.map_or(i32::MAX, |window| window.try_into().unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::partition::TILE_QUERIES_MIN;
    use super::*;
    use crate::cuda::gpus::H100;
    use formats::DType;

    /// Bytes that compute capability 8.6 has for a thread block, the least of all that are supported; `Decode` leaves 256 of them
    /// to variables of the kernels.
    const SHARED_BYTES: usize = 99 * 1024 - 256;

    #[test]
    fn every_head_dimension_fits_the_shared_memory_of_every_gpu() {
        let formats = [KvFormat::Plain(DType::Bf16), KvFormat::Int8];
        assert!(WITH_ROOM.iter().all(|(dim, class)| dim < class && variant(*dim).is_ok()));
        for (variant, format) in VARIANTS.iter().flat_map(|variant| formats.map(|format| (variant, format))) {
            let Variant { head_dim, tile_queries, .. } = *variant;
            let decode = 2 * variant.stage_bytes(format) + variant.merge_bytes(GROUP_MAX, head_dim);
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
        for &Variant { head_dim, tile_queries: least, .. } in &VARIANTS {
            let format = KvFormat::Plain(DType::Bf16);
            let shape = KvShape { kv_heads: 1, head_dim, values: KvValues::Stored, block_size: 16, format };
            let tile = tile_queries(H100, &shape, Rounding::Fastest).unwrap();
            assert!(tile.is_multiple_of(least) && tile <= 2 * least, "heads of {head_dim}: tiles of {tile}");
        }
    }
}
