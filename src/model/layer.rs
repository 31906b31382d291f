//! A layer: sublayers that add to the residual stream, one after another. The branches of a sublayer read the same rows.

use crate::attention::{self, Attention, AttentionScratch, PositionTables};
use crate::feed_forward::{FeedForward, FeedForwardScratch};
use crate::linear::Linear;
use crate::norm::{Norm, SublayerNorms};
use crate::recurrent::{self, Recurrent, RecurrentScratch, StateRun};
use crate::shard::Sharding;
use crate::spec::{self, DecoderSpec, LayerSpec, Mixer, StreamScale};
use crate::stream::{Stream, SublayerOutput};
use crate::weights::Weights;
use base::error::Result;
use compute::batch::BatchLimits;
use compute::{Backend, KvPlace, NormWeights, Tensor};
use std::vec;

/// One layer.
pub struct Layer<B: Backend> {
    sublayers: Vec<Sublayer<B>>,
    /// Of the stream behind the layer.
    stream_scale: f32,
}

struct Sublayer<B: Backend> {
    norms: SublayerNorms<B>,
    branches: Vec<Branch<B>>,
    /// What clears the sum of the branches, where these are added up before they are added to the stream.
    zero: Option<Norm<B>>,
}

struct Branch<B: Backend> {
    part: Part<B>,
    scale: f32,
    norms: SublayerNorms<B>,
}

enum Part<B: Backend> {
    Attention(Attention<B>),
    Recurrent(Recurrent<B>),
    FeedForward(FeedForward<B>),
}

/// What sequences keep between passes.
pub struct SequenceMemory<B: Backend> {
    /// Keys and values.
    pub cache: B::KvCache,
    /// Recurrent states.
    pub states: B::States,
}

/// What the branches of all layers write on their way.
pub struct LayerScratch<B: Backend> {
    attention: AttentionScratch<B>,
    recurrent: RecurrentScratch<B>,
    feed_forward: FeedForwardScratch<B>,
    /// Sums of branches.
    sum: Option<Stream<B>>,
}

/// What layers read besides the stream.
pub struct Context<'a, B: Backend> {
    /// What the sequences kept, and where the new tokens are kept.
    pub memory: &'a mut SequenceMemory<B>,
    /// What depends on positions alone.
    pub tables: &'a PositionTables<B>,
    /// What layers get besides the stream. `[tokens, layers * width]`
    pub layer_inputs: Option<&'a Tensor<B::Storage>>,
    /// Which part of the model this rank computes.
    pub sharding: &'a Sharding,
    /// The batch.
    pub device_batch: &'a B::DeviceBatch,
}

/// Where the next branch that needs memory of sequences has it.
pub struct Places {
    /// For each branch with attention.
    keys: vec::IntoIter<KvPlace>,
    /// Numbers of the recurrent state before it.
    state: usize,
}

impl Places {
    /// Those of the branches of a decoder, in order.
    pub fn new(spec: &DecoderSpec, limits: &BatchLimits) -> Places {
        let groups = spec.kv_groups(limits);
        let keys: Vec<_> = spec.kv_layers().into_iter().map(|layer| groups.places[layer]).collect();
        Places { keys: keys.into_iter(), state: 0 }
    }
}

impl<B: Backend> LayerScratch<B> {
    /// For passes of at most `tokens` tokens.
    pub fn new(backend: &B, spec: &DecoderSpec, sharding: &Sharding, tokens: usize) -> Result<LayerScratch<B>> {
        let is_summed = spec.sublayers().any(spec::Sublayer::is_summed);
        let sum = is_summed.then(|| Stream::new(backend, spec.hidden, sharding, tokens)).transpose()?;
        Ok(LayerScratch {
            sum,
            attention: AttentionScratch::new(backend, spec, sharding, tokens)?,
            recurrent: RecurrentScratch::new(backend, spec, sharding, tokens)?,
            feed_forward: FeedForwardScratch::new(backend, spec, sharding, tokens)?,
        })
    }

    /// Sets the tokens of this pass.
    pub fn set_rows(&mut self, tokens: usize) {
        self.attention.set_rows(tokens);
        self.recurrent.set_rows(tokens);
        self.feed_forward.set_rows(tokens);
        self.sum.iter_mut().for_each(|sum| sum.set_rows(tokens));
    }
}

