//! A decoder as data: what does each layer compute, and in which order?
//!
//! A decoder is a list of layers, and each layer says by itself what it mixes and what it feeds forward; the families are the
//! functions that write such lists. Invariant: a spec that [`DecoderSpec::check`] accepted can be computed: the layers agree
//! wherever they share memory, and every index leads somewhere.

use crate::rope::Rope;
pub use crate::rope::Temperature;
use compute::batch::BatchLimits;
pub use compute::{Activation, NormKind, NormOrder};
use compute::{AttentionSpec, KvFormat, KvGroups, KvHeads, KvLayout, ValueOrder};
pub use compute::{Groups, Router, Scores};
pub use feed_forward::{Correction, Experts, FeedForward, Mlp, MlpForm, SharedExpert, SharedGate};
pub use recurrent::{GatedDelta, GatedShortConv, GroupNorm, Recurrent, ScanScales, StateSpace};

mod check;
mod feed_forward;
mod recurrent;

/// A decoder-only transformer with a residual stream.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Factor of the rows of the embedding table.
    pub embedding_scale: f32,
    /// Of these rows. `None`: the stream begins with the rows themselves.
    pub embedding_norm: Option<Norm>,
    /// What is computed between the embedding and the head, in order. At least one.
    pub layers: Vec<LayerSpec>,
    /// Before the head.
    pub final_norm: Norm,
    /// From the normalized stream to the logits.
    pub head: Head,
    /// The rotary position embeddings that layers refer to by index.
    pub ropes: Vec<Rope>,
    /// Positions that the model was made for, those that rope scaling adds included.
    pub max_positions: usize,
}

/// One layer: what adds to the stream, one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// In order. At least one.
    pub sublayers: Vec<Sublayer>,
    /// Factor of the stream behind the layer.
    pub stream_scale: StreamScale,
}

/// What adds to the stream: `n = before(x)`, then `x += scale * after(part(n))` for each branch.
#[derive(Clone, Debug, PartialEq)]
pub struct Sublayer {
    /// Around the branches.
    pub norms: SublayerNorms,
    /// At least one. Several read the same rows, need a norm before them, and have none after.
    pub branches: Vec<Branch>,
}

/// One of the summands of a sublayer.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// What is computed.
    pub part: Part,
    /// Factor of what it adds to the stream.
    pub scale: f32,
}

/// What a branch computes.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// What brings the tokens of a sequence together.
    Mixer(Mixer),
    /// What works on each token alone.
    FeedForward(FeedForward),
}

/// Factor of the whole stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamScale {
    /// 1.
    One,
    /// A tensor of one number.
    Stored,
}

/// The norms around one sublayer: `after(f(before(x)))`. One that is `None` is the identity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SublayerNorms {
    /// Of what the sublayer reads.
    pub before: Option<Norm>,
    /// Of what it adds to the stream.
    pub after: Option<Norm>,
}

/// A normalization, with one weight per number unless all are one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// The formula.
    pub kind: NormKind,
    /// Added to the mean of squares.
    pub eps: f32,
    /// How the weights are stored.
    pub weight: NormWeight,
}

/// How the weights of a norm are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormWeight {
    /// As they are.
    Plain,
    /// Less one.
    PlusOne,
    /// Not at all: each is one.
    Ones,
}

/// What brings the tokens of a sequence together.
#[derive(Clone, Debug, PartialEq)]
pub enum Mixer {
    /// Softmax attention over a KV cache.
    Attention(SelfAttention),
    /// A layer with a recurrent state.
    Recurrent(Recurrent),
}

/// Causal attention with grouped heads.
#[derive(Clone, Debug, PartialEq)]
pub struct SelfAttention {
    /// Query heads, and how their scores are made.
    pub scores: AttentionSpec,
    /// Key and value heads, of which the query heads are a multiple.
    pub kv_heads: usize,
    /// Numbers per head, even.
    pub head_dim: usize,
    /// Whether queries and keys are normalized.
    pub qk_norm: QkNorm,
    /// Where values come from.
    pub values: Values,
    /// What is added to the mean of squares of a value head that is divided by its root, without weights. `None`: values are as projected.
    pub value_norm: Option<f32>,
    /// Of the projections to queries, keys and values.
    pub qkv_bias: Bias,
    /// Of the projection out of attention.
    pub output_bias: Bias,
    /// What multiplies the input of this projection.
    pub output_gate: OutputGate,
    /// Which of [`DecoderSpec::ropes`] rotates queries and keys. `None`: they are not rotated.
    pub rope: Option<usize>,
    /// Whether queries grow with their position.
    pub temperature: Option<Temperature>,
}

