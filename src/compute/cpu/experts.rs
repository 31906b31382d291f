//! The experts of a layer, which of them compute a token, and how threads share them out.
//!
//! Rows between the products are grouped by expert, in the order of tokens: those of an expert follow each other, as the kernels of `linear` want them.
//! A piece is some columns of one expert. It is computed by one thread, which has a scratch of its own, so that one loop of the pool covers all experts.
#![allow(unsafe_code)]

use super::disjoint::Disjoint;
use super::linear::{self, Arithmetic, Rows, Scratch};
use super::{Cpu, Isa, Matrix, Pages, Pool};
use crate::{ExpertsShape, HostMatrix, Router, RoutesShape};
use base::error::{Result, filled, room};
use std::ops::Range;

/// Rows that a thread computes at a time: enough to read an expert's weights for, few enough for scratch of each thread.
pub(in crate::cpu) const ROWS_AT_ONCE: usize = 128;
/// Pieces of a product for each thread, about: enough for all of them to finish together.
const PIECES: usize = 4;
/// Columns of a piece are a multiple of this: whole panels of the kernels.
const COLUMNS: usize = 32;

/// A matrix for each of some experts, where it lies in the file. `[experts, outputs, inputs]`
pub struct Experts {
    /// The number of the first one.
    first: usize,
    matrices: Vec<Matrix>,
}

impl Experts {
    /// # Panics
    ///
    /// If there is none or their shapes differ: the loader checks them against config.json.
    pub fn new(first: usize, experts: &[Vec<HostMatrix>]) -> Result<Experts> {
        let mut matrices = room(experts.len(), "the experts of a layer", "the size of the model")?;
        for parts in experts {
            matrices.push(Matrix::new(parts)?);
        }
        let shape = |matrix: &Matrix| (matrix.rows(), matrix.cols());
        assert!(matrices.iter().all(|matrix| shape(matrix) == shape(&matrices[0])));
        Ok(Experts { first, matrices })
    }

    /// Their shape.
    pub fn shape(&self) -> ExpertsShape {
        let Experts { first, matrices } = self;
        let one = &matrices[0];
        ExpertsShape { first: *first, experts: matrices.len(), outputs: one.rows(), inputs: one.cols() }
    }

    /// The matrix of the first one, for explanations. `[outputs, inputs]`
    pub fn first(&self) -> &Matrix {
        &self.matrices[0]
    }

    /// Where an expert is among them.
    fn place(&self, expert: usize) -> usize {
        expert - self.first
    }

    /// The matrix of an expert. `[outputs, inputs]`
    pub(in crate::cpu) fn matrix(&self, expert: usize) -> &Matrix {
        &self.matrices[self.place(expert)]
    }
}

/// Which experts compute each token. A slot is a token and one of its experts, numbered token by token; a row is where it lies between the products.
pub struct Routes {
    shape: RoutesShape,
    /// Tokens that there is room for.
    capacity: usize,
    /// The expert of each slot.
    experts: Vec<u32>,
    /// What it counts.
    weights: Vec<f32>,
    /// The row of each slot.
    rows: Vec<u32>,
    /// The slot of each row.
    slots: Vec<u32>,
    /// The first row of each expert, and the end of the last one.
    starts: Vec<u32>,
    /// Experts that have rows.
    active: Vec<u32>,
}

impl Routes {
    /// Room for up to `tokens` tokens.
    pub fn new(router: &Router, tokens: usize) -> Result<Routes> {
        let (what, knob) = ("the routes of experts", "max_batched_tokens");
        let Router { experts, chosen, .. } = *router;
        let slots = tokens * chosen;
        Ok(Routes {
            shape: RoutesShape { experts, chosen, tokens: 0 },
            capacity: tokens,
            experts: filled(0, slots, what, knob)?,
            weights: filled(0.0, slots, what, knob)?,
            rows: filled(0, slots, what, knob)?,
            slots: filled(0, slots, what, knob)?,
            starts: filled(0, experts + 1, what, knob)?,
            active: room(experts, what, knob)?,
        })
    }

