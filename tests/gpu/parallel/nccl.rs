//! The same by NCCL, as GPUs exchange that do not reach each other's memory.

use super::{PATIENCE, compute_on, devices, exchanges, faults, models, within};
use compute::cuda::{Fault, Peers, Transport};
use formats::DType;
use std::time::Duration;

const NCCL: Option<Transport> = Some(Transport::Nccl);

/// Heads that are divided evenly, unevenly and not at all, and norms over all heads.
const CASES: &[&str] =
    &["gemma2-bf16-head64", "llama-bf16-head80-gqa1", "olmo2-f16", "qwen2-bf16-head96-gqa7", "qwen3-bf16-head128"];

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn a_chain_has_the_bits_that_it_has_by_memory() {
    let by_memory = exchanges::chain(None);
    let by_nccl = exchanges::chain(NCCL);
    assert!(by_memory == by_nccl);
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn sums_have_the_bits_that_they_have_by_memory() {
    let by_memory = exchanges::agree_with_every_norm(None);
    let by_nccl = exchanges::agree_with_every_norm(NCCL);
    assert!(by_memory == by_nccl);
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn columns_arrive_as_they_are() {
    exchanges::arrive_as_they_are(NCCL, &[250]);
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn models_compute_nearly_what_one_gpu_computes() {
    models::compute_nearly_what_one_computes(NCCL, CASES);
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn a_batch_invariant_row_has_the_bits_of_one_gpu() {
    models::have_the_bits_of_one(NCCL, CASES);
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn graphs_compute_nearly_what_launches_compute() {
    models::compute_by_graphs(NCCL, &["qwen3-bf16-head128"]);
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn engines_come_and_go() {
    models::come_and_go(NCCL, 8);
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn a_rank_that_fails_ends_the_engine_in_time() {
    faults::end_in_time(NCCL, &[7]);
}

#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn an_engine_goes_with_passes_in_flight() {
    faults::go_with_passes_in_flight(NCCL);
}

/// A rank whose writes do not arrive while the engine opens, as where a driver promises access that does not work.
#[test]
#[ignore = "needs two GPUs: --include-ignored"]
fn ranks_whose_memory_is_not_reached_go_over_to_nccl() {
    within(Duration::from_secs(60), || {
        let members = Peers::open(&devices(), PATIENCE).unwrap();
        members[0].peers().inject(1, 0, Fault::Silence);
        let found = compute_on(members, DType::Bf16, |_, cuda| {
            cuda.synchronize().unwrap();
            cuda.transport()
        });
        assert!(found.iter().all(|transport| *transport == NCCL), "{found:?}");
    });
}
