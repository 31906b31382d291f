//! How would a layer of a model be computed, and what bounds its time? Written as a table; no engine is opened, and no device is needed.

use super::checkpoint::Checkpoint;
use super::cuda;
use super::options::EngineOptions;
use base::error::{Error, Result};
use base::limits::{PASS_TOKENS, RUNNING_SEQUENCES};
use compute::KvFormat;
use compute::cpu::{Activations, Cpu, Isa};
use compute::explain::{Explained, Pass};
use formats::DType;
use formats::source::Source;
use model::explain;
use std::fmt::Write;

/// What is explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name of a GPU. `None`: the processor of this machine.
    pub gpu: Option<String>,
    /// Sequences of a pass.
    pub rows: usize,
    /// New tokens of each.
    pub tokens: usize,
    /// Tokens that each has in the end; `None` is as many as it brings, but at least 1,024 where the model has as many.
    pub context: Option<usize>,
    /// Which layer.
    pub layer: usize,
}

/// Where a pass is computed, as far as estimates need to know it.
pub(super) struct Machine {
    /// For the first line.
    pub title: String,
    /// Bytes per second of its memory, and operations per second. `None`: not known, and no times are estimated.
    pub speed: Option<[u64; 2]>,
    /// The number type that weights are computed in.
    pub dtype: DType,
}

/// Tokens of a context that is not named, where the model has as many.
const CONTEXT: usize = 1024;

/// Describes the kernels of a layer and of the head of the model of `source`, as an engine with these options would launch them.
///
/// # Errors
///
/// [`Error::Option`] for a question that no model answers, [`Error::Unsupported`] for a GPU in a build without CUDA, and those of opening a model.
pub fn explain(source: &Source, options: &EngineOptions, question: &Question) -> Result<String> {
    question.check()?;
    if options.tensor_parallel_size > 1 {
        let value = options.tensor_parallel_size.to_string();
        return Err(Error::Option {
            field: "tensor_parallel_size",
            value,
            wanted: "1: what one rank computes is explained",
        });
    }
    let (checkpoint, machine) = match &question.gpu {
        Some(name) => cuda::machine(name, source, options)?,
        None => {
            let checkpoint = Checkpoint::open::<Cpu>(source, options)?;
            let title = format!("this processor, instruction set {}", Isa::detect()?.name());
            let machine = Machine { title, speed: None, dtype: checkpoint.weights.dtype() };
            (checkpoint, machine)
        }
    };
    let Checkpoint { model, weights, kv_format, limits, .. } = &checkpoint;
    let pass = question.pass(limits.model_len, *kv_format, model.spec.is_encoder())?;
    let layers = model.spec.layers.len();
    if question.layer >= layers {
        return Err(Error::Option {
            field: "layer",
            value: format!("{}, and the model has {layers} layers", question.layer),
            wanted: "below the number of layers",
        });
    }
    let of_layer = explain::layer(&model.spec, weights, question.layer, &pass)?;
    let of_head = explain::head(&model.spec, weights, &pass)?;
    let explained = |work: &[_]| match &question.gpu {
        Some(name) => cuda::explain(name, work, &pass, machine.dtype, options.rounding),
        None => {
            let is_f32 = options.dtype == Some(DType::F32);
            let activations = if is_f32 { Activations::F32 } else { Activations::Rounded };
            Ok(Cpu::explain(work, &pass, Isa::detect()?, activations))
        }
    };
    let mut text = format!("{}: {}\n", source.path().display(), machine.title);
    let line = |text: &mut String, what: std::fmt::Arguments| writeln!(text, "{what}").expect("a string takes it");
    let Pass { rows, tokens, context, .. } = pass;
    line(&mut text, format_args!("rows: {rows}, new tokens of each: {tokens}, context: {context}"));
    let of_layer = explained(&of_layer)?;
    let layer_time = table(&mut text, &format!("layer {} of {layers}", question.layer), &of_layer, &machine);
    let of_head = explained(of_head.as_slice())?;
    let head_time = (!of_head.is_empty()).then(|| table(&mut text, "head", &of_head, &machine));
    if let Some(layer_time) = layer_time {
        let all = layer_time * layers as f64 + head_time.flatten().unwrap_or(0.0);
        line(&mut text, format_args!("\n{layers} layers like this one and the head take at least {:.3} ms", all * 1e3));
        line(
            &mut text,
            format_args!("Times are bytes / bandwidth or operations / peak, whichever is more; launches come on top."),
        );
    }
    Ok(text)
}

