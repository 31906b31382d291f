//! The attention of a layer: projections, optional norms of queries and keys, rotation, cache, and the way out.

use crate::backend::{
    AttentionSpec, Backend, NormExtent, NormWeights, Pairing, QkNormRope, QkNormWeights, RopeTable, Tensor,
};
use crate::error::Result;
use crate::model::linear::Linear;
use crate::model::names::QkvNames;
use crate::model::norm::Norm;
use crate::model::spec::{DecoderSpec, QkNorm, SelfAttention, Temperature};
use crate::model::weights::Weights;
use crate::ops;

/// The attention of one layer.
pub struct Attention<B: Backend> {
    layer: usize,
    spec: AttentionSpec,
    /// Queries, keys and values in one matrix.
    qkv: Linear<B>,
    norms: Option<Norms<B>>,
    /// Index into [`PositionTables::ropes`].
    rope: Option<usize>,
    temperature: Option<Temperature>,
    output: Linear<B>,
}

/// Norms of queries and keys.
struct Norms<B: Backend> {
    /// `[head_dim]`, or `[heads * head_dim]`
    query: Norm<B>,
    /// `[head_dim]`, or `[kv_heads * head_dim]`
    key: Norm<B>,
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

/// What attention writes on its way, shared by all layers.
pub struct AttentionScratch<B: Backend> {
    /// `[tokens, (heads + 2 kv_heads) * head_dim]`
    qkv: Tensor<B::Storage>,
    /// `[tokens, heads * head_dim]`
    attended: Tensor<B::Storage>,
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
        let head_dim = spec.attention().head_dim;
        let ropes = spec.ropes.iter().map(|rope| {
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
    fn load(backend: &B, spec: &SelfAttention, weights: &mut Weights, layer: usize) -> Result<Option<Norms<B>>> {
        let (norm, extent, query, key) = match spec.qk_norm {
            QkNorm::None => return Ok(None),
            QkNorm::PerHead { norm, order } => (norm, NormExtent::Head(order), spec.head_dim, spec.head_dim),
            QkNorm::Whole(norm) => (norm, NormExtent::Whole, spec.query_width(), spec.kv_width()),
        };
        let names = weights.names();
        let mut load = |part, len| Norm::load(backend, &norm, weights, &names.in_layer(layer, part), len);
        let parts = &names.attention;
        Ok(Some(Norms { query: load(parts.query_norm, query)?, key: load(parts.key_norm, key)?, extent }))
    }

    /// What the op takes.
    fn weights(&self) -> QkNormWeights<'_, B::Vector> {
        let NormWeights { weight: query, eps, .. } = self.query.weights();
        QkNormWeights { query, key: self.key.weights().weight, eps, extent: self.extent }
    }
}

impl<B: Backend> AttentionScratch<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, spec: &SelfAttention, tokens: usize) -> Result<AttentionScratch<B>> {
        Ok(AttentionScratch {
            qkv: backend.tensor(tokens, spec.query_width() + 2 * spec.kv_width())?,
            attended: backend.tensor(tokens, spec.query_width())?,
        })
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        self.qkv.set_rows(tokens);
        self.attended.set_rows(tokens);
    }
}

impl<B: Backend> Attention<B> {
    /// The attention of layer `layer`, whose input and output are `hidden` wide.
    pub fn load(
        backend: &B,
        spec: &SelfAttention,
        weights: &mut Weights,
        layer: usize,
        hidden: usize,
    ) -> Result<Attention<B>> {
        let names = weights.names();
        let name = |part| names.in_layer(layer, part);
        let parts = &names.attention;
        let (wide, narrow) = (spec.query_width(), spec.kv_width());
        let stacked = match parts.qkv {
            QkvNames::Separate { query, key, value } => {
                vec![(name(query), wide), (name(key), narrow), (name(value), narrow)]
            }
            QkvNames::Fused(all) => vec![(name(all), wide + 2 * narrow)],
        };
        Ok(Attention {
            layer,
            spec: spec.scores,
            qkv: Linear::load(backend, weights, hidden, &stacked, spec.qkv_bias)?,
            norms: Norms::load(backend, spec, weights, layer)?,
            rope: spec.rope,
            temperature: spec.temperature,
            output: Linear::load(backend, weights, wide, &[(name(parts.output), hidden)], spec.output_bias)?,
        })
    }

    /// `out` and `x` are `[tokens, hidden]`. Keys and values of the new tokens are in the cache afterwards.
    pub fn forward(
        &self,
        backend: &mut B,
        scratch: &mut AttentionScratch<B>,
        context: Context<B>,
        out: &mut Tensor<B::Storage>,
        x: &Tensor<B::Storage>,
    ) {
        let Context { cache, tables, device_batch } = context;
        self.qkv.forward(backend, &mut scratch.qkv, x);
        let rope = self.rope.map(|index| &tables.ropes[index]);
        let is_own = |(temperature, _): &&(Temperature, B::Vector)| self.temperature == Some(*temperature);
        let transform = QkNormRope {
            norm: self.norms.as_ref().map(Norms::weights),
            rope: rope.map(|Rope { table, rotary, pairing }| RopeTable { table, rotary: *rotary, pairing: *pairing }),
            temperature: tables.temperatures.iter().find(is_own).map(|(_, factors)| factors),
        };
        ops::rope_and_cache(backend, &self.spec, &mut scratch.qkv, transform, cache, self.layer, device_batch);
        ops::attention(backend, &self.spec, &mut scratch.attended, &scratch.qkv, cache, self.layer, device_batch);
        self.output.forward(backend, out, &scratch.attended);
    }
}
