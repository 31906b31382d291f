//! The attention of a layer: projections, optional norms of queries and keys, rotation, cache, an optional gate, and the way out.

use crate::latent::{Latent, LatentScratch};
use crate::linear::{Inputs, Linear, Projection};
use crate::names::QkvNames;
use crate::norm::Norm;
use crate::products::Work;
use crate::shard::{Back, HeadShares, Sharding, columns_of};
use crate::spec::{self, Bias, DecoderSpec, KvSource, OutputGate, QkNorm, SelfAttention, Sinks, Temperature, Values};
use crate::weights::Weights;
use base::error::Result;
use compute::explain::AttentionHeads;
use compute::ops;
use compute::{
    AttentionSpec, Backend, HeadRows, KvPlace, KvValues, NormExtent, NormOrder, NormWeights, Pairing, Part, QkNormRope,
    QkNormWeights, RopeTable, Scoring, Tensor, WholeRows,
};
use std::ops::Range;

/// The attention of one layer.
pub struct Attention<B: Backend> {
    /// Where its keys and values are.
    place: KvPlace,
    spec: AttentionSpec,
    shape: Shape,
    input: Input<B>,
    /// For this rank's heads.
    gate: Option<Linear<B>>,
    norms: Option<Norms<B>>,
    value_norm: Option<f32>,
    /// Index into [`PositionTables::ropes`].
    rope: Option<usize>,
    temperature: Option<Temperature>,
    /// `[heads]`
    sinks: Option<B::Vector>,
    output: Linear<B>,
}

/// What makes queries, keys and values.
enum Input<B: Backend> {
    /// One matrix.
    Direct(Linear<B>),
    /// Projections of latents.
    Latent(Box<Latent<B>>),
}

/// Norms of queries and keys.
struct Norms<B: Backend> {
    /// `[head_dim]`, or `[heads * head_dim]`
    query: Norm<B>,
    /// `[head_dim]`, or `[kv_heads * head_dim]`. `None` where the keys are those of another layer.
    key: Option<Norm<B>>,
    extent: NormExtent,
}

/// What depends on the position of a token alone, shared by the layers.
pub struct PositionTables<B: Backend> {
    ropes: Vec<Rope<B>>,
    /// Each distinct temperature of the layers, and its factors. `[positions]`
    temperatures: Vec<(Temperature, B::Vector)>,
}

/// The cosines and sines of a rotary embedding.
struct Rope<B: Backend> {
    /// `[positions, rotary]`
    table: B::Vector,
    rotary: usize,
    pairing: Pairing,
}

/// Heads of a layer, those of all ranks. Layers of one shape share their memory.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    /// Whether it has keys and values of its own.
    has_keys: bool,
    /// Where the cache has values.
    values: KvValues,
    /// What multiplies what it computed.
    output_gate: OutputGate,
    latent: Option<spec::Latent>,
}

/// What attention writes on its way, shared by all layers of one shape. One per shape, in the order in which layers first have them.
pub struct AttentionScratch<B: Backend>(Vec<ShapeScratch<B>>);

/// What attention of one shape writes on its way. Widths are those of this rank's heads, unless they say otherwise.
struct ShapeScratch<B: Backend> {
    shape: Shape,
    /// `[tokens, (heads + 2 kv_heads) * head_dim]`, without values where keys have them, or the queries alone.
    qkv: Tensor<B::Storage>,
    /// `[tokens, heads * head_dim]`, or of what is a value in the cache.
    attended: Tensor<B::Storage>,
    latent: Option<LatentScratch<B>>,
    /// What multiplies it, before the sigmoid, where the layers have a gate. `[tokens, heads * head_dim]`, or `[tokens, heads]`
    gate: Option<Tensor<B::Storage>>,
    /// The same of all ranks, where the projection out of attention reads it whole.
    all_attended: Option<Tensor<B::Storage>>,
    /// Queries and keys of all ranks, where a norm takes its mean over them.
    whole: Option<[Tensor<B::Storage>; 2]>,
    /// Columns of the queries of each rank in the rows of all, and those of its keys. `[ranks]`
    shares: [Vec<Range<usize>>; 2],
    /// Columns of what each rank gives to the projection back. `[ranks]`
    attended_shares: Vec<Range<usize>>,
}

