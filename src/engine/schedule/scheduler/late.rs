//! Sequences whose structure has not taken in their newest token yet: they stay in `running` with their blocks, and no pass
//! has a row for them.

use super::{Scheduler, Sequence, SequenceStatus};
use crate::results::output::Finish;

impl Scheduler {
    /// Whether a running sequence waits for its structure.
    pub fn has_late(&self) -> bool {
        self.running.iter().any(Sequence::is_late)
    }

    /// Continues the sequences whose structures are done, calls `end` for those that end, and removes these.
    pub fn settle(&mut self, mut end: impl FnMut(&mut Sequence, Finish)) {
        for sequence in self.running.iter_mut().filter(|sequence| sequence.is_late()) {
            if let Some(Err(finish)) = sequence.follow() {
                end(sequence, finish);
                sequence.table.release(&mut self.pool);
            }
        }
        self.running.retain(|sequence| sequence.status != SequenceStatus::Finished);
    }
}
