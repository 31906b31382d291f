//! Processes with a GPU each compute one model together: they give the answers of one process, and none of them waits for another that is
//! gone.
//!
//! The tests need two GPUs and NCCL, so they are ignored unless `--include-ignored` asks for them.
use crate::answers;
use crate::child;
use crate::driver;

use answers::answers;
use base::TokenId;
use child::{Options, Process};
use driver::golden;
use engine::options::EngineOptions;
use engine::{Budget, Engine};
use os::socket::Address;
use runner::{Device, Processes, Rounding};
use std::ops::ControlFlow;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Heads that are divided evenly and unevenly, and a norm over all heads.
const CASES: &[&str] = &["qwen3-bf16-head128", "qwen2-bf16-head96-gqa7", "olmo2-f16"];
const MODEL: &str = CASES[0];
/// How long a process may be silent in these tests, and what they grant the machine besides.
const TIMEOUT: Duration = Duration::from_millis(2000);
const BOUND: Duration = Duration::from_secs(5);

/// Not a test of its own: what the processes of the other tests do.
#[test]
#[ignore = "the other tests run it in processes of their own"]
fn a_process_of_the_other_tests() {
    child::live();
}

fn unix(name: &str) -> String {
    format!("unix:{}", std::env::temp_dir().join(format!("nvllm-cuda-{name}-{}", std::process::id())).display())
}

/// A process of two, each of which has the GPU of its index.
fn options(model: &str, index: u32, rendezvous: &str) -> Options {
    Options {
        model: golden(model).to_str().unwrap().to_owned(),
        index,
        processes: 2,
        ranks: 2,
        rendezvous: rendezvous.to_owned(),
        timeout_ms: TIMEOUT.as_millis() as u32,
        max_num_seqs: 8,
        gpu: Some(index as i32),
        ..Options::default()
    }
}

/// A leader and a follower whose engines are open.
fn open(name: &str) -> (Process, Process) {
    let rendezvous = unix(name);
    let [mut leader, mut follower] = [0, 1].map(|index| Process::start(&options(MODEL, index, &rendezvous)));
    leader.tell("open");
    follower.tell("open");
    assert_eq!(leader.answer(), "0");
    assert_eq!(follower.answer(), "0");
    (leader, follower)
}