/// Whether queries and keys are normalized.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QkNorm {
    /// Each head on its own, with weights that all heads of a layer share.
    PerHead {
        /// The norm of a head.
        norm: Norm,
        /// When.
        order: NormOrder,
    },
    /// All query heads together, and all key heads together, before the rotation.
    Whole(Norm),
    /// Not at all.
    None,
}

/// Where values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// A projection of their own.
    Projected,
    /// The projection to keys, before these are normalized and rotated.
    Keys,
}

/// Whether a linear layer adds a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// It does.
    Added,
    /// It does not.
    None,
}

/// What multiplies the heads of attention before they are projected back into the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputGate {
    /// `sigmoid(W x)`, number by number. `x` is what attention reads, and `W` has no bias. `[query heads * head_dim, hidden]`
    Sigmoid,
    /// The same, where the projection to queries has the rows of `W`: for each head those of the query, then those of the gate.
    SigmoidInQueries,
    /// Nothing.
    None,
}

/// From the normalized stream to the logits: `softcap(scale * (W x))`, with `softcap(v) = c * tanh(v / c)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Head {
    /// Where `W` comes from.
    pub weights: HeadWeights,
    /// Factor of the logits.
    pub scale: f32,
    /// `c`. `None`: no cap.
    pub softcap: Option<f32>,
}

/// Where the weights of the head come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadWeights {
    /// The embedding table.
    Tied,
    /// A matrix of its own.
    Own,
    /// Nowhere: the model makes hidden states alone.
    Missing,
}

impl DecoderSpec {
    /// The sublayers of all layers.
    pub fn sublayers(&self) -> impl Iterator<Item = &Sublayer> {
        self.layers.iter().flat_map(|layer| &layer.sublayers)
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.layers.iter().flat_map(LayerSpec::parts)
    }

    /// The mixers of all layers.
    pub fn mixers(&self) -> impl Iterator<Item = &Mixer> {
        self.parts().filter_map(Part::mixer)
    }

    /// Every attention, in the order of layers.
    pub fn attentions(&self) -> impl Iterator<Item = &SelfAttention> {
        self.mixers().filter_map(Mixer::attention)
    }

    /// Every mixer with a recurrent state, in the order of layers.
    pub fn recurrent_layers(&self) -> impl Iterator<Item = &Recurrent> {
        self.mixers().filter_map(Mixer::recurrent)
    }

    /// Every feed-forward part, in the order of layers.
    pub fn feed_forwards(&self) -> impl Iterator<Item = &FeedForward> {
        self.parts().filter_map(Part::feed_forward)
    }

    /// Which KV layer each of [`attentions`](Self::attentions) reads. `[attentions]`
    pub fn kv_layers(&self) -> Vec<usize> {
        (0..self.attentions().count()).collect()
    }

    /// Numbers in a head that a rope rotates: those of the layers that refer to it.
    pub fn rope_head_dim(&self, rope: usize) -> usize {
        let refers = |attention: &&SelfAttention| attention.rope == Some(rope);
        self.attentions().find(refers).or(self.attentions().next()).map_or(0, |attention| attention.head_dim)
    }

    /// The sliding window of each attention.
    pub fn windows(&self) -> impl Iterator<Item = Option<usize>> {
        self.attentions().map(|attention| attention.scores.window)
    }

    /// The temperatures of the layers, each once.
    pub fn temperatures(&self) -> Vec<Temperature> {
        let mut distinct = Vec::new();
        for temperature in self.attentions().filter_map(|attention| attention.temperature) {
            if !distinct.contains(&temperature) {
                distinct.push(temperature);
            }
        }
        distinct
    }

    /// Numbers that the tables of ropes and temperatures have for each position.
    pub fn numbers_per_position(&self) -> usize {
        let ropes = self.ropes.iter().enumerate();
        let of_ropes: usize = ropes.map(|(index, rope)| rope.rotary(self.rope_head_dim(index))).sum();
        of_ropes + self.temperatures().len()
    }

