//! A layer as data: what adds to the stream, and in which order?

use super::{FeedForward, Mixer, Recurrent, SelfAttention, SublayerNorms};

/// One layer: what adds to the stream, one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpec {
    /// In order. At least one.
    pub sublayers: Vec<Sublayer>,
    /// Factor of the stream behind the layer.
    pub stream_scale: StreamScale,
}

/// What adds to the stream: `n = before(x)`, then `x += scale * after(part(n))` for each branch. Branches with norms of their own are added up before
/// the norm after all: `x += after(sum of scale * after_b(part(before_b(x))))`, where a branch without a norm before it reads `n`.
#[derive(Clone, Debug, PartialEq)]
pub struct Sublayer {
    /// Around the branches.
    pub norms: SublayerNorms,
    /// At least one. Several without norms of their own need a norm before them, and have none after.
    pub branches: Vec<Branch>,
}

/// One of the summands of a sublayer.
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// What is computed.
    pub part: Part,
    /// Factor of what it adds to the stream.
    pub scale: f32,
    /// Its own, beside those of the sublayer: of a branch among several.
    pub norms: SublayerNorms,
}

impl Branch {
    /// A branch without norms of its own.
    pub fn new(part: Part, scale: f32) -> Branch {
        Branch { part, scale, norms: SublayerNorms::NONE }
    }
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

    /// Weights, norms and biases left aside.
    pub(super) fn parameters(&self, hidden: usize) -> usize {
        let rows = |part: &Part| match part {
            Part::Mixer(Mixer::Attention(attention)) => {
                let gate = attention.output_gate.numbers(attention.head_dim) * attention.scores.heads;
                let wide = 2 * attention.query_width() + gate + 2 * attention.kv_width();
                match &attention.latent {
                    None => wide,
                    Some(latent) => latent.parameters(attention.scores.heads, hidden).div_ceil(hidden),
                }
            }
            Part::Mixer(Mixer::Recurrent(recurrent)) => recurrent.rows(hidden),
            Part::FeedForward(part) => part.rows(hidden),
        };
        hidden * self.parts().map(rows).sum::<usize>()
    }
}

impl Sublayer {
    /// A sublayer with one branch, which is added as it is.
    pub fn new(norms: SublayerNorms, part: Part) -> Sublayer {
        Sublayer { norms, branches: vec![Branch::new(part, 1.0)] }
    }

    /// Whether its branches are added up before they are normalized and added to the stream.
    pub fn is_summed(&self) -> bool {
        self.branches.iter().any(|branch| branch.norms != SublayerNorms::NONE)
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