impl<B: Backend> Layer<B> {
    /// Layer `index`, which reads and adds to a stream of `hidden` numbers.
    pub fn load(
        backend: &B,
        spec: &LayerSpec,
        sharding: &Sharding,
        weights: &mut Weights,
        places: &mut Places,
        [index, hidden]: [usize; 2],
    ) -> Result<Layer<B>> {
        let names = weights.names();
        let sublayers = spec.sublayers.iter().map(|sublayer| {
            let norms = match sublayer.branches.first().map(|branch| &branch.part) {
                Some(spec::Part::FeedForward(spec::FeedForward::LayerInput(_))) => &names.layer_inputs.norms,
                Some(spec::Part::FeedForward(_)) => &names.feed_forward_norms,
                Some(spec::Part::Mixer(_)) | None => &names.mixer_norms,
            };
            let mut norms = SublayerNorms::load(backend, &sublayer.norms, weights, norms, index, hidden)?;
            let branches = sublayer.branches.iter().map(|branch| {
                let part = Part::load(backend, &branch.part, sharding, weights, places, [index, hidden])?;
                let of_branch = match branch.part {
                    spec::Part::FeedForward(spec::FeedForward::Experts(_)) => &names.branch_norms.experts,
                    _ => &names.branch_norms.dense,
                };
                let norms = SublayerNorms::load(backend, &branch.norms, weights, of_branch, index, hidden)?;
                Ok(Branch { part, scale: branch.scale, norms })
            });
            let branches: Vec<_> = branches.collect::<Result<_>>()?;
            let zero = sublayer.is_summed().then(|| Norm::zero(backend, hidden)).transpose()?;
            // Of several branches, each reads the norm.
            if zero.is_none()
                && let [only] = branches.as_slice()
                && let Some(input) = only.part.input()
            {
                norms.bind(input.weight());
            }
            Ok(Sublayer { norms, branches, zero })
        });
        Ok(Layer {
            sublayers: sublayers.collect::<Result<_>>()?,
            stream_scale: match spec.stream_scale {
                StreamScale::One => 1.0,
                StreamScale::Stored => weights.number(&names.in_layer(index, names.stream_scale))?,
            },
        })
    }

    /// The norm of what its first sublayer reads. `None`: it reads the stream.
    pub fn norm(&self) -> Option<NormWeights<'_, B::Vector>> {
        self.sublayers[0].norms.before()
    }

    /// Adds what its sublayers compute to the stream. `next` is the norm of what is read behind it.
    pub fn forward(
        &self,
        backend: &mut B,
        stream: &mut Stream<B>,
        scratch: &mut LayerScratch<B>,
        context: &mut Context<B>,
        next: Option<NormWeights<B::Vector>>,
    ) {
        for (index, sublayer) in self.sublayers.iter().enumerate() {
            let (next, stream_scale) = match self.sublayers.get(index + 1) {
                Some(sublayer) => (sublayer.norms.before(), 1.0),
                None => (next, self.stream_scale),
            };
            sublayer.forward(backend, stream, scratch, context, (next, stream_scale));
        }
    }
}

impl<B: Backend> Sublayer<B> {
    fn forward(
        &self,
        backend: &mut B,
        stream: &mut Stream<B>,
        scratch: &mut LayerScratch<B>,
        context: &mut Context<B>,
        (next, stream_scale): (Option<NormWeights<B::Vector>>, f32),
    ) {
        if let Some(zero) = &self.zero
            && let Some(mut sum) = scratch.sum.take()
        {
            sum.clear(backend, stream.rows(), zero.weights());
            self.add_up(backend, &mut sum, stream, scratch, context);
            let output = SublayerOutput::Whole(sum.rows());
            stream.add(backend, context.sharding, output, self.norms.add(1.0, stream_scale), next);
            scratch.sum = Some(sum);
            return;
        }
        for (index, branch) in self.branches.iter().enumerate() {
            let read = if self.norms.before().is_some() { stream.normed() } else { stream.rows() };
            let output = branch.part.forward(backend, scratch, context, [read, stream.rows()]);
            let (is_last, of_sum) = (index + 1 == self.branches.len(), self.norms.of_sum());
            let (summed_for, stream_scale) = match (is_last, of_sum) {
                (true, None) => (next, stream_scale),
                (true, of_sum) => (of_sum, stream_scale),
                // The rows that the first branch read are still there.
                (false, _) => (None, 1.0),
            };
            stream.add(backend, context.sharding, output, self.norms.add(branch.scale, stream_scale), summed_for);
            if is_last && of_sum.is_some() {
                stream.become_normed();
                next.into_iter().for_each(|norm| stream.normalize(backend, norm));
            }
        }
    }
}

