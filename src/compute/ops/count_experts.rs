//! How many tokens each expert computes: `counts[e] += 1` for each slot of `routes` whose expert is `e`.
//!
//! Tokens whose slot in the KV cache is `u32::MAX` only pad a batch, and are not counted.

use crate::Backend;

/// | operand  | shape |
/// |----------|-------|
/// | `counts` | `[experts]` |
/// | `routes` | `[tokens, chosen]` experts, those of the tokens of the batch |
///
/// # Panics
///
/// If the shapes disagree: only a wrong model can cause it, never a user's input.
pub fn count_experts<B: Backend>(
    backend: &mut B,
    counts: &B::ExpertCounts,
    routes: &B::Routes,
    device_batch: &B::DeviceBatch,
) {
    let shape = B::routes_shape(routes);
    assert_eq!(B::counted_experts(counts), shape.experts);
    assert_eq!(B::batch(device_batch).tokens(), shape.tokens);
    backend.count_experts(counts, routes, device_batch);
}
