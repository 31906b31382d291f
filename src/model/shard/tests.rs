//! Every share of every way to divide a model.

use super::*;
use crate::description::Description;
use crate::spec::Part;
use compute::{KvFormat, KvValues};
use formats::DType;
use formats::source::Source;
use std::path::Path;

/// A model with these heads, and columns that divide well or badly.
fn spec(heads: usize, kv_heads: usize, width: usize, vocab: usize) -> DecoderSpec {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/llama-f32-gqa1"));
    let mut spec = Description::read(&Source::open(folder).unwrap()).unwrap().spec;
    for layer in &mut spec.layers {
        for part in layer.parts_mut() {
            match part {
                Part::Mixer(Mixer::Attention(attention)) => {
                    (attention.scores.heads, attention.kv_heads) = (heads, kv_heads);
                }
                Part::Mixer(Mixer::Recurrent(_)) => unreachable!(),
                Part::FeedForward(FeedForward::Dense(mlp)) => mlp.width = width,
                Part::FeedForward(FeedForward::LayerInput(_)) => unreachable!(),
                Part::FeedForward(FeedForward::Shared(_) | FeedForward::Experts(_)) => unreachable!(),
            }
        }
    }
    spec.vocab = vocab;
    spec
}

/// Whether the shares follow each other, none empty, from 0 to `all`.
fn cover(shares: &[Range<usize>], all: usize) -> bool {
    let follow = shares.windows(2).all(|pair| pair[0].end == pair[1].start);
    follow && shares[0].start == 0 && shares.last().unwrap().end == all && shares.iter().all(|share| !share.is_empty())
}

#[test]
fn shares_cover_everything_and_only_kv_heads_are_shared() {
    for (heads, kv_heads) in [(4, 4), (8, 2), (14, 2), (28, 4), (32, 8), (64, 8), (9, 3), (12, 1), (71, 71)] {
        for (width, vocab) in [(1536, 2048), (4864, 151_936), (1000, 32_003), (76, 77)] {
            let spec = spec(heads, kv_heads, width, vocab);
            for ranks in 1..=heads.min(16) {
                let of = |rank| Sharding::new(&spec, rank, ranks, Sums::Gathered).unwrap();
                let sharding = of(0);
                let what =
                    format!("{heads} heads, {kv_heads} KV heads, {width}, {vocab} on {ranks} ranks: {sharding:?}");
                let shares = sharding.heads(heads, kv_heads);
                assert!(cover(&shares.heads, heads), "{what}");
                assert!(cover(&sharding.width(width), width) && cover(&sharding.vocab, vocab), "{what}");
                assert!(cover(&sharding.hidden, spec.hidden), "{what}");
                let group = heads / kv_heads;
                let mut held = vec![0; kv_heads];
                for rank in 0..ranks {
                    let of_rank = of(rank).heads(heads, kv_heads);
                    let (own, kv) = (of_rank.own_heads(), of_rank.own_kv_heads());
                    assert!(!kv.is_empty() && own.len().is_multiple_of(kv.len()), "{what}");
                    assert!(own.clone().all(|head| kv.contains(&(head / group))), "{what}");
                    // As kernels map them: query heads of one KV head follow each other.
                    let own_group = own.len() / kv.len();
                    assert!(
                        own.clone().enumerate().all(|(at, head)| kv.start + at / own_group == head / group),
                        "{what}"
                    );
                    kv.for_each(|head| held[head] += 1);
                }
                let times = if ranks <= kv_heads { 1..=1 } else { ranks / kv_heads..=ranks.div_ceil(kv_heads) };
                assert!(held.iter().all(|count| times.contains(count)), "{what}");
                for head in 0..kv_heads {
                    let first = first_with_kv_head(&shares.kv_heads, head);
                    assert!(shares.kv_heads[first].contains(&head));
                    assert!(shares.kv_heads[..first].iter().all(|heads| !heads.contains(&head)));
                }
            }
        }
    }
}

