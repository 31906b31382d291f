//! Mamba-2 in a layer: a projection, a short convolution over `x`, `B` and `C`, the selective scan, a gate and perhaps a norm of each group, and
//! the way out.
//!
//! Where there are more ranks than groups, ranks share `B` and `C` of a group and divide its heads. The norm is over a whole group, so that they
//! exchange what it reads.

use super::{StateShare, distinct, gathered};
use crate::linear::{Inputs, Linear, Projection};
use crate::shard::{Back, Sharding, columns_of};
use crate::spec::{DecoderSpec, GroupNorm, Recurrent, ScanScales, StateSpace as Spec};
use crate::weights::Weights;
use base::error::Result;
use compute::ops;
use compute::{
    Backend, HeadColumns, HeadGate, HeadPart, Part, ScanGate, ScanHeads, ScanLayer, ScanRows, ShortConv, Tensor,
};
use std::ops::Range;

/// The selective scan of one layer, as far as this rank computes it: the heads of some groups, or some heads of one group.
pub struct StateSpace<B: Backend> {
    /// Of all ranks.
    shape: ScanHeads,
    heads: ScanHeads,
    conv: ShortConv,
    /// Where its region of the state begins.
    at: usize,
    /// `x`, `B` and `C`, then the gates, then the steps.
    input: Linear<B>,
    /// `[taps, width]`, then the biases
    conv_weight: B::Vector,
    /// `exp(A_log)`, then `dt_bias`, then `D`. `[3, heads]`
    rates: B::Vector,
    scales: ScanScales,
    /// `None`: the gate alone.
    norm: Option<Norm<B>>,
    /// What the way out reads of the columns of all ranks.
    read: Range<usize>,
    output: Linear<B>,
}

/// The norm of each group.
struct Norm<B: Backend> {
    /// Of the heads whose norm this rank computes: its own, or all where ranks share groups. `[heads * head_dim]`
    weight: B::Vector,
    spec: GroupNorm,
}

/// What it writes on its way, shared by all layers of one shape. One per shape.
pub struct ScanScratch<B: Backend>(Vec<ShapeScratch<B>>);

struct ShapeScratch<B: Backend> {
    /// Heads of all ranks.
    shape: ScanHeads,
    /// What the projection makes. `[tokens, width + heads * head_dim + heads]`
    projected: Tensor<B::Storage>,
    /// `x`, `B` and `C` behind the convolution. `[tokens, width]`
    mixed: Tensor<B::Storage>,
    /// `[tokens, heads * head_dim]`
    read: Tensor<B::Storage>,
    /// The same times the gate, where there is no norm.
    gated: Option<Tensor<B::Storage>>,
    /// The same of all ranks, where the projection back reads it whole.
    all_read: Option<Tensor<B::Storage>>,
    /// What the norm reads, where ranks share groups.
    whole: Option<WholeGroups<B>>,
    /// Columns of each rank in the rows of all. `[ranks]`
    shares: Vec<Range<usize>>,
}

/// What a norm reads of the heads of all ranks.
struct WholeGroups<B: Backend> {
    /// `[tokens, heads * head_dim]`
    read: Tensor<B::Storage>,
    /// `[tokens, heads * head_dim]`
    gates: Tensor<B::Storage>,
}

/// Heads that a rank computes, and the groups of these.
fn own_heads(heads: ScanHeads, sharding: &Sharding) -> ScanHeads {
    let shares = sharding.heads(heads.heads, heads.groups);
    ScanHeads { heads: shares.own_heads().len(), groups: shares.own_kv_heads().len(), ..heads }
}

/// Numbers of the recurrent state that a layer keeps on a rank.
pub fn state_numbers(spec: &Spec, sharding: &Sharding) -> usize {
    let own = own_heads(spec.heads, sharding);
    spec.conv().state_numbers(own.width()) + own.state_numbers()
}

/// Which numbers of the state of a layer a rank has.
pub(super) fn state_share(spec: &Spec, sharding: &Sharding) -> StateShare {
    let heads = &spec.heads;
    let shares = sharding.heads(heads.heads, heads.groups);
    let (own, groups) = (shares.own_heads(), columns_of(&shares.own_kv_heads(), heads.state_dim));
    let behind = |by: usize| groups.start + by..groups.end + by;
    let (b, c) = (heads.head_width(), heads.head_width() + heads.groups * heads.state_dim);
    StateShare {
        conv: [spec.conv().taps - 1, heads.width()],
        own_columns: vec![columns_of(&own, heads.head_dim), behind(b), behind(c)],
        rest: heads.state_numbers(),
        own_rest: vec![columns_of(&own, heads.state_dim * heads.head_dim)],
    }
}

