//! What happens when memory runs out: the n-th allocation fails, for every n, through opening, adding, stepping, saving and
//! restoring.
//!
//! The rule of the reference: an allocation of 64 KiB or more that this library makes itself answers NVLLM_ERR_OUT_OF_MEMORY, and
//! the call can be made again. Smaller ones, and those of the crates that read the files of a model folder and compile
//! structures, end the process as a failed `malloc` does in most programs: by SIGABRT, never in another way.
//!
//! Each n has a process of its own. Every large allocation is refused, and of the others `NVLLM_ALLOCATION_RUNS`, 40 unless it is
//! set. `NVLLM_ALLOCATION_LIST=1` prints where the large ones are made.

#[allow(dead_code)]
#[path = "campaign/capi.rs"]
mod capi;
#[allow(dead_code)]
#[path = "campaign/case.rs"]
mod case;
#[allow(dead_code)]
#[path = "campaign/meter.rs"]
mod meter;
#[allow(dead_code)]
#[path = "campaign/random.rs"]
mod random;
mod tree;

use ::capi::state::{nvllm_reset_prefix_cache, nvllm_restore_prefix, nvllm_save_prefix};
use capi::{Engine, judge};
use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// An allocation of at least this many bytes is a large one.
const LARGE: usize = 64 << 10;
/// Processor time after which a process is taken to hang.
const CPU_MS: u64 = 5000;
/// The same, of the time of the clock.
const SECONDS_MAX: u32 = 120;
const OUT_OF_MEMORY: i32 = -6;

/// Containers, in whose name others allocate.
const CONTAINERS: &[&str] = &["/hashbrown-", "/indexmap-", "/smallvec-", "/ahash-", "/bytes-", "/rustc/", "/library/"];

/// Counts allocations of at least `FROM` bytes, and refuses one.
struct Refusing;

static FROM: AtomicUsize = AtomicUsize::new(usize::MAX);
static COUNT: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Whether this thread looks at its own stack, which allocates.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// Whether an allocation is the one to be refused.
fn is_refused(bytes: usize) -> bool {
    if bytes < FROM.load(Relaxed) || LOOKING.try_with(Cell::get).unwrap_or(true) {
        return false;
    }
    let number = COUNT.fetch_add(1, Relaxed) + 1;
    if number != REFUSED.load(Relaxed) {
        return false;
    }
    if let Some(page) = page() {
        page.bytes.store(bytes as u64, Relaxed);
        page.refused_in.store(page.phase.load(Relaxed), Relaxed);
        if bytes >= LARGE {
            LOOKING.set(true);
            note_stack(page);
            LOOKING.set(false);
        }
    }
    true
}

// SAFETY: every call goes to the system's allocator unchanged, or answers NULL, which says that there is no memory.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        if is_refused(layout.size()) { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        if is_refused(layout.size()) { std::ptr::null_mut() } else { unsafe { System.alloc_zeroed(layout) } }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from here, so from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > layout.size() && is_refused(size) {
            return std::ptr::null_mut();
        }
        // SAFETY: the pointer came from here, so from the system's allocator.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

const STACK_BYTES: usize = 16 << 10;

/// What a process tells its parent.
#[repr(C)]
struct Page {
    /// Allocations that were counted.
    count: AtomicU64,
    /// Those before each phase.
    before: [AtomicU64; PHASES.len()],
    phase: AtomicUsize,
    /// Bytes of the refused one, and the phase it was made in.
    bytes: AtomicU64,
    refused_in: AtomicUsize,
    /// Calls that answered NVLLM_ERR_OUT_OF_MEMORY.
    refusals: AtomicU64,
    /// What the answers hash to.
    answers: AtomicU64,
    text_len: AtomicUsize,
    /// The stack of the refused one, or what went wrong.
    text: std::cell::UnsafeCell<[u8; STACK_BYTES]>,
}

// SAFETY: the text is written by one thread, of a process that has ended when it is read.
unsafe impl Sync for Page {}

const PHASES: [&str; 7] = ["open", "add", "step", "text", "structure", "save", "restore"];

static PAGE: AtomicUsize = AtomicUsize::new(0);

fn page() -> Option<&'static Page> {
    let at = PAGE.load(Relaxed) as *const Page;
    // SAFETY: NULL, or the page that `main` mapped for ever.
    unsafe { at.as_ref() }
}

