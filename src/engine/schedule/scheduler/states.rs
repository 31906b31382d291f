//! Recurrent state in a pass: which state each row continues, where it leaves its own, and where checkpoints are made.
//!
//! Checkpoints are states of cached blocks, from which other sequences continue. One is made after the last full block of a prompt that a sequence with
//! the same prompt can share, and one every `interval` tokens. A pass makes them on its way: rows are cut nowhere for them.

use super::{Pass, Save, Sequence};
use crate::options::PrefixCache;
use crate::schedule::blocks::BlockManager;
use compute::batch::{Batch, NO_STATE};
use std::ops::Range;

/// Adds the states of the last row of `batch`, which brings the tokens at `positions` of `sequence`. Does nothing where the model keeps none.
pub(super) fn write_states(
    sequence: &mut Sequence,
    positions: Range<usize>,
    interval: usize,
    pool: &mut BlockManager,
    pass: &mut Pass,
    batch: &mut Batch,
) {
    if !pool.keeps_states() {
        return;
    }
    let (source, slot) = sequence.table.next_state(positions.start);
    if source != NO_STATE && source != slot {
        pass.locks.push(source);
    }
    batch.state_sources.push(source);
    batch.state_slots.push(slot);
    let first = batch.state_saves.len();
    batch.state_saves.resize(first + positions.len(), NO_STATE);
    if pool.cache() == PrefixCache::Off {
        return;
    }
    let block_size = pool.block_size();
    let end_of_prompt = (sequence.prompt_tokens() - 1) / block_size * block_size;
    let next = |position: usize| {
        let regular = (position + 1).next_multiple_of(interval);
        if position < end_of_prompt { regular.min(end_of_prompt) } else { regular }
    };
    let mut position = next(positions.start);
    while position <= positions.end {
        let Some(slot) = pool.take_state() else { break };
        batch.state_saves[first + position - positions.start - 1] = slot;
        pass.saves.push(Save { key: sequence.key, position, slot });
        position = next(position);
    }
}
