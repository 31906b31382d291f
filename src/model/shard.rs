//! Which part of a model does each rank compute?
//!
//! Ranks compute a pass together: each has some of the heads, of the columns of the feed-forward part and of the vocabulary, and all of
//! the residual stream. Invariant: the shares of the ranks are consecutive and not empty, and together they cover everything; only KV
//! heads and groups of a selective scan may be in several shares, where there are fewer of them than ranks.

use crate::spec::{DecoderSpec, FeedForward, Mixer};
use base::error::{Error, Result};
use compute::{KvHeads, KvLayout, KvSplit};
use std::ops::Range;

/// How the two projections back into the residual stream are divided among ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sums {
    /// By their inputs, as Megatron-LM does: each rank has a share of every sum, and the shares are added in the order of ranks. Two
    /// exchanges per layer.
    Reduced,
    /// By their outputs: no sum is divided, so that every number has the bits that one rank alone computes. Four exchanges per layer.
    Gathered,
}

/// How the experts of a layer are divided among ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpertDivision {
    /// Each rank has a share of the width of every expert.
    #[default]
    ByWidth,
    /// Each rank has some experts whole, which follow each other.
    Whole,
}

/// Which part of a model each rank computes, and which rank this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharding {
    /// This rank, below `ranks`.
    pub rank: usize,
    /// How many there are.
    pub ranks: usize,
    /// How the projections back into the stream are divided.
    pub sums: Sums,
    /// How experts are divided.
    pub experts: ExpertDivision,
    /// Outputs of the projections back into the stream, for [`Sums::Gathered`]. `[ranks]`
    pub hidden: Vec<Range<usize>>,
    /// Tokens whose logits are computed. `[ranks]`
    pub vocab: Vec<Range<usize>>,
    /// From this layer on, the host computes the experts of layers, where their weights stay. No layer has this number where there are several ranks.
    pub host_experts_from: usize,
}

/// Which heads of a layer each rank computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadShares {
    /// Of the rank that asked.
    rank: usize,
    /// Query heads of each rank. `[ranks]`
    pub heads: Vec<Range<usize>>,
    /// KV heads that these read. Ranks that share a KV head each compute it. `[ranks]`
    pub kv_heads: Vec<Range<usize>>,
}

/// What a rank takes of a projection back into the residual stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Back {
    /// Columns of the matrix.
    pub inputs: Range<usize>,
    /// Rows of the matrix.
    pub outputs: Range<usize>,
    /// Whether the bias is part of what it computes.
    pub adds_bias: bool,
}

/// Shares of columns are multiples of the first of these of which there are enough: whole tiles of a kernel, whole vectors of a
/// device, single columns.
const UNITS: [usize; 3] = [64, 8, 1];

impl Sharding {
    /// The parts of a model for `ranks` ranks, as rank `rank` sees them.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] where there are more ranks than query heads.
    pub fn new(spec: &DecoderSpec, rank: usize, ranks: usize, sums: Sums) -> Result<Sharding> {
        assert!(rank < ranks);
        // The kernels that add the shares of ranks know no norm with biases.
        if ranks > 1 && spec.is_encoder() && sums == Sums::Reduced {
            return Err(Error::Option {
                field: "tensor_parallel_size",
                value: format!("{ranks}, and the model is an encoder"),
                wanted: "1 for an encoder, unless batch_invariant is 1",
            });
        }
        let heads = spec.mixers().map(Mixer::divisible_heads).min().unwrap_or(usize::MAX);
        let width = spec.feed_forwards().map(FeedForward::width).min().unwrap_or(usize::MAX);
        if ranks > heads || ranks > width.min(spec.hidden).min(spec.vocab) {
            return Err(Error::Option {
                field: "tensor_parallel_size",
                value: format!("{ranks}, and the model has {heads} query heads"),
                wanted: "at most the number of query heads",
            });
        }
        if ranks > 1 && sums == Sums::Reduced && spec.mixers().any(Mixer::has_tiled_values) {
            return Err(Error::Option {
                field: "tensor_parallel_size",
                value: format!("{ranks}, and the file has the value heads of a key head in turn"),
                wanted: "1, or batch_invariant, or the model's folder instead of its GGUF file",
            });
        }
        let (hidden, vocab) = (deal_units(spec.hidden, ranks), deal_units(spec.vocab, ranks));
        let experts = ExpertDivision::ByWidth;
        Ok(Sharding { rank, ranks, sums, experts, hidden, vocab, host_experts_from: usize::MAX })
    }

