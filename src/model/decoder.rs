//! The decoder of all families, computed stage by stage.
//!
//! A pass is cut where little is lost: after each layer, and within the head, whose matrix may weigh as much as many
//! layers and is taken in slices of about one layer. Results do not depend on how long the caller waits between stages.
//!
//! Where several ranks compute a model together, each has a decoder of its own.

use crate::attention::PositionTables;
use crate::layer::{Context, Layer, LayerScratch, Places};
pub use crate::layer::{SequenceMemory, state_numbers, state_runs};
use crate::layer_inputs::LayerInputs;
use crate::norm::Norm;
use crate::pooled_layers::PooledLayers;
pub use crate::recurrent::StateRun;
use crate::shard::Sharding;
use crate::spec::{DecoderSpec, HeadWeights, PositionRows};
use crate::stream::Stream;
use crate::weights::Weights;
use base::error::Result;
use compute::batch::BatchLimits;
use compute::ops;
use compute::{Backend, LayerInput, Part, TableRows, Tensor};
use std::ops::Range;

/// Slices of the head begin at a multiple of this, so that kernels see whole tiles.
const HEAD_SLICE_ALIGN: usize = 256;

/// Weights, and the memory that a pass works in.
pub struct Decoder<B: Backend> {
    /// `[vocab, hidden]`
    embedding: B::Matrix,
    embedding_scale: f32,
    /// Tables of positions and types. `[rows, hidden]`
    added: Vec<(B::Matrix, TableRows)>,
    embedding_norm: Option<Norm<B>>,
    layer_inputs: Option<LayerInputs<B>>,
    layers: Vec<Layer<B>>,
    final_norm: Option<Norm<B>>,
    head: Head<B>,
    pooled_layers: PooledLayers<B>,
    is_encoder: bool,
    tables: PositionTables<B>,
    sharding: Sharding,
    /// Whether this rank chooses tokens: one does where the host reads them, all do where the next pass reads them on the device.
    samples: bool,
    /// Columns of the head that one stage computes.
    head_slice: usize,
    activations: Activations<B>,
}

struct Head<B: Backend> {
    /// `[tokens of this rank, hidden]`; `None` where the embedding table serves.
    weight: Option<B::Matrix>,
    scale: f32,
    softcap: Option<f32>,
}

struct Activations<B: Backend> {
    stream: Stream<B>,
    layers: LayerScratch<B>,
    /// Normalized rows of the stream that are sampled, and then those that the host wants to read. `[samples + pooled_rows, hidden]`
    gathered: Tensor<B::Storage>,
    /// `[samples, vocab]`
    logits: Tensor<B::Storage>,
    /// The columns of them that this rank computes with a matrix of its own. `[samples, columns]`
    own_logits: Option<Tensor<B::Storage>>,
}

/// A part of a pass that is computed in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A layer, and the norm of what is read next; the first looks the tokens up before, the last gathers what is sampled after.
    Layer(usize),
    /// A slice of the head.
    Head(usize),
    /// The choice of the tokens.
    Sample,
}

impl<B: Backend> Decoder<B> {
    /// Takes the weights that `spec` asks for, which must be all that the decoder's parts have, and memory for batches of up to `limits`
    /// over `positions` positions. Of the weights, it keeps those that `sharding` gives to this rank.
    pub fn load(
        backend: &B,
        spec: &DecoderSpec,
        sharding: Sharding,
        weights: &mut Weights,
        limits: &BatchLimits,
        positions: usize,
    ) -> Result<Decoder<B>> {
        let names = weights.names();
        let embedding = backend.matrix(&[weights.matrix(names.embedding, spec.vocab, spec.hidden)?])?;
        let added = load_added(backend, spec, weights)?;
        let embedding_norm = spec.embedding_norm.as_ref();
        let embedding_norm =
            embedding_norm.map(|norm| Norm::load(backend, norm, weights, names.added.norm, spec.hidden)).transpose()?;
        let layer_inputs = spec.layer_inputs.as_ref();
        let layer_inputs =
            layer_inputs.map(|inputs| LayerInputs::load(backend, spec, inputs, weights, limits.tokens)).transpose()?;
        let mut places = Places::new(spec, limits);
        let load = |(index, layer)| Layer::load(backend, layer, &sharding, weights, &mut places, [index, spec.hidden]);
        let layers: Result<Vec<_>> = spec.layers.iter().enumerate().map(load).collect();
        let final_norm = spec.final_norm.as_ref();
        let final_norm =
            final_norm.map(|norm| Norm::load(backend, norm, weights, names.final_norm, spec.hidden)).transpose()?;
        let head = match spec.head.weights {
            // Of a model without a head, no logits are asked for.
            HeadWeights::Tied | HeadWeights::Missing => None,
            HeadWeights::Own => {
                let (shape, own) = ((spec.vocab, spec.hidden), [sharding.own_vocab()]);
                Some(backend.matrix(&weights.matrix_parts(names.head, shape, &own, 0..spec.hidden)?)?)
            }
        };
        let layers = layers?;
        let pooled_layers = PooledLayers::load(backend, spec, weights, limits.rows)?;
        weights.finish()?;
        // A pass that is launched whole is cut nowhere.
        let head_slice = match B::DEPTH {
            1 => (spec.layer_parameters() / spec.hidden).next_multiple_of(HEAD_SLICE_ALIGN),
            _ => spec.vocab,
        };
        Ok(Decoder {
            embedding,
            embedding_scale: spec.embedding_scale,
            added,
            embedding_norm,
            layer_inputs,
            layers,
            final_norm,
            head: Head { weight: head, scale: spec.head.scale, softcap: spec.head.softcap },
            pooled_layers,
            is_encoder: spec.is_encoder(),
            tables: PositionTables::new(backend, spec, positions, limits.model_len)?,
            head_slice,
            activations: Activations::new(backend, spec, &sharding, limits)?,
            samples: B::DEPTH > 1 || sharding.rank == 0,
            sharding,
        })
    }

