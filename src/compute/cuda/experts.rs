//! The experts of a layer on the device, which no kernel computes yet.

use crate::{ExpertsShape, HostMatrix, RoutesShape};
use base::error::{Error, Result};

/// Weights of experts, of which there are none.
pub enum Experts {}

/// Choices of experts, of which there are none.
pub enum Routes {}

impl Experts {
    /// Refuses them.
    pub fn new(_experts: &[Vec<HostMatrix>]) -> Result<Experts> {
        Err(unsupported())
    }

    /// Their shape.
    pub fn shape(&self) -> ExpertsShape {
        match *self {}
    }
}

impl Routes {
    /// Refuses them.
    pub fn new() -> Result<Routes> {
        Err(unsupported())
    }

    /// Their shape.
    pub fn shape(&self) -> RoutesShape {
        match *self {}
    }
}

fn unsupported() -> Error {
    Error::Unsupported { what: "a mixture of experts on CUDA: choose device CPU".to_owned() }
}
