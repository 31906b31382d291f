//! See `ops/keep_hidden_states.rs` for the contract.

use super::{Step, Tensor};

pub fn run(step: &mut Step, gathered: &Tensor) {
    let samples = step.batch.samples();
    step.hidden_states.extend_from_slice(&gathered.values()[samples * gathered.cols()..]);
}
