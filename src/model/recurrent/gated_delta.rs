//! The gated delta rule of a layer: projections, a short convolution over queries, keys and values, the rule itself, a gated norm, and the way out.
//!
//! It keeps no keys and values: what it knows of earlier tokens is its region of the recurrent state, first the inputs of the convolution, then the
//! matrices of the rule.

use super::{StateShare, distinct};
use crate::linear::{Inputs, Linear, Projection};
use crate::names::DeltaInputNames;
use crate::shard::{Back, HeadShares, Sharding, columns_of};
use crate::spec::{Bias, DecoderSpec, GatedDelta as Spec, Recurrent};
use crate::weights::Weights;
use base::error::Result;
use compute::ops;
use compute::{Backend, DeltaHeads, DeltaLayer, Part, ShortConv, Tensor, ValueOrder};
use std::ops::Range;

/// The gated delta rule of one layer, as far as this rank computes it.
pub struct GatedDelta<B: Backend> {
    rank: usize,
    /// Of all ranks.
    shape: DeltaHeads,
    heads: DeltaHeads,
    conv: ShortConv,
    /// Where its region of the state begins.
    at: usize,
    /// Queries, keys and values, then the gates of the norm, `b` and `a`.
    input: Linear<B>,
    /// `[taps, width]`
    conv_weight: B::Vector,
    /// `exp(A_log)`, then `dt_bias`. `[2, values]`
    decays: B::Vector,
    /// `[value_dim]`
    norm: B::Vector,
    eps: f32,
    output: Linear<B>,
}

/// What it writes on its way, shared by all layers of one shape. One per shape.
pub struct DeltaScratch<B: Backend>(Vec<ShapeScratch<B>>);

struct ShapeScratch<B: Backend> {
    /// Heads of all ranks.
    shape: DeltaHeads,
    /// What the projections make. `[tokens, width + values * value_dim + 2 values]`
    projected: Tensor<B::Storage>,
    /// Queries, keys and values behind the convolution. `[tokens, width]`
    mixed: Tensor<B::Storage>,
    /// `[tokens, values * value_dim]`
    read: Tensor<B::Storage>,
    /// The same of all ranks, where the projection back reads it whole.
    all_read: Option<Tensor<B::Storage>>,
    /// Columns of each rank in the rows of all, for each run of value heads. `[runs][ranks]`
    shares: Vec<Vec<Range<usize>>>,
}

/// Heads that a rank computes.
pub fn own_heads(heads: DeltaHeads, sharding: &Sharding) -> DeltaHeads {
    let shares = sharding.heads(heads.values, heads.keys);
    DeltaHeads { keys: shares.own_kv_heads().len(), values: shares.own_heads().len(), ..heads }
}

/// Numbers of the recurrent state that a layer keeps on a rank.
pub fn state_numbers(spec: &Spec, sharding: &Sharding) -> usize {
    let own = own_heads(spec.heads, sharding);
    spec.conv().state_numbers(own.width()) + own.state_numbers()
}

/// Which numbers of the state of a layer a rank has.
pub(super) fn state_share(spec: &Spec, sharding: &Sharding) -> StateShare {
    let heads = &spec.heads;
    let shares = sharding.heads(heads.values, heads.keys);
    let OwnRows { queries, keys, values, .. } = OwnRows::separate(heads, &shares);
    let runs = value_runs(heads, &shares.own_heads(), &shares.own_kv_heads());
    StateShare {
        conv: [spec.conv().taps - 1, heads.width()],
        own_columns: [queries, keys, values].concat(),
        rest: heads.state_numbers(),
        own_rest: runs.iter().map(|run| columns_of(run, heads.key_dim * heads.value_dim)).collect(),
    }
}

impl<B: Backend> DeltaScratch<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, sharding: &Sharding, tokens: usize) -> Result<DeltaScratch<B>> {
        let shapes = spec.recurrent_layers().filter_map(|layer| match layer {
            Recurrent::GatedDelta(delta) => Some(delta.heads),
            _ => None,
        });
        let scratch = distinct(shapes).into_iter().map(|shape| ShapeScratch::new(backend, shape, sharding, tokens));
        scratch.collect::<Result<_>>().map(DeltaScratch)
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        for scratch in &mut self.0 {
            let own = [&mut scratch.projected, &mut scratch.mixed, &mut scratch.read];
            own.into_iter().chain(&mut scratch.all_read).for_each(|tensor| tensor.set_rows(tokens));
        }
    }
}

