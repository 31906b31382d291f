//! A decoder as data: what does each layer compute, and in which order?
//!
//! A decoder is a list of layers, and each layer says by itself what it mixes and what it feeds forward; the families are the
//! functions that write such lists. Invariant: a spec that [`DecoderSpec::check`] accepted can be computed: the layers agree
//! wherever they share memory, and every index leads somewhere.

use crate::rope::Rope;
pub use crate::rope::Temperature;
use compute::batch::BatchLimits;
pub use compute::{Activation, Curve, NormKind, NormOrder, Reach};
use compute::{AttentionSpec, KvFormat, KvGroups, KvHeads, KvLayout, KvPlace, KvValues, ValueOrder};
pub use compute::{Groups, Router, Scores};
pub use feed_forward::{
    Correction, ExpertLatent, ExpertScales, Experts, FeedForward, LayerInput, Logits, Mlp, MlpForm, SharedExpert,
    SharedGate,
};
pub use latent::Latent;
pub use layer::{Branch, LayerSpec, Part, StreamScale, Sublayer};
pub use recurrent::{GatedDelta, GatedShortConv, GroupNorm, Recurrent, ScanScales, StateSpace};

mod check;
mod feed_forward;
mod latent;
mod layer;
mod recurrent;

/// A transformer with a residual stream: a decoder, or an encoder, whose tokens attend to those behind them too.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderSpec {
    /// Width of the residual stream.
    pub hidden: usize,
    /// Tokens of the vocabulary.
    pub vocab: usize,
    /// Factor of the rows of the embedding table.
    pub embedding_scale: f32,
    /// What is added to these rows.
    pub added: AddedEmbeddings,
    /// Of the sum. `None`: the stream begins with the sum itself.
    pub embedding_norm: Option<Norm>,
    /// What each layer gets of a token besides the stream. `None`: nothing.
    pub layer_inputs: Option<LayerInputs>,
    /// What is computed between the embedding and the head, in order. At least one.
    pub layers: Vec<LayerSpec>,
    /// Before the head. `None`: the states are the stream itself.
    pub final_norm: Option<Norm>,
    /// From the normalized stream to the logits.
    pub head: Head,
    /// What is computed of the pooled state of a text, in order. A model with any has no head.
    pub pooled_layers: Vec<PooledLayer>,
    /// The rotary position embeddings that layers refer to by index.
    pub ropes: Vec<Rope>,
    /// Positions that the model was made for, those that rope scaling adds included.
    pub max_positions: usize,
}

/// What is added to the row of a token in the embedding table: rows of other tables, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddedEmbeddings {
    /// By its position.
    pub positions: Option<PositionRows>,
    /// By which text of a pair it belongs to: how many rows there are.
    pub types: Option<usize>,
}

/// A table with a row for each position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PositionRows {
    /// Rows of the table.
    pub rows: usize,
    /// The row of the first position.
    pub first: usize,
}

impl AddedEmbeddings {
    /// Nothing.
    pub const NONE: AddedEmbeddings = AddedEmbeddings { positions: None, types: None };
}

/// A layer that reads the pooled state of a text, or what the one before makes of it: `norm(curve(W x + b))`.
#[derive(Clone, Debug, PartialEq)]
pub struct PooledLayer {
    /// What its tensors are called.
    pub tensors: PooledTensors,
    /// Columns of `W`.
    pub inputs: usize,
    /// Rows of `W`.
    pub outputs: usize,
    /// Whether there is `b`.
    pub bias: Bias,
    /// `None`: the identity.
    pub curve: Option<Curve>,
    /// And its name. `None`: the identity.
    pub norm: Option<(Norm, &'static str)>,
}

/// Where the tensors of a layer are that reads pooled states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PooledTensors {
    /// Beside those of the other layers, with this whole name.
    Named(&'static str),
    /// In a folder within the model's.
    Module {
        /// Its name.
        folder: String,
        /// Their name in it.
        name: &'static str,
    },
}

/// What each layer gets of a token besides the stream: `(t + norm(p / sqrt(hidden))) / sqrt(2)`, where `t` is the scaled row of a table and `p` a
/// projection of what the stream begins with. Both have `width` numbers for each layer, and a norm of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerInputs {
    /// Numbers for each layer.
    pub width: usize,
    /// Factor of the rows of the table.
    pub table_scale: f32,
    /// Of the numbers for a layer.
    pub norm: Norm,
}

/// The norms around one sublayer: the stream becomes `sum(x + after(f(before(x))))`. One that is `None` is the identity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SublayerNorms {
    /// Of what the sublayer reads.
    pub before: Option<Norm>,
    /// Of what it adds to the stream.
    pub after: Option<Norm>,
    /// Of the stream behind it.
    pub sum: Option<Norm>,
}

/// A normalization, with one weight per number unless all are one, and one bias if its formula has them.
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
    /// Softmax attention.
    Attention(SelfAttention),
    /// A layer with a recurrent state.
    Recurrent(Recurrent),
}

/// Attention with grouped heads.
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
    /// Whose keys and values are read.
    pub kv_source: KvSource,
    /// Where values come from.
    pub values: Values,
    /// What is added to the mean of squares of a value head that is divided by its root, without weights. `None`: values are as projected.
    pub value_norm: Option<f32>,
    /// What the projections to queries, keys and values read. `None`: the input.
    pub latent: Option<Latent>,
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
    /// Whether a number for each query head joins the softmax of its scores.
    pub sinks: Sinks,
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

/// Whose keys and values attention reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvSource {
    /// Its own.
    Own,
    /// Those of an earlier attention with its own, by its place among [`DecoderSpec::attentions`]: there is no projection to keys and values.
    Attention(usize),
}

