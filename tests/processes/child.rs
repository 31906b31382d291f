//! A process of an engine, which does what its parent tells it on its standard input and answers on its standard output.
//!
//! The program of a process is the test itself, started with [`ROLE`] in its environment. It uses the C API, as a host does.

use capi::engine::*;
use capi::requests::*;
use capi::status::*;
use capi::stepping::*;
use serde::{Deserialize, Serialize};
use std::ffi::CString;
use std::io::{BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::ptr::{null, null_mut};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// The variable that holds the options of a process.
const ROLE: &str = "NVLLM_TEST_PROCESS";
/// What begins an answer, so that it is told from what the test harness prints.
const MARK: &str = "> ";
/// Ends a test that hangs, and no other: far longer than anything here takes on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// How a process opens its engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    pub model: String,
    pub index: u32,
    pub processes: u32,
    pub ranks: u32,
    pub rendezvous: String,
    pub timeout_ms: u32,
    pub max_num_seqs: u32,
    pub kv_cache_bytes: u64,
    /// The GPU that computes; `None` is the CPU.
    pub gpu: Option<i32>,
    pub batch_invariant: bool,
    pub expert_parallel: bool,
    pub kv_cache_dtype: i32,
}

/// A child, and what it says.
pub struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts a process. It ends, whatever it does, when this is dropped.
    pub fn start(options: &Options) -> Process {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", crate::PROCESS, "--include-ignored", "--nocapture", "--test-threads=1"])
            .env(ROLE, serde_json::to_string(options).unwrap())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some(line) = line.strip_prefix(MARK) {
                    let _ = to.send(line.to_owned());
                }
            }
        });
        Process { stdin: child.stdin.take(), child, lines }
    }

    /// Tells the process to do something.
    pub fn tell(&mut self, order: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{order}").unwrap();
    }

    /// What it says next.
    pub fn answer(&mut self) -> String {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("process {} says nothing", self.child.id()),
            Err(RecvTimeoutError::Disconnected) => panic!("process {} ended: {:?}", self.child.id(), self.child.wait()),
        }
    }

    pub fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.answer()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: the process was started here and was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Lets the process end by itself.
    pub fn end(mut self) -> ExitStatus {
        self.stdin = None;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return status,
                None if Instant::now() > deadline => panic!("process {} does not end", self.child.id()),
                None => thread::sleep(Duration::from_millis(5)),
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The life of a process, if this is one.
pub fn live() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let options: Options = serde_json::from_str(&role).unwrap();
    let mut engine = null_mut();
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let (order, number) = line.split_once(' ').unwrap_or((&line, "0"));
        let number: u64 = number.parse().unwrap();
        let answer = match order {
            "open" => open(&options, &mut engine),
            "open-alone" => {
                let Options { model, gpu, batch_invariant, .. } = options.clone();
                let alone = Options { model, gpu, batch_invariant, ranks: 1, ..Options::default() };
                open(&alone, &mut engine)
            }
            "serve" => serve(engine, number),
            "serve-awaited" => serve_awaited(engine, number),
            "wait" => wait(engine, number),
            "wait-on" => wait(engine, u64::MAX),
            "step" => step(engine, number),
            "add" => add(engine, number as u32),
            "run" => run(engine),
            "run-on" => run_on(engine, || ()),
            "run-on-aloud" => run_on(engine, || say("runs")),
            "index" => index(engine),
            "free" => {
                // SAFETY: NULL, or a live engine that is not used again.
                unsafe { nvllm_engine_free(engine) };
                engine = null_mut();
                "freed".to_owned()
            }
            other => panic!("{other}"),
        };
        say(&answer);
    }
    // SAFETY: as above.
    unsafe { nvllm_engine_free(engine) };
}

fn say(answer: &str) {
    println!("\n{MARK}{answer}");
    std::io::stdout().flush().unwrap();
}

/// A status, and its message if there is one.
fn status(call: impl FnOnce(&mut MaybeUninit<nvllm_error>) -> i32) -> String {
    let mut error = MaybeUninit::uninit();
    let status = call(&mut error);
    // SAFETY: every call writes its error.
    let error = unsafe { error.assume_init() };
    let bytes = error.message.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    format!("{status} {}", String::from_utf8(bytes).unwrap()).trim_end().to_owned()
}