/// What attention reads besides the stream: the sequences of this pass and where their tokens are.
pub struct Context<'a, B: Backend> {
    /// Keys and values of all layers.
    pub cache: &'a mut B::KvCache,
    /// What depends on positions alone.
    pub tables: &'a PositionTables<B>,
    /// The batch.
    pub device_batch: &'a B::DeviceBatch,
}

impl<B: Backend> PositionTables<B> {
    /// The tables of a decoder for the first `positions` positions, in an engine whose contexts have at most `max_model_len`.
    pub fn new(backend: &B, spec: &DecoderSpec, positions: usize, max_model_len: usize) -> Result<PositionTables<B>> {
        let ropes = spec.ropes.iter().enumerate().map(|(index, rope)| {
            let head_dim = spec.rope_head_dim(index);
            let table = backend.table(&rope.table(head_dim, positions, max_model_len)?)?;
            Ok(Rope { table, rotary: rope.rotary(head_dim), pairing: rope.pairing })
        });
        let ropes = ropes.collect::<Result<_>>()?;
        let temperatures = spec.temperatures().into_iter().map(|temperature| {
            let factors = backend.table(&temperature.table(positions)?)?;
            Ok((temperature, factors))
        });
        Ok(PositionTables { ropes, temperatures: temperatures.collect::<Result<_>>()? })
    }
}

impl<B: Backend> Norms<B> {
    /// `None` where the spec has no norm of queries and keys.
    fn load(
        backend: &B,
        spec: &SelfAttention,
        shares: &HeadShares,
        weights: &mut Weights,
        layer: usize,
    ) -> Result<Option<Norms<B>>> {
        let names = weights.names();
        let parts = &names.attention;
        let mut load =
            |norm, part, len, own| Norm::load_part(backend, norm, weights, &names.in_layer(layer, part), len, own);
        let dim = spec.head_dim;
        let has_keys = spec.kv_source == KvSource::Own;
        Ok(Some(match &spec.qk_norm {
            QkNorm::None => return Ok(None),
            QkNorm::PerHead { norm, order } => Norms {
                query: load(norm, parts.query_norm, dim, 0..dim)?,
                key: has_keys.then(|| load(norm, parts.key_norm, dim, 0..dim)).transpose()?,
                extent: NormExtent::Head(*order),
            },
            QkNorm::Whole(norm) => Norms {
                query: load(norm, parts.query_norm, spec.query_width(), columns_of(&shares.own_heads(), dim))?,
                key: {
                    let own = columns_of(&shares.own_kv_heads(), dim);
                    has_keys.then(|| load(norm, parts.key_norm, spec.kv_width(), own)).transpose()?
                },
                extent: NormExtent::Whole,
            },
        }))
    }

    /// What the op takes.
    fn weights(&self) -> QkNormWeights<'_, B::Vector> {
        let NormWeights { weight: query, eps, .. } = self.query.weights();
        let key = self.key.as_ref().map_or(query, |key| key.weights().weight);
        QkNormWeights { query, key, eps, extent: self.extent }
    }
}

impl<B: Backend> AttentionScratch<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, sharding: &Sharding, tokens: usize) -> Result<AttentionScratch<B>> {
        let mut shapes: Vec<Shape> = Vec::new();
        for shape in spec.attentions().map(Shape::of) {
            if !shapes.contains(&shape) {
                shapes.push(shape);
            }
        }
        let scratch = shapes.into_iter().map(|shape| ShapeScratch::new(backend, spec, shape, sharding, tokens));
        scratch.collect::<Result<_>>().map(AttentionScratch)
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        self.0.iter_mut().for_each(|scratch| scratch.set_rows(tokens));
    }

    fn of(&mut self, shape: Shape) -> &mut ShapeScratch<B> {
        self.0.iter_mut().find(|scratch| scratch.shape == shape).expect("a layer of the spec")
    }
}

