//! The decoder of all families, computed stage by stage.
//!
//! A pass is cut where little is lost: after each layer, and within the head, whose matrix may weigh as much as many
//! layers and is taken in slices of about one layer. Results do not depend on how long the caller waits between stages.

use crate::backend::{Backend, Tensor};
use crate::batch::BatchLimits;
use crate::error::Result;
use crate::model::attention::{Attention, AttentionScratch, Context};
use crate::model::mlp::{Mlp, MlpScratch};
use crate::model::spec::{DecoderSpec, Head};
use crate::model::weights::Weights;
use crate::ops;
use std::ops::Range;

/// Slices of the head begin at a multiple of this, so that kernels see whole tiles.
const HEAD_SLICE_ALIGN: usize = 256;

/// Weights, and the memory that a pass works in.
pub struct Decoder<B: Backend> {
    norm_eps: f32,
    /// `[vocab, hidden]`
    embedding: B::Matrix,
    layers: Vec<Layer<B>>,
    /// `[hidden]`
    final_norm: B::Vector,
    /// `[vocab, hidden]`; `None` where the embedding table serves.
    head: Option<B::Matrix>,
    /// Cosines and sines. `[positions, head_dim]`
    rope: B::Vector,
    /// Columns of the head that one stage computes.
    head_slice: usize,
    activations: Activations<B>,
}

struct Layer<B: Backend> {
    attention_norm: B::Vector,
    attention: Attention<B>,
    mlp_norm: B::Vector,
    mlp: Mlp<B>,
}

struct Activations<B: Backend> {
    /// The stream that layers add to. `[tokens, hidden]`
    residual: Tensor<B::Storage>,
    /// What the last sublayer will add to it. `[tokens, hidden]`
    delta: Tensor<B::Storage>,
    /// What the next one reads. `[tokens, hidden]`
    normed: Tensor<B::Storage>,
    attention: AttentionScratch<B>,
    mlp: MlpScratch<B>,
    /// Rows of `normed` that are sampled, and then those that the host wants to read. `[samples + pooled_rows, hidden]`
    gathered: Tensor<B::Storage>,
    /// `[samples, vocab]`
    logits: Tensor<B::Storage>,
}

/// A part of a pass that is computed in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A layer; the first looks the tokens up before, the last normalizes and gathers what is sampled after.
    Layer(usize),
    /// A slice of the head.
    Head(usize),
    /// The choice of the tokens.
    Sample,
}

impl<B: Backend> Decoder<B> {
    /// Takes the weights that `spec` asks for, and memory for batches of up to `limits` over `positions` positions.
    pub fn load(
        backend: &B,
        spec: &DecoderSpec,
        weights: &mut Weights,
        limits: &BatchLimits,
        positions: usize,
    ) -> Result<Decoder<B>> {
        let embedding = backend.matrix(&[weights.matrix("embed_tokens.weight", spec.vocab, spec.hidden)?])?;
        let layers: Result<Vec<_>> = (0..spec.layers).map(|layer| Layer::load(backend, spec, weights, layer)).collect();
        let final_norm = backend.vector(&[weights.vector("norm.weight", spec.hidden)?])?;
        let head = match spec.head {
            Head::Tied => None,
            Head::Own => Some(backend.matrix(&[weights.matrix("lm_head.weight", spec.vocab, spec.hidden)?])?),
        };
        // A pass that is launched whole is cut nowhere.
        let head_slice = match B::DEPTH {
            1 => (spec.layer_parameters() / spec.hidden).next_multiple_of(HEAD_SLICE_ALIGN),
            _ => spec.vocab,
        };
        Ok(Decoder {
            norm_eps: spec.norm_eps,
            embedding,
            layers: layers?,
            final_norm,
            head,
            rope: backend.table(&spec.rope.table(spec.head_dim, positions)?)?,
            head_slice,
            activations: Activations::new(backend, spec, limits)?,
        })
    }

    /// The first stage of a pass.
    pub fn first(&self) -> Stage {
        Stage::Layer(0)
    }

    /// The stage after `stage` in a pass over the batch of `step`; `None` when the pass is done.
    pub fn after(&self, stage: Stage, step: &B::Step) -> Option<Stage> {
        match stage {
            Stage::Layer(layer) if layer + 1 < self.layers.len() => Some(Stage::Layer(layer + 1)),
            Stage::Layer(_) if B::batch(step).samples() == 0 => None,
            Stage::Layer(_) => Some(Stage::Head(0)),
            Stage::Head(slice) if slice + 1 < self.head_slices() => Some(Stage::Head(slice + 1)),
            Stage::Head(_) => Some(Stage::Sample),
            Stage::Sample => None,
        }
    }

    /// Stages of a pass that samples.
    pub fn stages(&self) -> usize {
        self.layers.len() + self.head_slices() + 1
    }

    /// Computes one stage. The stages of a pass come in order, all over the same batch.
    pub fn run(&mut self, backend: &mut B, cache: &mut B::KvCache, step: &mut B::Step, stage: Stage) {
        match stage {
            Stage::Layer(layer) => {
                if layer == 0 {
                    self.embed(backend, step);
                }
                self.layer(backend, cache, step, layer);
                if layer + 1 == self.layers.len() {
                    self.gather(backend, step);
                }
            }
            Stage::Head(slice) => self.head(backend, self.head_columns(slice)),
            Stage::Sample => self.sample(backend, step),
        }
    }