fn open(options: &Options, engine: &mut *mut nvllm_engine) -> String {
    let path = CString::new(options.model.clone()).unwrap();
    let rendezvous = CString::new(options.rendezvous.clone()).unwrap();
    let mut config = MaybeUninit::<nvllm_engine_config>::uninit();
    // SAFETY: the place has this size, and is written whole.
    let mut config = unsafe {
        nvllm_engine_config_init(config.as_mut_ptr(), size_of::<nvllm_engine_config>());
        config.assume_init()
    };
    config.model_path = path.as_ptr();
    config.device = nvllm_device::NVLLM_DEVICE_CPU as i32;
    config.kv_block_size = 4;
    if let Some(gpu) = options.gpu {
        config.device = nvllm_device::NVLLM_DEVICE_CUDA as i32;
        (config.device_index, config.kv_block_size) = (gpu, 16);
    }
    config.batch_invariant = u32::from(options.batch_invariant);
    config.expert_parallel = u32::from(options.expert_parallel);
    config.num_threads = 1;
    config.kv_cache_bytes = if options.kv_cache_bytes > 0 { options.kv_cache_bytes } else { 16 << 20 };
    config.seed = 3;
    config.kv_cache_dtype = options.kv_cache_dtype;
    config.max_num_seqs = options.max_num_seqs;
    config.tensor_parallel_size = options.ranks;
    config.num_processes = options.processes;
    config.process_index = options.index;
    config.peer_timeout_ms = options.timeout_ms;
    if !options.rendezvous.is_empty() {
        config.rendezvous = rendezvous.as_ptr();
    }
    // SAFETY: all pointers are of live values.
    status(|error| unsafe { nvllm_engine_new(&config, engine, Some(error)) })
}

/// Steps until the answer is another than NVLLM_OK.
fn serve(engine: *mut nvllm_engine, budget_us: u64) -> String {
    loop {
        let answer = step(engine, budget_us);
        if answer != "0" {
            return answer;
        }
    }
}

/// The same, and waits before each step without a limit.
fn serve_awaited(engine: *mut nvllm_engine, budget_us: u64) -> String {
    loop {
        for answer in [wait(engine, u64::MAX), step(engine, budget_us)] {
            if answer != "0" {
                return answer;
            }
        }
    }
}

fn wait(engine: *mut nvllm_engine, timeout_us: u64) -> String {
    // SAFETY: the engine is live.
    status(|error| unsafe { nvllm_wait(engine, timeout_us, Some(error)) })
}

fn step(engine: *mut nvllm_engine, budget_us: u64) -> String {
    // SAFETY: the engine is live.
    status(|error| unsafe { nvllm_step(engine, budget_us, null_mut(), Some(error)) })
}

/// Adds a request for a number of tokens.
fn add(engine: *mut nvllm_engine, max_tokens: u32) -> String {
    let mut options = MaybeUninit::<nvllm_request_options>::uninit();
    // SAFETY: the place has this size, and is written whole.
    let mut options = unsafe {
        nvllm_request_options_init(options.as_mut_ptr(), size_of::<nvllm_request_options>());
        options.assume_init()
    };
    (options.max_tokens, options.ignore_eos) = (max_tokens, 1);
    let prompt: Vec<u32> = (0..40).map(|i| 1 + i * i % 23).collect();
    // SAFETY: all pointers are of live values.
    status(|error| unsafe {
        nvllm_add_request_tokens(engine, prompt.as_ptr(), prompt.len(), &options, null_mut(), Some(error))
    })
}

/// Steps until all requests have ended: their tokens, or the error.
fn run(engine: *mut nvllm_engine) -> String {
    let mut tokens = Vec::new();
    // SAFETY: the engine is live.
    while unsafe { nvllm_is_finished(engine) } == 0 {
        let answer = step(engine, 0);
        if answer != "0" {
            return answer;
        }
        let mut output = MaybeUninit::<nvllm_output>::zeroed();
        // SAFETY: zero is a value of the struct, and its size is set; the tokens are valid until the next call.
        unsafe {
            (*output.as_mut_ptr()).struct_size = size_of::<nvllm_output>();
            while nvllm_poll_output(engine, output.as_mut_ptr(), None) == 0 {
                let output = output.assume_init_ref();
                if output.num_token_ids > 0 {
                    tokens.extend_from_slice(std::slice::from_raw_parts(output.token_ids, output.num_token_ids));
                }
            }
        }
    }
    format!("{tokens:?}")
}

/// Steps with more and more requests until a call fails. Calls `runs` when the first request has ended.
fn run_on(engine: *mut nvllm_engine, runs: fn()) -> String {
    for request in 0.. {
        for answer in [add(engine, 8), run(engine)] {
            if answer != "0" && !answer.starts_with('[') {
                return answer;
            }
        }
        if request == 0 {
            runs();
        }
    }
    unreachable!("the requests are endless");
}

/// What nvllm_engine_model_info says of the processes, and what a request is answered.
fn index(engine: *mut nvllm_engine) -> String {
    let mut info = MaybeUninit::<nvllm_model_info>::zeroed();
    // SAFETY: zero is a value of the struct, and its size is set.
    let info = unsafe {
        (*info.as_mut_ptr()).struct_size = size_of::<nvllm_model_info>();
        assert_eq!(nvllm_engine_model_info(engine, info.as_mut_ptr(), None), 0);
        info.assume_init()
    };
    // SAFETY: the engine is live; NULL options are the defaults.
    let refused = status(|error| unsafe {
        nvllm_add_request_tokens(engine, [1, 2].as_ptr(), 2, null(), null_mut(), Some(error))
    });
    format!("process {} of {} ranks: {refused}", info.process_index, info.tensor_parallel_size)
}
