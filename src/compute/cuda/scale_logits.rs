//! See `ops/scale_logits.rs` for the contract, `kernels/scale_logits.cu` for the work.

use super::device::Device;
use super::driver::Address;
use super::kernels::Kernel;
use super::params::params;
use super::storage::Tensor;
use base::error::Result;

params! {
    ScaleLogitsParams in "scale_logits.cu" { logits: Address, vocab: i32, stride: i32, scale: f32, softcap: f32 }
}

/// The kernel.
pub struct Kernels(Kernel);

impl Kernels {
    pub fn new(device: &Device) -> Result<Kernels> {
        Ok(Kernels(device.kernel("scale_logits", "scale_logits")?))
    }

    pub fn run(&self, device: &Device, logits: &mut Tensor, scale: f32, softcap: Option<f32>) -> Result<()> {
        let vocab = logits.cols();
        let params = ScaleLogitsParams {
            logits: logits.storage.address(),
            vocab: vocab as i32,
            stride: logits.storage.stride() as i32,
            scale,
            softcap: softcap.unwrap_or(0.0),
        };
        self.0.launch(device.chaining, [logits.rows(), vocab.div_ceil(2048), 1], 256, 0, &params)
    }
}
