//! See `ops/rope_and_cache.rs` for the contract, `kernels/rope_and_cache.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::{Kernel, fatbin, suffix};
use super::kv_cache::CacheLayer;
use super::matrix::Vector;
use super::params::params;
use super::storage::Tensor;
use crate::backend::{AttentionSpec, NormExtent, NormOrder, Pairing, QkNormRope, RopeTable};
use crate::error::{Error, Result};

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
    }
}

/// In the kernel for many tokens.
const HEADS_OF_A_WARP: usize = 4;
/// Of a thread block.
const WARPS_MAX: usize = 8;

/// One head per warp for few tokens, four for many.
pub struct Kernels {
    few: Kernel,
    many: Kernel,
}

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        let module = device.module(fatbin!("rope_and_cache"))?;
        let kernel = |name: &str| Kernel::new(&module, &format!("{name}_{}", suffix(device.dtype)));
        Ok(Kernels { few: kernel("rope_and_cache_h1")?, many: kernel("rope_and_cache_h4")? })
    }

    pub fn run(
        &self,
        device: &Device,
        spec: &AttentionSpec,
        qkv: &mut Tensor,
        transform: QkNormRope<Vector>,
        cache: CacheLayer,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let QkNormRope { norm, rope, temperature } = transform;
        let is_known = |rope: &RopeTable<Vector>| {
            rope.rotary == cache.shape.head_dim && rope.pairing == Pairing::Halves && temperature.is_none()
        };
        let is_before = |extent| extent == NormExtent::Head(NormOrder::BeforeRope);
        let rope = rope.filter(is_known).filter(|_| norm.as_ref().is_none_or(|norm| is_before(norm.extent)));
        let Some(rope) = rope else {
            let what = "this transformation of queries and keys on CUDA: choose device CPU".to_owned();
            return Err(Error::Unsupported { what });
        };
        let heads = spec.heads;
        let (shape, at) = (cache.shape, device_batch.addresses());
        let params = RopeAndCacheParams {
            qkv: qkv.storage.address(),
            cache: cache.address,
            query_norm: norm.as_ref().map_or(0, |n| n.query.wide.address()),
            key_norm: norm.as_ref().map_or(0, |n| n.key.wide.address()),
            rope: rope.table.wide.address(),
            positions: at.positions,
            slots: at.slots,
            heads: heads as i32,
            kv_heads: shape.kv_heads as i32,
            head_dim: shape.head_dim as i32,
            block_size: shape.block_size as i32,
            stride: qkv.storage.stride() as i32,
            eps: norm.as_ref().map_or(0.0, |n| n.eps),
        };
        let all = heads + 2 * shape.kv_heads;
        let Kernels { few, many } = self;
        if device.rows_of_geometry(qkv.rows()) < 2 * device.facts().processors {
            return few.launch(device.chaining, [qkv.rows(), all.div_ceil(8), 1], 256, 0, &params);
        }
        let warps = all.div_ceil(HEADS_OF_A_WARP);
        let splits = warps.div_ceil(WARPS_MAX);
        many.launch(device.chaining, [qkv.rows(), splits, 1], 32 * warps.div_ceil(splits), 0, &params)
    }
}
