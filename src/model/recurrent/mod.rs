//! Layers with a recurrent state. One keeps no keys and values: what it knows of earlier tokens is its region of the state.

mod gated_delta;
mod short_conv;
mod state_space;

use crate::linear::Linear;
use crate::products::Work;
use crate::shard::Sharding;
use crate::spec::{self, DecoderSpec};
use crate::weights::Weights;
use base::error::Result;
use compute::ops;
use compute::{Backend, Part, Tensor};
use gated_delta::{DeltaScratch, GatedDelta};
use short_conv::{ConvScratch, ShortConv};
use state_space::{ScanScratch, StateSpace};
use std::ops::Range;

/// A layer with a recurrent state, as far as this rank computes it.
pub enum Recurrent<B: Backend> {
    /// A gated delta rule.
    GatedDelta(GatedDelta<B>),
    /// A gated short convolution.
    ShortConv(ShortConv<B>),
    /// A selective scan.
    StateSpace(StateSpace<B>),
}

/// What such layers write on their way.
pub struct RecurrentScratch<B: Backend> {
    delta: DeltaScratch<B>,
    conv: ConvScratch<B>,
    scan: ScanScratch<B>,
}

/// Numbers of the recurrent state that a layer keeps on a rank, where the stream is `hidden` wide.
pub fn state_numbers(spec: &spec::Recurrent, sharding: &Sharding, hidden: usize) -> usize {
    match spec {
        spec::Recurrent::GatedDelta(delta) => gated_delta::state_numbers(delta, sharding),
        spec::Recurrent::ShortConv(conv) => short_conv::state_numbers(conv, sharding, hidden),
        spec::Recurrent::StateSpace(scan) => state_space::state_numbers(scan, sharding),
    }
}

/// Consecutive numbers of a recurrent state that a rank has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateRun {
    /// Where they begin in the state of the whole model.
    pub all: usize,
    /// Where they begin in the state of the rank.
    pub own: usize,
    /// How many there are.
    pub len: usize,
}

/// Which numbers of a layer's state a rank has: first inputs of the convolution, then what the recurrence keeps.
struct StateShare {
    /// Rows of these inputs, and columns of a row.
    conv: [usize; 2],
    /// The columns of the rank, one range after another.
    own_columns: Vec<Range<usize>>,
    /// Numbers of the recurrence, and those of the rank.
    rest: usize,
    own_rest: Vec<Range<usize>>,
}

/// Appends the numbers of a layer's state that a rank has, where the stream is `hidden` wide. `[all, own]`: where the layer's region begins, and afterwards ends.
pub fn state_runs(
    spec: &spec::Recurrent,
    sharding: &Sharding,
    hidden: usize,
    [all, own]: &mut [usize; 2],
    runs: &mut Vec<StateRun>,
) {
    let StateShare { conv: [rows, columns], own_columns, rest, own_rest } = match spec {
        spec::Recurrent::GatedDelta(delta) => gated_delta::state_share(delta, sharding),
        spec::Recurrent::ShortConv(conv) => short_conv::state_share(conv, sharding, hidden),
        spec::Recurrent::StateSpace(scan) => state_space::state_share(scan, sharding),
    };
    let mut append = |from: usize, ranges: &[Range<usize>]| {
        for range in ranges {
            runs.push(StateRun { all: from + range.start, own: *own, len: range.len() });
            *own += range.len();
        }
    };
    (0..rows).for_each(|row| append(*all + row * columns, &own_columns));
    append(*all + rows * columns, &own_rest);
    *all += rows * columns + rest;
}

/// Each of some sizes once, in the order in which layers first have them.
fn distinct<T: PartialEq>(sizes: impl Iterator<Item = T>) -> Vec<T> {
    let mut distinct = Vec::new();
    for size in sizes {
        if !distinct.contains(&size) {
            distinct.push(size);
        }
    }
    distinct
}

/// What a projection back reads: the columns `own` of this rank, or `all` of every rank, which have the columns `shares`.
fn gathered<'a, B: Backend>(
    backend: &mut B,
    own: &'a Tensor<B::Storage>,
    all: &'a mut Option<Tensor<B::Storage>>,
    shares: &[Range<usize>],
) -> &'a Tensor<B::Storage> {
    match all {
        Some(all) => {
            ops::join_columns(backend, all, Some(Part { x: own, first: 0 }), shares);
            all
        }
        None => own,
    }
}

impl<B: Backend> RecurrentScratch<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, sharding: &Sharding, tokens: usize) -> Result<RecurrentScratch<B>> {
        Ok(RecurrentScratch {
            delta: DeltaScratch::new(backend, spec, sharding, tokens)?,
            conv: ConvScratch::new(backend, spec, sharding, tokens)?,
            scan: ScanScratch::new(backend, spec, sharding, tokens)?,
        })
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        self.delta.set_rows(tokens);
        self.conv.set_rows(tokens);
        self.scan.set_rows(tokens);
    }
}

impl<B: Backend> Recurrent<B> {
    /// Layer `layer`, whose input and output are `hidden` wide, and whose region of the state begins at `at`.
    pub fn load(
        backend: &B,
        spec: &spec::Recurrent,
        sharding: &Sharding,
        weights: &mut Weights,
        place: [usize; 2],
        hidden: usize,
    ) -> Result<Recurrent<B>> {
        Ok(match spec {
            spec::Recurrent::GatedDelta(spec) => {
                Recurrent::GatedDelta(GatedDelta::load(backend, spec, sharding, weights, place, hidden)?)
            }
            spec::Recurrent::ShortConv(spec) => {
                Recurrent::ShortConv(ShortConv::load(backend, spec, sharding, weights, place, hidden)?)
            }
            spec::Recurrent::StateSpace(spec) => {
                Recurrent::StateSpace(StateSpace::load(backend, spec, sharding, weights, place, hidden)?)
            }
        })
    }

    /// The layer that reads the input.
    pub fn input(&self) -> &Linear<B> {
        match self {
            Recurrent::GatedDelta(delta) => delta.input(),
            Recurrent::ShortConv(conv) => conv.input(),
            Recurrent::StateSpace(scan) => scan.input(),
        }
    }

    /// What it computes, in order.
    pub fn work(&self) -> Vec<Work<'_, B>> {
        let recurrence = match self {
            Recurrent::GatedDelta(_) => "gated delta rule",
            Recurrent::ShortConv(_) => "short convolution",
            Recurrent::StateSpace(_) => "selective scan",
        };
        vec![Work::product("in", self.input()), Work::Recurrence(recurrence), Work::back("out", self.output())]
    }

    /// The projection of what [`forward`](Self::forward) returns back into the stream.
    pub fn output(&self) -> &Linear<B> {
        match self {
            Recurrent::GatedDelta(delta) => delta.output(),
            Recurrent::ShortConv(conv) => conv.output(),
            Recurrent::StateSpace(scan) => scan.output(),
        }
    }

    /// What [`output`](Self::output) reads. `x` is `[tokens, hidden]`.
    pub fn forward<'a>(
        &self,
        backend: &mut B,
        scratch: &'a mut RecurrentScratch<B>,
        states: &mut B::States,
        batch: &B::DeviceBatch,
        x: &Tensor<B::Storage>,
    ) -> &'a Tensor<B::Storage> {
        match self {
            Recurrent::GatedDelta(delta) => delta.forward(backend, &mut scratch.delta, states, batch, x),
            Recurrent::ShortConv(conv) => conv.forward(backend, &mut scratch.conv, states, batch, x),
            Recurrent::StateSpace(scan) => scan.forward(backend, &mut scratch.scan, states, batch, x),
        }
    }
}