impl Shape {
    fn of(attention: &SelfAttention) -> Shape {
        let &SelfAttention { kv_heads, head_dim, kv_source, output_gate, latent, .. } = attention;
        let (has_keys, values) = (kv_source == KvSource::Own, attention.kv_values());
        Shape { heads: attention.scores.heads, kv_heads, head_dim, has_keys, values, output_gate, latent }
    }
}

impl<B: Backend> ShapeScratch<B> {
    fn new(
        backend: &B,
        spec: &DecoderSpec,
        shape: Shape,
        sharding: &Sharding,
        tokens: usize,
    ) -> Result<ShapeScratch<B>> {
        let Shape { heads, kv_heads, head_dim: dim, has_keys, values, output_gate, latent } = shape;
        let value = latent.map_or(dim, |latent| latent.value);
        let shares = sharding.heads(heads, kv_heads);
        let queries = shares.own_heads().len() * dim;
        let keys = shares.own_kv_heads().len() * dim;
        let layers = || spec.attentions().filter(|attention| Shape::of(attention) == shape);
        let has_whole_norm = layers().any(|layer| matches!(layer.qk_norm, QkNorm::Whole(_)));
        let tensor = |cols| backend.tensor(tokens, cols);
        let whole = match has_whole_norm && !sharding.is_alone() {
            true => Some([tensor(heads * dim)?, tensor(kv_heads * dim)?]),
            false => None,
        };
        Ok(ShapeScratch {
            shape,
            qkv: tensor(queries + if has_keys { values.vectors() * keys } else { 0 })?,
            attended: tensor(shares.own_heads().len() * values.dim(dim))?,
            latent: latent
                .map(|latent| LatentScratch::new(backend, &latent, shares.own_heads().len(), tokens))
                .transpose()?,
            gate: match shares.own_heads().len() * output_gate.numbers(dim) {
                0 => None,
                gates => Some(tensor(gates)?),
            },
            all_attended: sharding.gathers().then(|| tensor(heads * value)).transpose()?,
            whole,
            shares: [&shares.heads, &shares.kv_heads]
                .map(|heads| heads.iter().map(|heads| columns_of(heads, dim)).collect()),
            attended_shares: shares.heads.iter().map(|heads| columns_of(heads, value)).collect(),
        })
    }

    fn set_rows(&mut self, tokens: usize) {
        self.latent.iter_mut().for_each(|latent| latent.set_rows(tokens));
        let whole = self.whole.iter_mut().flatten();
        let optional = self.gate.iter_mut().chain(&mut self.all_attended).chain(whole);
        let all = [&mut self.qkv, &mut self.attended].into_iter().chain(optional);
        all.for_each(|tensor| tensor.set_rows(tokens));
    }
}