    /// The widest sliding window, if every layer has one.
    pub fn window(&self) -> Option<usize> {
        self.windows().try_fold(0, |widest, window| Some(window?.max(widest)))
    }

    /// Weights of the largest layer, norms and biases left aside.
    pub fn layer_parameters(&self) -> usize {
        self.layers.iter().map(|layer| layer.parameters(self.hidden)).max().unwrap_or(0)
    }

    /// The heads that each KV layer stores.
    fn kv_heads(&self) -> Vec<KvHeads> {
        let heads = |&SelfAttention { kv_heads, head_dim, .. }: &SelfAttention| KvHeads { kv_heads, head_dim };
        self.attentions().map(heads).collect()
    }

    /// Where each KV layer is, for sequences of up to `model_len` tokens.
    pub fn kv_groups(&self, model_len: usize) -> KvGroups {
        KvGroups::new(&self.kv_heads(), &self.windows().collect::<Vec<_>>(), model_len)
    }

    /// The KV cache that this model needs in passes within `limits`.
    pub fn kv_layout(&self, limits: &BatchLimits, format: KvFormat) -> KvLayout {
        let mut layers = self.kv_heads();
        layers.truncate(self.kv_groups(limits.model_len).layers);
        KvLayout { layers, block_size: limits.block_size, format }
    }
}

impl LayerSpec {
    /// A mixer, then a feed-forward part, each behind its norms.
    pub fn pair(mixer: (SublayerNorms, Mixer), feed_forward: (SublayerNorms, FeedForward)) -> LayerSpec {
        let sublayers = vec![
            Sublayer::new(mixer.0, Part::Mixer(mixer.1)),
            Sublayer::new(feed_forward.0, Part::FeedForward(feed_forward.1)),
        ];
        LayerSpec { sublayers, stream_scale: StreamScale::One }
    }

    /// The same, with these norms around each sublayer.
    pub fn with_norms(mut self, norms: SublayerNorms) -> LayerSpec {
        self.sublayers.iter_mut().for_each(|sublayer| sublayer.norms = norms);
        self
    }

    /// The same, with this factor of what each branch adds to the stream.
    pub fn with_scale(mut self, scale: f32) -> LayerSpec {
        self.sublayers.iter_mut().flat_map(|sublayer| &mut sublayer.branches).for_each(|branch| branch.scale = scale);
        self
    }

    /// The same, with this mixer in the place of its first.
    pub fn with_mixer(mut self, mixer: Mixer) -> LayerSpec {
        if let Some(first) = self.parts_mut().find(|part| part.mixer().is_some()) {
            *first = Part::Mixer(mixer);
        }
        self
    }

    /// The same, with this in the place of its first feed-forward part.
    pub fn with_feed_forward(mut self, feed_forward: FeedForward) -> LayerSpec {
        if let Some(first) = self.parts_mut().find(|part| part.feed_forward().is_some()) {
            *first = Part::FeedForward(feed_forward);
        }
        self
    }

    /// The same, with all branches in one sublayer, which has these norms.
    pub fn in_parallel(self, norms: SublayerNorms) -> LayerSpec {
        let branches = self.sublayers.into_iter().flat_map(|sublayer| sublayer.branches).collect();
        LayerSpec { sublayers: vec![Sublayer { norms, branches }], ..self }
    }

    /// What its branches compute.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.sublayers.iter().flat_map(|sublayer| &sublayer.branches).map(|branch| &branch.part)
    }

    /// The same, to be changed.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        self.sublayers.iter_mut().flat_map(|sublayer| &mut sublayer.branches).map(|branch| &mut branch.part)
    }

    /// Its first attention.
    pub fn attention(&self) -> Option<&SelfAttention> {
        self.parts().filter_map(Part::mixer).find_map(Mixer::attention)
    }

    /// Its first mixer with a recurrent state.
    pub fn recurrent(&self) -> Option<&Recurrent> {
        self.parts().filter_map(Part::mixer).find_map(Mixer::recurrent)
    }

    /// Its first feed-forward part.
    pub fn feed_forward(&self) -> Option<&FeedForward> {
        self.parts().find_map(Part::feed_forward)
    }

    fn parameters(&self, hidden: usize) -> usize {
        let rows = |part: &Part| match part {
            Part::Mixer(Mixer::Attention(attention)) => {
                let as_wide_as_queries = match attention.output_gate {
                    OutputGate::None => 2,
                    OutputGate::Sigmoid | OutputGate::SigmoidInQueries => 3,
                };
                as_wide_as_queries * attention.query_width() + 2 * attention.kv_width()
            }
            Part::Mixer(Mixer::Recurrent(recurrent)) => recurrent.rows(hidden),
            Part::FeedForward(part) => part.rows(),
        };
        hidden * self.parts().map(rows).sum::<usize>()
    }
}

