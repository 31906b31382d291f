//! An NVIDIA GPU as a device.

use super::checkpoint::Checkpoint;
use super::meeting::Seat;
use super::pass_runner::PassRunner;
use super::source::Source;
use super::{Device, Loaded, ModelInfo, RunnerConfig};
use crate::backend::KvShape;
use crate::backend::cuda::{ContextGuard, Cuda, check_ordinal, check_rotary};
use crate::error::Result;
use crate::model::shard::Sharding;
use crate::model::spec::DecoderSpec;
use std::ops::ControlFlow;

/// Refuses a device that the driver does not show.
pub fn check(index: usize) -> Result<()> {
    check_ordinal(index)
}

/// Loads the model of `source` onto device `index`.
pub fn load(
    source: &Source,
    config: &RunnerConfig,
    index: usize,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    let (runner, info) = open(source, config, index, progress)?;
    Ok(Loaded { runner: Box::new(runner), info })
}

/// As [`load`], with the runner's own type.
pub fn open(
    source: &Source,
    config: &RunnerConfig,
    index: usize,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cuda>, ModelInfo)> {
    check_ordinal(index)?;
    let _context = ContextGuard::push()?;
    let open_backend = |spec: &DecoderSpec, sharding: &Sharding, kv_shape: &KvShape| {
        spec.ropes.iter().try_for_each(|rope| check_rotary(rope.rotary(kv_shape.head_dim)))?;
        let mut cuda = Cuda::open_for(index, kv_shape, sharding.own_heads().len(), config.rounding)?;
        cuda.set_windows(spec.windows());
        Ok(cuda)
    };
    let checkpoint = Checkpoint::open::<Cuda>(source, config)?;
    let (seat, device) = (Seat::alone(), Device::Cuda { index });
    let (mut runner, info) = PassRunner::open(checkpoint, config, device, &seat, open_backend, progress)?;
    runner.backend.settle();
    Ok((runner, info))
}

impl PassRunner<Cuda> {
    /// Columns of the logits.
    pub fn vocab_size(&self) -> usize {
        self.logits().cols()
    }

    /// Kernels that a decode pass of one row launches up to its logits. `None` where there are no graphs.
    pub fn launches_of_decode(&self) -> Result<Option<usize>> {
        self.graphs.by_rows.first().map(|(_, graph)| graph.launches()).transpose()
    }

    /// A copy of [`logits`](PassRunner::logits). `[samples, vocab]`
    pub fn read_logits(&self) -> Result<Vec<f32>> {
        self.backend.read(self.logits())
    }
}
