//! See `ops/copy_states.rs` for the contract.

use super::DeviceBatch;
use super::states::States;

/// A few states are too little to share among threads.
pub fn run(states: &mut States, device_batch: &DeviceBatch) {
    device_batch.batch.state_copies.iter().for_each(|&copy| states.copy(copy));
}
