//! Blocks for sequences that run: what happens where none is free, which may lose their memory, and who gets it again.

use super::{GetMemory, Scheduler, Sequence, SequenceKey};
use crate::results::output::Finish;
use base::error::{Error, Result};
use std::sync::Arc;

impl Scheduler {
    /// Whether no sequence, no pin and no copy of the next pass needs each block. `[blocks]`
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`].
    pub fn unused_blocks(&self) -> Result<Vec<bool>> {
        let mut unused = self.pool.unused()?;
        // A beam that was preempted may have left a block that another one is about to copy.
        self.copies.iter().for_each(|copy| unused[copy.from as usize] = false);
        Ok(unused)
    }

    /// Whether blocks are lacking while passes are in flight: collecting them may free some, and no sequence in them can be
    /// preempted.
    pub(super) fn must_collect_first(&mut self, memory: &mut GetMemory) -> Result<bool> {
        if !self.running.iter().any(|sequence| sequence.in_flight > 0) {
            return Ok(false);
        }
        // A prompt has all its blocks but those of window tables.
        let pending = self.running.iter().filter(|sequence| sequence.pending_tokens() > 0);
        let missing = pending.map(|sequence| sequence.table.missing(sequence.scheduled_end() + 1, &self.pool));
        let lacking = missing.sum::<usize>().saturating_sub(self.pool.free_blocks());
        Ok(lacking > 0 && !self.grow(lacking, memory)?)
    }

    /// Ensures that a running sequence has blocks for its next token. Returns `false` when it was preempted itself, as the
    /// last in order, or ended because it ran alone and its block got no memory.
    pub(super) fn make_room(&mut self, index: usize, memory: &mut GetMemory) -> Result<bool> {
        loop {
            let Sequence { table, .. } = &self.running[index];
            let tokens = self.running[index].scheduled_end() + 1;
            let missing = table.missing(tokens, &self.pool);
            if missing == 0 {
                return Ok(true);
            }
            if self.running[index].table.grow(tokens, &mut self.pool) {
                continue;
            }
            if self.grow(missing.saturating_sub(self.pool.free_blocks()), memory)? {
                continue;
            }
            if let (&[Sequence { key, .. }], Some(error)) = (&self.running[..], self.block_alloc_error.clone()) {
                self.give_up(key, error);
                return Ok(false);
            }
            // Requests that the whole pool cannot hold are refused when they are added, and so are pins that leave too little.
            assert!(self.running.len() > 1, "a sequence that runs alone has all blocks that are not pinned");
            let last = self.running.pop().expect("the sequence itself is there");
            self.preempt(last);
            if index == self.running.len() {
                return Ok(false);
            }
        }
    }

    /// Takes the blocks of a sequence that was running, and lets it wait again.
    pub(super) fn preempt(&mut self, mut sequence: Sequence) {
        self.forget_copies(&sequence);
        sequence.preempt(&mut self.pool);
        self.preemptions += 1;
        self.waiting.insert(sequence.key, sequence);
    }

    /// Gets memory for at least `blocks` withdrawn blocks, which are free then. `false` where fewer are withdrawn or there is no
    /// memory.
    pub(super) fn grow(&mut self, blocks: usize, memory: &mut GetMemory) -> Result<bool> {
        match self.pool.grow(blocks, memory) {
            Err(error @ Error::OutOfMemory { .. }) => {
                self.block_alloc_error = Some(Arc::new(error));
                Ok(false)
            }
            grown => grown,
        }
    }

    /// Ends the request with `key`, which is not in flight, with `error`: see [`next_leaving`](Self::next_leaving).
    pub(super) fn give_up(&mut self, key: SequenceKey, error: Arc<Error>) {
        let mut running = Vec::new();
        self.cancel_request(key, &Finish::Error(error), |sequence, finish| running.push((sequence, finish)));
        self.leaving.extend(running);
    }
}