    /// Its sizes.
    pub fn shape(&self) -> RoutesShape {
        self.shape
    }

    /// Experts and weights of all slots of this pass. `[tokens, chosen]`
    pub fn choices(&self) -> (&[u32], &[f32]) {
        let slots = self.shape.slots();
        (&self.experts[..slots], &self.weights[..slots])
    }

    /// The same for `tokens` tokens, to be written.
    pub(in crate::cpu) fn choices_mut(&mut self, tokens: usize) -> (&mut [u32], &mut [f32]) {
        assert!(tokens <= self.capacity, "{tokens} tokens in routes made for {}", self.capacity);
        self.shape.tokens = tokens;
        let slots = self.shape.slots();
        (&mut self.experts[..slots], &mut self.weights[..slots])
    }

    /// The experts of a token.
    pub(in crate::cpu) fn experts_of(&self, token: usize) -> &[u32] {
        &self.experts[token * self.shape.chosen..(token + 1) * self.shape.chosen]
    }

    /// The rows of the slots of a token, and what they count.
    pub(in crate::cpu) fn of_token(&self, token: usize) -> (&[u32], &[f32]) {
        let slots = token * self.shape.chosen..(token + 1) * self.shape.chosen;
        (&self.rows[slots.clone()], &self.weights[slots])
    }

    /// Groups the slots by expert, once their experts are known.
    pub(in crate::cpu) fn sort(&mut self) {
        let Routes { experts, rows, slots, starts, active, .. } = self;
        let experts = &experts[..self.shape.slots()];
        starts.fill(0);
        experts.iter().for_each(|&expert| starts[expert as usize + 1] += 1);
        active.clear();
        for expert in 0..self.shape.experts {
            if starts[expert + 1] > 0 {
                active.push(expert as u32);
            }
            starts[expert + 1] += starts[expert];
        }
        // Counts the rows that each expert has got, and is put right afterwards.
        for (slot, &expert) in experts.iter().enumerate() {
            let row = &mut starts[expert as usize];
            (rows[slot], slots[*row as usize]) = (*row, slot as u32);
            *row += 1;
        }
        starts.copy_within(0..self.shape.experts, 1);
        starts[0] = 0;
    }

    /// The rows of experts.
    pub(in crate::cpu) fn rows_of(&self, experts: &Range<usize>) -> Range<usize> {
        self.starts[experts.start] as usize..self.starts[experts.end] as usize
    }

    /// Those of some experts that have rows.
    fn active_among(&self, experts: &Range<usize>) -> &[u32] {
        let before = |end: usize| self.active.partition_point(|&expert| (expert as usize) < end);
        &self.active[before(experts.start)..before(experts.end)]
    }

    /// The token of a row.
    fn token(&self, row: usize) -> usize {
        self.slots[row] as usize / self.shape.chosen
    }
}

/// What a thread works in.
pub struct Worker {
    /// Of this thread alone.
    pub(in crate::cpu) pool: Pool,
    pub(in crate::cpu) scratch: Scratch,
    /// Rows of `x` that do not follow each other.
    pub(in crate::cpu) x: Pages<f32>,
    /// Sums of rows that do not follow each other.
    pub(in crate::cpu) out: Pages<f32>,
}

impl Worker {
    fn new() -> Worker {
        Worker { pool: Pool::new(1), scratch: Scratch::default(), x: Pages::default(), out: Pages::default() }
    }

    /// Grows so that products with rows of `inputs` numbers fit, and sums of `outputs` that are copied.
    fn fit(&mut self, isa: Isa, inputs: usize, outputs: usize) -> Result<()> {
        linear::fit(&mut self.scratch, &self.pool, isa, ROWS_AT_ONCE, inputs)?;
        for (room, width) in [(&mut self.x, inputs), (&mut self.out, outputs)] {
            if ROWS_AT_ONCE * width > room.len() {
                *room = Pages::zeroed(ROWS_AT_ONCE * width, "the scratch of experts", "num_threads")?;
            }
        }
        Ok(())
    }
}

