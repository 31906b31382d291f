//! The CPU as a device: threads of this process.

use super::pass_runner::PassRunner;
use super::{Device, Loaded, ModelInfo, RunnerConfig};
use crate::backend::cpu::{Cpu, Isa};
use crate::error::Result;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread::available_parallelism;

/// Loads the model in `folder` for as many threads as `config` says.
pub fn load(folder: &Path, config: &RunnerConfig, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<Loaded> {
    let threads = config.threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get));
    let (runner, info) = open(folder, config, Cpu::new(threads, Isa::detect()?), progress)?;
    Ok(Loaded { runner: Box::new(runner), info })
}

/// Loads the model in `folder` for a CPU that is there already.
pub fn open(
    folder: &Path,
    config: &RunnerConfig,
    cpu: Cpu,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cpu>, ModelInfo)> {
    PassRunner::open(folder, config, Device::Cpu, |_, _| Ok(cpu), progress)
}
