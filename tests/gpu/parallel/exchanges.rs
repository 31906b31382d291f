//! The two ops in which ranks exchange rows, against their references on the CPU.

use super::{devices, equal_shares, on_ranks, on_ranks_by, within};
use crate::scene::{
    DTYPES, FEW_OPERATIONS, Near, Random, assert_near, bound, errors_of_norm, filled, host_vector, near_normalized,
    numbers, poisoned, rounded, wide,
};
use compute::cpu::reference;
use compute::cuda::{AllReduce, Chaining, Cuda, Tensor, Transport};
use compute::ops;
use compute::{AddNorm, Device, NextNorm, NormKind, NormWeights, Part};
use formats::DType;
use std::ops::Range;
use std::time::Duration;

/// Each algorithm twice, after itself and after the other one.
const ALGORITHMS: [Option<AllReduce>; 5] =
    [None, Some(AllReduce::TwoShot), Some(AllReduce::TwoShot), Some(AllReduce::OneShot), Some(AllReduce::TwoShot)];

const EPS: f32 = 1e-5;
const POST_EPS: f32 = 1e-3;
const LIMIT: Duration = Duration::from_secs(60);

fn bits(values: Vec<f32>) -> Vec<u32> {
    values.into_iter().map(f32::to_bits).collect()
}

/// In f64.
fn normalized(x: &[f64], weight: &[f32], kind: NormKind, eps: f32) -> Vec<f64> {
    let row = |row: &[f64]| {
        let mean_of = |values: &dyn Fn(f64) -> f64| row.iter().map(|&v| values(v)).sum::<f64>() / row.len() as f64;
        let mean = if kind == NormKind::Layer { mean_of(&|v| v) } else { 0.0 };
        let scale = 1.0 / (mean_of(&|v| (v - mean) * (v - mean)) + f64::from(eps)).sqrt();
        row.iter().zip(weight).map(|(v, &w)| (v - mean) * scale * f64::from(w)).collect::<Vec<_>>()
    };
    x.chunks_exact(weight.len()).flat_map(row).collect()
}

/// Numbers that ranks exchange, the same on all of them.
struct Rows {
    shares: Vec<Vec<f32>>,
    stream: Vec<f32>,
    weights: [Vec<f32>; 2],
}

impl Rows {
    fn new([rows, hidden]: [usize; 2], dtype: DType) -> Rows {
        let mut random = Random((rows * hidden) as u64);
        let mut numbers = |len, size| numbers(&mut random, len, size, dtype);
        Rows {
            shares: devices().iter().map(|_| numbers(rows * hidden, 2.0)).collect(),
            stream: numbers(rows * hidden, 4.0),
            weights: [numbers(hidden, 1.5), numbers(hidden, 1.5)],
        }
    }
}

/// Stream and normalized stream after an op, as bits.
pub type Found = (Vec<u32>, Vec<u32>);

fn reduced(
    cuda: &mut Cuda,
    rank: usize,
    it: &Rows,
    (post, next, scale): (Option<NormKind>, Option<NormKind>, f32),
    dtype: DType,
) -> Found {
    let hidden = it.weights[0].len();
    let mut residual = filled(cuda, &it.stream, hidden);
    let share = filled(cuda, &it.shares[rank], hidden);
    let mut out = poisoned(cuda, it.stream.len() / hidden, hidden);
    let [weight, post_weight] = [0, 1].map(|i| cuda.vector(&[host_vector(&it.weights[i], dtype)]).unwrap());
    let add = AddNorm {
        post: post.map(|kind| NormWeights { weight: &post_weight, eps: POST_EPS, kind }),
        scale,
        stream_scale: 1.0,
    };
    let norm = next.map(|kind| NextNorm { out: &mut out, norm: NormWeights { weight: &weight, eps: EPS, kind } });
    // What allocates comes first on every rank.
    cuda.synchronize().unwrap();
    cuda.meet().unwrap();
    ops::reduce_add_norm(cuda, &mut residual, &share, add, norm);
    let found = (bits(cuda.read(&residual).unwrap()), bits(cuda.read(&out).unwrap()));
    cuda.meet().unwrap();
    found
}

