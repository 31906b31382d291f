//! How the batch of a pass comes to the device.

use super::device_batch::{DeviceBatch, Padding};
use super::exchange::Exchanges;
use super::{Cuda, attention};
use crate::batch::{Batch, BatchLimits};
use crate::error::Result;

impl Cuda {
    /// Memory for a batch of at most `limits`.
    pub fn device_batch(&self, limits: &BatchLimits) -> Result<DeviceBatch> {
        DeviceBatch::new(&self.device.context, limits, &self.windows, attention::ctas_max(&self.device))
    }

    /// Brings a batch to the device. `false`: it was not padded, because its ops are not those of others of this size.
    pub(super) fn stage(&mut self, device_batch: &mut DeviceBatch, batch: &Batch, padding: Padding) -> Result<bool> {
        self.failed()?;
        self.device.context.make_current()?;
        let (geometry, launched) = (self.geometry(), self.exchanges.as_ref().map_or(0, Exchanges::launched));
        let is_padded = match device_batch.must_grow(batch) {
            true => {
                self.together(|cuda| device_batch.stage(&cuda.kernels.upload, batch, padding, &geometry, launched))?
            }
            false => device_batch.stage(&self.kernels.upload, batch, padding, &geometry, launched)?,
        };
        let before = device_batch.addresses().exchanges;
        self.exchanges.iter_mut().for_each(|exchanges| exchanges.begin_pass(before));
        Ok(is_padded)
    }
}
