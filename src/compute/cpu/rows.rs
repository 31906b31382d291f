//! Shares the rows of an op that touches each number a few times.

use super::Cpu;
use std::ops::Range;

/// Numbers that are worth waking a thread for: some microseconds of work.
const CHUNK_NUMBERS: usize = 16 * 1024;

impl Cpu {
    /// Calls `work` until its ranges have covered `0..rows`: on this thread alone where the rows are few.
    pub(super) fn for_rows(&self, rows: usize, cols: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
        let chunk = (CHUNK_NUMBERS / cols.max(1)).max(1);
        if rows <= chunk {
            work(0..rows);
        } else {
            self.pool.for_each(rows, chunk, &|_, range| work(range));
        }
    }
}
