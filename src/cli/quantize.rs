//! The command `quantize`.

use crate::engine;
use crate::failure::Failure;
use crate::model;
use crate::terminal::Bar;
use nanovllm_cli::{Quantize, When, engine_options::Quantization};

pub fn run(wanted: &Quantize) -> Result<(), Failure> {
    model::check(&wanted.model)?;
    let bits = if wanted.int4 { Quantization::Int4 } else { Quantization::Int8 };
    let mut bar = Bar::new("quantizing", When::Auto, true);
    let mut show = |fraction: f32| bar.show(fraction.into(), String::new);
    Ok(engine::quantize(&wanted.model, &wanted.to, bits, &mut show)?)
}