impl Question {
    fn check(&self) -> Result<()> {
        let Question { rows, tokens, .. } = *self;
        let wrong = |field, value: String, wanted| Err(Error::Option { field, value, wanted });
        if !(1..=RUNNING_SEQUENCES).contains(&rows) {
            return wrong("rows", rows.to_string(), "a number of sequences from 1 to 65536");
        }
        if tokens == 0 {
            return wrong("tokens", "0".to_owned(), "at least 1");
        }
        match rows.checked_mul(tokens) {
            Some(0..=PASS_TOKENS) => Ok(()),
            _ => wrong("tokens", format!("{tokens} in each of {rows} rows"), "at most 1048576 tokens in all rows"),
        }
    }

    fn pass(&self, model_len: usize, kv_format: KvFormat, is_encoder: bool) -> Result<Pass> {
        let Question { rows, tokens, .. } = *self;
        // A text of an encoder is computed whole.
        let least = if is_encoder { tokens } else { tokens.max(CONTEXT.min(model_len)) };
        let context = self.context.unwrap_or(least);
        if is_encoder && context != tokens {
            return Err(Error::Option {
                field: "context",
                value: format!("{context}, with {tokens} new tokens in a text of an encoder"),
                wanted: "the number of new tokens, because encoders compute a text whole",
            });
        }
        if !(tokens..=model_len).contains(&context) {
            return Err(Error::Option {
                field: "context",
                value: format!("{context}, with {tokens} new tokens and max_model_len {model_len}"),
                wanted: "from the number of new tokens to max_model_len",
            });
        }
        Ok(Pass { rows, tokens, context, kv_format })
    }
}

/// Appends a table in Markdown. The seconds that all of it takes at least, where that is known.
fn table(text: &mut String, title: &str, all: &[Explained], machine: &Machine) -> Option<f64> {
    let has_grid = all.iter().any(|one| !one.grid.is_empty());
    let mut head = vec![title, "weights", "kernel"];
    head.extend(has_grid.then_some(["blocks of threads", "parts of k"]).into_iter().flatten());
    head.push("MB");
    head.extend(machine.speed.map(|_| ["us", "bound by"]).into_iter().flatten());
    let mut sum = 0.0;
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for one in all {
        let Explained { what, format, kernel, grid, split, bytes, flops } = one;
        let mut row = vec![what.clone(), format.clone(), kernel.clone()];
        if has_grid {
            row.extend([grid.clone(), split.to_string()]);
        }
        let is_estimated = *bytes > 0;
        row.push(if is_estimated { format!("{:.2}", *bytes as f64 / 1e6) } else { String::new() });
        if let Some([bandwidth, peak]) = machine.speed {
            let [of_memory, of_math] = [*bytes as f64 / bandwidth as f64, *flops as f64 / peak as f64];
            let (seconds, bound) = if of_memory >= of_math { (of_memory, "memory") } else { (of_math, "math") };
            sum += seconds;
            row.extend(match is_estimated {
                true => [format!("{:.2}", seconds * 1e6), bound.to_owned()],
                false => [String::new(), "not estimated".to_owned()],
            });
        }
        rows.push(row);
    }
    let widths = (0..rows[0].len()).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    let widths: Vec<_> = widths.collect();
    text.push('\n');
    for (index, row) in rows.iter().enumerate() {
        let cells: Vec<_> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
        if index == 0 {
            let rule: Vec<_> = widths.iter().map(|&width| "-".repeat(width + 2)).collect();
            text.push_str(&format!("|{}|\n", rule.join("|")));
        }
    }
    machine.speed.map(|_| sum)
}
