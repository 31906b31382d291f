//! Stands for `nodes` on systems that are not asked for their NUMA nodes: every thread runs where the system puts it.

use std::convert::Infallible;

/// No nodes.
pub struct Nodes;

/// There is none.
#[derive(Clone, Debug)]
pub struct Node(Infallible);

impl Nodes {
    /// None.
    pub fn detect() -> Nodes {
        Nodes
    }

    /// None for every rank.
    pub fn of_rank(&self, _rank: usize, _ranks: usize) -> Option<&Node> {
        None
    }
}

impl Node {
    /// There is no node to call it on.
    pub fn bind_this_thread(&self) {
        match self.0 {}
    }

    /// There is no node to call it on.
    pub fn populate(&self, _bytes: &[u8]) {
        match self.0 {}
    }
}
