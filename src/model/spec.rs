//! A decoder as data: what does each layer compute, and in which order?
//!
//! A decoder is a list of layers, and each layer says by itself what it mixes and what it feeds forward; the families are the
//! functions that write such lists. Invariant: a spec that [`DecoderSpec::check`] accepted can be computed: the layers agree
//! wherever they share memory, and every index leads somewhere.

use crate::fields::{POSITIVE, is_positive};
use crate::rope::Rope;
pub use crate::rope::Temperature;
use base::error::{Error, Result};
pub use compute::{Activation, NormKind, NormOrder};
use compute::{AttentionSpec, KvFormat, KvHeads, KvLayout, ValueOrder};
pub use compute::{Groups, Router, Scores};
pub use recurrent::{GatedDelta, GatedShortConv, Recurrent, StateSpace};

mod recurrent;

/// Heads wider than this are not computed: kernels keep a head in registers or on the stack.
const HEAD_DIM_MAX: usize = 512;

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

/// What works on each token alone.
#[derive(Clone, Debug, PartialEq)]
pub enum FeedForward {
    /// One MLP for all tokens.
    Dense(Mlp),
    /// Several, of which a router chooses some for each token.
    Experts(Experts),
}

/// A mixture of experts: see [`route`](compute::ops::route) and [`combine`](compute::ops::combine).
#[derive(Clone, Debug, PartialEq)]
pub struct Experts {
    /// What chooses them.
    pub router: Router,
    /// What is added to scores where experts are chosen.
    pub correction: Correction,
    /// Each of them, without biases.
    pub expert: Mlp,
    /// The expert that computes all tokens.
    pub shared: Option<SharedExpert>,
}

/// What is added to scores where experts are chosen, and not where they are weighted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Correction {
    /// A tensor of a number per expert.
    Stored,
    /// Nothing.
    None,
}

/// An expert that computes all tokens.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedExpert {
    /// What it computes.
    pub mlp: Mlp,
    /// What multiplies it.
    pub gate: SharedGate,
}

/// What multiplies the expert that computes all tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedGate {
    /// `sigmoid(W x)`, one number per token.
    Sigmoid,
    /// Nothing.
    None,
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

/// `down(activation(gate(x)) * up(x))`
#[derive(Clone, Debug, PartialEq)]
pub struct Mlp {
    /// Outputs of `gate` and of `up`.
    pub width: usize,
    /// Of the gate.
    pub activation: Activation,
    /// Of all three projections.
    pub bias: Bias,
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
    /// Refuses what the decoder, the KV cache or the kernels cannot hold.
    ///
    /// # Errors
    ///
    /// [`Error::UnsupportedModel`] for a head of a size that no kernel has.
    ///
    /// # Panics
    ///
    /// If there is no layer, a layer adds nothing, an index leads nowhere, a router cannot choose, layers with heads of different sizes share a rope, a norm of embeddings has weights, or
    /// several branches have other norms than one before them: only a wrong family can cause it.
    pub fn check(&self) -> Result<()> {
        assert!(!self.layers.is_empty(), "a decoder has layers");
        for attention in self.attentions() {
            let SelfAttention { head_dim, rope, .. } = *attention;
            if !head_dim.is_multiple_of(2) || head_dim == 0 || head_dim > HEAD_DIM_MAX {
                return Err(Error::UnsupportedModel {
                    setting: "head_dim",
                    value: head_dim.to_string(),
                    supported: "an even number from 2 to 512",
                });
            }
            // A table of cosines and sines is made for heads of one size.
            assert!(rope.is_none_or(|rope| rope < self.ropes.len() && self.rope_head_dim(rope) == head_dim));
        }
        self.recurrent_layers().try_for_each(Recurrent::check)?;
        assert!(self.feed_forwards().filter_map(FeedForward::experts).all(|experts| experts.router.is_valid()));
        let mut ropes = self.ropes.iter().enumerate();
        ropes.try_for_each(|(index, rope)| rope.check(self.rope_head_dim(index)))?;
        assert!(self.layers.iter().all(|layer| !layer.sublayers.is_empty()));
        assert!(self.sublayers().all(|sublayer| match sublayer.branches.len() {
            0 => false,
            1 => true,
            // They read the rows that the first one read, and these are kept where they are normalized.
            _ => sublayer.norms.before.is_some() && sublayer.norms.after.is_none(),
        }));
        // No file has a tensor for them.
        assert!(self.embedding_norm.is_none_or(|norm| norm.weight == NormWeight::Ones));
        self.check_numbers()?;
        self.refuse_what_no_op_computes()
    }

