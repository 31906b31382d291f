//! See `ops/host_experts.rs` for the contract: the experts of a layer, for rows that another device may have.
//!
//! Rows are computed some at a time, by the ops of this backend. So what lies between the products takes the same memory for any batch, and a row has
//! the bits that it has where the CPU computes the whole model.

use super::combine::Shared;
use super::experts::{Experts, Routes};
use super::{Cpu, Tensor, combine};
use crate::{
    Activated, Curve, Device, ExpertForm, ExpertRows, ExpertsShape, HostExpertWeights, LayerInput, Ops, Part, Router,
    SharedExpert,
};
use base::error::Result;
use std::ops::Range;

/// Rows that are computed at a time.
pub const ROWS_AT_ONCE: usize = 512;

/// The experts of a layer, where they lie in the file.
pub struct HostExperts {
    gate_up: Experts,
    gate_up_bias: Option<Box<[f32]>>,
    form: ExpertForm,
    down: Experts,
    down_bias: Option<Box<[f32]>>,
    /// Which of the scratch of the CPU is theirs.
    scratch: usize,
}

/// What such experts write on their way, shared by all layers of one shape.
pub struct Scratch {
    shape: Shape,
    routes: Routes,
    /// `[rows, hidden]`
    x: Tensor,
    /// `[slots, projections * width]`
    gate_up: Tensor,
    /// `[slots, width]`
    gated: Tensor,
    /// `[slots, hidden]`
    rows: Tensor,
    /// `[rows, hidden]`
    sum: Tensor,
}

#[derive(Clone, Copy, PartialEq)]
struct Shape {
    experts: usize,
    chosen: usize,
    hidden: usize,
    into: usize,
    width: usize,
}

impl HostExperts {
    /// How many there are, and the width of what they read and give.
    pub fn shape(&self) -> ExpertsShape {
        ExpertsShape { outputs: self.down.shape().outputs, ..self.gate_up.shape() }
    }

    /// Experts of `weights`, and memory to compute with them on `cpu`.
    pub fn new(cpu: &Cpu, weights: HostExpertWeights) -> Result<HostExperts> {
        let HostExpertWeights { router, gate_up, gate_up_bias, form, down, down_bias } = weights;
        let (gate_up, down) = (cpu.experts(0, gate_up)?, cpu.experts(0, down)?);
        let Router { experts, chosen, .. } = *router;
        let (first, second) = (gate_up.shape(), down.shape());
        assert_eq!((first.experts, second.experts, first.inputs), (experts, experts, second.outputs));
        let shape = Shape { experts, chosen, hidden: first.inputs, into: first.outputs, width: second.inputs };
        let vector = |numbers: Option<&[f32]>| numbers.map(|numbers| cpu.table(numbers)).transpose();
        let (gate_up_bias, down_bias) = (vector(gate_up_bias)?, vector(down_bias)?);
        let mut all = cpu.host_experts.lock();
        let scratch = match all.iter().position(|scratch| scratch.shape == shape) {
            Some(known) => known,
            None => {
                let made = Scratch::new(cpu, shape, router)?;
                all.push(made);
                all.len() - 1
            }
        };
        Ok(HostExperts { gate_up, gate_up_bias, form, down, down_bias, scratch })
    }
}

impl Scratch {
    fn new(cpu: &Cpu, shape: Shape, router: &Router) -> Result<Scratch> {
        let slots = ROWS_AT_ONCE * shape.chosen;
        Ok(Scratch {
            shape,
            routes: Routes::new(router, ROWS_AT_ONCE)?,
            x: cpu.tensor(ROWS_AT_ONCE, shape.hidden)?,
            gate_up: cpu.tensor(slots, shape.into)?,
            gated: cpu.tensor(slots, shape.width)?,
            rows: cpu.tensor(slots, shape.hidden)?,
            sum: cpu.tensor(ROWS_AT_ONCE, shape.hidden)?,
        })
    }

    fn set_rows(&mut self, rows: usize) {
        let slots = rows * self.shape.chosen;
        [&mut self.x, &mut self.sum].into_iter().for_each(|tensor| tensor.set_rows(rows));
        [&mut self.gate_up, &mut self.gated, &mut self.rows].into_iter().for_each(|tensor| tensor.set_rows(slots));
    }
}

