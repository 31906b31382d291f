//! Multi-head latent attention: queries, keys and values are projections of narrow ones of the input.
//!
//! Keys and values are expanded for every new token, so that attention, its cache and its kernels are those of heads of one size: each head begins
//! with the numbers that are rotated, and ends with zeros where a key and a value have different sizes. Why: `docs/decisions/0116`.

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
    /// From the latent to keys and values.
    up: Linear<B>,
    keys: HeadColumns,
    values: HeadColumns,
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
    /// `[tokens, heads * (nope + value)]`
    keys_values: Tensor<B::Storage>,
    /// What attention gives, without what its heads have besides values. `None`: they have nothing. `[tokens, heads * value]`
    narrow: Option<Tensor<B::Storage>>,
}

impl<B: Backend> LatentScratch<B> {
    /// For passes of at most `tokens` tokens and `heads` heads.
    pub fn new(backend: &B, spec: &spec::Latent, heads: usize, tokens: usize) -> Result<LatentScratch<B>> {
        let tensor = |cols| backend.tensor(tokens, cols);
        let two = |cols| Ok([tensor(cols)?, tensor(cols)?]);
        let is_narrow = spec.value < spec.head_dim();
        Ok(LatentScratch {
            query_latents: spec.query_rank.map(two).transpose()?,
            queries: tensor(heads * spec.key())?,
            latents: two(spec.rank)?,
            rope: tensor(spec.rope)?,
            keys_values: tensor(heads * (spec.nope + spec.value))?,
            narrow: is_narrow.then(|| tensor(heads * spec.value)).transpose()?,
        })
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        let LatentScratch { query_latents, queries, latents, rope, keys_values, narrow } = self;
        let all = query_latents.iter_mut().flatten().chain(latents).chain(narrow);
        all.chain([queries, rope, keys_values]).for_each(|tensor| tensor.set_rows(tokens));
    }

    /// The values in what attention gave. `attended` is `[tokens, heads * head_dim]`.
    pub fn narrowed<'a>(
        &'a mut self,
        backend: &mut B,
        spec: &spec::Latent,
        attended: &'a Tensor<B::Storage>,
    ) -> &'a Tensor<B::Storage> {
        let Some(narrow) = &mut self.narrow else { return attended };
        let from = HeadColumns { first: 0, step: spec.head_dim() };
        let to = HeadColumns { first: 0, step: spec.value };
        let heads = narrow.cols() / spec.value;
        ops::place_heads(backend, narrow, heads, &[HeadPart { from: Some((attended, from)), to, width: spec.value }]);
        narrow
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
            up: Linear::of(backend.matrix(&up.parts)?, None),
            keys: up.keys,
            values: up.values,
        })
    }

    /// Its products, in order.
    pub fn work(&self) -> Vec<Work<'_, B>> {
        let mut work = match &self.queries {
            Queries::Input(projection) => vec![Work::product("q", projection)],
            Queries::Latent { down, up, .. } => vec![Work::product("q_down", down), Work::product("q_up", up)],
        };
        let of_keys = [("kv_down", &self.down), ("k_rope", &self.rope), ("kv_up", &self.up)];
        work.extend(of_keys.map(|(name, layer)| Work::product(name, layer)));
        work
    }

    /// Writes queries, keys and values, which are not rotated yet. `qkv` is `[tokens, 3 * heads * head_dim]`, `x` is `[tokens, hidden]`.
    pub fn forward(
        &self,
        backend: &mut B,
        scratch: &mut LatentScratch<B>,
        qkv: &mut Tensor<B::Storage>,
        x: &Tensor<B::Storage>,
    ) {
        let LatentScratch { query_latents, queries, latents: [latent, normed], rope, keys_values, .. } = scratch;
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
        self.up.forward(backend, keys_values, normed);

        let spec::Latent { nope, rope: rotated, value, .. } = self.spec;
        let (step, key) = (self.spec.head_dim(), self.spec.key());
        let of_head = |kind: usize, first| HeadColumns { first: kind * self.heads * step + first, step };
        let query = |first| Some((&*queries, HeadColumns { first, step: key }));
        let parts = [
            HeadPart { from: query(nope), to: of_head(0, 0), width: rotated },
            HeadPart { from: query(0), to: of_head(0, rotated), width: nope },
            HeadPart { from: None, to: of_head(0, key), width: step - key },
            HeadPart { from: Some((&*rope, HeadColumns { first: 0, step: 0 })), to: of_head(1, 0), width: rotated },
            HeadPart { from: Some((&*keys_values, self.keys)), to: of_head(1, rotated), width: nope },
            HeadPart { from: None, to: of_head(1, key), width: step - key },
            HeadPart { from: Some((&*keys_values, self.values)), to: of_head(2, 0), width: value },
            HeadPart { from: None, to: of_head(2, value), width: step - value },
        ];
        ops::place_heads(backend, qkv, self.heads, &parts);
    }
}
