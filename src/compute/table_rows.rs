//! Which row of a table does a token get by its place?

use crate::batch::Batch;

/// How the place of a token names a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableRows {
    /// By its position, the first of which has row `first`.
    Positions {
        /// Row of position 0.
        first: usize,
    },
    /// By its type; 0 where the batch has none.
    Types,
}

impl TableRows {
    /// The row of token `token` of `batch`.
    pub fn of(self, batch: &Batch, token: usize) -> usize {
        match self {
            TableRows::Positions { first } => batch.positions[token] as usize + first,
            TableRows::Types => batch.token_types.get(token).copied().unwrap_or(0) as usize,
        }
    }
}