/// What a router chose. `[rows, chosen]`
#[derive(Clone, Copy)]
pub struct Choices<'a> {
    /// Experts. A number that is too large stands for the last one.
    pub experts: &'a [u32],
    /// What each counts.
    pub weights: &'a [f32],
}

impl Cpu {
    /// Computes `rows` rows, some at a time: `read` writes what the rows of a range are, and `write` is told what becomes of them. `[rows, hidden]`
    ///
    /// # Panics
    ///
    /// If the choices are not those of as many rows.
    pub fn compute_host_experts(
        &mut self,
        experts: &HostExperts,
        rows: usize,
        choices: Choices,
        read: &mut dyn FnMut(Range<usize>, &mut [f32]),
        write: &mut dyn FnMut(Range<usize>, &[f32]),
    ) {
        let mut all = std::mem::take(self.host_experts.get_mut());
        let scratch = &mut all[experts.scratch];
        let chosen = scratch.shape.chosen;
        assert_eq!((choices.experts.len(), choices.weights.len()), (rows * chosen, rows * chosen));
        for first in (0..rows).step_by(ROWS_AT_ONCE) {
            let range = first..rows.min(first + ROWS_AT_ONCE);
            let slots = range.start * chosen..range.end * chosen;
            scratch.set_rows(range.len());
            let (of_slots, weights) = scratch.routes.choices_mut(range.len());
            let last = scratch.shape.experts as u32 - 1;
            of_slots.iter_mut().zip(&choices.experts[slots.clone()]).for_each(|(to, from)| *to = *from.min(&last));
            weights.copy_from_slice(&choices.weights[slots]);
            scratch.routes.sort();
            read(range.clone(), scratch.x.values_mut());
            self.compute_rows(experts, scratch);
            write(range, scratch.sum.values());
        }
        *self.host_experts.get_mut() = all;
    }

    fn compute_rows(&mut self, experts: &HostExperts, scratch: &mut Scratch) {
        let Scratch { routes, x, gate_up, gated, rows, sum, .. } = scratch;
        let layer = LayerInput::new(&*x, &experts.gate_up, experts.gate_up_bias.as_ref());
        match experts.form {
            ExpertForm::Gated(activation) => self.gated_expert_linear(gated, Some(gate_up), layer, activation, routes),
            ExpertForm::Ungated(curve) => {
                self.expert_linear(gate_up, layer, ExpertRows::Tokens, routes);
                self.activate(gated, ungated(gate_up, curve));
            }
        }
        let layer = LayerInput::new(&*gated, &experts.down, experts.down_bias.as_ref());
        self.expert_linear(rows, layer, ExpertRows::Slots, routes);
        let experts = 0..routes.shape().experts;
        self.combine(sum, rows, None, routes, experts);
    }
}

fn ungated(x: &Tensor, curve: Curve) -> Activated<'_, Tensor> {
    Activated { of: Part { x, first: 0 }, scale: 1.0, curve, times: None }
}

pub fn run(
    cpu: &mut Cpu,
    out: &mut Tensor,
    x: &Tensor,
    experts: &HostExperts,
    shared: Option<SharedExpert<Tensor>>,
    routes: &Routes,
) {
    let (isa, cols) = (cpu.isa, x.cols());
    let (of_slots, weights) = routes.choices();
    let numbers = |rows: Range<usize>| rows.start * cols..rows.end * cols;
    let mut read = |rows: Range<usize>, to: &mut [f32]| to.copy_from_slice(&x.values()[numbers(rows)]);
    let mut write = |rows: Range<usize>, sum: &[f32]| {
        for (row, sum) in rows.zip(sum.chunks_exact(cols)) {
            let shared = shared.as_ref().map(|SharedExpert { x, gate }| Shared {
                x: &x.values()[numbers(row..row + 1)],
                gate: gate.map(|gate| gate.values()[row]),
            });
            combine::row(isa, &mut out.values_mut()[numbers(row..row + 1)], sum, &[0], &[1.0], shared);
        }
    };
    let choices = Choices { experts: of_slots, weights };
    cpu.compute_host_experts(experts, x.rows(), choices, &mut read, &mut write);
}