    /// Refuses numbers that are not above 0 or not finite in single precision. Families read them as such, but compute with them.
    fn check_numbers(&self) -> Result<()> {
        let positive = |setting, number: f32| match is_positive(number.into()) {
            true => Ok(()),
            false => Err(Error::UnsupportedModel { setting, value: number.to_string(), supported: POSITIVE }),
        };
        let norm = |norm: &Norm| positive("rms_norm_eps or layer_norm_eps", norm.eps);
        positive("the scale of embeddings", self.embedding_scale)?;
        positive("the scale of logits", self.head.scale)?;
        self.head.softcap.map_or(Ok(()), |cap| positive("final_logit_softcapping", cap))?;
        self.embedding_norm.iter().chain([&self.final_norm]).try_for_each(norm)?;
        for Sublayer { norms, branches } in self.sublayers() {
            norms.before.iter().chain(&norms.after).try_for_each(norm)?;
            branches.iter().try_for_each(|branch| positive("the scale of residuals", branch.scale))?;
        }
        for eps in self.recurrent_layers().filter_map(Recurrent::norm_eps) {
            positive("rms_norm_eps or layer_norm_eps", eps)?;
        }
        for router in self.feed_forwards().filter_map(FeedForward::experts).map(|experts| &experts.router) {
            positive("routed_scaling_factor", router.scale)?;
        }
        for attention in self.attentions() {
            positive("the scale of scores", attention.scores.scale)?;
            attention.scores.softcap.map_or(Ok(()), |cap| positive("attn_logit_softcapping", cap))?;
            if let QkNorm::PerHead { norm: of_heads, .. } | QkNorm::Whole(of_heads) = &attention.qk_norm {
                norm(of_heads)?;
            }
            attention.value_norm.map_or(Ok(()), |eps| positive("rms_norm_eps", eps))?;
            // The logarithm of a position is less than this.
            const LOG_MAX: f32 = 32.0;
            attention.temperature.map_or(Ok(()), |t| positive("llama_4_scaling_beta", t.beta * LOG_MAX))?;
        }
        Ok(())
    }

