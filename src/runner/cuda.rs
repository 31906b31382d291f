//! An NVIDIA GPU as a device.

use super::pass_runner::PassRunner;
use super::{Device, Loaded, ModelInfo, RunnerConfig};
use crate::backend::cuda::{ContextGuard, Cuda, check_ordinal};
use crate::error::Result;
use std::ops::ControlFlow;
use std::path::Path;

/// Refuses a device that the driver does not show.
pub fn check(index: usize) -> Result<()> {
    check_ordinal(index)
}

/// Loads the model in `folder` onto device `index`.
pub fn load(
    folder: &Path,
    config: &RunnerConfig,
    index: usize,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    let (runner, info) = open(folder, config, index, progress)?;
    Ok(Loaded { runner: Box::new(runner), info })
}

/// As [`load`], with the runner's own type.
pub fn open(
    folder: &Path,
    config: &RunnerConfig,
    index: usize,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cuda>, ModelInfo)> {
    check_ordinal(index)?;
    let _context = ContextGuard::push()?;
    let open_backend = |kv_shape: &_, heads| Cuda::open_for(index, kv_shape, heads, config.rounding);
    let (mut runner, info) = PassRunner::open(folder, config, Device::Cuda { index }, open_backend, progress)?;
    runner.backend.settle();
    Ok((runner, info))
}

impl PassRunner<Cuda> {
    /// Columns of the logits.
    pub fn vocab_size(&self) -> usize {
        self.logits().cols()
    }

    /// A copy of [`logits`](PassRunner::logits). `[samples, vocab]`
    pub fn read_logits(&self) -> Result<Vec<f32>> {
        self.backend.read(self.logits())
    }
}