/// Where values come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// A projection of their own.
    Projected,
    /// The projection to keys, before these are normalized and rotated.
    Keys,
}

/// Whether a number for each query head joins the softmax of its scores: see [`attention`](compute::ops::attention).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sinks {
    /// A tensor of these numbers.
    Stored,
    /// None does.
    None,
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
    /// The same with one number per head, which multiplies all numbers of the head. `[query heads, hidden]`
    SigmoidPerHead,
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

impl OutputGate {
    /// Its numbers for each query head, which has `head_dim`.
    pub fn numbers(self, head_dim: usize) -> usize {
        match self {
            OutputGate::Sigmoid | OutputGate::SigmoidInQueries => head_dim,
            OutputGate::SigmoidPerHead => 1,
            OutputGate::None => 0,
        }
    }
}

impl DecoderSpec {
    /// Whether its tokens attend to those behind them: texts are computed whole, and nothing is generated.
    pub fn is_encoder(&self) -> bool {
        self.attentions().any(|attention| attention.scores.reach == Reach::Both)
    }

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

    /// The layers that have experts, and these.
    pub fn expert_layers(&self) -> impl Iterator<Item = (usize, &Experts)> {
        let layers = self.layers.iter().enumerate();
        layers.flat_map(|(index, layer)| {
            let parts = layer.parts().filter_map(Part::feed_forward).filter_map(FeedForward::experts);
            parts.map(move |experts| (index, experts))
        })
    }

    /// Which KV layer each of [`attentions`](Self::attentions) reads. `[attentions]`
    pub fn kv_layers(&self) -> Vec<usize> {
        let mut layers: Vec<usize> = Vec::new();
        let mut own = 0..;
        for attention in self.attentions() {
            layers.push(match attention.kv_source {
                KvSource::Own => own.next().expect("there is no end"),
                KvSource::Attention(of) => layers[of],
            });
        }
        layers
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

    /// The widest sliding window of a decoder, if every layer has one.
    pub fn window(&self) -> Option<usize> {
        if self.is_encoder() {
            return None;
        }
        self.windows().try_fold(0, |widest, window| Some(window?.max(widest)))
    }

    /// Weights of the largest layer, norms and biases left aside.
    pub fn layer_parameters(&self) -> usize {
        self.layers.iter().map(|layer| layer.parameters(self.hidden)).max().unwrap_or(0)
    }

    /// The heads that each KV layer stores.
    fn kv_heads(&self) -> Vec<KvHeads> {
        let heads = |attention: &SelfAttention| KvHeads {
            kv_heads: attention.kv_heads,
            head_dim: attention.head_dim,
            values: attention.kv_values(),
        };
        self.own_attentions().map(heads).collect()
    }

    /// The attentions that store keys and values.
    fn own_attentions(&self) -> impl Iterator<Item = &SelfAttention> {
        self.attentions().filter(|attention| attention.kv_source == KvSource::Own)
    }

    /// Where each KV layer is in an engine with these limits, which say whether layers with a window have block tables of their own. The keys and values of
    /// an encoder are those of one layer at a time: no later pass reads them.
    pub fn kv_groups(&self, limits: &BatchLimits) -> KvGroups {
        match limits.window_tables {
            _ if self.is_encoder() => self.window_groups(limits.model_len),
            0 => KvGroups::one(self.kv_heads().len()),
            _ => self.window_groups(limits.model_len),
        }
    }

    /// The groups that save memory for sequences of up to `model_len` tokens.
    pub fn window_groups(&self, model_len: usize) -> KvGroups {
        if self.is_encoder() {
            let places = self.own_attentions().map(|_| KvPlace::from(0)).collect();
            return KvGroups { places, layers: 1, windowed: None, split: None };
        }

        let windows: Vec<_> = self.own_attentions().map(|attention| attention.scores.window).collect();
        KvGroups::new(&self.kv_heads(), &windows, model_len)
    }

    /// The KV cache that this model needs in passes within `limits`.
    pub fn kv_layout(&self, limits: &BatchLimits, format: KvFormat) -> KvLayout {
        let (mut layers, groups) = (self.kv_heads(), self.kv_groups(limits));
        if let Some(split) = groups.split {
            // Those of which each takes a whole layer of the cache stay.
            layers.retain(|heads| *heads != split.heads);
        }
        layers.truncate(groups.layers);
        KvLayout { layers, split: groups.split, block_size: limits.block_size, format }
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
    pub const NONE: SublayerNorms = SublayerNorms { before: None, after: None, sum: None };

    /// A norm before the sublayer, and one like it after.
    pub fn around(norm: Norm) -> SublayerNorms {
        SublayerNorms { before: Some(norm), after: Some(norm), sum: None }
    }

    /// A norm after the sublayer and none before.
    pub fn after(norm: Norm) -> SublayerNorms {
        SublayerNorms { after: Some(norm), ..SublayerNorms::NONE }
    }

    /// A norm before the sublayer and none after.
    pub fn before(norm: Norm) -> SublayerNorms {
        SublayerNorms { before: Some(norm), ..SublayerNorms::NONE }
    }

    /// A norm of the stream behind the sublayer.
    pub fn of_sum(norm: Norm) -> SublayerNorms {
        SublayerNorms { sum: Some(norm), ..SublayerNorms::NONE }
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

    /// Numbers in a head of what attention gives to the projection back.
    pub fn value_dim(&self) -> usize {
        self.latent.map_or(self.head_dim, |latent| latent.value)
    }

    /// Where the cache has values.
    pub fn kv_values(&self) -> KvValues {
        self.latent.map_or(KvValues::Stored, |latent| KvValues::InKeys(latent.rank))
    }

    /// Width of all key heads, and of all value heads.
    pub fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

#[cfg(test)]
mod tests;