impl<B: Backend> ScanScratch<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, sharding: &Sharding, tokens: usize) -> Result<ScanScratch<B>> {
        let scans = || spec.recurrent_layers().filter_map(Recurrent::state_space);
        let any = |shape, has_norm| scans().any(|scan| scan.heads == shape && scan.norm.is_some() == has_norm);
        let scratch = distinct(scans().map(|scan| scan.heads)).into_iter();
        let scratch = scratch.map(|shape| {
            let norms = Norms { some: any(shape, true), none: any(shape, false) };
            ShapeScratch::new(backend, (shape, norms), sharding, tokens)
        });
        scratch.collect::<Result<_>>().map(ScanScratch)
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        for scratch in &mut self.0 {
            let own = [&mut scratch.projected, &mut scratch.mixed, &mut scratch.read];
            let whole = scratch.whole.iter_mut().flat_map(|WholeGroups { read, gates }| [read, gates]);
            let optional = scratch.gated.iter_mut().chain(&mut scratch.all_read).chain(whole);
            own.into_iter().chain(optional).for_each(|tensor| tensor.set_rows(tokens));
        }
    }
}

/// Whether layers of one shape have a norm.
#[derive(Clone, Copy)]
struct Norms {
    /// Some have.
    some: bool,
    /// Some have none.
    none: bool,
}

impl<B: Backend> ShapeScratch<B> {
    fn new(
        backend: &B,
        (shape, norms): (ScanHeads, Norms),
        sharding: &Sharding,
        tokens: usize,
    ) -> Result<ShapeScratch<B>> {
        let own = own_heads(shape, sharding);
        let tensor = |cols| backend.tensor(tokens, cols);
        let all = || tensor(shape.head_width());
        let shares = sharding.heads(shape.heads, shape.groups).heads;
        let is_split = sharding.splits(shape.groups);
        let whole = || Ok(WholeGroups { read: all()?, gates: all()? });
        Ok(ShapeScratch {
            shape,
            projected: tensor(own.width() + own.head_width() + own.heads)?,
            mixed: tensor(own.width())?,
            read: tensor(own.head_width())?,
            gated: norms.none.then(|| tensor(own.head_width())).transpose()?,
            all_read: (sharding.gathers() && (norms.none || !is_split)).then(all).transpose()?,
            whole: (norms.some && is_split).then(whole).transpose()?,
            shares: shares.iter().map(|heads| columns_of(heads, shape.head_dim)).collect(),
        })
    }
}