fn write_text(page: &Page, text: &str) {
    let len = text.len().min(STACK_BYTES);
    // SAFETY: nobody reads it before the process has ended.
    unsafe { (&mut *page.text.get())[..len].copy_from_slice(&text.as_bytes()[..len]) };
    page.text_len.store(len, Relaxed);
}

/// The files and functions on the stack, innermost first, without those of the allocator and of the standard library.
fn note_stack(page: &Page) {
    let stack = Backtrace::force_capture().to_string();
    let mut places = Vec::new();
    let mut function = "";
    for line in stack.lines().map(str::trim) {
        match line.strip_prefix("at ") {
            None => function = line.split_once(": ").map_or(line, |(_, name)| name),
            Some(file) if file.contains("allocation_failure") || file.contains("/campaign/capi.rs") => {}
            Some(file) if CONTAINERS.iter().any(|of| file.contains(of)) => {}
            Some(file) => places.push(format!("{} {function}", short(file))),
        }
    }
    places.truncate(30);
    write_text(page, &places.join("\n"));
}

/// A path from its crate on.
fn short(file: &str) -> &str {
    match file.split_once("/registry/src/") {
        Some((_, rest)) => rest.split_once('/').map_or(rest, |(_, rest)| rest),
        None => file.strip_prefix("./").unwrap_or(file),
    }
}

/// Calls without counting what is allocated, for what belongs to the test.
fn aside<T>(call: impl FnOnce() -> T) -> T {
    LOOKING.set(true);
    let value = call();
    LOOKING.set(false);
    value
}

/// All that is tried, with each refused call made once more.
struct Scenario {
    hash: u64,
}

impl Scenario {
    fn begin(&self, phase: &str) {
        let page = page().unwrap();
        let index = PHASES.iter().position(|name| *name == phase).unwrap();
        page.before[index].store(COUNT.load(Relaxed), Relaxed);
        page.phase.store(index, Relaxed);
    }

    /// The answer of a call, which may be out of memory once.
    fn twice<T>(&self, mut call: impl FnMut() -> Result<T, (i32, String)>) -> T {
        for _ in 0..2 {
            match call() {
                Ok(value) => return value,
                Err((OUT_OF_MEMORY, _)) => drop(page().unwrap().refusals.fetch_add(1, Relaxed)),
                Err((status, message)) => panic!("{status}: {message}"),
            }
        }
        panic!("out of memory twice, although one allocation failed");
    }

    /// Steps of a few milliseconds cut answers anywhere, so that the order of the parts means nothing.
    fn add(&mut self, number: u64) {
        self.hash = self.hash.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }

