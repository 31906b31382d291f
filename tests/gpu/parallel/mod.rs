//! Several GPUs as the ranks of one engine: their exchanges, whole models, and what happens when a rank fails.
//!
//! The tests need two GPUs, so they are ignored unless `--include-ignored` asks for them. `NVLLM_TEST_GPUS` set to a larger number takes as
//! many. Each test ends the process when it takes too long: a rank that waits for another one for ever must not hold up the others.
mod exchanges;
mod experts;
mod faults;
mod models;
mod nccl;
mod state;

use compute::cuda::{Cuda, Member, Peers, Transport};
use formats::DType;
use std::ops::Range;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The GPUs of the ranks.
fn devices() -> Vec<usize> {
    let ranks = std::env::var("NVLLM_TEST_GPUS").map_or(2, |gpus| gpus.parse().expect("a number of GPUs"));
    (0..ranks).collect()
}

/// Columns in as many equal shares as there are ranks.
fn equal_shares(cols: usize) -> Vec<Range<usize>> {
    let ranks = devices().len();
    (0..ranks).map(|rank| cols * rank / ranks..cols * (rank + 1) / ranks).collect()
}

/// How long a rank waits for the other one in an exchange.
const PATIENCE: Duration = Duration::from_secs(3);

/// Ends the process if `test` takes longer than `limit`.
fn within<R>(limit: Duration, test: impl FnOnce() -> R) -> R {
    let (ended, ends) = channel::<()>();
    let name = thread::current().name().unwrap_or("a test").to_owned();
    thread::spawn(move || {
        if let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(limit) {
            eprintln!("{name} takes longer than {limit:?}: a rank waits for ever");
            std::process::exit(3);
        }
    });
    let result = test();
    drop(ended);
    result
}

/// What each rank computes, in the order of ranks, by the transport that the GPUs have.
fn on_ranks<R: Send>(dtype: DType, compute: impl Fn(usize, &mut Cuda) -> R + Sync) -> Vec<R> {
    on_ranks_by(None, dtype, compute)
}

/// The same, by one transport.
fn on_ranks_by<R: Send>(
    transport: Option<Transport>,
    dtype: DType,
    compute: impl Fn(usize, &mut Cuda) -> R + Sync,
) -> Vec<R> {
    let members = Peers::open_by(transport, &devices(), PATIENCE).unwrap();
    compute_on(members, dtype, compute)
}

/// The same, by ranks that are to open.
fn compute_on<R: Send>(members: Vec<Member>, dtype: DType, compute: impl Fn(usize, &mut Cuda) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let ranks: Vec<_> = members
            .into_iter()
            .map(|member| {
                let compute = &compute;
                scope.spawn(move || {
                    let rank = member.rank();
                    let mut cuda = Cuda::open_member(member, dtype).unwrap();
                    let computed = compute(rank, &mut cuda);
                    // A member that leaves breaks the team.
                    cuda.synchronize().unwrap();
                    cuda.meet().unwrap();
                    computed
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}
