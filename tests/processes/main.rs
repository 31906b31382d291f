//! Processes that compute one model together give the answers of one, and none of them waits for another that is gone.

mod answers;
mod child;
#[path = "../driver/mod.rs"]
mod driver;
mod lossy;
mod port;
#[path = "../random_requests/mod.rs"]
mod random_requests;
#[path = "../tree/mod.rs"]
mod tree;

use answers::answers;
use base::TokenId;
use child::{Options, Process};
use driver::golden;
use engine::options::EngineOptions;
use engine::sampling_params::{Pooling, SamplingParams};
use engine::{Budget, Engine, Prompt};
use lossy::{Lossy, Lost};
use os::socket::Address;
use port::Port;
use runner::{Device, ExpertDivision, Processes};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The test that is a process of the others.
const PROCESS: &str = "a_process_of_the_other_tests";
const MODEL: &str = "qwen3-f32-untied-gqa8";
/// How long a process may be silent where a test does not wait for the end of that time: no busy machine takes as long.
const LONG: Duration = Duration::from_secs(60);
/// How long it may be silent where a test does.
const SHORT: Duration = Duration::from_millis(3000);

/// Not a test of its own: what the processes of the other tests do.
#[test]
#[ignore = "the other tests run it in processes of their own"]
fn a_process_of_the_other_tests() {
    child::live();
}

fn unix(name: &str) -> String {
    format!("unix:{}", std::env::temp_dir().join(format!("nvllm-{name}-{}", std::process::id())).display())
}

