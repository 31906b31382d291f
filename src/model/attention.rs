//! The attention of a layer: projections, optional norms of queries and keys, rotation, cache, and the way out.

use crate::backend::{
    AttentionSpec, Backend, NormExtent, NormOrder, Pairing, QkNormRope, QkNormWeights, RopeTable, Tensor,
};
use crate::error::Result;
use crate::model::linear::Linear;
use crate::model::spec::{QkNorm, SelfAttention};
use crate::model::weights::Weights;
use crate::ops;

/// The attention of one layer.
pub struct Attention<B: Backend> {
    layer: usize,
    spec: AttentionSpec,
    /// Queries, keys and values in one matrix.
    qkv: Linear<B>,
    norms: Option<Norms<B>>,
    output: Linear<B>,
}

/// Norms of queries and keys.
struct Norms<B: Backend> {
    /// `[head_dim]`
    query: B::Vector,
    /// `[head_dim]`
    key: B::Vector,
    eps: f32,
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
    /// Cosines and sines. `[positions, head_dim]`
    pub rope: &'a B::Vector,
    /// The batch.
    pub device_batch: &'a B::DeviceBatch,
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
        let stacked = [(name(parts.query), wide), (name(parts.key), narrow), (name(parts.value), narrow)];
        let mut norm = |part| backend.vector(&[weights.vector(&name(part), spec.head_dim)?]);
        let norms = match spec.qk_norm {
            QkNorm::PerHead { norm: spec, .. } => {
                Some(Norms { query: norm(parts.query_norm)?, key: norm(parts.key_norm)?, eps: spec.eps })
            }
            QkNorm::None | QkNorm::Whole(_) => None,
        };
        Ok(Attention {
            layer,
            spec: spec.scores,
            qkv: Linear::load(backend, weights, hidden, &stacked, spec.qkv_bias)?,
            norms,
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
        let Context { cache, rope, device_batch } = context;
        let extent = NormExtent::Head(NormOrder::BeforeRope);
        let norm = self.norms.as_ref().map(|Norms { query, key, eps }| QkNormWeights { query, key, eps: *eps, extent });
        self.qkv.forward(backend, &mut scratch.qkv, x);
        let rope = RopeTable { table: rope, rotary: B::kv_shape(cache).head_dim, pairing: Pairing::Halves };
        let transform = QkNormRope { norm, rope: Some(rope), temperature: None };
        ops::rope_and_cache(backend, &self.spec, &mut scratch.qkv, transform, cache, self.layer, device_batch);
        ops::attention(backend, &self.spec, &mut scratch.attended, &scratch.qkv, cache, self.layer, device_batch);
        self.output.forward(backend, out, &scratch.attended);
    }
}