fn check_sums(
    found: &Found,
    it: &Rows,
    (post, next, scale): (Option<NormKind>, Option<NormKind>, f32),
    dtype: DType,
    what: &str,
) {
    let sum = reference::sum_of_shares(it.shares.as_ref());
    let computed: Vec<f32> = found.0.iter().copied().map(f32::from_bits).collect();
    if post.is_none() && scale == 1.0 {
        let exact: Vec<f32> = sum.iter().zip(&it.stream).map(|(s, r)| rounded(s + r, dtype)).collect();
        assert!(computed == exact, "stream {what}");
    } else {
        let delta = post.map_or_else(|| wide(&sum), |kind| normalized(&wide(&sum), &it.weights[1], kind, POST_EPS));
        let errors = match post {
            None => vec![0.0; delta.len()],
            Some(_) => errors_of_norm(&sum, &it.weights[1]),
        };
        let expected = it.stream.iter().zip(delta).zip(errors).map(|((&r, d), error)| {
            let (r, d) = (f64::from(r), f64::from(scale) * d);
            Near::stored(r + d, FEW_OPERATIONS * (r.abs() + d.abs()) + f64::from(scale.abs()) * error, dtype)
        });
        let expected: Vec<Near> = expected.collect();
        assert_near(&computed, &expected, bound(dtype), &format!("stream {what}"));
    }
    let out: Vec<f32> = found.1.iter().copied().map(f32::from_bits).collect();
    match next {
        None => assert!(out.iter().all(|v| v.is_nan()), "{what}: out was written"),
        Some(kind) => {
            let expected = normalized(&wide(&computed), &it.weights[0], kind, EPS);
            let expected = near_normalized(&expected, &computed, &it.weights[0], dtype);
            assert_near(&out, &expected, bound(dtype), &format!("norm {what}"));
        }
    }
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn sums_over_ranks_agree_and_are_equal_on_all_ranks_and_in_all_runs() {
    let rms = Some(NormKind::Rms);
    let shapes = [
        [1, 896],
        [1, 4096],
        [1, 8192],
        [2, 16],
        [3, 1024],
        [7, 5120],
        [64, 4096],
        [129, 2560],
        [255, 1024],
        [1000, 896],
        [2049, 4096],
        [4096, 5120],
        [5, 16384],
    ];
    for dtype in DTYPES {
        for shape in shapes {
            within(LIMIT, || {
                let it = Rows::new(shape, dtype);
                let case = (None, rms, 1.0);
                let found = on_ranks(dtype, |rank, cuda| {
                    ALGORITHMS.map(|all_reduce| {
                        cuda.set_all_reduce(all_reduce);
                        reduced(cuda, rank, &it, case, dtype)
                    })
                });
                let what = format!("{shape:?}, {dtype:?}");
                for (run, all_reduce) in ALGORITHMS.iter().enumerate() {
                    let is_equal = found.iter().all(|runs| runs[run] == found[0][0]);
                    assert!(is_equal, "{what}: run {run}, by {all_reduce:?}, differs");
                }
                check_sums(&found[0][0], &it, case, dtype, &what);
            });
        }
    }
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn sums_over_ranks_agree_with_every_norm() {
    agree_with_every_norm(None);
}

/// What the ranks computed, the same on all.
pub fn agree_with_every_norm(transport: Option<Transport>) -> Vec<Vec<Found>> {
    let mut computed = Vec::new();
    let norms = [None, Some(NormKind::Rms), Some(NormKind::Layer)];
    let cases: Vec<_> = norms
        .iter()
        .flat_map(|&post| norms.map(|next| (post, next)))
        .flat_map(|(post, next)| [1.0, 0.22].map(|scale| (post, next, scale)))
        .collect();
    for dtype in DTYPES {
        for shape in [[1, 1024], [33, 2560], [700, 4096], [3, 10240]] {
            within(LIMIT, || {
                let it = Rows::new(shape, dtype);
                let found = on_ranks_by(transport, dtype, |rank, cuda| -> Vec<Found> {
                    let mut by = |all_reduce| {
                        cuda.set_all_reduce(Some(all_reduce));
                        cases.iter().map(|&case| reduced(cuda, rank, &it, case, dtype)).collect::<Vec<_>>()
                    };
                    let [one_shot, two_shot] = [AllReduce::OneShot, AllReduce::TwoShot].map(&mut by);
                    assert!(one_shot == two_shot, "{shape:?}, {dtype:?}: the algorithms differ");
                    one_shot
                });
                for (i, &case) in cases.iter().enumerate() {
                    let what = format!("{case:?}, {shape:?}, {dtype:?}");
                    assert!(found.iter().all(|rank| rank[i] == found[0][i]), "{what}: ranks differ");
                    check_sums(&found[0][i], &it, case, dtype, &what);
                }
                computed.extend(found.into_iter().take(1));
            });
        }
    }
    computed
}

/// Columns of a tensor, and which of them each rank has: where its part begins, unless the columns are in their places.
struct Joined {
    cols: usize,
    shares: Vec<Range<usize>>,
    first: Option<usize>,
}

fn joined_cases() -> Vec<Joined> {
    let equal = |cols, first| Joined { cols, shares: equal_shares(cols), first };
    let mut cases = vec![
        equal(16, Some(0)),
        equal(4096, Some(0)),
        equal(4096, None),
        equal(1003, Some(0)),
        equal(1003, None),
        equal(7, Some(3)),
        equal(151_936, None),
    ];
    let of_two = |cols, shares: [Range<usize>; 2], first| Joined { cols, shares: shares.into(), first };
    if devices().len() == 2 {
        cases.extend([
            of_two(1003, [0..512, 512..1003], Some(0)),
            of_two(7, [0..4, 4..7], Some(3)),
            // Both compute the same columns, and some belong to nobody.
            of_two(200, [0..128, 0..128], Some(64)),
            of_two(200, [8..100, 50..128], None),
        ]);
    }
    cases
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn columns_of_all_ranks_arrive_as_they_are() {
    arrive_as_they_are(None, &[1, 2, 33, 250, 4096]);
}

pub fn arrive_as_they_are(transport: Option<Transport>, numbers_of_rows: &[usize]) {
    for dtype in DTYPES {
        for case in joined_cases() {
            for &rows in numbers_of_rows {
                if rows * case.cols > 40_000_000 {
                    continue;
                }
                within(LIMIT, || {
                    let mut random = Random(rows as u64);
                    let mut values = numbers(&mut random, rows * case.cols, 3.0, dtype);
                    // Words of every kind, 0xffff among them.
                    for (i, v) in values.iter_mut().enumerate() {
                        match i % 61 {
                            3 => *v = -0.0,
                            5 => *v = f32::INFINITY,
                            11 => *v = f32::NAN,
                            17..=19 => *v = f32::from_bits(u32::MAX),
                            _ => {}
                        }
                    }
                    let found = on_ranks_by(transport, dtype, |rank, cuda| join(cuda, rank, rows, &case, &values));
                    let what = format!("{rows} rows of {}, shares {:?}, {dtype:?}", case.cols, case.shares);
                    assert!(found.iter().all(|runs| *runs == found[0]), "{what}: ranks differ");
                    let mut expected = vec![f32::INFINITY; values.len()];
                    let parts: Vec<Vec<f32>> = case
                        .shares
                        .iter()
                        .map(|share| values.chunks(case.cols).flat_map(|row| row[share.clone()].to_vec()).collect())
                        .collect();
                    reference::join_columns(&mut expected, case.cols, &parts, &case.shares);
                    for found in [&found[0].0, &found[0].1] {
                        for (at, (&found, wanted)) in found.iter().zip(&expected).enumerate() {
                            let found = f32::from_bits(found);
                            let is_equal = found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan();
                            assert!(
                                is_equal,
                                "{what}, row {}, column {}: {found} {wanted}",
                                at / case.cols,
                                at % case.cols
                            );
                        }
                    }
                });
            }
        }
    }
}

/// What is in `out` after a join, twice. Columns that nobody has are infinite.
fn join(cuda: &mut Cuda, rank: usize, rows: usize, case: &Joined, values: &[f32]) -> (Vec<u32>, Vec<u32>) {
    let own = case.shares[rank].clone();
    let run = |cuda: &mut Cuda| {
        let mut start = vec![f32::INFINITY; rows * case.cols];
        let place = |(to, from): (&mut [f32], &[f32])| to[own.clone()].copy_from_slice(&from[own.clone()]);
        let mut part: Option<Tensor> = None;
        match case.first {
            None => start.chunks_mut(case.cols).zip(values.chunks(case.cols)).for_each(place),
            Some(first) => {
                let cols = first + own.len() + 5;
                let mut x = vec![9.0; rows * cols];
                for (to, from) in x.chunks_mut(cols).zip(values.chunks(case.cols)) {
                    to[first..first + own.len()].copy_from_slice(&from[own.clone()]);
                }
                part = Some(filled(cuda, &x, cols));
            }
        }
        let mut out = filled(cuda, &start, case.cols);
        cuda.synchronize().unwrap();
        cuda.meet().unwrap();
        let x = part.as_ref().map(|x| Part { x, first: case.first.unwrap_or(0) });
        ops::join_columns(cuda, &mut out, x, &case.shares);
        let found = bits(cuda.read(&out).unwrap());
        cuda.meet().unwrap();
        found
    };
    (run(cuda), run(cuda))
}

/// Many exchanges behind each other, whose numbers differ, strictly, by dependent launch and as a graph.
#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn a_chain_of_exchanges_has_the_same_bits_strict_by_dependent_launch_and_as_a_graph() {
    chain(None);
}

/// What the ranks computed, the same on all and in all runs.
pub fn chain(transport: Option<Transport>) -> Vec<Found> {
    let mut computed = Vec::new();
    const HIDDEN: usize = 1024;
    const CHAIN: usize = 64;
    for dtype in DTYPES {
        for rows in [1, 5, 64, 700] {
            within(LIMIT, || {
                let it = Rows::new([rows, HIDDEN], dtype);
                let found = on_ranks_by(transport, dtype, |rank, cuda| -> Vec<Found> {
                    let mut residual = filled(cuda, &it.stream, HIDDEN);
                    let mut x = [0, 1].map(|_| filled(cuda, &it.shares[rank], HIDDEN));
                    let weight = cuda.vector(&[host_vector(&it.weights[0], dtype)]).unwrap();
                    let shares = equal_shares(HIDDEN);
                    let mut found = Vec::new();
                    // Runs differ in the algorithm, and the last ones mix both in one graph.
                    let launch =
                        |cuda: &mut Cuda, residual: &mut Tensor, x: &mut [Tensor; 2], two_shot: fn(usize) -> bool| {
                            for i in 0..CHAIN / 2 {
                                let all_reduce = if two_shot(i) { AllReduce::TwoShot } else { AllReduce::OneShot };
                                cuda.set_all_reduce(Some(all_reduce));
                                let [a, b] = x;
                                let (from, to) = if i % 2 == 0 { (a, b) } else { (b, a) };
                                let norm = NormWeights { weight: &weight, eps: EPS, kind: NormKind::Rms };
                                let next = Some(NextNorm { out: &mut *to, norm });
                                ops::reduce_add_norm(cuda, residual, from, AddNorm::PLAIN, next);
                                ops::join_columns(cuda, to, None, &shares);
                            }
                        };
                    let mut note = |cuda: &mut Cuda, residual: &Tensor, x: &[Tensor; 2]| {
                        found.push((bits(cuda.read(residual).unwrap()), bits(cuda.read(&x[0]).unwrap())));
                    };
                    let reset = |cuda: &mut Cuda, residual: &mut Tensor, x: &mut [Tensor; 2]| {
                        cuda.write(residual, &it.stream).unwrap();
                        x.iter_mut().for_each(|x| cuda.write(x, &it.shares[rank]).unwrap());
                        cuda.meet().unwrap();
                    };
                    let algorithms: [fn(usize) -> bool; 3] = [|_| false, |_| true, |i| i % 3 != 1];
                    for two_shot in algorithms {
                        for chaining in [Chaining::Strict, Chaining::DependentLaunch, Chaining::DependentLaunch] {
                            cuda.set_chaining(chaining);
                            reset(cuda, &mut residual, &mut x);
                            launch(cuda, &mut residual, &mut x, two_shot);
                            note(cuda, &residual, &x);
                        }
                        cuda.meet().unwrap();
                        let graph = cuda.capture(|cuda| launch(cuda, &mut residual, &mut x, two_shot)).unwrap();
                        for _ in 0..20 {
                            reset(cuda, &mut residual, &mut x);
                            graph.launch().unwrap();
                            note(cuda, &residual, &x);
                        }
                        cuda.meet().unwrap();
                    }
                    found
                });
                for (run, of_first) in found[0].iter().enumerate() {
                    let is_equal = found.iter().all(|rank| rank[run] == *of_first);
                    assert!(is_equal, "{rows} rows, {dtype:?}, run {run}: ranks differ");
                    assert!(*of_first == found[0][0], "{rows} rows, {dtype:?}, run {run}");
                }
                computed.push(found[0][0].clone());
            });
        }
    }
    computed
}
