//! Multi-head latent attention: queries, keys and values are projections of narrow ones of the input.
//!
//! The latent of keys and values is what is cached, once for all heads: the projection to keys multiplies queries, and that to values what attention gives.
//! Why: `docs/decisions/0124`.

use crate::linear::{Inputs, Linear, Projection};
use crate::norm::Norm;
use crate::products::Work;
use crate::shard::columns_of;
use crate::spec::{self, Bias, SelfAttention};
use crate::weights::{LatentShape, Weights};
use base::error::Result;
use compute::ops;
use compute::{Backend, HeadColumns, HeadPart, Tensor};
use std::ops::Range;

/// The projections of one layer, for the heads of this rank.
pub struct Latent<B: Backend> {
    spec: spec::Latent,
    heads: usize,
    queries: Queries<B>,
    /// To the latent of keys and values.
    down: Linear<B>,
    norm: Norm<B>,
    /// To what is rotated of keys.
    rope: Linear<B>,
    /// From queries to what meets the latent. `[heads, rank, nope]`
    keys: B::Heads,
    /// From what attention gives to values. `[heads, value, rank]`
    values: B::Heads,
}

/// What queries are projections of.
enum Queries<B: Backend> {
    /// The input.
    Input(Linear<B>),
    /// A latent.
    Latent { down: Linear<B>, norm: Norm<B>, up: Linear<B> },
}

/// What latent attention writes on its way.
pub struct LatentScratch<B: Backend> {
    /// The latent of queries, and its norm. `[tokens, query_rank]`
    query_latents: Option<[Tensor<B::Storage>; 2]>,
    /// `[tokens, heads * (nope + rope)]`
    queries: Tensor<B::Storage>,
    /// The latent of keys and values, and its norm. `[tokens, rank]`
    latents: [Tensor<B::Storage>; 2],
    /// `[tokens, rope]`
    rope: Tensor<B::Storage>,
    /// `[tokens, heads * value]`
    values: Tensor<B::Storage>,
}

impl<B: Backend> LatentScratch<B> {
    /// For passes of at most `tokens` tokens and `heads` heads.
    pub fn new(backend: &B, spec: &spec::Latent, heads: usize, tokens: usize) -> Result<LatentScratch<B>> {
        let tensor = |cols| backend.tensor(tokens, cols);
        let two = |cols| Ok([tensor(cols)?, tensor(cols)?]);
        Ok(LatentScratch {
            query_latents: spec.query_rank.map(two).transpose()?,
            queries: tensor(heads * spec.key())?,
            latents: two(spec.rank)?,
            rope: tensor(spec.rope)?,
            values: tensor(heads * spec.value)?,
        })
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        let LatentScratch { query_latents, queries, latents, rope, values } = self;
        let all = query_latents.iter_mut().flatten().chain(latents);
        all.chain([queries, rope, values]).for_each(|tensor| tensor.set_rows(tokens));
    }
}

impl<B: Backend> Latent<B> {
    /// Those of layer `layer`, whose input is `hidden` wide, for the heads `own`.
    pub fn load(
        backend: &B,
        attention: &SelfAttention,
        spec: &spec::Latent,
        weights: &mut Weights,
        (layer, own): (usize, Range<usize>),
        hidden: usize,
    ) -> Result<Latent<B>> {
        let names = weights.names();
        let name = |part| names.in_layer(layer, part);
        let parts = &names.attention.latent;
        let (heads, bias) = (attention.scores.heads, attention.qkv_bias);
        let input = Inputs::all(hidden);
        let part = |name, outputs, own| [Projection { name, outputs, own: vec![own] }];
        let (queries, of_own) = (heads * spec.key(), columns_of(&own, spec.key()));
        let queries = match spec.query_rank {
            None => {
                let all = part(name(parts.query), queries, of_own);
                Queries::Input(Linear::load(backend, weights, input.clone(), &all, Bias::None, true)?)
            }
            Some(rank) => {
                let down = part(name(parts.query_down), rank, 0..rank);
                let up = part(name(parts.query_up), queries, of_own);
                Queries::Latent {
                    down: Linear::load(backend, weights, input.clone(), &down, bias, true)?,
                    norm: Norm::load(backend, &spec.norm, weights, &name(parts.query_norm), rank)?,
                    up: Linear::load(backend, weights, Inputs::all(rank), &up, Bias::None, true)?,
                }
            }
        };
        let (rank, outputs) = (spec.rank, spec.rank + spec.rope);
        let down = part(name(parts.down), outputs, 0..rank);
        let rope = part(name(parts.down), outputs, rank..outputs);
        let shape = LatentShape { heads, key: spec.nope, value: spec.value, rank };
        let up = weights.latent_up(layer, shape, own.clone())?;
        Ok(Latent {
            spec: *spec,
            heads: own.len(),
            queries,
            down: Linear::load(backend, weights, input.clone(), &down, bias, true)?,
            norm: Norm::load(backend, &spec.norm, weights, &name(parts.norm), rank)?,
            rope: Linear::load(backend, weights, input, &rope, bias, true)?,
            keys: backend.heads(&up.keys)?,
            values: backend.heads(&up.values)?,
        })
    }