impl<B: Backend> StateSpace<B> {
    /// The scan of layer `layer`, whose input and output are `hidden` wide, and whose region of the state begins at `at`.
    pub fn load(
        backend: &B,
        spec: &Spec,
        sharding: &Sharding,
        weights: &mut Weights,
        [layer, at]: [usize; 2],
        hidden: usize,
    ) -> Result<StateSpace<B>> {
        let names = weights.names();
        let name = |part| names.in_layer(layer, part);
        let (parts, all) = (&names.scan, &spec.heads);
        let shares = sharding.heads(all.heads, all.groups);
        let (heads, groups) = (shares.own_heads(), shares.own_kv_heads());
        let own_values = columns_of(&heads, all.head_dim);
        let of_groups = columns_of(&groups, all.state_dim);
        let moved = |rows: &Range<usize>, by: usize| rows.start + by..rows.end + by;
        // `x`, `B` and `C`, one behind another.
        let xbc = |by: usize| {
            let (b, c) = (by + all.head_width(), by + all.head_width() + all.groups * all.state_dim);
            vec![moved(&own_values, by), moved(&of_groups, b), moved(&of_groups, c)]
        };
        // The tensor has the gates before them, and the steps behind.
        let first_step = all.head_width() + all.width();
        let own = [xbc(all.head_width()), vec![own_values.clone(), moved(&heads, first_step)]].concat();
        let input = Projection { name: name(parts.input), outputs: first_step + all.heads, own };
        let Back { inputs, outputs, adds_bias } = sharding.back(all.head_width(), own_values.clone());
        let output = Projection { name: name(parts.output), outputs: hidden, own: vec![outputs] };
        let inputs = Inputs { all: all.head_width(), own: inputs };
        let read = inputs.own.clone();
        let conv = spec.conv();
        let mut conv_weight = weights.short_conv(&name(parts.conv), all.width(), conv, &xbc(0))?;
        // A factor of what is convolved is one of the weights.
        let ScanScales { x, b, c, .. } = spec.scales;
        let columns = [(x, own_values.len()), (b, of_groups.len()), (c, of_groups.len())];
        let columns = columns.into_iter().flat_map(|(scale, columns)| std::iter::repeat_n(scale, columns));
        let of_taps = conv_weight.chunks_exact_mut(own_heads(*all, sharding).width()).take(conv.taps);
        of_taps.for_each(|tap| tap.iter_mut().zip(columns.clone()).for_each(|(weight, scale)| *weight *= scale));
        let of_heads = std::slice::from_ref(&heads);
        let rates = [
            weights.rates(layer, parts.rates, all.heads, of_heads)?,
            weights.parameter(&name(parts.dt_bias), all.heads, of_heads)?,
            weights.parameter(&name(parts.skip), all.heads, of_heads)?,
        ];
        let normed = if sharding.splits(all.groups) { 0..all.head_width() } else { own_values.clone() };
        let mut norm = |spec| -> Result<Norm<B>> {
            let weight = weights.norm_of_groups(&name(parts.norm), [all.groups, all.head_width()], normed.clone())?;
            Ok(Norm { weight: backend.vector(&[weight])?, spec })
        };
        let norm = spec.norm.map(&mut norm).transpose()?;
        Ok(StateSpace {
            shape: *all,
            heads: own_heads(*all, sharding),
            conv,
            at,
            input: Linear::load(backend, weights, Inputs::all(hidden), &[input], spec.bias, true)?,
            conv_weight: backend.table(&conv_weight)?,
            rates: backend.table(&rates.concat())?,
            scales: spec.scales,
            norm,
            read,
            output: Linear::load(backend, weights, inputs, &[output], spec.bias, adds_bias)?,
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
        scratch: &'a mut ScanScratch<B>,
        states: &mut B::States,
        device_batch: &B::DeviceBatch,
        x: &Tensor<B::Storage>,
    ) -> &'a Tensor<B::Storage> {
        let scratch = scratch.0.iter_mut().find(|scratch| scratch.shape == self.shape).expect("a layer of the spec");
        let ShapeScratch { projected, mixed, read, gated, all_read, whole, shares, .. } = scratch;
        self.input.forward(backend, projected, x);
        let (place, first) = ((states, self.at), self.heads.width());
        let read = match (&self.norm, whole, gated) {
            (Some(norm), Some(WholeGroups { read: all, gates }), _) => {
                let layer = self.layer(projected, ScanGate::Nothing);
                ops::scan_layer(backend, read, ScanRows { mixed, read: None }, layer, place, device_batch);
                ops::join_columns(backend, all, Some(Part { x: &*read, first: 0 }), shares);
                ops::join_columns(backend, gates, Some(Part { x: &*projected, first }), shares);
                ops::gated_norm(backend, all, self.head_gate(norm, gates, 0));
                return self.own_part(backend, all, read);
            }
            (Some(norm), None, _) => {
                let layer = self.layer(projected, ScanGate::Norm(self.head_gate(norm, projected, first)));
                ops::scan_layer(backend, read, ScanRows { mixed, read: None }, layer, place, device_batch);
                read
            }
            (None, _, Some(gated)) => {
                let layer = self.layer(projected, ScanGate::Silu { scale: self.scales.gate });
                ops::scan_layer(backend, gated, ScanRows { mixed, read: Some(read) }, layer, place, device_batch);
                gated
            }
            (None, _, None) => unreachable!("scratch of a layer without a norm"),
        };
        gathered(backend, read, all_read, shares)
    }

    /// What is computed between the projections.
    fn layer<'a>(
        &'a self,
        projected: &'a Tensor<B::Storage>,
        gate: ScanGate<'a, Tensor<B::Storage>, B::Vector>,
    ) -> ScanLayer<'a, Tensor<B::Storage>, B::Vector> {
        ScanLayer {
            projected,
            conv_weight: &self.conv_weight,
            conv: self.conv,
            rates: &self.rates,
            step_scale: self.scales.step,
            heads: self.heads,
            gate,
        }
    }

    /// The norm of each group, with the gates at columns `first..` of `gate`.
    fn head_gate<'a>(
        &self,
        norm: &'a Norm<B>,
        gate: &'a Tensor<B::Storage>,
        first: usize,
    ) -> HeadGate<'a, Tensor<B::Storage>, B::Vector> {
        let (Norm { weight, spec: GroupNorm { eps, order } }, scale) = (norm, self.scales.gate);
        let head_dim = self.shape.head_width() / self.shape.groups;
        HeadGate { gate, first, scale, order: *order, head_dim, weight, eps: *eps }
    }

    /// What the projection back reads of the columns `all`, which is all of them or is copied to `own`.
    fn own_part<'a>(
        &self,
        backend: &mut B,
        all: &'a Tensor<B::Storage>,
        own: &'a mut Tensor<B::Storage>,
    ) -> &'a Tensor<B::Storage> {
        if self.read.len() == all.cols() {
            return all;
        }
        let at = |first| HeadColumns { first, step: 0 };
        let part = HeadPart { from: Some((all, at(self.read.start))), to: at(0), width: self.read.len() };
        ops::place_heads(backend, own, 1, &[part]);
        own
    }
}