impl<B: Backend> Attention<B> {
    /// The attention of layer `layer`, whose input and output are `hidden` wide, over keys and values at `place`.
    pub fn load(
        backend: &B,
        spec: &SelfAttention,
        sharding: &Sharding,
        weights: &mut Weights,
        (layer, place): (usize, KvPlace),
        hidden: usize,
    ) -> Result<Attention<B>> {
        let names = weights.names();
        let name = |part| names.in_layer(layer, part);
        let parts = &names.attention;
        let (wide, narrow) = (spec.query_width(), spec.kv_width());
        let shares = sharding.heads(spec.scores.heads, spec.kv_heads);
        let queries = columns_of(&shares.own_heads(), spec.head_dim);
        let keys = columns_of(&shares.own_kv_heads(), spec.head_dim);
        let is_projected = spec.values == Values::Projected;
        let has_keys = spec.kv_source == KvSource::Own;
        let stacked = match parts.qkv {
            _ if spec.latent.is_some() => Vec::new(),
            QkvNames::Separate { query, key, value } if !has_keys => {
                // Published files have them all the same.
                [key, value, parts.key_norm].into_iter().for_each(|part| weights.leave(&name(part)));
                vec![Projection { name: name(query), outputs: wide, own: vec![queries.clone()] }]
            }
            QkvNames::Separate { query, key, value } => vec![
                match spec.output_gate {
                    OutputGate::SigmoidInQueries => {
                        let rows = each_head(&shares.own_heads(), spec.head_dim, 0);
                        Projection { name: name(query), outputs: 2 * wide, own: rows }
                    }
                    _ => Projection { name: name(query), outputs: wide, own: vec![queries.clone()] },
                },
                Projection { name: name(key), outputs: narrow, own: vec![keys.clone()] },
                Projection {
                    name: name(if is_projected { value } else { key }),
                    outputs: narrow,
                    own: vec![keys.clone()],
                },
            ],
            QkvNames::Fused(all) => {
                assert!(is_projected && has_keys, "the rows of a tensor of all three are all there");
                let at = |start: usize| start + keys.start..start + keys.end;
                let own = vec![queries.clone(), at(wide), at(wide + narrow)];
                vec![Projection { name: name(all), outputs: wide + 2 * narrow, own }]
            }
        };
        let gate = match spec.output_gate {
            OutputGate::None => None,
            OutputGate::SigmoidInQueries => {
                let QkvNames::Separate { query, .. } = parts.qkv else { unreachable!("names of such a family") };
                let rows = each_head(&shares.own_heads(), spec.head_dim, 1);
                let gate = Projection { name: name(query), outputs: 2 * wide, own: rows };
                Some(Linear::load(backend, weights, Inputs::all(hidden), &[gate], spec.qkv_bias, true)?)
            }
            OutputGate::Sigmoid | OutputGate::SigmoidPerHead => {
                let each = spec.output_gate.numbers(spec.head_dim);
                let own = columns_of(&shares.own_heads(), each);
                let gate = Projection { name: name(parts.gate), outputs: each * spec.scores.heads, own: vec![own] };
                Some(Linear::load(backend, weights, Inputs::all(hidden), &[gate], Bias::None, true)?)
            }
        };
        let wide = spec.scores.heads * spec.value_dim();
        let values = columns_of(&shares.own_heads(), spec.value_dim());
        let Back { inputs, outputs, adds_bias } = sharding.back(wide, values);
        let output = Projection { name: name(parts.output), outputs: hidden, own: vec![outputs] };
        let inputs = Inputs { all: wide, own: inputs };
        let sinks = match spec.sinks {
            Sinks::None => None,
            Sinks::Stored => {
                let part = weights.vector(&name(parts.sinks), spec.scores.heads, shares.own_heads())?;
                Some(backend.vector(&[part])?)
            }
        };
        let input = match &spec.latent {
            None => Input::Direct(Linear::load(backend, weights, Inputs::all(hidden), &stacked, spec.qkv_bias, true)?),
            Some(latent) => {
                let of_rank = (layer, shares.own_heads());
                Input::Latent(Box::new(Latent::load(backend, spec, latent, weights, of_rank, hidden)?))
            }
        };
        Ok(Attention {
            place,
            spec: AttentionSpec { heads: shares.own_heads().len(), ..spec.scores },
            shape: Shape::of(spec),
            input,
            gate,
            norms: Norms::load(backend, spec, &shares, weights, layer)?,
            value_norm: spec.value_norm,
            rope: spec.rope,
            temperature: spec.temperature,
            sinks,
            output: Linear::load(backend, weights, inputs, &[output], spec.output_bias, adds_bias)?,
        })
    }

    /// The layer that reads the input, where one alone does.
    pub fn input(&self) -> Option<&Linear<B>> {
        match &self.input {
            Input::Direct(qkv) if self.gate.is_none() => Some(qkv),
            Input::Direct(_) | Input::Latent(_) => None,
        }
    }

