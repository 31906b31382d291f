//! The process that runs cases: what the library does to it, the supervisor sees.

use crate::capi;
use crate::case::{Bounds, Input, Target, take_violations, violation};
use crate::meter;
use crate::random::Rng;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Bytes of address space that a process may take.
const ADDRESS_BYTES: u64 = 4 << 30;
/// What the header promises to suffice for the calls of the cases.
const STACK_BYTES: usize = 256 << 10;

/// What the process and its supervisor both see.
#[derive(Default)]
#[repr(C)]
pub struct Page {
    /// The case that runs, or ran last.
    pub case: AtomicU64,
    /// The processor time of the process when the case began, plus 1; 0 between cases.
    pub began_ns: AtomicU64,
    /// Cases that have ended.
    pub ended: AtomicU64,
    /// Not 0 when the process is to end after this case.
    pub stop: AtomicU64,
    /// The longest case.
    pub cpu_ns_max: AtomicU64,
    pub cpu_case: AtomicU64,
    /// The case that took the most memory beyond what it may.
    pub heap_max: AtomicU64,
    pub heap_case: AtomicU64,
    pub calls: AtomicU64,
    pub step_ns_max: AtomicU64,
}

/// The input of a case: the corpus comes first.
pub fn input(target: &dyn Target, corpus: &[Input], seed: u64, case: u64) -> Input {
    let mut rng = Rng::of_case(seed, target.name(), case);
    match corpus.get(case as usize) {
        Some(input) => Input { seed: rng.next(), ..input.clone() },
        None => {
            let own = rng.next();
            Input { seed: own, ..target.generate(&mut rng, corpus) }
        }
    }
}

/// The cases of one process.
pub struct Batch<'a> {
    pub target: &'a dyn Target,
    pub corpus: &'a [Input],
    pub seed: u64,
    pub cases: std::ops::Range<u64>,
    pub page: &'static Page,
    /// Takes a line for each violation.
    pub report: RawFd,
    /// Stands for standard output and standard error.
    pub output: RawFd,
}

impl Batch<'_> {
    /// Runs the cases and ends the process.
    pub fn run(&self) -> ! {
        let limit = |what, bytes| {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            // SAFETY: the limit may be read.
            unsafe { libc::setrlimit(what, &limit) };
        };
        limit(libc::RLIMIT_AS, ADDRESS_BYTES);
        limit(libc::RLIMIT_CORE, 0);
        // SAFETY: the descriptors are open; the process is to end with its parent.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::dup2(self.output, 1);
            libc::dup2(self.output, 2);
        }
        let ended = std::thread::scope(|scope| {
            let builder = std::thread::Builder::new().name("cases".to_owned()).stack_size(STACK_BYTES);
            builder.spawn_scoped(scope, || self.run_cases()).unwrap().join().is_ok()
        });
        // SAFETY: nothing of the parent's is to be run at the end.
        unsafe { libc::_exit(if ended { 0 } else { 101 }) }
    }

    fn run_cases(&self) {
        let bounds = self.target.bounds();
        let mut session = self.target.open();
        self.tell(self.cases.start, "while opening: ");
        let mut printed = self.printed();
        let settled = meter::live_bytes();
        for case in self.cases.clone() {
            let input = input(self.target, self.corpus, self.seed, case);
            self.page.case.store(case, Relaxed);
            meter::reset_peak();
            let (live, began) = (meter::live_bytes(), meter::process_ns());
            self.page.began_ns.store(began + 1, Relaxed);
            session.run(&input);
            let cpu_ns = meter::process_ns() - began;
            self.page.began_ns.store(0, Relaxed);
            let heap = meter::peak_bytes().saturating_sub(live + 8 * input.len());
            self.judge(&bounds, cpu_ns, heap);
            let now = self.printed();
            if now > printed {
                violation(format!("{} bytes were printed: {}", now - printed, self.words(printed)));
                printed = now;
            }
            self.tell(case, "");
            self.page.ended.fetch_add(1, Relaxed);
            self.page.calls.store(capi::CALLS.load(Relaxed), Relaxed);
            self.page.step_ns_max.store(capi::STEP_NS_MAX.load(Relaxed), Relaxed);
            if self.page.stop.load(Relaxed) != 0 {
                break;
            }
        }
        let last = self.page.case.load(Relaxed);
        self.page.began_ns.store(meter::process_ns() + 1, Relaxed);
        session.probe();
        let kept = meter::live_bytes().saturating_sub(settled);
        if kept > bounds.kept_bytes {
            violation(format!("the batch left {} MB behind", kept >> 20));
        }
        drop(session);
        self.tell(last, "after the batch: ");
        self.page.began_ns.store(0, Relaxed);
    }

    fn judge(&self, bounds: &Bounds, cpu_ns: u64, heap: usize) {
        let page = self.page;
        let case = page.case.load(Relaxed);
        if cpu_ns > page.cpu_ns_max.load(Relaxed) {
            page.cpu_ns_max.store(cpu_ns, Relaxed);
            page.cpu_case.store(case, Relaxed);
        }
        if heap as u64 > page.heap_max.load(Relaxed) {
            page.heap_max.store(heap as u64, Relaxed);
            page.heap_case.store(case, Relaxed);
        }
        if cpu_ns > bounds.cpu_ms * 1_000_000 {
            violation(format!("{} ms of processor time, at most {}", cpu_ns / 1_000_000, bounds.cpu_ms));
        }
        if heap > bounds.heap_bytes {
            violation(format!("{} MB of memory, at most {}", heap >> 20, bounds.heap_bytes >> 20));
        }
    }

    /// Hands violations to the supervisor.
    fn tell(&self, case: u64, when: &str) {
        for words in take_violations() {
            let line = format!("{case}\t{when}{}\n", words.replace('\n', " "));
            // SAFETY: the bytes are there.
            unsafe { libc::write(self.report, line.as_ptr().cast(), line.len()) };
        }
    }

    /// Bytes that were printed so far.
    fn printed(&self) -> u64 {
        file_len(self.output)
    }

    fn words(&self, from: u64) -> String {
        let text = read_file(self.output, from);
        text[..text.floor_char_boundary(200)].to_owned()
    }
}

/// Bytes of a file.
pub fn file_len(file: RawFd) -> u64 {
    let mut facts = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the place may be written, and zero is a value of it.
    unsafe {
        libc::fstat(file, facts.as_mut_ptr());
        facts.assume_init().st_size as u64
    }
}

/// What a file has from some place on, up to 64 KiB.
pub fn read_file(file: RawFd, from: u64) -> String {
    let mut bytes = vec![0u8; 1 << 16];
    // SAFETY: the buffer has this size.
    let len = unsafe { libc::pread(file, bytes.as_mut_ptr().cast(), bytes.len(), from as i64) };
    bytes.truncate(usize::try_from(len).unwrap_or(0));
    String::from_utf8_lossy(&bytes).into_owned()
}
