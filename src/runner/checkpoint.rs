//! What do all ranks of an engine read of a model?
//!
//! It is read once; ranks take copies, which share the files.

use super::{RunnerConfig, memory};
use crate::backend::Backend;
use crate::batch::BatchLimits;
use crate::error::Result;
use crate::log::{Level, log};
use crate::model::description::Description;
use crate::model::source::Source;
use crate::model::weights::Weights;

/// A model that is about to be loaded.
#[derive(Clone)]
pub struct Checkpoint {
    /// What config.json says.
    pub model: Description,
    /// The largest batch.
    pub limits: BatchLimits,
    /// Bytes that the host had free before anything was loaded.
    pub free: Option<u64>,
    /// The weights, in the number type in which the device keeps them. None is taken yet.
    pub weights: Weights,
}

impl Checkpoint {
    /// Reads what `source` says of its model, for a device of type `B`.
    pub fn open<B: Backend>(source: &Source, config: &RunnerConfig) -> Result<Checkpoint> {
        let model = Description::read(source)?;
        let limits = memory::batch_limits(config, model.spec.max_positions, &B::DEFAULTS)?;
        // What is free is asked before weights are copied, so that a share of it is the same however they come.
        let free = memory::free_host_bytes();
        let weights = Weights::open(source, model.layout, config.dtype, config.loading, free.unwrap_or(u64::MAX))?;
        let (stored, dtype) = (weights.dtype(), B::weight_dtype(weights.dtype(), config.dtype)?);
        if dtype == stored {
            return Ok(Checkpoint { model, limits, free, weights });
        }
        log(Level::Info, format_args!("the model is stored in {stored:?} and computed in {dtype:?}"));
        Ok(Checkpoint { model, limits, free, weights: weights.converted(dtype) })
    }
}