    /// What it computes, in order. `decoder`: of which it is a layer.
    pub fn work(&self, decoder: &DecoderSpec) -> Vec<Work<'_, B>> {
        let Shape { kv_heads, head_dim, values, .. } = self.shape;
        let turns_whole = |&index: &usize| {
            let rope = &decoder.ropes[index];
            rope.rotary(head_dim) == head_dim && rope.pairing == Pairing::Halves
        };
        let is_known = |norms: &Norms<B>| norms.extent == NormExtent::Head(NormOrder::BeforeRope);
        let is_common = self.rope.as_ref().is_some_and(turns_whole)
            && self.norms.as_ref().is_none_or(is_known)
            && self.temperature.is_none()
            && self.value_norm.is_none();
        let mut work = match &self.input {
            Input::Direct(qkv) => vec![Work::product("qkv", qkv)],
            Input::Latent(latent) => latent.work(),
        };
        work.push(Work::Attention(AttentionHeads { spec: self.spec, kv_heads, head_dim, values, is_common }));
        if let Input::Latent(latent) = &self.input {
            work.push(latent.work_of_values());
        }
        work.extend(self.gate.iter().map(|gate| Work::product("attention gate", gate)));
        work.push(Work::back("o", &self.output));
        work
    }

    /// The projection of what [`forward`](Self::forward) returns back into the stream.
    pub fn output(&self) -> &Linear<B> {
        &self.output
    }

    /// What [`output`](Self::output) reads. `x` is `[tokens, hidden]`. Keys and values of the new tokens are in the cache afterwards.
    pub fn forward<'a>(
        &self,
        backend: &mut B,
        scratch: &'a mut AttentionScratch<B>,
        context: Context<B>,
        x: &Tensor<B::Storage>,
    ) -> &'a Tensor<B::Storage> {
        let Context { cache, tables, device_batch } = context;
        let ShapeScratch { qkv, attended, latent, gate, all_attended, whole, shares, attended_shares, .. } =
            scratch.of(self.shape);
        match (&self.input, &mut *latent) {
            (Input::Latent(projections), Some(latent)) => projections.forward(backend, latent, qkv, x),
            (Input::Direct(all), _) => all.forward(backend, qkv, x),
            (Input::Latent(_), None) => unreachable!("scratch of the same shape"),
        }
        let is_whole = self.norms.as_ref().is_some_and(|norms| norms.extent == NormExtent::Whole);
        let whole = whole.as_mut().filter(|_| is_whole).map(|[queries, keys]| {
            let first_key = self.spec.heads * self.shape.head_dim;
            ops::join_columns(backend, queries, Some(Part { x: qkv, first: 0 }), &shares[0]);
            ops::join_columns(backend, keys, Some(Part { x: qkv, first: first_key }), &shares[1]);
            WholeRows { queries: &*queries, keys: &*keys }
        });
        let rope = self.rope.map(|index| &tables.ropes[index]);
        let is_own = |(temperature, _): &&(Temperature, B::Vector)| self.temperature == Some(*temperature);
        let transform = QkNormRope {
            norm: self.norms.as_ref().map(Norms::weights),
            whole,
            rope: rope.map(|Rope { table, rotary, pairing }| RopeTable { table, rotary: *rotary, pairing: *pairing }),
            temperature: tables.temperatures.iter().find(is_own).map(|(_, factors)| factors),
            value_norm: self.value_norm,
        };
        let heads = HeadRows { qkv, out: attended };
        let scoring = Scoring { spec: &self.spec, sinks: self.sinks.as_ref() };
        ops::rope_and_attention(backend, scoring, heads, transform, cache, self.place, device_batch);
        if let (Some(layer), Some(gate)) = (&self.gate, gate) {
            layer.forward(backend, gate, x);
            ops::sigmoid_mul(backend, attended, gate);
        }
        let attended = match (&self.input, latent) {
            (Input::Latent(projections), Some(latent)) => projections.values(backend, latent, attended),
            _ => &*attended,
        };
        match all_attended {
            Some(all) => {
                ops::join_columns(backend, all, Some(Part { x: attended, first: 0 }), attended_shares);
                all
            }
            None => attended,
        }
    }
}

/// The rows of some heads in a projection that has two kinds of rows for each head: those of the first kind, or of the second.
fn each_head(heads: &Range<usize>, head_dim: usize, kind: usize) -> Vec<Range<usize>> {
    heads.clone().map(|head| (2 * head + kind) * head_dim).map(|start| start..start + head_dim).collect()
}