    /// Computes the stages of a pass up to the logits: what a graph records.
    pub fn run_to_logits(&mut self, backend: &mut B, cache: &mut B::KvCache, step: &mut B::Step) {
        let mut next = Some(self.first());
        while let Some(stage) = next.filter(|&stage| stage != Stage::Sample) {
            self.run(backend, cache, step, stage);
            next = self.after(stage, step);
        }
    }

    /// The logits of the last pass that sampled. `[samples, vocab]`
    pub fn logits(&self) -> &Tensor<B::Storage> {
        &self.activations.logits
    }

    /// Begins a pass over the batch of `step`: makes the activations as large as the batch, and copies its blocks. Not recorded in
    /// graphs, and before all stages: copies come first.
    pub fn begin(&mut self, backend: &mut B, cache: &mut B::KvCache, step: &B::Step) {
        let batch = B::batch(step);
        self.activations.set_rows(batch.tokens(), batch.samples(), batch.pooled_rows());
        ops::copy_blocks(backend, cache, step);
    }

    fn embed(&mut self, backend: &mut B, step: &B::Step) {
        ops::embedding(backend, &mut self.activations.residual, &self.embedding, step);
    }

    fn layer(&mut self, backend: &mut B, cache: &mut B::KvCache, step: &B::Step, index: usize) {
        let eps = self.norm_eps;
        let layer = &self.layers[index];
        let Activations { residual, delta, normed, attention, mlp, .. } = &mut self.activations;
        match index {
            0 => ops::rms_norm(backend, normed, residual, &layer.attention_norm, eps),
            _ => ops::add_rms_norm(backend, normed, residual, delta, &layer.attention_norm, eps),
        }
        layer.attention.forward(backend, attention, Context { cache, rope: &self.rope, step }, delta, normed);
        ops::add_rms_norm(backend, normed, residual, delta, &layer.mlp_norm, eps);
        layer.mlp.forward(backend, mlp, delta, normed);
    }

    fn gather(&mut self, backend: &mut B, step: &mut B::Step) {
        let Activations { residual, delta, normed, gathered, .. } = &mut self.activations;
        ops::add_rms_norm(backend, normed, residual, delta, &self.final_norm, self.norm_eps);
        ops::gather(backend, gathered, normed, step);
        ops::keep_hidden_states(backend, step, gathered);
        gathered.set_rows(B::batch(step).samples());
    }

    fn head(&mut self, backend: &mut B, columns: Range<usize>) {
        let Activations { gathered, logits, .. } = &mut self.activations;
        ops::linear(backend, logits, gathered, self.head.as_ref().unwrap_or(&self.embedding), None, columns);
    }

    /// Chooses the tokens of a pass whose logits are there.
    fn sample(&mut self, backend: &mut B, step: &mut B::Step) {
        let logits = &mut self.activations.logits;
        if B::batch(step).processes_logits() {
            ops::process_logits(backend, step, logits);
        }
        ops::sample(backend, step, logits);
        if B::batch(step).wants_logprobs() {
            ops::logprobs(backend, step, logits);
        }
    }

    fn vocab(&self) -> usize {
        B::matrix_shape(&self.embedding).0
    }

    fn head_slices(&self) -> usize {
        self.vocab().div_ceil(self.head_slice)
    }

    fn head_columns(&self, slice: usize) -> Range<usize> {
        let start = slice * self.head_slice;
        start..(start + self.head_slice).min(self.vocab())
    }
}

impl<B: Backend> Layer<B> {
    fn load(backend: &B, spec: &DecoderSpec, weights: &mut Weights, layer: usize) -> Result<Layer<B>> {
        let norm = |weights: &mut Weights, name: &str| {
            backend.vector(&[weights.vector(&format!("layers.{layer}.{name}.weight"), spec.hidden)?])
        };
        Ok(Layer {
            attention_norm: norm(weights, "input_layernorm")?,
            attention: Attention::load(backend, spec, weights, layer)?,
            mlp_norm: norm(weights, "post_attention_layernorm")?,
            mlp: Mlp::load(backend, spec, weights, layer)?,
        })
    }
}

impl<B: Backend> Activations<B> {
    fn new(backend: &B, spec: &DecoderSpec, limits: &BatchLimits) -> Result<Activations<B>> {
        let stream = || backend.tensor(limits.tokens, spec.hidden);
        Ok(Activations {
            residual: stream()?,
            delta: stream()?,
            normed: stream()?,
            attention: AttentionScratch::new(backend, spec, limits.tokens)?,
            mlp: MlpScratch::new(backend, spec, limits.tokens)?,
            gathered: backend.tensor(limits.rows + limits.pooled_rows(), spec.hidden)?,
            logits: backend.tensor(limits.rows, spec.vocab)?,
        })
    }

    fn set_rows(&mut self, tokens: usize, samples: usize, pooled_rows: usize) {
        self.residual.set_rows(tokens);
        self.delta.set_rows(tokens);
        self.normed.set_rows(tokens);
        self.attention.set_rows(tokens);
        self.mlp.set_rows(tokens);
        self.gathered.set_rows(samples + pooled_rows);
        self.logits.set_rows(samples);
    }
}
