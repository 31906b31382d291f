//! See `ops/keep_hidden_states.rs` for the contract.

use super::{DeviceBatch, Tensor};

pub fn run(device_batch: &mut DeviceBatch, gathered: &Tensor) {
    let samples = device_batch.batch.samples();
    device_batch.hidden_states.extend_from_slice(&gathered.values()[samples * gathered.cols()..]);
}