    /// The same with experts that are divided so.
    ///
    /// # Errors
    ///
    /// [`Error::Option`] where ranks are to have whole experts, and the model has none or fewer than ranks.
    pub fn with_experts(self, spec: &DecoderSpec, experts: ExpertDivision) -> Result<Sharding> {
        let fewest = spec.expert_layers().map(|(_, experts)| experts.router.experts).min();
        let refuse = |value, wanted| Err(Error::Option { field: "expert_parallel", value, wanted });
        match (experts, fewest) {
            (ExpertDivision::Whole, None) => refuse("1, and the model has no experts".to_owned(), "0 for such a model"),
            (ExpertDivision::Whole, Some(fewest)) if fewest < self.ranks => {
                let value = format!("1, with {} ranks, and a layer of the model has {fewest} experts", self.ranks);
                refuse(value, "0, or with at most as many ranks as experts")
            }
            _ => Ok(Sharding { experts, ..self }),
        }
    }

    /// Whether this rank computes the whole model.
    pub fn is_alone(&self) -> bool {
        self.ranks == 1
    }

    /// A projection back into the stream that reads `inputs.len()` columns, of which this rank computes `own`: the inputs and the
    /// outputs that it takes, and whether it adds the bias.
    pub fn back(&self, inputs: usize, own: Range<usize>) -> Back {
        self.back_to(self.stream(), inputs, own)
    }

    /// The same where it goes to rows of `outputs` numbers, which are those of the stream or of a latent.
    fn back_to(&self, outputs: usize, inputs: usize, own: Range<usize>) -> Back {
        match (self.is_alone(), self.sums) {
            (true, _) => Back { inputs: 0..inputs, outputs: 0..outputs, adds_bias: true },
            (false, Sums::Reduced) => Back { inputs: own, outputs: 0..outputs, adds_bias: self.rank == 0 },
            (false, Sums::Gathered) => Back { inputs: 0..inputs, outputs: self.own_width(outputs), adds_bias: true },
        }
    }

    /// Columns of what this rank adds up of the experts, where it is `outputs` wide on all ranks.
    pub fn expert_columns(&self, outputs: usize) -> Range<usize> {
        self.back_to(outputs, 0, 0..0).outputs
    }

    /// Whether a rank has whole experts, and others have the rest.
    pub fn has_whole_experts(&self) -> bool {
        !self.is_alone() && self.experts == ExpertDivision::Whole
    }

    /// The experts of each rank in a layer that has `experts`, where ranks have [whole ones](Self::has_whole_experts). `[ranks]`
    pub fn whole_experts(&self, experts: usize) -> Vec<Range<usize>> {
        deal(experts, self.ranks)
    }

    /// Experts whose weights this rank has, in a layer that has `experts`.
    pub fn own_experts(&self, experts: usize) -> Range<usize> {
        if self.has_whole_experts() { self.whole_experts(experts)[self.rank].clone() } else { 0..experts }
    }

    /// Columns of each of these experts that this rank computes, of `width`.
    pub fn own_expert_width(&self, width: usize) -> Range<usize> {
        if self.has_whole_experts() { 0..width } else { self.own_width(width) }
    }

    /// The projection of such an expert back into the stream, or into a latent, of `outputs` numbers: see [`back`](Self::back).
    pub fn expert_back(&self, width: usize, outputs: usize) -> Back {
        match self.has_whole_experts() {
            true => Back { inputs: 0..width, outputs: 0..outputs, adds_bias: true },
            false => self.back_to(outputs, width, self.own_width(width)),
        }
    }

    /// Whether what other ranks computed is brought together before each projection back into the stream, and after it.
    pub fn gathers(&self) -> bool {
        !self.is_alone() && self.sums == Sums::Gathered
    }

    /// Whether the projections back into the stream give shares of sums.
    pub fn reduces(&self) -> bool {
        !self.is_alone() && self.sums == Sums::Reduced
    }

    /// Width of the residual stream.
    fn stream(&self) -> usize {
        self.hidden.last().map_or(0, |last| last.end)
    }

    /// The heads of a layer that has `heads` query heads over `kv_heads` KV heads.
    pub fn heads(&self, heads: usize, kv_heads: usize) -> HeadShares {
        let group = heads / kv_heads;
        let kv_heads = self.kv_heads(kv_heads);
        HeadShares { rank: self.rank, heads: deal_heads(group, &kv_heads), kv_heads }
    }

