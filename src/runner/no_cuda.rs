//! What `cuda.rs` answers in a build without the CUDA backend.

use super::checkpoint::Checkpoint;
use super::explain::Machine;
use super::follower::Follower;
use super::options::EngineOptions;
use super::{Loaded, ModelInfo, Switches};
use base::error::{Error, Result};
use compute::Rounding;
use compute::explain::{Explained, Pass, Work};
use formats::DType;
use formats::source::Source;
use std::ops::ControlFlow;

/// Whether this build has kernels.
pub fn are_built() -> bool {
    false
}

/// Refuses every device.
pub fn check(index: usize) -> Result<()> {
    let what = format!("CUDA device {index} is not in this build, which was made without nvcc: use device CPU or AUTO");
    Err(Error::Unsupported { what })
}

/// Refuses every device.
pub fn load(
    _switches: &Switches,
    _source: &Source,
    _config: &EngineOptions,
    index: usize,
    _progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<Loaded> {
    check(index).map(|()| unreachable!("there is no device"))
}

/// Refuses every GPU.
pub fn machine(name: &str, _source: &Source, _options: &EngineOptions) -> Result<(Checkpoint, Machine)> {
    let what = format!("an explanation for the GPU {name:.40}: this build was made without CUDA");
    Err(Error::Unsupported { what })
}

/// Explains nothing: no [`machine`] was found before.
pub fn explain(name: &str, _work: &[Work], _pass: &Pass, _dtype: DType, _rounding: Rounding) -> Result<Vec<Explained>> {
    unreachable!("no build without CUDA knows {name}")
}

/// Refuses every device.
pub fn follow(
    _source: &Source,
    _config: &EngineOptions,
    index: usize,
    _progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(Follower, ModelInfo)> {
    check(index).map(|()| unreachable!("there is no device"))
}
