//! See `ops/copy_blocks.rs` for the contract, `kernels/copy_blocks.cu` for the work.

use super::device::Device;
use super::device_batch::DeviceBatch;
use super::driver::Address;
use super::kernels::Kernel;
use super::kv_cache::KvBlocks;
use super::params::params;
use base::error::Result;

params! {
    CopyBlocksParams in "copy_blocks.cu" { cache: Address, pairs: Address, layer_bytes: i64, block_bytes: i32 }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(Kernel::new(&device.module("copy_blocks")?, "copy_blocks")?))
    }

    pub fn run(&self, device: &Device, cache: &mut KvBlocks, device_batch: &DeviceBatch) -> Result<()> {
        let shape = cache.shape();
        let block_bytes = shape.block_bytes() / shape.layers;
        let params = CopyBlocksParams {
            cache: cache.layer(0).address,
            pairs: device_batch.extras().copies(),
            layer_bytes: cache.layer_bytes() as i64,
            block_bytes: block_bytes as i32,
        };
        let slices = block_bytes.div_ceil(256 * 16).min(16);
        let blocks = [device_batch.batch().copies.len(), shape.layers, slices];
        self.0.launch(device.chaining, blocks, 256, 0, &params)
    }
}
