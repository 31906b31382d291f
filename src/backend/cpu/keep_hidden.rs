//! See `ops/keep_hidden.rs` for the contract.

use super::{Step, Tensor};

pub fn run(step: &mut Step, gathered: &Tensor) {
    let samples = step.batch.samples();
    step.hidden.extend_from_slice(&gathered.values()[samples * gathered.cols()..]);
}
