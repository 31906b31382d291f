//! How a pass comes to the device: its batch, and its ops as a graph.

use super::device_batch::{DeviceBatch, Padding};
use super::exchange::Exchanges;
use super::graph::PassGraph;
use super::{Cuda, attention};
use crate::batch::{Batch, BatchLimits};
use base::error::Result;

impl Cuda {
    /// Memory for a batch of at most `limits`.
    pub fn device_batch(&self, limits: &BatchLimits) -> Result<DeviceBatch> {
        DeviceBatch::new(&self.device.context, limits, &self.windows, attention::ctas_max(&self.device))
    }

    /// Brings a batch to the device. `false`: it was not padded, because its ops are not those of others of this size.
    pub(super) fn stage(&mut self, device_batch: &mut DeviceBatch, batch: &Batch, padding: Padding) -> Result<bool> {
        self.failed()?;
        self.device.context.make_current()?;
        let launched = self.exchanges.as_ref().map_or(0, Exchanges::launched);
        let is_padded = match device_batch.must_grow(batch) {
            true => self.together(|cuda| {
                device_batch.stage(&cuda.kernels.upload, batch, padding, |kind| cuda.geometry(kind), launched)
            })?,
            false => device_batch.stage(&self.kernels.upload, batch, padding, |kind| self.geometry(kind), launched)?,
        };
        let before = device_batch.addresses().exchanges;
        self.exchanges.iter_mut().for_each(|exchanges| exchanges.begin_pass(before));
        Ok(is_padded)
    }

    /// Records a pass of `rows` rows, whose ops `launches` calls and which have run once before. A failure ends nothing: what was to be recorded has not
    /// run.
    pub(super) fn record_pass(&mut self, rows: usize, launches: impl FnOnce(&mut Cuda)) -> Result<PassGraph> {
        let before = self.failure;
        let recorded = self.together(|cuda| {
            let begun = cuda.exchanges.as_mut().map(Exchanges::begin_recording);
            let graph = cuda.capture(launches)?;
            let recorded = cuda.exchanges.as_mut().zip(begun).map(|(exchanges, begun)| exchanges.end_recording(begun));
            Ok(PassGraph { rows, graph, exchanges: recorded.unwrap_or(0) })
        });
        if recorded.is_err() {
            self.failure = before;
        }
        recorded
    }
}
