//! The CPU as a device: threads of this process.

use super::pass_runner::PassRunner;
use super::source::Source;
use super::{Device, Loaded, ModelInfo, RunnerConfig};
use crate::backend::cpu::{Cpu, Isa};
use crate::error::Result;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::thread::available_parallelism;

/// Loads the model of `source` for as many threads as `config` says.
pub fn load(
    source: &Source,
    config: &RunnerConfig,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    let threads = config.threads.unwrap_or_else(|| available_parallelism().map_or(1, NonZero::get));
    let (runner, info) = open(source, config, Cpu::new(threads, Isa::detect()?), progress)?;
    Ok(Loaded { runner: Box::new(runner), info })
}

/// Loads the model of `source` for a CPU that is there already.
pub fn open(
    source: &Source,
    config: &RunnerConfig,
    cpu: Cpu,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(PassRunner<Cpu>, ModelInfo)> {
    PassRunner::open(source, config, Device::Cpu, |_, _| Ok(cpu), progress)
}
