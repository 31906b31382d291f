//! Which sequences run in the next pass, with which blocks, and for how many tokens?

pub mod blocks;
pub mod deadlines;
pub mod pass_cost;
pub mod pins;
pub mod scheduler;
pub mod sequence;