impl<B: Backend> ShapeScratch<B> {
    fn new(backend: &B, shape: DeltaHeads, sharding: &Sharding, tokens: usize) -> Result<ShapeScratch<B>> {
        let own = own_heads(shape, sharding);
        let tensor = |cols| backend.tensor(tokens, cols);
        let shares = sharding.heads(shape.values, shape.keys);
        let ranks = shares.heads.iter().zip(&shares.kv_heads);
        let runs: Vec<Vec<Range<usize>>> = ranks.map(|(own, keys)| value_runs(&shape, own, keys)).collect();
        let columns = |run: usize| runs.iter().map(|runs| columns_of(&runs[run], shape.value_dim)).collect();
        Ok(ShapeScratch {
            shape,
            projected: tensor(own.width() + own.value_width() + 2 * own.values)?,
            mixed: tensor(own.width())?,
            read: tensor(own.value_width())?,
            all_read: sharding.gathers().then(|| tensor(shape.value_width())).transpose()?,
            shares: (0..runs[0].len()).map(columns).collect(),
        })
    }
}

/// The value heads of a rank, in runs of consecutive ones, where `own` are as many as it has and `keys` are its key heads.
fn value_runs(heads: &DeltaHeads, own: &Range<usize>, keys: &Range<usize>) -> Vec<Range<usize>> {
    match heads.order {
        ValueOrder::Grouped => vec![own.clone()],
        ValueOrder::Tiled => {
            let first = |run: usize| run * heads.keys;
            (0..heads.values / heads.keys).map(|run| first(run) + keys.start..first(run) + keys.end).collect()
        }
    }
}

/// Which rows of the projections belong to this rank: queries, keys, values, gates, `b` and `a`, one range after another.
struct OwnRows {
    queries: Vec<Range<usize>>,
    keys: Vec<Range<usize>>,
    values: Vec<Range<usize>>,
    gates: Vec<Range<usize>>,
    b: Vec<Range<usize>>,
    a: Vec<Range<usize>>,
}

impl OwnRows {
    /// Of a projection to queries, keys and values, one to gates, one to `b` and one to `a`.
    fn separate(heads: &DeltaHeads, shares: &HeadShares) -> OwnRows {
        let keys = columns_of(&shares.own_kv_heads(), heads.key_dim);
        let runs = value_runs(heads, &shares.own_heads(), &shares.own_kv_heads());
        let values = |by: usize| {
            let columns = runs.iter().map(|run| columns_of(run, heads.value_dim));
            columns.map(|columns| columns.start + by..columns.end + by).collect()
        };
        let key_rows = keys.start + heads.key_width()..keys.end + heads.key_width();
        OwnRows {
            queries: vec![keys],
            keys: vec![key_rows],
            values: values(2 * heads.key_width()),
            gates: values(0),
            b: runs.clone(),
            a: runs.clone(),
        }
    }

    /// Of a projection that has, for each key head, its query, its key, its values and their gates, and one that has its `b` and its `a`.
    fn by_key_head(heads: &DeltaHeads, shares: &HeadShares) -> OwnRows {
        let group = heads.values / heads.keys;
        let values = group * heads.value_dim;
        let size = 2 * heads.key_dim + 2 * values;
        let each = |size: usize, start: usize, len: usize| {
            let first = |head| head * size + start;
            shares.own_kv_heads().map(|head| first(head)..first(head) + len).collect()
        };
        OwnRows {
            queries: each(size, 0, heads.key_dim),
            keys: each(size, heads.key_dim, heads.key_dim),
            values: each(size, 2 * heads.key_dim, values),
            gates: each(size, 2 * heads.key_dim + values, values),
            b: each(2 * group, 0, group),
            a: each(2 * group, group, group),
        }
    }
}

