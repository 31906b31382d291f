//! What is done with a device beside passes: waiting and timing, recording ops, reading and writing tensors.

use super::driver::{Event, EventKind};
use super::graph::Graph;
use super::{Cuda, Routes, Tensor};
use base::error::Result;

impl Cuda {
    /// Free and total bytes of the device.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.device.context.free_and_total()
    }

    /// Waits for everything that was launched.
    pub fn synchronize(&self) -> Result<()> {
        self.device.context.synchronize()?;
        self.failed()
    }

    /// An event on this device's stream.
    pub fn event(&self, kind: EventKind) -> Result<Event> {
        Event::new(&self.device.context, kind)
    }

    /// Records the ops that `launches` calls instead of running them.
    ///
    /// Their tensors, batch, weights and cache must outlive the graph. Linear layers should have run once before with the same
    /// sizes, so that their algorithms were timed.
    pub fn capture(&mut self, launches: impl FnOnce(&mut Cuda)) -> Result<Graph> {
        // It would invalidate what is recorded.
        self.kernels.linear.blas.wait()?;
        let context = self.device.context.clone();
        Graph::capture(&context, || {
            launches(self);
            self.failed()
        })
    }

    /// The rows in use of a tensor, once they are computed. `[rows, cols]`
    pub fn read(&self, tensor: &Tensor) -> Result<Vec<f32>> {
        self.failed()?;
        tensor.storage.read(tensor.rows(), tensor.cols(), self.device.dtype)
    }

    /// Experts and weights of all slots, once they are chosen. `[tokens, chosen]`
    pub fn read_routes(&self, routes: &Routes) -> Result<(Vec<u32>, Vec<f32>)> {
        self.failed()?;
        routes.choices()
    }

    /// Sets the rows in use of a tensor. `[rows, cols]`
    ///
    /// # Panics
    ///
    /// If `values` has another length.
    pub fn write(&self, tensor: &mut Tensor, values: &[f32]) -> Result<()> {
        assert_eq!(values.len(), tensor.rows() * tensor.cols());
        tensor.storage.write(tensor.cols(), self.device.dtype, values)
    }
}
