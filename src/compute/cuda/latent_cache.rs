//! `rope_and_cache` where keys end with their values. See `ops/rope_and_cache.rs` for the contract, `kernels/latent_cache.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::Kernel;
use super::kv_cache::CacheLayer;
use super::matrix::Vector;
use super::params::params;
use super::storage::Tensor;
use crate::{AttentionSpec, Pairing, QkNormRope};
use base::error::Result;

params! {
    LatentCacheParams in "latent_cache.cu" {
        qkv: Address,
        cache: Address,
        rope: Address,
        temperature: Address,
        positions: Address,
        slots: Address,
        heads: i32,
        head_dim: i32,
        rotary: i32,
        neighbours: i32,
        stride: i32,
    }
}

const THREADS: usize = 256;

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel("latent_cache", "latent_cache")?))
    }

    /// # Panics
    ///
    /// If something is normalized, or the rotation is missing: no model with latent attention has that.
    pub fn run(
        &self,
        device: &Device,
        spec: &AttentionSpec,
        qkv: &mut Tensor,
        transform: QkNormRope<Vector, Tensor>,
        cache: CacheLayer,
        device_batch: &DeviceBatch,
    ) -> Result<()> {
        let QkNormRope { norm: None, whole: None, rope: Some(rope), temperature, value_norm: None } = transform else {
            panic!("latent attention rotates and normalizes nothing");
        };
        let (shape, at) = (cache.shape, device_batch.addresses_in(cache.table));
        assert!(qkv.cols() == (spec.heads + 1) * shape.head_dim && rope.rotary.is_multiple_of(8));
        let params = LatentCacheParams {
            qkv: qkv.storage.address(),
            cache: cache.address,
            rope: rope.table.wide.address(),
            temperature: temperature.map_or(0, |factors| factors.wide.address()),
            positions: at.positions,
            slots: at.slots,
            heads: spec.heads as i32,
            head_dim: shape.head_dim as i32,
            rotary: rope.rotary as i32,
            neighbours: i32::from(rope.pairing == Pairing::Neighbours),
            stride: qkv.storage.stride() as i32,
        };
        self.0.launch(device.chaining, [qkv.rows(), 1, 1], THREADS, 0, &params)
    }
}
