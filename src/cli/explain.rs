//! The command `explain`: which kernels compute a layer, and what bounds their time?

use crate::engine;
use crate::failure::Failure;
use crate::model;
use crate::terminal::Answers;
use nanovllm_cli::{EngineOptions, Explain};

pub fn run(wanted: &Explain, options: &EngineOptions) -> Result<(), Failure> {
    model::check(&wanted.model)?;
    let mut answers = Answers::new();
    answers.write(&engine::explain(wanted, options)?)?;
    answers.flush()
}