/// Columns of a piece, where each of `matrices` gives `width` columns.
pub(in crate::cpu) fn columns_of_piece(pool: &Pool, matrices: usize, width: usize) -> usize {
    let wanted = (pool.threads() * PIECES).div_ceil(matrices.max(1));
    width.div_ceil(wanted).next_multiple_of(COLUMNS)
}

/// What an op makes of the rows of an expert.
pub struct Product<'a> {
    /// `[slots, outputs]`
    pub out: Disjoint<'a, f32>,
    /// `[tokens, inputs]` or `[slots, inputs]`
    pub x: &'a [f32],
    /// Whether rows of `x` are those of tokens.
    pub by_token: bool,
    pub weight: &'a Experts,
    /// Of the experts of `weight`. `[experts, outputs]`
    pub bias: Option<&'a [f32]>,
    pub routes: &'a Routes,
}

impl Product<'_> {
    /// Computes all rows of the experts that are there, of the `width` columns from each of `firsts` on. Calls `after(rows, columns)` for what a thread has computed: of each first column
    /// these columns behind it.
    pub fn run(
        &self,
        cpu: &mut Cpu,
        firsts: &[usize],
        width: usize,
        after: &(dyn Fn(Range<usize>, Range<usize>) + Sync),
    ) {
        let arithmetic = cpu.arithmetic();
        let Cpu { pool, workers, .. } = cpu;
        let (workers, routes) = (Disjoint::new(workers.get_mut()), self.routes);
        let active = routes.active_among(&self.weight.shape().range());
        let columns = columns_of_piece(pool, active.len(), width);
        let pieces = width.div_ceil(columns);
        pool.for_each(active.len() * pieces, 1, &|thread, range| {
            // SAFETY: no two calls with the same thread overlap.
            let worker = &mut unsafe { workers.part(thread..thread + 1) }[0];
            for piece in range {
                let expert = active[piece / pieces] as usize;
                let first = piece % pieces * columns;
                let columns = first..width.min(first + columns);
                let rows = routes.rows_of(&(expert..expert + 1));
                for start in rows.clone().step_by(ROWS_AT_ONCE) {
                    let rows = start..rows.end.min(start + ROWS_AT_ONCE);
                    self.compute(worker, arithmetic, expert, rows.clone(), firsts, columns.clone());
                    after(rows, columns.clone());
                }
            }
        });
    }

    /// Computes some columns behind each first one for some rows of an expert.
    fn compute(
        &self,
        worker: &mut Worker,
        arithmetic: Arithmetic,
        expert: usize,
        rows: Range<usize>,
        firsts: &[usize],
        columns: Range<usize>,
    ) {
        let matrix = self.weight.matrix(expert);
        let (outputs, inputs) = (matrix.rows(), matrix.cols());
        let Worker { pool, scratch, x: room, .. } = worker;
        let x = match self.by_token {
            false => &self.x[rows.start * inputs..rows.end * inputs],
            true if rows.len() == 1 => &self.x[self.routes.token(rows.start) * inputs..][..inputs],
            true => {
                let room = &mut room[..rows.len() * inputs];
                for (to, row) in room.chunks_exact_mut(inputs.max(1)).zip(rows.clone()) {
                    to.copy_from_slice(&self.x[self.routes.token(row) * inputs..][..inputs]);
                }
                room
            }
        };
        let out = self.out.within(rows.start * outputs..rows.end * outputs);
        let bias = self.bias.map(|bias| &bias[self.weight.place(expert) * outputs..][..outputs]);
        for first in firsts {
            let columns = first + columns.start..first + columns.end;
            linear::product(pool, arithmetic, scratch, Rows { out, x, tokens: rows.len() }, matrix, bias, columns);
        }
    }
}

/// Makes room for products with the experts on every thread, and for `outputs` sums of a row.
pub fn fit(workers: &mut Vec<Worker>, threads: usize, isa: Isa, [inputs, outputs]: [usize; 2]) -> Result<()> {
    while workers.len() < threads {
        workers.push(Worker::new());
    }
    workers.iter_mut().try_for_each(|worker| worker.fit(isa, inputs, outputs))
}
