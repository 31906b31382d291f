//! See `ops/rope_and_cache.rs` for the contract, `kernels/rope_and_cache.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::Kernel;
use super::kv_cache::CacheLayer;
use super::latent_cache;
use super::matrix::Vector;
use super::params::params;
use super::storage::Tensor;
use crate::{AttentionSpec, KvFormat, KvValues, NormExtent, NormOrder, Pairing, QkNormRope, RopeTable};
use base::error::{Error, Result};

params! {
    RopeAndCacheParams in "rope_and_cache.cu" {
        qkv: Address,
        cache: Address,
        query_norm: Address,
        key_norm: Address,
        rope: Address,
        positions: Address,
        slots: Address,
        heads: i32,
        kv_heads: i32,
        head_dim: i32,
        block_size: i32,
        stride: i32,
        eps: f32,
        tokens: i32,
        is_int8: i32,
        temperature: Address,
        rotary: i32,
        neighbours: i32,
        norm_after: i32,
        norm_values: i32,
        value_eps: f32,
        whole_queries: Address,
        whole_keys: Address,
        whole_query_width: i32,
        whole_key_width: i32,
    }
}

/// In the kernel for many tokens.
const HEADS_OF_A_WARP: usize = 4;
/// Of a thread block.
const WARPS_MAX: usize = 8;

/// Numbers of a head in the kernels with wide accesses, and how many of them a warp has under way. A warp takes heads of one token.
const WIDE_DIMS: [usize; 2] = [64, 128];
const WIDE_NUMBERS: usize = 1024;
/// Of a thread block of such a kernel.
const WIDE_WARPS: usize = 2;

/// Threads of a thread block that normalizes the heads of a token together.
const WHOLE_NORM_THREADS: usize = 256;

/// Numbers of a head in all kernels but those for long heads, at most.
const SHORT_HEAD_MAX: usize = 256;

/// One head per warp for few tokens, four for many.
struct Rotations {
    few: Kernel,
    many: Kernel,
}

pub struct Kernels {
    /// Whole heads turn, in halves, normalized before or not at all.
    common: Rotations,
    /// What else a head may need.
    variants: Rotations,
    /// The same for heads of more than [`SHORT_HEAD_MAX`] numbers.
    long: Rotations,
    /// For many tokens, plain caches and the heads of [`WIDE_DIMS`].
    wide: [Kernel; 2],
    whole_norm: Kernel,
    /// Where keys end with their values.
    latent: latent_cache::Kernels,
}

