//! `reduce_add_norm`.

use crate::column::Column;
use crate::ranks::in_every_way;
use crate::scene::Random;
use compute::NormKind::{self, Layer, Rms};
use compute::cpu::{Cpu, Isa, reference};
use compute::ops;
use compute::{AddNorm, NextNorm, NormWeights, Tensor};

#[derive(Clone, Copy)]
struct Case {
    ranks: usize,
    tokens: usize,
    hidden: usize,
    /// The norm of the sum over ranks, and that of the stream.
    post: Option<NormKind>,
    next: Option<NormKind>,
    scale: f32,
}

const ONE: Case = Case { ranks: 2, tokens: 1, hidden: 64, post: None, next: Some(Rms), scale: 1.0 };

const CASES: &[(&str, Case)] = &[
    ("one rank", Case { ranks: 1, tokens: 3, ..ONE }),
    ("two ranks", ONE),
    ("three ranks, odd width", Case { ranks: 3, tokens: 5, hidden: 83, ..ONE }),
    ("four ranks", Case { ranks: 4, tokens: 7, hidden: 200, ..ONE }),
    ("no norm", Case { ranks: 3, tokens: 5, next: None, ..ONE }),
    ("layer norm", Case { tokens: 5, next: Some(Layer), ..ONE }),
    ("norm of the sum", Case { ranks: 3, tokens: 5, post: Some(Rms), ..ONE }),
    ("norm of the sum, none of the stream", Case { tokens: 5, post: Some(Layer), next: None, ..ONE }),
    ("a factor", Case { ranks: 4, tokens: 5, scale: 0.22, ..ONE }),
    ("more tokens than one thread takes", Case { tokens: 301, hidden: 200, ..ONE }),
];

const EPS: f32 = 1e-6;
const POST_EPS: f32 = 1e-3;

/// What all ranks add to the stream, the stream, and two rows of weights.
struct Inputs {
    shares: Vec<Vec<f32>>,
    residual: Vec<f32>,
    weight: Box<[f32]>,
    post: Box<[f32]>,
}

fn inputs(case: &Case) -> Inputs {
    let mut random = Random(5);
    let shares = (0..case.ranks).map(|_| random.numbers(case.tokens * case.hidden, 3.0)).collect();
    let residual = random.numbers(case.tokens * case.hidden, 3.0);
    let [weight, post] = [(); 2].map(|()| random.numbers(case.hidden, 2.0).into_boxed_slice());
    Inputs { shares, residual, weight, post }
}

/// The stream and the normalized rows after `add` was called with them, behind each other.
fn added<B: Column>(
    backend: &mut B,
    case: &Case,
    delta: &[f32],
    add: impl FnOnce(
        &mut B,
        &mut Tensor<B::Storage>,
        &Tensor<B::Storage>,
        AddNorm<B::Vector>,
        Option<NextNorm<Tensor<B::Storage>, B::Vector>>,
    ),
) -> Vec<f32> {
    let Inputs { residual, weight, post, .. } = inputs(case);
    let (mut residual, delta) = (backend.filled(&residual, case.hidden), backend.filled(delta, case.hidden));
    let (weight, post) = (backend.table(&weight).unwrap(), backend.table(&post).unwrap());
    let mut out = backend.poisoned(case.tokens, case.hidden);
    let post = case.post.map(|kind| NormWeights { weight: &post, eps: POST_EPS, kind });
    let norm = case.next.map(|kind| NormWeights { weight: &weight, eps: EPS, kind });
    let next = norm.map(|norm| NextNorm { out: &mut out, norm });
    add(backend, &mut residual, &delta, AddNorm { post, scale: case.scale, stream_scale: 1.0 }, next);
    let mut all = backend.read(&residual);
    if case.next.is_some() {
        all.extend(backend.read(&out));
    }
    all
}

#[test]
fn every_rank_adds_the_sum_of_all_shares_with_the_same_bits() {
    for (name, case) in CASES {
        let sum = reference::sum_of_shares(&inputs(case).shares);
        // On one rank, the op is `add_norm` of the sum.
        let alone = |isa: Isa, threads| added(&mut Cpu::new(threads, isa), case, &sum, ops::add_norm);
        let expected: Vec<(String, Vec<f32>)> = Isa::available()
            .iter()
            .flat_map(|isa| [1, 2].map(|threads| (format!("{isa:?}, {threads} threads"), alone(*isa, threads))))
            .collect();
        let computed = |cpu: &mut Cpu, rank: usize| added(cpu, case, &inputs(case).shares[rank], ops::reduce_add_norm);
        in_every_way(case.ranks, computed, |ranks, way| {
            let (_, expected) = expected.iter().find(|(known, _)| known == way).expect("the same ways");
            for (rank, computed) in ranks.iter().enumerate() {
                assert_eq!(computed, expected, "{name}, {way}, rank {rank}");
            }
        });
    }
}
