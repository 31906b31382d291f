//! The decoder of all families, computed stage by stage.
//!
//! A pass is cut where little is lost: after each layer, and within the head, whose matrix may weigh as much as many
//! layers and is taken in slices of about one layer. Results do not depend on how long the caller waits between stages.

use crate::backend::{AddNorm, Backend, NextNorm, NormKind, NormWeights, Tensor};
use crate::batch::BatchLimits;
use crate::error::Result;
use crate::model::attention::{Attention, AttentionScratch, Context, PositionTables};
use crate::model::mlp::{Mlp, MlpScratch};
use crate::model::names::NormNames;
use crate::model::spec::{DecoderSpec, FeedForward, HeadWeights, LayerSpec, Mixer, SublayerNorms};
use crate::model::weights::Weights;
use crate::ops;
use std::ops::Range;

/// Slices of the head begin at a multiple of this, so that kernels see whole tiles.
const HEAD_SLICE_ALIGN: usize = 256;

/// Weights, and the memory that a pass works in.
pub struct Decoder<B: Backend> {
    /// `[vocab, hidden]`
    embedding: B::Matrix,
    layers: Vec<Layer<B>>,
    final_norm: Norm<B>,
    /// `[vocab, hidden]`; `None` where the embedding table serves.
    head: Option<B::Matrix>,
    tables: PositionTables<B>,
    /// Columns of the head that one stage computes.
    head_slice: usize,
    activations: Activations<B>,
}

struct Layer<B: Backend> {
    mixer_norm: Norm<B>,
    attention: Attention<B>,
    feed_forward_norm: Norm<B>,
    mlp: Mlp<B>,
}

struct Norm<B: Backend> {
    /// `[hidden]`
    weight: B::Vector,
    eps: f32,
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
    /// Takes the weights that `spec` asks for, which must be all that the decoder's parts have, and memory for batches of up to `limits` over `positions` positions.
    pub fn load(
        backend: &B,
        spec: &DecoderSpec,
        weights: &mut Weights,
        limits: &BatchLimits,
        positions: usize,
    ) -> Result<Decoder<B>> {
        let names = weights.names();
        let embedding = backend.matrix(&[weights.matrix(names.embedding, spec.vocab, spec.hidden)?])?;
        let layers = spec.layers.iter().enumerate();
        let layers: Result<Vec<_>> =
            layers.map(|(index, layer)| Layer::load(backend, layer, weights, index, spec.hidden)).collect();
        let final_norm = backend.vector(&[weights.vector(names.final_norm, spec.hidden)?])?;
        let head = match spec.head.weights {
            HeadWeights::Tied => None,
            HeadWeights::Own => Some(backend.matrix(&[weights.matrix(names.head, spec.vocab, spec.hidden)?])?),
        };
        let layers = layers?;
        weights.finish()?;
        // A pass that is launched whole is cut nowhere.
        let head_slice = match B::DEPTH {
            1 => (spec.layer_parameters() / spec.hidden).next_multiple_of(HEAD_SLICE_ALIGN),
            _ => spec.vocab,
        };
        Ok(Decoder {
            embedding,
            layers,
            final_norm: Norm { weight: final_norm, eps: spec.final_norm.eps },
            head,
            tables: PositionTables::new(backend, spec, positions, limits.model_len)?,
            head_slice,
            activations: Activations::new(backend, spec, limits)?,
        })
    }

    /// The first stage of a pass.
    pub fn first(&self) -> Stage {
        Stage::Layer(0)
    }

