//! See `ops/keep_hidden.rs` for the contract.

use super::{Cuda, Step, Tensor};
use crate::error::Result;

pub fn run(cuda: &Cuda, step: &mut Step, gathered: &Tensor) -> Result<()> {
    step.keep_hidden(&cuda.context, gathered, cuda.dtype)
}
