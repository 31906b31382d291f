//! Which kernels compute a layer on this processor?

use super::linear::{self, Activations};
use super::{Cpu, Isa};
use crate::explain::{Explained, Kind, Pass, Weights, Work, distinct_experts};

impl Cpu {
    /// How each part of the work of a layer is computed with an instruction set, in order.
    pub fn explain(work: &[Work], pass: &Pass, isa: Isa, activations: Activations) -> Vec<Explained> {
        work.iter().map(|work| explain(work, pass, isa, activations)).collect()
    }
}

fn explain(work: &Work, pass: &Pass, isa: Isa, activations: Activations) -> Explained {
    let kernel = |weights: &Weights| {
        let mut names: Vec<&str> = Vec::new();
        for &(_, format) in &weights.parts {
            let name = linear::kernel_name(isa, activations, format);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(" and ")
    };
    // Activations are in f32.
    let numbers = |count: usize| (count * size_of::<f32>()) as u64;
    let (format, kernel, bytes) = match &work.kind {
        Kind::Product(weights, _) => {
            let rows = numbers(work.rows * (weights.cols + weights.rows()));
            (weights.format(), kernel(weights), weights.bytes() + rows)
        }
        Kind::Experts { weights, experts, chosen, .. } => {
            let read = distinct_experts(*experts, *chosen, work.rows);
            let rows = numbers(work.rows * (weights.cols + chosen * weights.rows()));
            let format = format!("{} ({read} experts read)", weights.format());
            (format, kernel(weights), read as u64 * weights.bytes() + rows)
        }
        Kind::Heads { weights, heads } => {
            let rows = numbers(work.rows * heads * (weights.cols + weights.rows()));
            (weights.format(), kernel(weights), *heads as u64 * weights.bytes() + rows)
        }
        Kind::Attention(heads) => {
            (pass.kv_format.name().to_owned(), "f32".to_owned(), heads.bytes(pass, size_of::<f32>()))
        }
        Kind::Recurrence => return Explained::of_recurrence(work),
    };
    let (what, grid, flops) = (work.title(), String::new(), work.flops(pass));
    Explained { what, format, kernel, grid, split: 1, bytes, flops }
}
