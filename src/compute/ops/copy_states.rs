//! Copies recurrent states from slot to slot, in the order of the batch, before anything else of a pass.

use crate::Backend;

/// Copies what the batch says.
pub fn copy_states<B: Backend>(backend: &mut B, states: &mut B::States, device_batch: &B::DeviceBatch) {
    if !B::batch(device_batch).state_copies.is_empty() {
        backend.copy_states(states, device_batch);
    }
}
