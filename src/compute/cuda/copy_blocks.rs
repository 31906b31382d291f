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
        // One launch for each run of layers of one shape.
        for layers in cache.layers().chunk_by(|layer, next| layer.kind == next.kind) {
            let block_bytes = layers[0].shape.block_bytes();
            let params = CopyBlocksParams {
                cache: layers[0].address,
                pairs: device_batch.extras().copies(),
                layer_bytes: layers[0].to_next,
                block_bytes: block_bytes as i32,
            };
            let slices = block_bytes.div_ceil(256 * 16).min(16);
            let blocks = [device_batch.batch().copies.len(), layers.len(), slices];
            self.0.launch(device.chaining, blocks, 256, 0, &params)?;
        }
        Ok(())
    }
}