    /// The stage after `stage` in a pass over the batch of `device_batch`; `None` when the pass is done.
    pub fn after(&self, stage: Stage, device_batch: &B::DeviceBatch) -> Option<Stage> {
        match stage {
            Stage::Layer(layer) if layer + 1 < self.layers.len() => Some(Stage::Layer(layer + 1)),
            Stage::Layer(_) if B::batch(device_batch).samples() == 0 => None,
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
    pub fn run(&mut self, backend: &mut B, cache: &mut B::KvCache, device_batch: &mut B::DeviceBatch, stage: Stage) {
        match stage {
            Stage::Layer(layer) => {
                if layer == 0 {
                    self.embed(backend, device_batch);
                }
                self.layer(backend, cache, device_batch, layer);
                if layer + 1 == self.layers.len() {
                    self.gather(backend, device_batch);
                }
            }
            Stage::Head(slice) => self.head(backend, self.head_columns(slice)),
            Stage::Sample => self.sample(backend, device_batch),
        }
    }

    /// Computes the stages of a pass up to the logits: what a graph records.
    pub fn run_to_logits(&mut self, backend: &mut B, cache: &mut B::KvCache, device_batch: &mut B::DeviceBatch) {
        let mut next = Some(self.first());
        while let Some(stage) = next.filter(|&stage| stage != Stage::Sample) {
            self.run(backend, cache, device_batch, stage);
            next = self.after(stage, device_batch);
        }
    }

    /// The logits of the last pass that sampled. `[samples, vocab]`
    pub fn logits(&self) -> &Tensor<B::Storage> {
        &self.activations.logits
    }

    /// Begins a pass over the batch of `device_batch`: makes the activations as large as the batch, and copies its blocks. Not recorded in
    /// graphs, and before all stages: copies come first.
    pub fn begin(&mut self, backend: &mut B, cache: &mut B::KvCache, device_batch: &B::DeviceBatch) {
        let batch = B::batch(device_batch);
        self.activations.set_rows(batch.tokens(), batch.samples(), batch.pooled_rows());
        ops::copy_blocks(backend, cache, device_batch);
    }

    fn embed(&mut self, backend: &mut B, device_batch: &B::DeviceBatch) {
        ops::embedding(backend, &mut self.activations.residual, &self.embedding, 1.0, device_batch);
    }

    fn layer(&mut self, backend: &mut B, cache: &mut B::KvCache, device_batch: &B::DeviceBatch, index: usize) {
        let Layer { mixer_norm, attention, feed_forward_norm, mlp } = &self.layers[index];
        let Activations { residual, delta, normed, attention: attention_scratch, mlp: mlp_scratch, .. } =
            &mut self.activations;
        match index {
            0 => ops::norm(backend, normed, residual, mixer_norm.weights()),
            _ => ops::add_norm(backend, residual, delta, AddNorm::PLAIN, Some(mixer_norm.next(normed))),
        }
        let context = Context { cache, tables: &self.tables, device_batch };
        attention.forward(backend, attention_scratch, context, delta, normed);
        ops::add_norm(backend, residual, delta, AddNorm::PLAIN, Some(feed_forward_norm.next(normed)));
        mlp.forward(backend, mlp_scratch, delta, normed);
    }

    fn gather(&mut self, backend: &mut B, device_batch: &mut B::DeviceBatch) {
        let Activations { residual, delta, normed, gathered, .. } = &mut self.activations;
        ops::add_norm(backend, residual, delta, AddNorm::PLAIN, Some(self.final_norm.next(normed)));
        ops::gather(backend, gathered, normed, device_batch);
        ops::keep_hidden_states(backend, device_batch, gathered);
        gathered.set_rows(B::batch(device_batch).samples());
    }

    fn head(&mut self, backend: &mut B, columns: Range<usize>) {
        let Activations { gathered, logits, .. } = &mut self.activations;
        ops::linear(backend, logits, gathered, self.head.as_ref().unwrap_or(&self.embedding), None, columns);
    }

    /// Chooses the tokens of a pass whose logits are there.
    fn sample(&mut self, backend: &mut B, device_batch: &mut B::DeviceBatch) {
        let logits = &mut self.activations.logits;
        if B::batch(device_batch).processes_logits() {
            ops::process_logits(backend, device_batch, logits);
        }
        ops::sample(backend, device_batch, logits);
        if B::batch(device_batch).wants_logprobs() {
            ops::logprobs(backend, device_batch, logits);
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

impl<B: Backend> Norm<B> {
    fn weights(&self) -> NormWeights<'_, B::Vector> {
        NormWeights { weight: &self.weight, eps: self.eps, kind: NormKind::Rms }
    }

    fn next<'a>(&'a self, out: &'a mut Tensor<B::Storage>) -> NextNorm<'a, Tensor<B::Storage>, B::Vector> {
        NextNorm { out, norm: self.weights() }
    }
}

impl<B: Backend> Layer<B> {
    fn load(backend: &B, spec: &LayerSpec, weights: &mut Weights, index: usize, hidden: usize) -> Result<Layer<B>> {
        let names = weights.names();
        let norm = |weights: &mut Weights, names: &NormNames, norms: &SublayerNorms| -> Result<Norm<B>> {
            let weight = backend.vector(&[weights.vector(&weights.names().in_layer(index, names.before), hidden)?])?;
            Ok(Norm { weight, eps: norms.before.expect("the spec was checked").eps })
        };
        let Mixer::Attention(attention) = &spec.mixer;
        let FeedForward::Dense(mlp) = &spec.feed_forward;
        Ok(Layer {
            mixer_norm: norm(weights, &names.mixer_norms, &spec.mixer_norms)?,
            attention: Attention::load(backend, attention, weights, index, hidden)?,
            feed_forward_norm: norm(weights, &names.feed_forward_norms, &spec.feed_forward_norms)?,
            mlp: Mlp::load(backend, mlp, weights, index, hidden)?,
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
            attention: AttentionScratch::new(backend, spec.attention(), limits.tokens)?,
            mlp: MlpScratch::new(backend, spec.feed_forward_width(), limits.tokens)?,
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
