//! Mixtures of experts on several GPUs, each of which has some experts whole.

use super::models::{alone, config, together_by};
use super::{PATIENCE, compute_on, devices, equal_shares, within};
use crate::driver::dtype_of;
use crate::reference::{HALF_PRECISION, Reference, distance, follow};
use crate::scene::{DTYPES, Random, filled, numbers, poisoned};
use compute::cpu::reference;
use compute::cuda::{Cuda, Peers, Transport};
use compute::{Device, Router, Scores, ops};
use formats::DType;
use runner::options::EngineOptions;
use runner::{ExpertDivision, Launching, Rounding};
use std::ops::Range;
use std::time::Duration;

/// With and without a shared expert, biases and gates; the last one divides a group of a selective scan, too.
const MIXTURES: &[&str] = &[
    "ernie4_5_moe-bf16",
    "glm4_moe-bf16-not-normed",
    "gpt_oss-bf16-no-bias",
    "granitemoehybrid-bf16-experts",
    "mixtral-bf16-tied",
    "olmoe-bf16-normed",
    "qwen3_moe-bf16-not-normed",
];

/// Scans of one group, whose heads ranks divide.
const ONE_GROUP: &[&str] = &["granitemoehybrid-bf16-mamba", "nemotron_h-bf16-biased"];

const TRANSPORTS: [Option<Transport>; 2] = [None, Some(Transport::Nccl)];
const LIMIT: Duration = Duration::from_secs(120);

/// Compares several GPUs with one, by launches and by graphs, over memory and NCCL.
fn agree(names: &[&str], expert_division: ExpertDivision) {
    for name in names {
        // Their experts are not nearly equal, so that rounding changes no choice.
        let tokens = Reference::read(name);
        for rounding in [Rounding::Fastest, Rounding::BatchInvariant] {
            let of_one = EngineOptions { rounding, ..config(name) };
            let (mut one, limits) = alone(name, &of_one);
            let (wanted, _) = follow(&mut one, &limits, &tokens);
            for (launching, transport) in [
                (Launching::Eager, TRANSPORTS[0]),
                (Launching::Graphs, TRANSPORTS[0]),
                (Launching::Graphs, TRANSPORTS[1]),
            ] {
                within(LIMIT, || {
                    let config = EngineOptions { launching, expert_division, ..of_one.clone() };
                    let (mut together, limits) = together_by(transport, name, &config);
                    let (found, _) = follow(&mut together, &limits, &tokens);
                    let apart = wanted.iter().zip(&found).map(|(a, b)| distance(b, a)).fold(0.0, f32::max);
                    let what = format!("{name}, {rounding:?}, {launching:?}, {transport:?}");
                    println!("{what}: logits at most {apart:.5} of their norm apart");
                    match rounding {
                        Rounding::BatchInvariant => assert!(found == wanted, "{what}: {apart} apart"),
                        Rounding::Fastest => {
                            let bound = if dtype_of(name) == DType::F16 { 2e-2 } else { 4.0 * HALF_PRECISION };
                            assert!(apart <= bound, "{what}: {apart} apart");
                        }
                    }
                });
            }
        }
    }
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn whole_experts_compute_what_one_gpu_computes() {
    agree(MIXTURES, ExpertDivision::Whole);
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn ranks_that_share_a_group_of_a_scan_compute_what_one_gpu_computes() {
    agree(ONE_GROUP, ExpertDivision::ByWidth);
}

/// Some ranks may have none of the slots, in exchanges that follow each other.
#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn rows_of_slots_arrive_as_they_are() {
    let ranks = devices().len();
    for transport in TRANSPORTS {
        for dtype in DTYPES {
            for (tokens, cols) in [(1, 16), (1, 4096), (5, 1003), (33, 2048), (700, 512), (4096, 2048)] {
                within(LIMIT, || {
                    let router = Router {
                        experts: 16,
                        chosen: 4,
                        scores: Scores::Softmax,
                        groups: None,
                        norm: None,
                        scale: 1.0,
                    };
                    let mut random = Random(tokens as u64);
                    // In the second round all tokens go to the experts of the first rank.
                    let rounds: Vec<Vec<f32>> = (0..2)
                        .map(|round| {
                            let each = |_: usize| -> Vec<f32> {
                                let places = random.permutation(16).into_iter().enumerate();
                                let of_first = |expert: usize| round == 1 && expert < 16 / ranks.min(4);
                                places.map(|(e, p)| p as f32 / 2.0 + if of_first(e) { 20.0 } else { 0.0 }).collect()
                            };
                            (0..tokens).flat_map(each).collect()
                        })
                        .collect();
                    let slots = tokens * router.chosen;
                    let x: Vec<Vec<f32>> = (0..ranks).map(|_| numbers(&mut random, slots * cols, 2.0, dtype)).collect();
                    let columns: Vec<Range<usize>> = equal_shares(cols);
                    let experts: Vec<Range<usize>> = equal_shares(router.experts);
                    let members = Peers::open_by(transport, &devices(), PATIENCE).unwrap();
                    let found = compute_on(members, dtype, |rank, cuda: &mut Cuda| {
                        let x = filled(cuda, &x[rank], cols);
                        let mut routes = cuda.routes(&router, tokens).unwrap();
                        let mut out = poisoned(cuda, slots, columns[rank].len());
                        let logits: Vec<_> = rounds.iter().map(|logits| filled(cuda, logits, 16)).collect();
                        cuda.synchronize().unwrap();
                        cuda.meet().unwrap();
                        let rounds = logits
                            .into_iter()
                            .chain(rounds.iter().map(|logits| filled(cuda, logits, 16)).collect::<Vec<_>>());
                        rounds
                            .map(|mut logits| {
                                ops::route(cuda, &mut routes, &mut logits, None, &router);
                                ops::join_slots(cuda, &mut out, &x, &columns, &experts, &routes);
                                (cuda.read(&out).unwrap(), cuda.read_routes(&routes).unwrap().0)
                            })
                            .collect::<Vec<_>>()
                    });
                    for (rank, rounds) in found.iter().enumerate() {
                        for (round, (found, choices)) in rounds.iter().enumerate() {
                            let wanted = reference::join_slots(&x, cols, &columns[rank], &experts, choices);
                            let what =
                                format!("{tokens} tokens, {cols} columns, round {round}, {dtype:?}, {transport:?}");
                            assert!(*found == wanted, "{what}, rank {rank}");
                        }
                    }
                });
            }
        }
    }
}
