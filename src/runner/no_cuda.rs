//! What `cuda.rs` answers in a build without the CUDA backend.

use super::follower::Follower;
use super::options::EngineOptions;
use super::{Loaded, ModelInfo, Switches};
use base::error::{Error, Result};
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

/// Refuses every device.
pub fn follow(
    _source: &Source,
    _config: &EngineOptions,
    index: usize,
    _progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(Follower, ModelInfo)> {
    check(index).map(|()| unreachable!("there is no device"))
}
