//! The attention of a layer: projections, optional norms of queries and keys, rotation, cache, and the way out.

use crate::backend::{AttentionSpec, Backend, HeadNorm, QkNormRope, Tensor};
use crate::error::Result;
use crate::model::linear::Linear;
use crate::model::spec::{DecoderSpec, QkNorm};
use crate::model::weights::Weights;
use crate::ops;

/// The attention of one layer.
pub struct Attention<B: Backend> {
    layer: usize,
    spec: AttentionSpec,
    norm_eps: f32,
    /// Queries, keys and values in one matrix.
    qkv: Linear<B>,
    /// Weights for queries and for keys. Each `[head_dim]`
    norms: Option<(B::Vector, B::Vector)>,
    output: Linear<B>,
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
    pub step: &'a B::Step,
}

impl<B: Backend> AttentionScratch<B> {
    /// For passes of up to `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, tokens: usize) -> Result<AttentionScratch<B>> {
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
    /// The attention of layer `layer`.
    pub fn load(backend: &B, spec: &DecoderSpec, weights: &mut Weights, layer: usize) -> Result<Attention<B>> {
        let name = |part: &str| format!("layers.{layer}.self_attn.{part}");
        let (wide, narrow) = (spec.query_width(), spec.kv_width());
        let stacked = [(name("q_proj"), wide), (name("k_proj"), narrow), (name("v_proj"), narrow)];
        let mut norm = |part| backend.vector(&[weights.vector(&name(part), spec.head_dim)?]);
        let norms = match spec.qk_norm {
            QkNorm::PerHead => Some((norm("q_norm.weight")?, norm("k_norm.weight")?)),
            QkNorm::None => None,
        };
        Ok(Attention {
            layer,
            spec: AttentionSpec { heads: spec.heads, scale: 1.0 / (spec.head_dim as f32).sqrt(), window: None },
            norm_eps: spec.norm_eps,
            qkv: Linear::load(backend, weights, spec.hidden, &stacked, spec.qkv_bias)?,
            norms,
            output: Linear::load(backend, weights, wide, &[(name("o_proj"), spec.hidden)], spec.output_bias)?,
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
        let Context { cache, rope, step } = context;
        let norm = self.norms.as_ref().map(|(query, key)| HeadNorm { query, key, eps: self.norm_eps });
        self.qkv.forward(backend, &mut scratch.qkv, x);
        let transform = QkNormRope { norm, rope };
        ops::rope_and_cache(backend, &self.spec, &mut scratch.qkv, transform, cache, self.layer, step);
        ops::attention(backend, &self.spec, &mut scratch.attended, &scratch.qkv, cache, self.layer, step);
        self.output.forward(backend, out, &scratch.attended);
    }
}
