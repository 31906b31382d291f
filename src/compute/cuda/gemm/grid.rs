//! How many thread blocks does a launch have, and how large are they?

/// The sizes of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    pub blocks: [usize; 3],
    pub threads: usize,
    /// Dynamic shared memory of a thread block.
    pub shared_bytes: usize,
}

impl Grid {
    /// Of one dimension.
    pub fn line(blocks: usize, threads: usize, shared_bytes: usize) -> Grid {
        Grid { blocks: [blocks, 1, 1], threads, shared_bytes }
    }
}