    /// The memory that a decoder of `spec` takes besides its weights, for batches of up to `limits` over `positions` positions: to be measured.
    pub fn memory_of_passes(
        backend: &B,
        spec: &DecoderSpec,
        sharding: &Sharding,
        limits: &BatchLimits,
        positions: usize,
    ) -> Result<impl Sized + use<B>> {
        let tables = PositionTables::new(backend, spec, positions, limits.model_len)?;
        Ok((tables, Activations::new(backend, spec, sharding, limits)?))
    }

    /// Which part of the model it computes.
    pub fn sharding(&self) -> &Sharding {
        &self.sharding
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
            Stage::Head(_) => self.samples.then_some(Stage::Sample),
            Stage::Sample => None,
        }
    }

    /// Stages of a pass that samples.
    pub fn stages(&self) -> usize {
        self.layers.len() + self.head_slices() + 1
    }

    /// Computes one stage. The stages of a pass come in order, all over the same batch.
    pub fn run(
        &mut self,
        backend: &mut B,
        memory: &mut SequenceMemory<B>,
        device_batch: &mut B::DeviceBatch,
        stage: Stage,
    ) {
        match stage {
            Stage::Layer(layer) => {
                if layer == 0 {
                    self.embed(backend, device_batch);
                }
                self.layer(backend, memory, device_batch, layer);
                if layer + 1 == self.layers.len() {
                    self.gather(backend, device_batch);
                }
            }
            Stage::Head(slice) => self.head(backend, slice),
            Stage::Sample => self.sample(backend, device_batch),
        }
    }

    /// Computes the stages of a pass up to the logits: what a graph records.
    pub fn run_to_logits(
        &mut self,
        backend: &mut B,
        memory: &mut SequenceMemory<B>,
        device_batch: &mut B::DeviceBatch,
    ) {
        let mut next = Some(self.first());
        while let Some(stage) = next.filter(|&stage| stage != Stage::Sample) {
            self.run(backend, memory, device_batch, stage);
            next = self.after(stage, device_batch);
        }
    }

    /// The logits of the last pass that sampled. `[samples, vocab]`
    pub fn logits(&self) -> &Tensor<B::Storage> {
        &self.activations.logits
    }

    /// Begins a pass over the batch of `device_batch`: makes the activations as large as the batch, and copies its blocks and states. Not recorded in
    /// graphs, and before all stages: copies come first.
    pub fn begin(&mut self, backend: &mut B, memory: &mut SequenceMemory<B>, device_batch: &B::DeviceBatch) {
        let batch = B::batch(device_batch);
        self.activations.set_rows(batch.tokens(), batch.samples(), batch.pooled_rows());
        self.layer_inputs.iter_mut().for_each(|inputs| inputs.set_rows(batch.tokens()));
        ops::copy_blocks(backend, &mut memory.cache, device_batch);
        ops::copy_states(backend, &mut memory.states, device_batch);
    }

    fn embed(&mut self, backend: &mut B, device_batch: &mut B::DeviceBatch) {
        let stream = &mut self.activations.stream;
        let norm = self.embedding_norm.as_ref().map(Norm::weights);
        stream.embed(backend, (&self.embedding, self.embedding_scale), &self.added, norm, device_batch);
        if let Some(inputs) = &mut self.layer_inputs {
            inputs.compute(backend, stream.rows(), device_batch);
        }
        if let Some(norm) = self.layers.first().and_then(Layer::norm) {
            stream.normalize(backend, norm);
        }
    }

    fn layer(&mut self, backend: &mut B, memory: &mut SequenceMemory<B>, device_batch: &B::DeviceBatch, index: usize) {
        let Decoder { layers, layer_inputs, final_norm, tables, sharding, activations, .. } = self;
        let Activations { stream, layers: scratch, .. } = activations;
        let next = match layers.get(index + 1) {
            Some(layer) => layer.norm(),
            None => final_norm.as_ref().map(Norm::weights),
        };
        let mut context = Context {
            memory,
            tables,
            layer_inputs: layer_inputs.as_ref().map(LayerInputs::inputs),
            sharding,
            device_batch,
        };
        layers[index].forward(backend, stream, scratch, &mut context, next);
    }

    fn gather(&mut self, backend: &mut B, device_batch: &mut B::DeviceBatch) {
        let Activations { stream, gathered, .. } = &mut self.activations;
        let states = if self.final_norm.is_some() { stream.normed() } else { stream.rows() };
        match self.is_encoder {
            true => ops::pool_states(backend, gathered, states, device_batch),
            false => ops::gather(backend, gathered, states, device_batch),
        }
        // A model with such layers has no head, and nothing else is gathered.
        self.pooled_layers.set_rows(gathered.rows());
        let made = self.pooled_layers.forward(backend, gathered);
        ops::keep_hidden_states(backend, device_batch, made);
        gathered.set_rows(B::batch(device_batch).samples());
    }

    fn head(&mut self, backend: &mut B, slice: usize) {
        let (columns, is_last) = (self.head_columns(slice), slice + 1 == self.head_slices());
        let Activations { gathered, logits, own_logits, .. } = &mut self.activations;
        let Head { weight, scale, softcap } = &self.head;
        let to = own_logits.as_mut().unwrap_or(logits);
        ops::linear(backend, to, LayerInput::new(gathered, weight.as_ref().unwrap_or(&self.embedding), None), columns);
        if is_last && !self.sharding.is_alone() {
            let part = own_logits.as_ref().map(|x| Part { x, first: 0 });
            ops::join_columns(backend, logits, part, &self.sharding.vocab);
        }
        if is_last && (*scale != 1.0 || softcap.is_some()) {
            ops::scale_logits(backend, logits, *scale, *softcap);
        }
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

    fn head_slices(&self) -> usize {
        self.sharding.own_vocab().len().div_ceil(self.head_slice)
    }

    /// Columns of the matrix that serves as the head: all of one that this rank has to itself, or this rank's tokens of the embedding table.
    fn head_columns(&self, slice: usize) -> Range<usize> {
        let own = self.sharding.own_vocab();
        let all = if self.head.weight.is_some() { 0..own.len() } else { own };
        let start = all.start + slice * self.head_slice;
        start..(start + self.head_slice).min(all.end)
    }
}