    /// Whether ranks share groups of heads where a layer has `groups`: then each rank has some heads of one group.
    pub fn splits(&self, groups: usize) -> bool {
        self.ranks > groups
    }

    /// The KV heads of each rank in a layer that has `kv_heads`. `[ranks]`
    pub fn kv_heads(&self, kv_heads: usize) -> Vec<Range<usize>> {
        deal_kv_heads(kv_heads, self.ranks)
    }

    /// Columns of each rank in a feed-forward part of `width` columns. `[ranks]`
    pub fn width(&self, width: usize) -> Vec<Range<usize>> {
        deal_units(width, self.ranks)
    }

    /// Those of this rank.
    pub fn own_width(&self, width: usize) -> Range<usize> {
        self.width(width)[self.rank].clone()
    }

    /// Columns of the stream that this rank computes where sums are not divided.
    pub fn own_hidden(&self) -> Range<usize> {
        self.hidden[self.rank].clone()
    }

    /// Tokens whose logits this rank computes.
    pub fn own_vocab(&self) -> Range<usize> {
        self.vocab[self.rank].clone()
    }

    /// The KV cache of rank `rank`, where that of the model is `whole`.
    pub fn kv_layout(&self, rank: usize, whole: &KvLayout) -> KvLayout {
        let own = |heads: &KvHeads| KvHeads { kv_heads: self.kv_heads(heads.kv_heads)[rank].len(), ..*heads };
        let split = whole.split.map(|split| KvSplit { heads: own(&split.heads), ..split });
        KvLayout { layers: whole.layers.iter().map(own).collect(), split, ..*whole }
    }
}

impl HeadShares {
    /// Query heads of this rank.
    pub fn own_heads(&self) -> Range<usize> {
        self.heads[self.rank].clone()
    }

    /// KV heads of this rank.
    pub fn own_kv_heads(&self) -> Range<usize> {
        self.kv_heads[self.rank].clone()
    }
}

/// The first of the ranks with these KV heads that has head `head`.
pub fn first_with_kv_head(kv_heads: &[Range<usize>], head: usize) -> usize {
    kv_heads.iter().position(|heads| heads.contains(&head)).expect("every head has a rank")
}

/// Columns of heads of `head_dim` numbers.
pub fn columns_of(heads: &Range<usize>, head_dim: usize) -> Range<usize> {
    heads.start * head_dim..heads.end * head_dim
}

/// `items` in `parts` consecutive ranges whose lengths differ by one at most, the longer ones first.
fn deal(items: usize, parts: usize) -> Vec<Range<usize>> {
    let (each, longer) = (items / parts, items % parts);
    let start = |part: usize| part * each + part.min(longer);
    (0..parts).map(|part| start(part)..start(part + 1)).collect()
}

/// As [`deal`], in the largest of [`UNITS`] of which every part gets one. The last unit may be shorter.
fn deal_units(items: usize, parts: usize) -> Vec<Range<usize>> {
    let unit = UNITS.into_iter().find(|unit| items.div_ceil(*unit) >= parts).unwrap_or(1);
    let whole = deal(items.div_ceil(unit), parts);
    whole.into_iter().map(|units| units.start * unit..(units.end * unit).min(items)).collect()
}

/// KV heads of each rank: whole heads where there are enough, else one each, which neighbours share.
fn deal_kv_heads(kv_heads: usize, ranks: usize) -> Vec<Range<usize>> {
    if ranks <= kv_heads {
        return deal(kv_heads, ranks);
    }
    let sharers = deal(ranks, kv_heads);
    sharers.iter().enumerate().flat_map(|(head, ranks)| ranks.clone().map(move |_| head..head + 1)).collect()
}

/// Query heads of each rank, `group` for each KV head. Ranks that share a KV head divide its query heads.
fn deal_heads(group: usize, kv_heads: &[Range<usize>]) -> Vec<Range<usize>> {
    let share = |(rank, own): (usize, &Range<usize>)| {
        let first = kv_heads.iter().position(|heads| heads == own).unwrap_or(rank);
        let sharers = kv_heads.iter().filter(|heads| *heads == own).count();
        let dealt = &deal(own.len() * group, sharers)[rank - first];
        own.start * group + dealt.start..own.start * group + dealt.end
    };
    kv_heads.iter().enumerate().map(share).collect()
}

#[cfg(test)]
mod tests;