    fn run(mut self) -> u64 {
        self.begin("open");
        let folder = case::root().join("models/demo");
        let engine = self.twice(|| {
            Engine::open(&folder, |config| {
                // Large enough for each table that an option sizes to be a large allocation.
                config.max_num_seqs = 16384;
                config.max_batched_tokens = 16384;
                config.kv_cache_bytes = 64 << 20;
            })
        });
        let mut options = capi::options();
        let stop = [c"zzz".as_ptr()];
        (options.stop, options.num_stop) = (stop.as_ptr(), 1);
        (options.max_tokens, options.num_logprobs, options.n) = (4, 3, 2);
        let prompt: Vec<u32> = (0..600).map(|i| 3 + i % 50).collect();
        self.begin("add");
        let ids = [
            self.twice(|| engine.add("The first prime numbers are 2, 3", &options)),
            self.twice(|| engine.add_tokens(&prompt, &options)),
        ];
        self.begin("step");
        self.finish(&engine, &ids);

        self.begin("text");
        let text = self.twice(|| engine.chat(br#"[{"role":"user","content":"Hello"}]"#, b""));
        self.add(text.len() as u64);

        self.begin("structure");
        (options.structure, options.structure_kind) = (c"[a-z]{1,5}".as_ptr(), 2);
        let id = self.twice(|| engine.add("x", &options));
        self.finish(&engine, &[id]);

        self.begin("save");
        let bytes = self.twice(|| save(&engine, &prompt));
        self.add(bytes.len() as u64);
        self.begin("restore");
        // SAFETY: the engine is live.
        assert_eq!(unsafe { nvllm_reset_prefix_cache(engine.pointer(), None) }, capi::OK);
        let restored = self.twice(|| restore(&engine, &bytes));
        self.add(restored as u64);
        drop(engine);
        self.hash
    }

    /// Steps until all has ended. A step, or a request, may be out of memory once.
    fn finish(&mut self, engine: &Engine, ids: &[u64]) {
        while !engine.is_finished() {
            let status = engine.step();
            if status == OUT_OF_MEMORY {
                page().unwrap().refusals.fetch_add(1, Relaxed);
            } else {
                assert_eq!(status, capi::OK, "a step");
            }
            while let Some((id, answer)) = engine.poll() {
                assert!(ids.contains(&id) && answer.finish != 4, "{}", answer.message);
                answer.tokens.iter().for_each(|&token| self.add(1 + u64::from(token)));
            }
        }
    }
}

fn save(engine: &Engine, tokens: &[u32]) -> Result<Vec<u8>, (i32, String)> {
    let mut bytes = aside(|| vec![0u8; 4 << 20]);
    let (mut needed, mut saved, mut error) = (0, 0, capi::no_error());
    // SAFETY: all pointers are of live values of these lengths.
    let status = unsafe {
        let (at, len, to, room) = (tokens.as_ptr(), tokens.len(), bytes.as_mut_ptr(), bytes.len());
        nvllm_save_prefix(engine.pointer(), at, len, 0, to, room, &mut needed, &mut saved, Some(&mut error))
    };
    let message = judge("nvllm_save_prefix", status, &error);
    bytes.truncate(needed);
    if status == capi::OK { Ok(bytes) } else { Err((status, message)) }
}

fn restore(engine: &Engine, bytes: &[u8]) -> Result<usize, (i32, String)> {
    let (mut restored, mut error) = (0, capi::no_error());
    // SAFETY: all pointers are of live values of these lengths.
    let status =
        unsafe { nvllm_restore_prefix(engine.pointer(), bytes.as_ptr(), bytes.len(), &mut restored, Some(&mut error)) };
    let message = judge("nvllm_restore_prefix", status, &error);
    if status == capi::OK { Ok(restored) } else { Err((status, message)) }
}

/// How a process ended.
struct End {
    status: i32,
    text: String,
}

/// Runs the scenario in a process of its own, which refuses allocation `number` of those of at least `from` bytes.
fn run(from: usize, number: u64) -> End {
    let page = page().unwrap();
    for counter in [&page.count, &page.bytes, &page.refusals, &page.answers] {
        counter.store(0, Relaxed);
    }
    page.text_len.store(0, Relaxed);
    // SAFETY: this process has one thread.
    let process = unsafe { libc::fork() };
    if process == 0 {
        child(from, number);
    }
    let mut status = 0;
    // SAFETY: the process is a child of this one.
    assert_eq!(unsafe { libc::waitpid(process, &mut status, 0) }, process);
    let len = page.text_len.load(Relaxed);
    // SAFETY: the process has ended.
    let text = String::from_utf8_lossy(unsafe { &(&*page.text.get())[..len] }).into_owned();
    End { status, text }
}

fn child(from: usize, number: u64) -> ! {
    let limit = |what, bytes| {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: the limit may be read.
        unsafe { libc::setrlimit(what, &limit) };
    };
    limit(libc::RLIMIT_CORE, 0);
    limit(libc::RLIMIT_CPU, CPU_MS / 1000);
    // A process that waits for ever ends, too, and is reported.
    // SAFETY: the alarm's default action ends this process.
    unsafe { libc::alarm(SECONDS_MAX) };
    // SAFETY: what an aborting process prints is of no interest.
    unsafe {
        let null = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
        libc::dup2(null, 1);
        libc::dup2(null, 2);
    }
    REFUSED.store(number, Relaxed);
    COUNT.store(0, Relaxed);
    FROM.store(from, Relaxed);
    let answer = std::panic::catch_unwind(|| Scenario { hash: 0 }.run());
    FROM.store(usize::MAX, Relaxed);
    let page = page().unwrap();
    page.count.store(COUNT.load(Relaxed), Relaxed);
    let wrong = match answer {
        Ok(hash) => {
            page.answers.store(hash, Relaxed);
            case::take_violations().join("; ")
        }
        Err(panic) => base::contain::message(panic.as_ref()).to_owned(),
    };
    if !wrong.is_empty() {
        write_text(page, &wrong);
    }
    // SAFETY: nothing of the parent's is to be run at the end.
    unsafe { libc::_exit(if wrong.is_empty() { 0 } else { 1 }) }
}

/// Whether an allocation was made by a crate that this library uses: the innermost place is theirs.
fn is_of_a_crate(stack: &str) -> bool {
    stack.lines().next().is_some_and(|line| !line.starts_with("src/"))
}

fn place(stack: &str) -> String {
    stack.lines().take(6).collect::<Vec<_>>().join(" < ")
}

/// Refuses allocations of `from` bytes or more: all of them, or a number of them. Returns what went wrong.
fn refuse_all(from: usize, runs: u64) -> Vec<String> {
    let began = Instant::now();
    let page = page().unwrap();
    let whole = run(from, u64::MAX);
    assert_eq!(whole.status, 0, "{}", whole.text);
    let (count, answers) = (page.count.load(Relaxed), page.answers.load(Relaxed));
    let before: Vec<u64> = page.before.iter().map(|count| count.load(Relaxed)).collect();
    let stride = (count / runs).max(1);
    let mut wrong = Vec::new();
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for number in (1..=count).step_by(stride as usize) {
        let end = run(from, number);
        let bytes = page.bytes.load(Relaxed) as usize;
        let phase = PHASES[page.refused_in.load(Relaxed)];
        let what = format!("allocation {number} of {bytes} bytes in {phase}");
        let aborted = libc::WIFSIGNALED(end.status) && libc::WTERMSIG(end.status) == libc::SIGABRT;
        let how = match (aborted, end.status, page.refusals.load(Relaxed)) {
            (true, ..) if bytes < LARGE => "aborted",
            (true, ..) if is_of_a_crate(&end.text) => "aborted inside of a crate",
            (true, ..) => {
                wrong.push(format!("{what} aborts: {}", place(&end.text)));
                "wrong"
            }
            (_, 0, _) if page.answers.load(Relaxed) != answers => {
                wrong.push(format!("{what} changes the answers"));
                "wrong"
            }
            (_, 0, 0) => "did without",
            (_, 0, _) => "answered out of memory",
            (_, status, _) => {
                wrong.push(format!("{what} ends with {status:#x}: {}", end.text));
                "wrong"
            }
        };
        *ends.entry(how).or_default() += 1;
        if std::env::var_os("NVLLM_ALLOCATION_LIST").is_some() && from >= LARGE {
            println!("{what}: {how}: {}", place(&end.text));
        }
    }
    let by_phase: Vec<String> =
        PHASES.iter().zip(&before).map(|(name, count)| format!("{name} from {count}")).collect();
    println!(
        "{count} allocations of {from} bytes or more ({}), one in {stride} refused: {ends:?}, {:.1} s",
        by_phase.join(", "),
        began.elapsed().as_secs_f64()
    );
    wrong
}

fn main() {
    // A stack trace that a crate records for an error holds a lock of the standard library, which its handler of failed allocations
    // takes too: an allocation that fails there would block the process instead of aborting it.
    // SAFETY: this process has one thread.
    unsafe { std::env::set_var("RUST_LIB_BACKTRACE", "0") };
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let name = "every_allocation_may_fail";
    let is_asked = words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    if arguments.iter().any(|argument| argument == "--list") {
        println!("{name}: test");
        return;
    }
    let mut wrong = Vec::new();
    println!("\nrunning {} tests", u8::from(is_asked));
    if is_asked {
        // SAFETY: new memory that all processes share; zeros are a page.
        unsafe {
            let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
            let memory = libc::mmap(std::ptr::null_mut(), size_of::<Page>(), protection, kind, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            PAGE.store(memory as usize, Relaxed);
        }
        // The names of functions are read here once, not in each process.
        drop(Backtrace::force_capture().to_string());
        let runs = std::env::var("NVLLM_ALLOCATION_RUNS").map_or(40, |text| text.parse().unwrap());
        wrong.extend(refuse_all(LARGE, u64::MAX));
        wrong.extend(refuse_all(1024, runs));
        wrong.extend(refuse_all(0, runs));
        wrong.iter().for_each(|line| println!("  {line}"));
    }
    let result = if wrong.is_empty() { "ok" } else { "FAILED" };
    let passed = u8::from(is_asked && wrong.is_empty());
    println!("test {name} ... {result}");
    println!(
        "\ntest result: {result}. {passed} passed; {} failed; 0 ignored; 0 measured; {} filtered out\n",
        u8::from(!wrong.is_empty()),
        u8::from(!is_asked)
    );
    std::process::exit(i32::from(!wrong.is_empty()) * 101);
}