/// The tables whose rows are added to those of the embedding table.
fn load_added<B: Backend>(
    backend: &B,
    spec: &DecoderSpec,
    weights: &mut Weights,
) -> Result<Vec<(B::Matrix, TableRows)>> {
    let (names, mut tables) = (weights.names().added, Vec::new());
    let mut load = |name, rows, of_place| {
        let table = weights.unquantized(name, rows, spec.hidden)?;
        tables.push((backend.matrix(&[table])?, of_place));
        Ok(())
    };
    if let Some(PositionRows { rows, first }) = spec.added.positions {
        load(names.positions, rows, TableRows::Positions { first })?;
    }
    if let Some(rows) = spec.added.types {
        load(names.types, rows, TableRows::Types)?;
    }
    Ok(tables)
}

impl<B: Backend> Activations<B> {
    fn new(backend: &B, spec: &DecoderSpec, sharding: &Sharding, limits: &BatchLimits) -> Result<Activations<B>> {
        let own_logits = || backend.tensor(limits.samples(), sharding.own_vocab().len());
        let has_own_head = spec.head.weights == HeadWeights::Own && !sharding.is_alone();
        Ok(Activations {
            stream: Stream::new(backend, spec.hidden, sharding, limits.tokens)?,
            layers: LayerScratch::new(backend, spec, sharding, limits.tokens)?,
            gathered: backend.tensor(limits.samples() + limits.pooled_rows(), spec.hidden)?,
            // An encoder has none.
            logits: backend.tensor(if limits.whole_rows { 1 } else { limits.samples() }, spec.vocab)?,
            own_logits: has_own_head.then(own_logits).transpose()?,
        })
    }

    fn set_rows(&mut self, tokens: usize, samples: usize, pooled_rows: usize) {
        self.stream.set_rows(tokens);
        self.layers.set_rows(tokens);
        self.gathered.set_rows(samples + pooled_rows);
        self.logits.set_rows(samples);
        self.own_logits.iter_mut().for_each(|own| own.set_rows(samples));
    }
}

#[cfg(test)]
mod tests;