impl<B: Backend> Sublayer<B> {
    /// Adds what the branches make of the stream to `sum`.
    fn add_up(
        &self,
        backend: &mut B,
        sum: &mut Stream<B>,
        stream: &Stream<B>,
        scratch: &mut LayerScratch<B>,
        context: &mut Context<B>,
    ) {
        for branch in &self.branches {
            let read = match branch.norms.before() {
                Some(norm) => {
                    sum.normalize_other(backend, stream.rows(), norm);
                    sum.normed()
                }
                None => stream.normed(),
            };
            let output = branch.part.forward(backend, scratch, context, [read, stream.rows()]);
            sum.add(backend, context.sharding, output, branch.norms.add(branch.scale, 1.0), None);
        }
    }
}

impl<B: Backend> Part<B> {
    fn load(
        backend: &B,
        spec: &spec::Part,
        sharding: &Sharding,
        weights: &mut Weights,
        places: &mut Places,
        [index, hidden]: [usize; 2],
    ) -> Result<Part<B>> {
        Ok(match spec {
            spec::Part::Mixer(Mixer::Attention(attention)) => {
                let at = places.keys.next().expect("one for each branch with attention");
                Part::Attention(Attention::load(backend, attention, sharding, weights, (index, at), hidden)?)
            }
            spec::Part::Mixer(Mixer::Recurrent(recurrent)) => {
                let at = places.state;
                places.state += recurrent::state_numbers(recurrent, sharding, hidden);
                Part::Recurrent(Recurrent::load(backend, recurrent, sharding, weights, [index, at], hidden)?)
            }
            spec::Part::FeedForward(part) => {
                Part::FeedForward(FeedForward::load(backend, part, sharding, weights, index, hidden)?)
            }
        })
    }

    /// The layer that reads the input, where one alone does.
    fn input(&self) -> Option<&Linear<B>> {
        match self {
            Part::Attention(attention) => attention.input(),
            Part::Recurrent(recurrent) => Some(recurrent.input()),
            Part::FeedForward(part) => part.input(),
        }
    }

    /// What it adds to the stream. `x` is what it reads, and `rows` the stream itself. `[tokens, hidden]`
    fn forward<'a>(
        &'a self,
        backend: &mut B,
        scratch: &'a mut LayerScratch<B>,
        context: &mut Context<B>,
        [x, rows]: [&Tensor<B::Storage>; 2],
    ) -> SublayerOutput<'a, B> {
        let Context { memory, tables, device_batch, layer_inputs, .. } = context;
        match self {
            Part::Attention(attention) => {
                let context = attention::Context { cache: &mut memory.cache, tables, device_batch };
                let x = attention.forward(backend, &mut scratch.attention, context, x);
                SublayerOutput::Product { layer: attention.output(), x }
            }
            Part::Recurrent(recurrent) => {
                let x = recurrent.forward(backend, &mut scratch.recurrent, &mut memory.states, device_batch, x);
                SublayerOutput::Product { layer: recurrent.output(), x }
            }
            Part::FeedForward(part) => {
                part.forward(backend, &mut scratch.feed_forward, [x, rows], *layer_inputs, device_batch)
            }
        }
    }
}

/// Numbers of the recurrent state that a sequence keeps on a rank, all layers together.
pub fn state_numbers(spec: &DecoderSpec, sharding: &Sharding) -> usize {
    let of_layer = |layer: &spec::Recurrent| recurrent::state_numbers(layer, sharding, spec.hidden);
    spec.recurrent_layers().map(of_layer).sum()
}

/// Which numbers of a sequence's recurrent state a rank has, all layers together.
pub fn state_runs(spec: &DecoderSpec, sharding: &Sharding) -> Vec<StateRun> {
    let (mut at, mut runs) = ([0, 0], Vec::new());
    for layer in spec.recurrent_layers() {
        recurrent::state_runs(layer, sharding, spec.hidden, &mut at, &mut runs);
    }
    assert_eq!(at[1], state_numbers(spec, sharding), "a rank has what its layers keep");
    runs
}