    /// Refuses what can be said and is not computed.
    fn refuse_what_no_op_computes(&self) -> Result<()> {
        for attention in self.attentions() {
            if let QkNorm::PerHead { norm, .. } | QkNorm::Whole(norm) = attention.qk_norm
                && norm.kind != NormKind::Rms
            {
                return Err(Error::UnsupportedModel {
                    setting: "the norm of queries and keys",
                    value: format!("{:?}", norm.kind),
                    supported: "an RMS norm",
                });
            }
        }
        Ok(())
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

    /// The KV cache that this model needs.
    pub fn kv_layout(&self, block_size: usize, format: KvFormat) -> KvLayout {
        let heads = |&SelfAttention { kv_heads, head_dim, .. }: &SelfAttention| KvHeads { kv_heads, head_dim };
        KvLayout { layers: self.attentions().map(heads).collect(), block_size, format }
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

impl FeedForward {
    /// The MLPs that compute every token.
    pub fn dense(&self) -> Option<&Mlp> {
        match self {
            FeedForward::Dense(mlp) => Some(mlp),
            FeedForward::Experts(experts) => experts.shared.as_ref().map(|shared| &shared.mlp),
        }
    }

    /// The mixture of experts, if that is what it is.
    pub fn experts(&self) -> Option<&Experts> {
        match self {
            FeedForward::Dense(_) => None,
            FeedForward::Experts(experts) => Some(experts),
        }
    }

    /// Outputs of the gate of its narrowest MLP.
    pub fn width(&self) -> usize {
        let of_experts = self.experts().map(|experts| experts.expert.width);
        self.dense().map(|mlp| mlp.width).into_iter().chain(of_experts).min().unwrap_or(0)
    }

    /// Rows of as many numbers as the stream has that are read for a token.
    fn rows(&self) -> usize {
        let of_experts = |experts: &Experts| experts.router.experts + 3 * experts.router.chosen * experts.expert.width;
        3 * self.dense().map_or(0, |mlp| mlp.width) + self.experts().map_or(0, of_experts)
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
mod tests {
    use super::*;
    use crate::rope::RopeScaling;
    use compute::Pairing;

    fn attention() -> SelfAttention {
        SelfAttention {
            scores: AttentionSpec { heads: 4, scale: 0.25, window: None, softcap: None },
            kv_heads: 2,
            head_dim: 16,
            qk_norm: QkNorm::None,
            values: Values::Projected,
            value_norm: None,
            qkv_bias: Bias::None,
            output_bias: Bias::None,
            output_gate: OutputGate::None,
            rope: Some(0),
            temperature: None,
        }
    }

    /// Two layers, the second changed.
    fn spec(change: impl FnOnce(&mut SelfAttention, &mut Mlp)) -> DecoderSpec {
        let norm = Norm::rms(1e-6);
        let layer = |attention, mlp| {
            let norms = SublayerNorms::before(norm);
            LayerSpec::pair((norms, Mixer::Attention(attention)), (norms, FeedForward::Dense(mlp)))
        };
        let mlp = Mlp { width: 80, activation: Activation::Silu, bias: Bias::None };
        let (mut other, mut other_mlp) = (attention(), mlp.clone());
        change(&mut other, &mut other_mlp);
        DecoderSpec {
            hidden: 64,
            vocab: 130,
            embedding_scale: 1.0,
            embedding_norm: None,
            layers: vec![layer(attention(), mlp), layer(other, other_mlp)],
            final_norm: norm,
            head: Head::plain(HeadWeights::Own),
            ropes: vec![Rope {
                theta: 10_000.0,
                scaling: RopeScaling::None,
                rotary_factor: 1.0,
                pairing: Pairing::Halves,
            }],
            max_positions: 256,
        }
    }

    #[test]
    fn layers_may_differ_in_heads_and_width() {
        let changed = spec(|attention, mlp| {
            (attention.qk_norm, attention.scores.scale) =
                (QkNorm::PerHead { norm: Norm::rms(1e-5), order: NormOrder::BeforeRope }, 1.0);
            (attention.scores.heads, attention.kv_heads, attention.head_dim, attention.rope) = (8, 1, 32, None);
            mlp.width = 96;
        });
        changed.check().unwrap();
        let layout = changed.kv_layout(16, KvFormat::Int8);
        assert_eq!(layout.layers, [KvHeads { kv_heads: 2, head_dim: 16 }, KvHeads { kv_heads: 1, head_dim: 32 }]);
    }

    #[test]
    fn heads_of_a_size_that_no_kernel_has_are_refused_in_every_layer() {
        for dim in [0, 17, 514] {
            match spec(|attention, _| (attention.head_dim, attention.rope) = (dim, None)).check() {
                Err(Error::UnsupportedModel { setting: "head_dim", value, .. }) => assert_eq!(value, dim.to_string()),
                other => panic!("{dim}: {other:?}"),
            }
        }
    }

    #[test]
    #[should_panic]
    fn a_rope_for_heads_of_two_sizes_is_a_bug() {
        let _ = spec(|attention, _| attention.head_dim = 32).check();
    }

    #[test]
    #[should_panic]
    fn a_rope_that_does_not_exist_is_a_bug() {
        let _ = spec(|attention, _| attention.rope = Some(1)).check();
    }
}