/// Refuses ropes that turn a number of numbers per head that the kernels do not know: they take two pairs at a time.
pub fn check_rotary(rotary: usize) -> Result<()> {
    match rotary.is_multiple_of(4) {
        true => Ok(()),
        false => Err(Error::UnsupportedModel {
            setting: "partial_rotary_factor",
            value: format!("{rotary} numbers of each head"),
            supported: "a multiple of 4 numbers of each head on CUDA",
        }),
    }
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let kernel = |name: &str| device.kernel("rope_and_cache", name);
        let rotations =
            |name: &str| Ok(Rotations { few: kernel(&format!("{name}_h1"))?, many: kernel(&format!("{name}_h4"))? });
        let wide = |dim: usize| kernel(&format!("rope_and_cache_wide_d{dim}"));
        Ok(Kernels {
            common: rotations("rope_and_cache")?,
            variants: rotations("rope_and_cache_variants")?,
            long: rotations("rope_and_cache_long")?,
            wide: [wide(WIDE_DIMS[0])?, wide(WIDE_DIMS[1])?],
            latent: latent_cache::Kernels::new(device)?,
            whole_norm: kernel("whole_norm")?,
        })
    }

    pub fn run(
        &self,
        device: &Device,
        spec: &AttentionSpec,
        qkv: &mut Tensor,
        transform: QkNormRope<Vector, Tensor>,
        cache: CacheLayer,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        if cache.shape.values != KvValues::Stored {
            return self.latent.run(device, spec, qkv, transform, cache, device_batch);
        }
        let QkNormRope { norm, whole, rope, temperature, value_norm } = transform;
        let rotary = rope.as_ref().map_or(0, |r| r.rotary);
        assert!(check_rotary(rotary).is_ok(), "{rotary} numbers turn, which an open engine has refused");
        let heads = spec.heads;
        let (shape, at) = (cache.shape, device_batch.addresses_in(cache.table));
        let is_common = |rope: &RopeTable<Vector>| rope.rotary == shape.head_dim && rope.pairing == Pairing::Halves;
        let is_after = norm.as_ref().is_some_and(|n| n.extent == NormExtent::Head(NormOrder::AfterRope));
        let is_whole = norm.as_ref().is_some_and(|n| n.extent == NormExtent::Whole);
        // Without keys and values of its own, a layer reads those of another.
        let kv_heads = if qkv.cols() == heads * shape.head_dim { 0 } else { shape.kv_heads };
        let mut params = RopeAndCacheParams {
            qkv: qkv.storage.address(),
            cache: cache.address,
            query_norm: norm.as_ref().map_or(0, |n| n.query.wide.address()),
            key_norm: norm.as_ref().map_or(0, |n| n.key.wide.address()),
            rope: rope.as_ref().map_or(0, |r| r.table.wide.address()),
            positions: at.positions,
            slots: at.slots,
            heads: heads as i32,
            kv_heads: kv_heads as i32,
            head_dim: shape.head_dim as i32,
            block_size: shape.block_size as i32,
            stride: qkv.storage.stride() as i32,
            eps: norm.as_ref().map_or(0.0, |n| n.eps),
            tokens: qkv.rows() as i32,
            is_int8: i32::from(shape.format == KvFormat::Int8),
            temperature: temperature.map_or(0, |t| t.wide.address()),
            rotary: rotary as i32,
            neighbours: i32::from(rope.as_ref().is_some_and(|r| r.pairing == Pairing::Neighbours)),
            norm_after: i32::from(is_after),
            norm_values: i32::from(value_norm.is_some()),
            value_eps: value_norm.unwrap_or(0.0),
            whole_queries: whole.as_ref().map_or(0, |w| w.queries.storage.address()),
            whole_keys: whole.as_ref().map_or(0, |w| w.keys.storage.address()),
            whole_query_width: whole.as_ref().map_or(0, |w| w.queries.storage.stride() as i32),
            whole_key_width: whole.as_ref().map_or(0, |w| w.keys.storage.stride() as i32),
        };
        if is_whole {
            let blocks = [qkv.rows(), 2, 1];
            self.whole_norm.launch(device.chaining, blocks, WHOLE_NORM_THREADS, 0, &params)?;
            (params.query_norm, params.key_norm) = (0, 0);
        }
        let is_common =
            rope.as_ref().is_some_and(is_common) && !is_after && temperature.is_none() && value_norm.is_none();
        let Rotations { few, many } = match is_common {
            _ if shape.head_dim > SHORT_HEAD_MAX => &self.long,
            true => &self.common,
            false => &self.variants,
        };
        let all = heads + 2 * kv_heads;
        let many_from = 2 * device.facts().processors;
        // Its bits are those of the kernel for few tokens, so that any number of tokens may choose.
        let wide = WIDE_DIMS.iter().position(|&dim| dim == shape.head_dim).map(|index| &self.wide[index]);
        if let Some(wide) = wide.filter(|_| is_common && shape.format != KvFormat::Int8 && qkv.rows() >= many_from) {
            let blocks = [qkv.rows().div_ceil(WIDE_WARPS), (all * shape.head_dim).div_ceil(WIDE_NUMBERS), 1];
            return wide.launch(device.chaining, blocks, 32 * WIDE_WARPS, 0, &params);
        }
        if device.rows_of_geometry(qkv.rows()) < many_from {
            return few.launch(device.chaining, [qkv.rows(), all.div_ceil(8), 1], 256, 0, &params);
        }
        let warps = all.div_ceil(HEADS_OF_A_WARP);
        let splits = warps.div_ceil(WARPS_MAX);
        many.launch(device.chaining, [qkv.rows(), splits, 1], 32 * warps.div_ceil(splits), 0, &params)
    }
}