/// An engine of this process: on GPU 0 alone, on both GPUs, or the leader of two processes.
fn engine(model: &str, rounding: Rounding, ranks: usize, rendezvous: Option<&str>) -> Engine {
    let mut options = EngineOptions::new(golden(model));
    (options.device, options.rounding) = (Device::Cuda { index: 0 }, rounding);
    (options.kv_block_size, options.kv_cache_bytes) = (Some(16), Some(16 << 20));
    (options.seed, options.max_num_seqs) = (Some(3), Some(8));
    options.tensor_parallel_size = ranks;
    options.peer_timeout = Some(TIMEOUT);
    options.processes = rendezvous.map(|rendezvous| {
        let rendezvous = Address::parse("rendezvous", rendezvous).unwrap();
        Processes { count: 2, index: 0, rendezvous }
    });
    Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn save(engine: &mut Engine) -> Vec<u8> {
    let prompt: Vec<TokenId> = (0..60).map(|i| 1 + i * i % 23).collect();
    let prefix = engine.find_prefix(&prompt, 0).unwrap();
    let mut bytes = vec![0; prefix.bytes()];
    engine.save_prefix(&prefix, &mut bytes).unwrap();
    bytes
}

/// Answers and saved prefixes of two processes are those of `wanted`, bit for bit.
fn agree(model: &str, rounding: Rounding, mut wanted: Engine) {
    let answered = answers(&mut wanted, Budget::OnePass);
    let saved = save(&mut wanted);
    drop(wanted);
    for (budget, serve) in [(Budget::OnePass, "serve"), (Budget::Time(Duration::from_micros(200)), "serve 300")] {
        let rendezvous = unix("agree");
        let batch_invariant = rounding == Rounding::BatchInvariant;
        let mut follower = Process::start(&Options { batch_invariant, ..options(model, 1, &rendezvous) });
        follower.tell("open");
        let mut engine = engine(model, rounding, 2, Some(&rendezvous));
        assert_eq!(follower.answer(), "0");
        follower.tell(serve);
        let found = answers(&mut engine, budget);
        for (request, (found, wanted)) in found.iter().zip(&answered).enumerate() {
            assert_eq!(found, wanted, "{model}, {rounding:?}, {budget:?}, request {request}");
        }
        assert!(save(&mut engine) == saved, "{model}, {rounding:?}: other keys and values");
        engine.reset_prefix_cache();
        assert!(engine.restore_prefix(&saved).unwrap() > 0);
        assert!(save(&mut engine) == saved, "{model}, {rounding:?}: other keys and values than were restored");
        drop(engine);
        assert_eq!(follower.answer(), "2", "NVLLM_CLOSED");
        assert_eq!(follower.ask("free"), "freed");
        assert!(follower.end().success());
    }
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL: --include-ignored"]
fn two_processes_answer_as_one_with_two_gpus_bit_for_bit() {
    // With batch_invariant, because batches are formed by time.
    agree(MODEL, Rounding::BatchInvariant, engine(MODEL, Rounding::BatchInvariant, 2, None));
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL: --include-ignored"]
fn batch_invariant_answers_of_two_processes_are_those_of_one_gpu_bit_for_bit() {
    for model in CASES {
        agree(model, Rounding::BatchInvariant, engine(model, Rounding::BatchInvariant, 1, None));
    }
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL: --include-ignored"]
fn two_processes_give_the_tokens_of_one() {
    let mut one = Process::start(&Options { processes: 0, ..options(MODEL, 0, "") });
    assert_eq!(one.ask("open"), "0");
    assert_eq!(one.ask("add 40"), "0");
    let wanted = one.ask("run");
    assert!(one.end().success());
    let (mut leader, mut follower) = open("tokens");
    let refused = "process 1 of 2 ranks: -11 process 1 follows: requests go to process 0";
    assert_eq!(follower.ask("index"), refused);
    follower.tell("serve");
    for _ in 0..3 {
        assert_eq!(leader.ask("add 40"), "0");
        assert_eq!(leader.ask("run"), wanted);
    }
    // A leader that is idle for longer than the timeout loses nobody.
    sleep(TIMEOUT + TIMEOUT / 2);
    assert_eq!(leader.ask("add 40"), "0");
    assert_eq!(leader.ask("run"), wanted);
    assert_eq!(leader.ask("free"), "freed");
    assert_eq!(follower.answer(), "2", "NVLLM_CLOSED");
    assert_eq!(follower.ask("step"), "2", "and so it stays");
    assert!(leader.end().success());
    assert!(follower.end().success());
}

/// Two processes that compute one pass after the other.
fn in_the_middle(name: &str) -> (Process, Process) {
    let (mut leader, mut follower) = open(name);
    follower.tell("serve");
    leader.tell("run-on");
    sleep(Duration::from_millis(300));
    (leader, follower)
}

/// The answer of a process that has lost another one, which must come within a bound; afterwards it opens another engine.
fn answer_to_a_loss(mut process: Process) -> String {
    let begun = Instant::now();
    let answer = process.answer();
    assert!(begun.elapsed() < BOUND, "{answer} after {:?}", begun.elapsed());
    assert!(answer.starts_with("-14 "), "{answer}");
    let later = "-14 an earlier call lost another process: only nvllm_engine_free may be called on this engine";
    assert_eq!(process.ask("step"), later);
    let begun = Instant::now();
    assert_eq!(process.ask("free"), "freed");
    let took = begun.elapsed();
    println!("answered \"{answer}\", freed in {took:?}");
    assert!(took < BOUND, "freed in {took:?}");
    assert_eq!(process.ask("open-alone"), "0");
    assert_eq!(process.ask("add 2"), "0");
    assert!(process.ask("run").starts_with('['));
    assert!(process.end().success());
    answer
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL: --include-ignored"]
fn a_follower_that_is_killed_ends_the_leaders_engine() {
    let (leader, follower) = in_the_middle("kill-follower");
    follower.signal(libc::SIGKILL);
    assert_eq!(answer_to_a_loss(leader), "-14 process 1: has ended, or has closed the connection");
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL: --include-ignored"]
fn a_leader_that_is_killed_ends_the_followers_engine() {
    let (leader, follower) = in_the_middle("kill-leader");
    leader.signal(libc::SIGKILL);
    assert_eq!(answer_to_a_loss(follower), "-14 process 0: has ended, or has closed the connection");
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL: --include-ignored"]
fn a_follower_that_is_stopped_ends_the_leaders_engine() {
    let (leader, follower) = in_the_middle("stop-follower");
    follower.signal(libc::SIGSTOP);
    assert_eq!(answer_to_a_loss(leader), "-14 process 1: no sign of life for 2000 ms (peer_timeout_ms)");
    follower.signal(libc::SIGCONT);
    let answer = answer_to_a_loss(follower);
    assert!(answer.starts_with("-14 process "), "{answer}");
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL: --include-ignored"]
fn a_leader_that_is_stopped_ends_the_followers_engine() {
    let (leader, follower) = in_the_middle("stop-leader");
    leader.signal(libc::SIGSTOP);
    assert_eq!(answer_to_a_loss(follower), "-14 process 0: no sign of life for 2000 ms (peer_timeout_ms)");
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL: --include-ignored"]
fn a_host_that_does_not_step_is_named() {
    let (mut leader, mut follower) = open("no-step");
    assert_eq!(leader.ask("add 2"), "0");
    leader.tell("run");
    let reason = "-14 process 1: a pass waits, but nvllm_step was not called for 2000 ms (peer_timeout_ms)";
    assert_eq!(answer_to_a_loss(leader), reason);
    assert_eq!(follower.ask("step"), reason);
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL: --include-ignored"]
fn a_leader_may_close_with_passes_in_flight() {
    for _ in 0..3 {
        let (mut leader, mut follower) = open("close");
        follower.tell("serve");
        assert_eq!(leader.ask("add 40"), "0");
        for _ in 0..4 {
            assert_eq!(leader.ask("step 1"), "0");
        }
        assert_eq!(leader.ask("free"), "freed");
        assert_eq!(follower.answer(), "2", "NVLLM_CLOSED");
        assert_eq!(follower.ask("free"), "freed");
        assert!(follower.end().success());
    }
}

#[test]
#[ignore = "needs two NVIDIA GPUs and NCCL: --include-ignored"]
fn processes_that_do_not_fit_together_are_refused_with_the_reason() {
    let refusals = |name: &str, change: &dyn Fn(&mut Options)| {
        let rendezvous = unix(name);
        let mut other = options(MODEL, 1, &rendezvous);
        change(&mut other);
        let mut all = [Process::start(&options(MODEL, 0, &rendezvous)), Process::start(&other)];
        all.iter_mut().for_each(|process| process.tell("open"));
        all.map(|mut process| process.answer())
    };
    let twice = "-1 device_indices is GPU 0, which another process of the engine has, too, but must be a GPU of its own for each rank";
    let found = refusals("twice", &|options| options.gpu = Some(0));
    assert!(found.contains(&twice.to_owned()), "{found:?}");
    let fix = "open all processes with the same model and options";
    let found = refusals("invariant", &|options| options.batch_invariant = true);
    let reason = format!("-14 process 1: its batch_invariant is 1, but that of process 0 is 0: {fix}");
    assert_eq!(found, [reason.clone(), reason]);
    let found = refusals("cpu", &|options| options.gpu = None);
    assert!(found.iter().all(|found| found.starts_with("-14 process 1: its ")), "{found:?}");
    let [leader, follower] = refusals("no-room", &|options| options.kv_cache_bytes = 100);
    assert!(follower.starts_with("-6 the KV cache may take 100 bytes, but one block takes"), "{follower}");
    assert_eq!(leader, format!("-14 process 1: {}", &follower[3..]));
}