impl<B: Backend> GatedDelta<B> {
    /// The gated delta rule of layer `layer`, whose input and output are `hidden` wide, and whose region of the state begins at `at`.
    pub fn load(
        backend: &B,
        spec: &Spec,
        sharding: &Sharding,
        weights: &mut Weights,
        [layer, at]: [usize; 2],
        hidden: usize,
    ) -> Result<GatedDelta<B>> {
        let names = weights.names();
        let name = |part| names.in_layer(layer, part);
        let (parts, all) = (&names.delta, &spec.heads);
        let shares = sharding.heads(all.values, all.keys);
        let own_values = columns_of(&shares.own_heads(), all.value_dim);
        let (width, values) = (all.width(), all.value_width());
        let input = match parts.input {
            DeltaInputNames::Separate { qkv, gate, b, a } => {
                let own = OwnRows::separate(all, &shares);
                let qkv_rows = [own.queries, own.keys, own.values].concat();
                vec![
                    Projection { name: name(qkv), outputs: width, own: qkv_rows },
                    Projection { name: name(gate), outputs: values, own: own.gates },
                    Projection { name: name(b), outputs: all.values, own: own.b },
                    Projection { name: name(a), outputs: all.values, own: own.a },
                ]
            }
            DeltaInputNames::Mixed { qkv, gate, ba } => {
                let own = OwnRows::separate(all, &shares);
                let OwnRows { b, a, .. } = OwnRows::by_key_head(all, &shares);
                let qkv_rows = [own.queries, own.keys, own.values].concat();
                vec![
                    Projection { name: name(qkv), outputs: width, own: qkv_rows },
                    Projection { name: name(gate), outputs: values, own: own.gates },
                    Projection { name: name(ba), outputs: 2 * all.values, own: [b, a].concat() },
                ]
            }
            DeltaInputNames::ByKeyHead { qkvz, ba } => {
                let own = OwnRows::by_key_head(all, &shares);
                let rows = [own.queries, own.keys, own.values, own.gates].concat();
                vec![
                    Projection { name: name(qkvz), outputs: width + values, own: rows },
                    Projection { name: name(ba), outputs: 2 * all.values, own: [own.b, own.a].concat() },
                ]
            }
        };
        let Back { inputs, outputs, .. } = sharding.back(values, own_values);
        let output = Projection { name: name(parts.output), outputs: hidden, own: vec![outputs] };
        let own = OwnRows::separate(all, &shares);
        let conv = spec.conv();
        let columns = [own.queries, own.keys, own.values].concat();
        let conv_weight = weights.short_conv(&name(parts.conv), width, conv, &columns)?;
        let rates = weights.rates(layer, parts.rates, all.values, &own.b)?;
        let decays = [rates, weights.parameter(&name(parts.dt_bias), all.values, &own.b)?].concat();
        let norm = weights.vector(&name(parts.norm), all.value_dim, 0..all.value_dim)?;
        let inputs = Inputs { all: values, own: inputs };
        Ok(GatedDelta {
            rank: sharding.rank,
            shape: *all,
            heads: own_heads(*all, sharding),
            conv,
            at,
            input: Linear::load(backend, weights, Inputs::all(hidden), &input, Bias::None, true)?,
            conv_weight: backend.table(&conv_weight)?,
            decays: backend.table(&decays)?,
            norm: backend.vector(&[norm])?,
            eps: spec.norm_eps,
            output: Linear::load(backend, weights, inputs, &[output], Bias::None, true)?,
        })
    }

    /// The layer that reads the input.
    pub fn input(&self) -> &Linear<B> {
        &self.input
    }

    /// The projection of what [`forward`](Self::forward) returns back into the stream.
    pub fn output(&self) -> &Linear<B> {
        &self.output
    }

    /// What [`output`](Self::output) reads. `x` is `[tokens, hidden]`.
    pub fn forward<'a>(
        &self,
        backend: &mut B,
        scratch: &'a mut DeltaScratch<B>,
        states: &mut B::States,
        device_batch: &B::DeviceBatch,
        x: &Tensor<B::Storage>,
    ) -> &'a Tensor<B::Storage> {
        let scratch = scratch.0.iter_mut().find(|scratch| scratch.shape == self.shape).expect("a layer of the spec");
        let ShapeScratch { projected, mixed, read, all_read, shares, .. } = scratch;
        self.input.forward(backend, projected, x);
        let layer = DeltaLayer {
            projected,
            conv_weight: &self.conv_weight,
            conv: self.conv,
            decays: &self.decays,
            heads: self.heads,
            norm: &self.norm,
            eps: self.eps,
        };
        ops::delta_layer(backend, read, mixed, layer, (states, self.at), device_batch);
        match all_read {
            Some(all) => {
                let mut first = 0;
                for shares in &*shares {
                    ops::join_columns(backend, all, Some(Part { x: read, first }), shares);
                    first += shares[self.rank].len();
                }
                all
            }
            None => read,
        }
    }
}