#[test]
fn shares_are_as_even_as_whole_heads_and_units_allow() {
    let lengths = |shares: &[Range<usize>]| shares.iter().map(Range::len).collect::<Vec<_>>();
    let sharding = |heads, kv_heads, ranks| {
        Sharding::new(&spec(heads, kv_heads, 12_288, 151_936), 0, ranks, Sums::Reduced).unwrap()
    };
    let of = |heads, kv_heads, ranks| sharding(heads, kv_heads, ranks).heads(heads, kv_heads);
    assert_eq!(lengths(&of(32, 8, 3).kv_heads), [3, 3, 2]);
    assert_eq!(lengths(&of(32, 8, 3).heads), [12, 12, 8]);
    assert_eq!(lengths(&of(28, 4, 8).heads), [4, 3, 4, 3, 4, 3, 4, 3]);
    assert_eq!(lengths(&of(28, 4, 6).heads), [4, 3, 4, 3, 7, 7]);
    let two = sharding(32, 8, 2);
    let width = two.width(12_288);
    assert_eq!((lengths(&width), lengths(&two.vocab)), (vec![6144, 6144], vec![75_968, 75_968]));
    assert!(width.iter().chain(&two.vocab).all(|share| share.start % 64 == 0));
}

#[test]
fn a_rank_caches_its_own_kv_heads() {
    let heads = |kv_heads, head_dim| KvHeads { kv_heads, head_dim, values: KvValues::Stored };
    let whole = KvLayout {
        layers: vec![heads(4, 16), heads(1, 32)],
        split: None,
        block_size: 4,
        format: KvFormat::Plain(DType::F16),
    };
    let of = |sharding: &Sharding, rank| {
        let own = sharding.kv_layout(rank, &whole);
        assert_eq!(own.layers[1], whole.layers[1], "every rank has the one KV head");
        assert_eq!((own.block_size, own.format), (whole.block_size, whole.format));
        own.layers[0].kv_heads
    };
    let sharding = Sharding::new(&spec(28, 4, 512, 512), 0, 6, Sums::Gathered).unwrap();
    let heads: Vec<usize> = (0..6).map(|rank| of(&sharding, rank)).collect();
    assert_eq!(heads, [1; 6]);
    let sharding = Sharding::new(&spec(28, 4, 512, 512), 0, 3, Sums::Gathered).unwrap();
    let heads: Vec<usize> = (0..3).map(|rank| of(&sharding, rank)).collect();
    assert_eq!(heads, [2, 1, 1]);
}

#[test]
fn a_projection_back_into_the_stream_is_divided_by_inputs_or_by_outputs() {
    let spec = spec(8, 2, 512, 512);
    let back = |sums, rank| {
        let sharding = Sharding::new(&spec, rank, 2, sums).unwrap();
        sharding.back(512, sharding.own_width(512))
    };
    assert_eq!(back(Sums::Reduced, 1), Back { inputs: 256..512, outputs: 0..spec.hidden, adds_bias: false });
    assert!(back(Sums::Reduced, 0).adds_bias, "one rank adds it");
    let half = spec.hidden / 2;
    assert_eq!(back(Sums::Gathered, 1), Back { inputs: 0..512, outputs: half..spec.hidden, adds_bias: true });
    let alone = Sharding::new(&spec, 0, 1, Sums::Reduced).unwrap();
    assert_eq!(alone.back(512, 0..512), Back { inputs: 0..512, outputs: 0..spec.hidden, adds_bias: true });
    assert!(!alone.reduces() && !alone.gathers());
}

#[test]
fn more_ranks_than_query_heads_are_refused_by_name() {
    match Sharding::new(&spec(8, 2, 512, 512), 0, 9, Sums::Gathered) {
        Err(Error::Option { field: "tensor_parallel_size", value, .. }) => {
            assert_eq!(value, "9, and the model has 8 query heads");
        }
        other => panic!("{other:?}"),
    }
}