impl Sublayer {
    /// A sublayer with one branch, which is added as it is.
    pub fn new(norms: SublayerNorms, part: Part) -> Sublayer {
        Sublayer { norms, branches: vec![Branch { part, scale: 1.0 }] }
    }
}

impl Part {
    /// The mixer, if that is what it is.
    pub fn mixer(&self) -> Option<&Mixer> {
        match self {
            Part::Mixer(mixer) => Some(mixer),
            Part::FeedForward(_) => None,
        }
    }

    /// The feed-forward part, if that is what it is.
    pub fn feed_forward(&self) -> Option<&FeedForward> {
        match self {
            Part::Mixer(_) => None,
            Part::FeedForward(part) => Some(part),
        }
    }
}

impl Norm {
    /// RMS normalization whose weights are stored as they are.
    pub fn rms(eps: f32) -> Norm {
        Norm { kind: NormKind::Rms, eps, weight: NormWeight::Plain }
    }
}

impl SublayerNorms {
    /// No norms.
    pub const NONE: SublayerNorms = SublayerNorms { before: None, after: None };

    /// A norm before the sublayer, and one like it after.
    pub fn around(norm: Norm) -> SublayerNorms {
        SublayerNorms { before: Some(norm), after: Some(norm) }
    }

    /// A norm after the sublayer and none before.
    pub fn after(norm: Norm) -> SublayerNorms {
        SublayerNorms { before: None, after: Some(norm) }
    }

    /// A norm before the sublayer and none after.
    pub fn before(norm: Norm) -> SublayerNorms {
        SublayerNorms { before: Some(norm), after: None }
    }
}

impl Head {
    /// A head without scale and cap.
    pub fn plain(weights: HeadWeights) -> Head {
        Head { weights, scale: 1.0, softcap: None }
    }
}

impl Mixer {
    /// The attention of the layer, if that is what it has.
    pub fn attention(&self) -> Option<&SelfAttention> {
        match self {
            Mixer::Attention(attention) => Some(attention),
            Mixer::Recurrent(_) => None,
        }
    }

    /// The layer with a recurrent state, if that is what it is.
    pub fn recurrent(&self) -> Option<&Recurrent> {
        match self {
            Mixer::Attention(_) => None,
            Mixer::Recurrent(recurrent) => Some(recurrent),
        }
    }

    /// Whether the columns of a rank in the projection back are not consecutive.
    pub fn has_tiled_values(&self) -> bool {
        match self {
            Mixer::Recurrent(Recurrent::GatedDelta(delta)) => {
                delta.heads.order == ValueOrder::Tiled && delta.heads.values > delta.heads.keys
            }
            Mixer::Attention(_) | Mixer::Recurrent(_) => false,
        }
    }

    /// Groups of a selective scan.
    pub fn scan_groups(&self) -> Option<usize> {
        match self {
            Mixer::Recurrent(Recurrent::StateSpace(scan)) => Some(scan.heads.groups),
            Mixer::Attention(_) | Mixer::Recurrent(_) => None,
        }
    }

    /// Heads that can be dealt to ranks.
    pub fn divisible_heads(&self) -> usize {
        match self {
            Mixer::Attention(attention) => attention.scores.heads,
            Mixer::Recurrent(recurrent) => recurrent.divisible_heads(),
        }
    }
}

impl SelfAttention {
    /// Width of all query heads.
    pub fn query_width(&self) -> usize {
        self.scores.heads * self.head_dim
    }

    /// Width of all key heads, and of all value heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

#[cfg(test)]
mod tests;