/// Connects as soon as a process listens at `address`.
fn connect(address: &str) -> TcpStream {
    let deadline = Instant::now() + child::PATIENCE;
    loop {
        match TcpStream::connect(address) {
            Ok(stream) => return stream,
            Err(error) => assert!(Instant::now() < deadline, "nobody listens at {address}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn options(index: u32, processes: u32, ranks: u32, rendezvous: &str) -> Options {
    Options {
        model: golden(MODEL).to_str().unwrap().to_owned(),
        index,
        processes,
        ranks,
        rendezvous: rendezvous.to_owned(),
        timeout_ms: LONG.as_millis() as u32,
        max_num_seqs: 8,
        ..Options::default()
    }
}

/// Processes whose engines are open, the leader first.
fn open(processes: u32, ranks: u32, rendezvous: &str, timeout: Duration) -> Vec<Process> {
    let timeout_ms = timeout.as_millis() as u32;
    let options = (0..processes).map(|index| Options { timeout_ms, ..options(index, processes, ranks, rendezvous) });
    let mut started: Vec<_> = options.map(|options| Process::start(&options)).collect();
    started.iter_mut().for_each(|process| process.tell("open"));
    started.iter_mut().for_each(|process| assert_eq!(process.answer(), "0"));
    started
}

/// What one process answers to a request for a number of tokens.
fn alone(tokens: u32) -> String {
    let mut process = Process::start(&options(0, 0, 1, ""));
    assert_eq!(process.ask("open"), "0");
    assert_eq!(process.ask(&format!("add {tokens}")), "0");
    process.ask("run")
}

#[test]
fn two_and_three_processes_give_the_tokens_of_one_over_unix_sockets_and_tcp() {
    let wanted = alone(12);
    for (processes, ranks) in [(2, 2), (3, 3), (2, 4)] {
        let port = Port::keep();
        for rendezvous in [&unix(&format!("tokens-{ranks}")), &port.address] {
            let mut all = open(processes, ranks, rendezvous, LONG);
            let refused = format!("process 1 of {ranks} ranks: -11 process 1 follows: requests go to process 0");
            assert_eq!(all[1].ask("index"), refused);
            all[1..].iter_mut().for_each(|follower| follower.tell("serve"));
            for _ in 0..2 {
                assert_eq!(all[0].ask("add 12"), "0");
                assert_eq!(all[0].ask("run"), wanted, "{processes} processes and {ranks} ranks at {rendezvous}");
            }
            assert_eq!(all[0].ask("free"), "freed");
            for mut follower in all.split_off(1) {
                assert_eq!(follower.answer(), "2", "NVLLM_CLOSED");
                assert_eq!(follower.ask("step"), "2", "and so it stays");
                assert!(follower.end().success());
            }
            assert!(all.remove(0).end().success());
        }
    }
}

/// States are copied for the completions of a request, kept as checkpoints and read from these.
#[test]
fn two_processes_give_the_tokens_of_one_with_recurrent_layers() {
    let of_model = |options: Options| Options { model: golden("qwen3_5-f32").to_str().unwrap().to_owned(), ..options };
    let mut alone = Process::start(&of_model(options(0, 0, 1, "")));
    assert_eq!(alone.ask("open"), "0");
    let rendezvous = unix("recurrent");
    let mut both: Vec<_> = (0..2).map(|index| Process::start(&of_model(options(index, 2, 2, &rendezvous)))).collect();
    both.iter_mut().for_each(|process| process.tell("open"));
    both.iter_mut().for_each(|process| assert_eq!(process.answer(), "0"));
    both[1].tell("serve");
    for _ in 0..2 {
        let [wanted, found] = [&mut alone, &mut both[0]].map(|process| {
            assert_eq!(process.ask("add 12"), "0");
            process.ask("run")
        });
        assert_eq!(found, wanted);
    }
    assert_eq!(both[0].ask("free"), "freed");
    assert_eq!(both[1].answer(), "2", "NVLLM_CLOSED");
}

/// States are read and written part by part, and ranks may share a group of a selective scan.
#[test]
fn recurrent_states_that_processes_save_are_those_of_one_and_each_restores_the_others() {
    let prompt: Vec<TokenId> = (0..50).map(|i| 3 + i * 7 % 80).collect();
    for (model, processes, ranks) in
        [("qwen3_5-f32", 2, 2), ("falcon_h1-f32-one-group", 2, 4), ("granitemoehybrid-f32-seven-experts", 3, 3)]
    {
        let path = golden(model);
        let with_state = |engine: &mut Engine| {
            let params = SamplingParams { max_tokens: Some(6), ..SamplingParams::default() };
            let (prompts, params) = ([Prompt::Tokens(&prompt)], std::slice::from_ref(&params));
            let answers = engine.generate(&prompts, params, &mut |_| ControlFlow::Continue(())).unwrap();
            (answers[0].token_ids.clone(), save(engine, &prompt))
        };
        let mut one = leader_of(&path, 1, 1, "");
        let wanted = with_state(&mut one);
        let rendezvous = unix(&format!("states-{ranks}"));
        let follower = |index| {
            let of_model = options(index, processes, ranks, &rendezvous);
            Process::start(&Options { model: path.to_str().unwrap().to_owned(), ..of_model })
        };
        let mut followers: Vec<_> = (1..processes).map(follower).collect();
        followers.iter_mut().for_each(|follower| follower.tell("open"));
        let mut engine = leader_of(&path, processes as usize, ranks as usize, &rendezvous);
        for follower in &mut followers {
            assert_eq!(follower.answer(), "0");
            follower.tell("serve");
        }
        assert!(with_state(&mut engine) == wanted, "{model}: {ranks} ranks save other bytes");
        for engine in [&mut engine, &mut one] {
            engine.reset_prefix_cache();
            assert_eq!(engine.restore_prefix(&wanted.1).unwrap(), 48, "{model}");
            assert!(with_state(engine) == wanted, "{model}: {ranks} ranks go on otherwise");
        }
        drop(engine);
        for mut follower in followers {
            assert_eq!(follower.answer(), "2", "NVLLM_CLOSED");
        }
    }
}

/// Rows of slots travel between processes.
#[test]
fn processes_with_whole_experts_give_the_tokens_of_one() {
    let path = golden("granitemoehybrid-f32-seven-experts");
    let prompt: Vec<TokenId> = (0..50).map(|i| 3 + i * 7 % 80).collect();
    let answer = |engine: &mut Engine| {
        let params = SamplingParams { max_tokens: Some(12), num_logprobs: 3, ..SamplingParams::default() };
        let (prompts, params) = ([Prompt::Tokens(&prompt)], std::slice::from_ref(&params));
        let answers = engine.generate(&prompts, params, &mut |_| ControlFlow::Continue(())).unwrap();
        (answers[0].token_ids.clone(), format!("{:?}", answers[0].logprobs))
    };
    let wanted = answer(&mut leader_of(&path, 1, 1, ""));
    for (processes, ranks) in [(2, 4), (3, 3)] {
        let rendezvous = unix(&format!("experts-{ranks}"));
        let follower = |index| {
            let of_model = options(index, processes, ranks, &rendezvous);
            let model = path.to_str().unwrap().to_owned();
            Process::start(&Options { model, expert_parallel: true, ..of_model })
        };
        let mut followers: Vec<_> = (1..processes).map(follower).collect();
        followers.iter_mut().for_each(|follower| follower.tell("open"));
        let whole = |options: &mut EngineOptions| options.expert_division = ExpertDivision::Whole;
        let mut engine = leader_with(&path, processes as usize, ranks as usize, &rendezvous, whole);
        for follower in &mut followers {
            assert_eq!(follower.answer(), "0");
            follower.tell("serve");
        }
        assert!(answer(&mut engine) == wanted, "{processes} processes, {ranks} ranks");
        drop(engine);
        followers.iter_mut().for_each(|follower| assert_eq!(follower.answer(), "2", "NVLLM_CLOSED"));
    }
}

/// What an encoder makes of texts, one after another and then all at once.
fn pooled(engine: &mut Engine, pooling: Pooling) -> Vec<(Vec<f32>, Vec<f32>)> {
    let texts: Vec<Vec<TokenId>> = (1..12).map(|len| (0..len).map(|i| 5 + (i * i + len) % 23).collect()).collect();
    let all: Vec<_> = texts.iter().map(|text| Prompt::Tokens(text)).collect();
    let params = vec![SamplingParams { pooling, ..SamplingParams::default() }; all.len()];
    let mut outputs = Vec::new();
    for prompts in all.chunks(1).chain([&all[..]]) {
        outputs.extend(engine.generate(prompts, &params[..prompts.len()], &mut |_| ControlFlow::Continue(())).unwrap());
    }
    outputs.into_iter().map(|output| (output.embedding.to_vec(), output.scores.to_vec())).collect()
}

/// Types of tokens and what is pooled travel with a batch, and no keys outlive their pass.
#[test]
fn two_processes_give_the_embeddings_and_scores_of_one_bit_for_bit() {
    for (model, pooling) in [
        ("bert-f32", Pooling::Mean),
        ("modernbert-f32", Pooling::First),
        ("bert-f32-classifier", Pooling::Auto),
        ("bert-f32-token-classifier", Pooling::Auto),
        ("xlm_roberta-f32-reranker", Pooling::Auto),
    ] {
        let path = golden("encoders").join(model);
        let wanted = pooled(&mut leader_of(&path, 1, 1, ""), pooling);
        let rendezvous = unix(model);
        let of_model = Options { model: path.to_str().unwrap().to_owned(), ..options(1, 2, 2, &rendezvous) };
        let mut follower = Process::start(&of_model);
        follower.tell("open");
        let mut engine = leader_of(&path, 2, 2, &rendezvous);
        assert_eq!(follower.answer(), "0");
        follower.tell("serve");
        assert!(pooled(&mut engine, pooling) == wanted, "{model}");
        assert!(wanted.iter().all(|(embedding, scores)| embedding.len() + scores.len() > 0), "{model}");
        drop(engine);
        assert_eq!(follower.answer(), "2", "NVLLM_CLOSED");
    }
}

/// An engine of this process that leads others.
fn leader(processes: usize, ranks: usize, rendezvous: &str) -> Engine {
    leader_of(&golden(MODEL), processes, ranks, rendezvous)
}

fn leader_of(model: &Path, processes: usize, ranks: usize, rendezvous: &str) -> Engine {
    leader_with(model, processes, ranks, rendezvous, |_| ())
}

fn leader_with(
    model: &Path,
    processes: usize,
    ranks: usize,
    rendezvous: &str,
    change: impl FnOnce(&mut EngineOptions),
) -> Engine {
    let mut options = EngineOptions::new(model);
    (options.device, options.num_threads) = (Device::Cpu, Some(1));
    (options.kv_block_size, options.kv_cache_bytes) = (Some(4), Some(16 << 20));
    (options.seed, options.max_num_seqs) = (Some(3), Some(8));
    options.tensor_parallel_size = ranks;
    options.peer_timeout = Some(LONG);
    if processes > 1 {
        let rendezvous = Address::parse("rendezvous", rendezvous).unwrap();
        options.processes = Some(Processes { count: processes, index: 0, rendezvous });
    }
    change(&mut options);
    Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap()
}

/// What an engine saves of a prompt.
fn save(engine: &mut Engine, prompt: &[TokenId]) -> Vec<u8> {
    let prefix = engine.find_prefix(prompt, 0).unwrap();
    let mut bytes = vec![0; prefix.bytes()];
    engine.save_prefix(&prefix, &mut bytes).unwrap();
    bytes
}

#[test]
fn requests_of_many_kinds_and_saved_prefixes_are_those_of_one_process_bit_for_bit() {
    let prompt: Vec<TokenId> = (0..60).map(|i| 1 + i * i % 23).collect();
    let mut one = leader(1, 1, "");
    let wanted = answers(&mut one, Budget::OnePass);
    let saved = save(&mut one, &prompt);
    for (processes, ranks, budget, serve) in [
        (2, 2, Budget::OnePass, "serve"),
        (3, 3, Budget::Time(Duration::from_micros(300)), "serve 500"),
        (2, 6, Budget::Time(Duration::ZERO), "serve 1"),
    ] {
        let rendezvous = unix(&format!("kinds-{ranks}"));
        let mut followers: Vec<_> =
            (1..processes).map(|index| Process::start(&options(index, processes, ranks, &rendezvous))).collect();
        followers.iter_mut().for_each(|follower| follower.tell("open"));
        let mut engine = leader(processes as usize, ranks as usize, &rendezvous);
        for follower in &mut followers {
            assert_eq!(follower.answer(), "0");
            follower.tell(serve);
        }
        assert_eq!(engine.restore_prefix(&saved).unwrap(), 60);
        assert!(save(&mut engine, &prompt) == saved, "{ranks} ranks save other bytes than they restored");
        engine.reset_prefix_cache();
        let found = answers(&mut engine, budget);
        for (request, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert_eq!(found, wanted, "{processes} processes, {ranks} ranks, request {request}");
        }
        assert!(save(&mut engine, &prompt) == saved, "{ranks} ranks save other bytes");
        drop(engine);
        for mut follower in followers {
            assert_eq!(follower.answer(), "2", "NVLLM_CLOSED");
        }
    }
}

#[test]
fn a_prefix_is_saved_and_restored_in_the_middle_of_a_pass() {
    // A call that waits for ever fails the test, and does not hold it up.
    let (done, is_done) = channel();
    std::thread::spawn(move || {
        for (processes, ranks, serve) in [(2, 2, "serve"), (3, 3, "serve 500"), (2, 4, "serve 1")] {
            let rendezvous = unix(&format!("within-{ranks}"));
            let others = 1..processes as u32;
            let mut followers: Vec<_> = others
                .map(|index| Process::start(&options(index, processes as u32, ranks as u32, &rendezvous)))
                .collect();
            followers.iter_mut().for_each(|follower| follower.tell("open"));
            let engine = leader(processes, ranks, &rendezvous);
            for follower in &mut followers {
                assert_eq!(follower.answer(), "0");
                follower.tell(serve);
            }
            save_and_restore_within_passes(engine);
            followers.iter_mut().for_each(|follower| assert_eq!(follower.answer(), "2", "NVLLM_CLOSED"));
        }
        done.send(()).unwrap();
    });
    let ended = is_done.recv_timeout(Duration::from_secs(120));
    assert!(ended.is_ok(), "{ended:?}: a call waits for ever, or the thread says above what was wrong");
}

fn save_and_restore_within_passes(mut engine: Engine) {
    let saved_prompt: Vec<TokenId> = (0..40).map(|i| 1 + i * i % 23).collect();
    let other_prompt: Vec<TokenId> = (0..30).map(|i| 2 + i * i % 19).collect();
    let params = SamplingParams { max_tokens: Some(10), ..SamplingParams::default() };
    let ask = |engine: &mut Engine, prompt: &[TokenId]| {
        let prompts = [Prompt::Tokens(prompt)];
        let answers = engine.generate(&prompts, std::slice::from_ref(&params), &mut |_| ControlFlow::Continue(()));
        answers.unwrap()[0].token_ids.clone()
    };
    let wanted = ask(&mut engine, &saved_prompt);
    let saved = save(&mut engine, &saved_prompt);
    let mut within = 0;
    for stages in 1..12 {
        engine.handle().add_request(Prompt::Tokens(&other_prompt), params.clone()).unwrap();
        let mut step = |engine: &mut Engine| {
            (0..stages).for_each(|_| within += engine.step(Budget::Time(Duration::ZERO)).unwrap().in_flight);
        };
        step(&mut engine);
        assert!(save(&mut engine, &saved_prompt) == saved, "after {stages} stages");
        step(&mut engine);
        engine.reset_prefix_cache();
        assert_eq!(engine.restore_prefix(&saved).unwrap(), 40);
        step(&mut engine);
        assert!(save(&mut engine, &saved_prompt) == saved, "after {stages} stages");
        assert_eq!(ask(&mut engine, &saved_prompt), wanted, "after {stages} stages");
    }
    assert!(within > 20, "{within} steps ended within a pass");
}

#[test]
fn sessions_that_lose_what_they_send_end_in_every_process() {
    let sessions = (0..20).map(|seed| {
        let lost = if seed % 3 == 2 { Lost::Numbers(40) } else { Lost::Frames(20) };
        (seed, 2 + seed as u32 % 2, lost)
    });
    for (seed, processes, lost) in sessions {
        let rendezvous = unix(&format!("lossy-{seed}"));
        let lossy = Lossy::new(&rendezvous, lost, seed);
        let start = |index| {
            let address = if index == 0 { &rendezvous } else { &lossy.address };
            let options = Options { timeout_ms: 500, ..options(index, processes, processes, address) };
            Process::start(&options)
        };
        let mut all: Vec<_> = (0..processes).map(start).collect();
        all.iter_mut().for_each(|process| process.tell("open"));
        let opened: Vec<_> = all.iter_mut().map(Process::answer).collect();
        for (index, (process, opened)) in all.iter_mut().zip(&opened).enumerate() {
            match (opened.as_str(), index) {
                ("0", 0) => process.tell("run-on"),
                ("0", _) => process.tell("serve"),
                (refused, _) => assert!(refused.starts_with("-14 "), "session {seed}, process {index}: {refused}"),
            }
        }
        for (index, (process, opened)) in all.iter_mut().zip(&opened).enumerate() {
            let ended = if opened == "0" { process.answer() } else { opened.clone() };
            assert!(ended.starts_with("-14 process "), "session {seed}, process {index}: {ended}");
        }
    }
}

/// Two processes that compute one pass after the other.
fn in_the_middle(name: &str, timeout: Duration) -> (Process, Process) {
    let mut all = open(2, 2, &unix(name), timeout);
    let mut follower = all.remove(1);
    let mut leader = all.remove(0);
    follower.tell("serve");
    assert_eq!(leader.ask("run-on-aloud"), "runs");
    (leader, follower)
}

/// The answer of a process that has lost another one; afterwards it opens another engine.
///
/// The answer says by what the loss was noticed. Where that is not the end of `peer_timeout_ms`, the process did not wait for it.
fn answer_to_a_loss(mut process: Process) -> String {
    let answer = process.answer();
    assert!(answer.starts_with("-14 "), "{answer}");
    assert_eq!(
        process.ask("step"),
        "-14 an earlier call lost another process: only nvllm_engine_free may be called on this engine"
    );
    assert_eq!(process.ask("free"), "freed");
    assert_eq!(process.ask("open-alone"), "0");
    assert_eq!(process.ask("add 2"), "0");
    assert!(process.ask("run").starts_with('['));
    assert!(process.end().success());
    answer
}

#[test]
fn a_follower_that_is_killed_ends_the_leaders_engine() {
    let (leader, follower) = in_the_middle("kill-follower", LONG);
    follower.signal(libc::SIGKILL);
    assert_eq!(answer_to_a_loss(leader), "-14 process 1: has ended, or has closed the connection");
}

#[test]
fn a_leader_that_is_killed_ends_the_followers_engine() {
    let (leader, follower) = in_the_middle("kill-leader", LONG);
    leader.signal(libc::SIGKILL);
    assert_eq!(answer_to_a_loss(follower), "-14 process 0: has ended, or has closed the connection");
}

#[test]
fn a_follower_that_is_stopped_ends_the_leaders_engine() {
    let (leader, follower) = in_the_middle("stop-follower", SHORT);
    follower.signal(libc::SIGSTOP);
    assert_eq!(answer_to_a_loss(leader), "-14 process 1: no sign of life for 3000 ms (peer_timeout_ms)");
    follower.signal(libc::SIGCONT);
    let answer = answer_to_a_loss(follower);
    assert!(answer.starts_with("-14 process "), "{answer}");
}

#[test]
fn a_leader_that_is_stopped_ends_the_followers_engine() {
    let (leader, follower) = in_the_middle("stop-leader", SHORT);
    leader.signal(libc::SIGSTOP);
    assert_eq!(answer_to_a_loss(follower), "-14 process 0: no sign of life for 3000 ms (peer_timeout_ms)");
}

#[test]
fn a_third_process_learns_which_one_was_lost() {
    let mut all = open(3, 3, &unix("third"), LONG);
    all[1..].iter_mut().for_each(|follower| follower.tell("serve"));
    all[1].signal(libc::SIGKILL);
    assert_eq!(all[2].answer(), "-14 process 1: has ended, or has closed the connection");
    assert_eq!(all[0].ask("add 2"), "0");
    assert_eq!(all[0].ask("run"), "-14 process 1: has ended, or has closed the connection");
}

#[test]
fn a_host_that_does_not_step_is_named() {
    let mut all = open(2, 2, &unix("no-step"), SHORT);
    assert_eq!(all[0].ask("add 2"), "0");
    all[0].tell("run");
    let reason = "-14 process 1: a pass waits, but nvllm_step was not called for 3000 ms (peer_timeout_ms)";
    assert_eq!(answer_to_a_loss(all.remove(0)), reason);
    assert_eq!(all[0].ask("step"), reason);
}

#[test]
fn a_leader_may_pause_and_may_close_in_the_middle_of_a_pass() {
    let mut all = open(2, 2, &unix("pause"), SHORT);
    all[1].tell("serve");
    assert_eq!(all[0].ask("add 4"), "0");
    // The first call with a time ends within a pass.
    assert_eq!(all[0].ask("step 1"), "0");
    std::thread::sleep(SHORT + SHORT / 2);
    assert_eq!(all[0].ask("run"), alone(4));
    assert_eq!(all[0].ask("add 4"), "0");
    assert_eq!(all[0].ask("step 1"), "0");
    assert_eq!(all[0].ask("free"), "freed");
    assert_eq!(all[1].answer(), "2", "NVLLM_CLOSED");
}

#[test]
fn a_follower_that_frees_its_engine_is_named() {
    let mut all = open(2, 2, &unix("freed"), LONG);
    assert_eq!(all[1].ask("step 1000"), "0", "nothing comes, and the time is spent");
    assert_eq!(all[1].ask("free"), "freed");
    assert_eq!(all[0].ask("add 2"), "0");
    assert_eq!(all[0].ask("run"), "-14 process 1: its engine was freed");
}

#[test]
fn a_follower_waits_for_orders_and_a_leader_for_requests() {
    let wanted = alone(6);
    // Steps that end in the middle of a pass, which the next one finds as work.
    let budgets = [0, 1, 2000];
    let mut opened = budgets.map(|budget_us| {
        let mut all = open(2, 2, &unix(&format!("wait-{budget_us}")), SHORT);
        assert_eq!(all[1].ask("wait 20000"), "3", "NVLLM_TIMEOUT");
        all[1].tell(&format!("serve-awaited {budget_us}"));
        assert_eq!(all[0].ask("wait 20000"), "3");
        all
    });
    // Longer than a process may leave an order undone, and than it may be silent.
    std::thread::sleep(SHORT + SHORT / 4);
    for all in &mut opened {
        for _ in 0..2 {
            assert_eq!(all[0].ask("add 6"), "0");
            assert_eq!(all[0].ask("wait-on"), "0");
            assert_eq!(all[0].ask("run"), wanted);
        }
        assert_eq!(all[0].ask("free"), "freed");
        assert_eq!(all[1].answer(), "2", "NVLLM_CLOSED");
        assert_eq!(all[1].ask("wait-on"), "2", "and so it stays");
    }
}

#[test]
fn a_wait_ends_when_another_process_is_lost() {
    let mut all = open(3, 3, &unix("wait-lost"), LONG);
    all[..2].iter_mut().for_each(|process| process.tell("wait-on"));
    // So that they probably wait by then; one that begins later has the same answer.
    std::thread::sleep(Duration::from_millis(100));
    all[2].signal(libc::SIGKILL);
    for process in all.drain(..2) {
        assert_eq!(answer_to_a_loss(process), "-14 process 2: has ended, or has closed the connection");
    }
}

#[test]
fn strangers_at_the_rendezvous_keep_nobody_from_joining() {
    let port = Port::keep();
    let mut leader = Process::start(&options(0, 2, 2, &port.address));
    leader.tell("open");
    for garbage in [&b"GET / HTTP/1.1\r\nHost: nobody\r\n\r\n"[..], &[0; 4096], &[0xff; 64]] {
        let mut stream = connect(&port.address);
        // The leader may close before all of it is sent.
        let _ = stream.write_all(garbage);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{answer:?}");
    }
    let silent: Vec<_> = (0..100).map(|_| connect(&port.address)).collect();
    let mut follower = Process::start(&options(1, 2, 2, &port.address));
    assert_eq!(follower.ask("open"), "0");
    assert_eq!(leader.answer(), "0");
    follower.tell("serve");
    drop(silent);
    assert_eq!(leader.ask("add 5"), "0");
    assert_eq!(leader.ask("run"), alone(5));
}

/// What a leader and a follower answer that do not fit together.
fn refusals(name: &str, change: impl Fn(&mut Options)) -> [String; 2] {
    let rendezvous = unix(name);
    let mut other = options(1, 2, 2, &rendezvous);
    change(&mut other);
    let (mut leader, mut follower) = (Process::start(&options(0, 2, 2, &rendezvous)), Process::start(&other));
    leader.tell("open");
    follower.tell("open");
    [leader.answer(), follower.answer()]
}

#[test]
fn processes_that_were_opened_otherwise_refuse_each_other_with_the_reason() {
    let fix = "open all processes with the same model and options";
    let reason = format!("-14 process 1: its max_num_seqs is 7, but that of process 0 is 8: {fix}");
    assert_eq!(refusals("other-options", |options| options.max_num_seqs = 7), [reason.clone(), reason]);

    let reason = format!("-14 process 1: its kv_cache_dtype is int8, but that of process 0 is f32: {fix}");
    assert_eq!(refusals("other-kv-cache", |options| options.kv_cache_dtype = 1), [reason.clone(), reason]);

    let reason = format!("-14 process 1: its tensor_parallel_size is 4, but that of process 0 is 2: {fix}");
    assert_eq!(refusals("other-ranks", |options| options.ranks = 4), [reason.clone(), reason]);

    let other = golden("qwen3-f32-eps3e-4-biased").to_str().unwrap().to_owned();
    let [leader, follower] = refusals("other-model", |options| options.model = other.clone());
    assert!(leader.starts_with("-14 process 1: its model fingerprint is ") && leader.ends_with(fix), "{leader}");
    assert_eq!(leader, follower);
}

#[test]
fn a_process_that_cannot_load_its_part_keeps_no_other_waiting() {
    let [leader, follower] = refusals("no-room", |options| options.kv_cache_bytes = 100);
    assert!(follower.starts_with("-6 the KV cache may take 100 bytes, but one block takes"), "{follower}");
    assert_eq!(leader, format!("-14 process 1: {}", &follower[3..]));
}

#[test]
fn a_process_of_another_version_is_refused_with_the_reason() {
    let port = Port::keep();
    let mut leader = Process::start(&options(0, 2, 2, &port.address));
    leader.tell("open");
    let mut stream = connect(&port.address);
    // Length, kind and number of a hello; the magic bytes, a connection for frames, and process 1.
    let payload = [&b"nvllm-tp"[..], &[0; 4], &1u32.to_le_bytes(), b"library version=0.0.9\n"].concat();
    let hello = [&(payload.len() as u32).to_le_bytes()[..], &1u32.to_le_bytes(), &[0; 8], &payload].concat();
    stream.write_all(&hello).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let reason = format!(
        "its library version is 0.0.9, but that of process 0 is {version}: open all processes with the same model and options"
    );
    assert_eq!(String::from_utf8_lossy(&answer[16..]), reason);
    assert_eq!(leader.answer(), format!("-14 process 1: {reason}"));
    assert_eq!(leader.ask("open-alone"), "0", "the process can go on");
}
