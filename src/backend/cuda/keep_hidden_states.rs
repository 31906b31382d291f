//! See `ops/keep_hidden_states.rs` for the contract.

use super::device::Cuda;
use super::step::Step;
use super::storage::Tensor;
use crate::error::Result;

pub fn run(cuda: &Cuda, step: &mut Step, gathered: &Tensor) -> Result<()> {
    step.keep_hidden_states(&cuda.context, gathered, cuda.dtype)
}