    /// Its products, in order.
    pub fn work(&self) -> Vec<Work<'_, B>> {
        let mut work = match &self.queries {
            Queries::Input(projection) => vec![Work::product("q", projection)],
            Queries::Latent { down, up, .. } => vec![Work::product("q_down", down), Work::product("q_up", up)],
        };
        let of_keys = [("kv_down", &self.down), ("k_rope", &self.rope)];
        work.extend(of_keys.map(|(name, layer)| Work::product(name, layer)));
        work.push(Work::Heads { name: "k_up", weight: &self.keys });
        work
    }

    /// The product behind attention.
    pub fn work_of_values(&self) -> Work<'_, B> {
        Work::Heads { name: "v_up", weight: &self.values }
    }

    /// Writes queries and keys, which are not rotated yet. `qkv` is `[tokens, (heads + 1) * head_dim]`, `x` is `[tokens, hidden]`.
    pub fn forward(
        &self,
        backend: &mut B,
        scratch: &mut LatentScratch<B>,
        qkv: &mut Tensor<B::Storage>,
        x: &Tensor<B::Storage>,
    ) {
        let LatentScratch { query_latents, queries, latents: [latent, normed], rope, .. } = scratch;
        match (&self.queries, query_latents) {
            (Queries::Latent { down, norm, up }, Some([latent, normed])) => {
                down.forward(backend, latent, x);
                ops::norm(backend, normed, latent, norm.weights());
                up.forward(backend, queries, normed);
            }
            (Queries::Input(projection), _) => projection.forward(backend, queries, x),
            (Queries::Latent { .. }, None) => unreachable!("scratch of the same spec"),
        }
        self.down.forward(backend, latent, x);
        ops::norm(backend, normed, latent, self.norm.weights());
        self.rope.forward(backend, rope, x);

        let (step, key) = (self.spec.head_dim(), self.spec.key());
        let spec::Latent { nope, rope: rotated, rank, .. } = self.spec;
        let (of_queries, of_key) = (HeadColumns { first: nope, step: key }, HeadColumns { first: 0, step: 0 });
        let head = |first| HeadColumns { first, step };
        let turning = HeadPart { from: Some((&*queries, of_queries)), to: head(0), width: rotated };
        ops::place_heads(backend, qkv, self.heads, &[turning]);
        let key_at = self.heads * step;
        let parts = [
            HeadPart { from: Some((&*rope, of_key)), to: head(key_at), width: rotated },
            HeadPart { from: Some((&*normed, of_key)), to: head(key_at + rotated), width: rank },
        ];
        ops::place_heads(backend, qkv, 1, &parts);
        let own = HeadColumns { first: 0, step: key };
        ops::head_linear(backend, (qkv, head(rotated)), (queries, own), &self.keys);
    }

    /// The values of what attention gave. `attended` is `[tokens, heads * rank]`.
    pub fn values<'a>(
        &self,
        backend: &mut B,
        scratch: &'a mut LatentScratch<B>,
        attended: &Tensor<B::Storage>,
    ) -> &'a Tensor<B::Storage> {
        let spec::Latent { rank, value, .. } = self.spec;
        let columns = |step| HeadColumns { first: 0, step };
        ops::head_linear(backend, (&mut scratch.values, columns(value)), (attended, columns(rank)), &self.values);
        &scratch.values
    }
}
