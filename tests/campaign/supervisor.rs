//! Runs batches of cases in processes of their own, so that a crash or a hang is seen, and is known to be of one input.
//!
//! This process never enters the library, and has one thread, so that it may fork.

use crate::case::{Input, Target};
use crate::child::{self, Batch, Page, read_file};
use crate::meter;
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// A target that fails so often is given up.
const FAILURES_MAX: usize = 40;
/// A process that computes nothing for so long is blocked.
const BLOCKED: Duration = Duration::from_secs(10);
/// What a process computes that is not blocked.
const BLOCKED_NS: u64 = 5_000_000;

/// How much of each target is run.
#[derive(Clone)]
pub struct Plan {
    pub seed: u64,
    /// Cases of each target; `None` goes by time.
    pub cases: Option<u64>,
    /// Time of each target, once the corpus is through; `None` goes by `cases`, or else by the target's own.
    pub time: Option<Duration>,
    /// The only case to run.
    pub only: Option<u64>,
    /// The first case.
    pub from: u64,
    /// Processes at once.
    pub jobs: usize,
}

/// How a target fares.
pub struct Course<'a> {
    pub target: &'a dyn Target,
    pub corpus: Vec<Input>,
    next: u64,
    last: u64,
    pub cases: u64,
    pub time: Duration,
    pub failures: Vec<Failure>,
    pub cpu_max: (u64, u64),
    pub heap_max: (u64, u64),
    pub calls: u64,
    pub step_ns_max: u64,
}

/// A case that went wrong.
pub struct Failure {
    pub case: u64,
    pub words: String,
}

/// A process at work.
struct Running {
    course: usize,
    process: libc::pid_t,
    page: &'static Page,
    report: RawFd,
    output: RawFd,
    first: u64,
    began: Instant,
    /// Its processor time, and when it was that.
    seen: (u64, Instant),
    killed: Option<String>,
}

/// Runs the targets and answers how they fared.
pub fn run<'a>(targets: &[&'a dyn Target], plan: &Plan) -> Vec<Course<'a>> {
    let mut courses: Vec<Course> = targets.iter().map(|&target| Course::new(target, plan)).collect();
    let mut running: Vec<Running> = Vec::new();
    loop {
        for (index, course) in courses.iter().enumerate() {
            let is_free = !running.iter().any(|one| one.course == index);
            if running.len() < plan.jobs && is_free && !course.is_over(plan) {
                running.push(start(index, course, plan));
            }
        }
        if running.is_empty() {
            return courses;
        }
        std::thread::sleep(Duration::from_millis(2));
        let mut index = 0;
        while index < running.len() {
            let one = &mut running[index];
            match ended(one.process) {
                None => {
                    watch(one, &courses[one.course], plan);
                    index += 1;
                }
                Some(status) => {
                    let one = running.swap_remove(index);
                    let course = &mut courses[one.course];
                    course.take(one, status);
                    if course.is_over(plan) {
                        println!("{}", course.summary(plan));
                    }
                }
            }
        }
    }
}

fn start(index: usize, course: &Course, plan: &Plan) -> Running {
    // SAFETY: new memory that both processes share; zeros are a page.
    let page = unsafe {
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let memory = libc::mmap(std::ptr::null_mut(), size_of::<Page>(), protection, kind, -1, 0);
        assert_ne!(memory, libc::MAP_FAILED);
        &*memory.cast::<Page>()
    };
    // SAFETY: the name ends with a NUL.
    let file = || unsafe { libc::memfd_create(c"campaign".as_ptr(), libc::MFD_CLOEXEC) };
    let (report, output) = (file(), file());
    assert!(report >= 0 && output >= 0);
    let end = course.last.min(course.next + course.target.batch());
    let batch = Batch {
        target: course.target,
        corpus: &course.corpus,
        seed: plan.seed,
        cases: course.next..end,
        page,
        report,
        output,
    };
    page.case.store(course.next, Relaxed);
    // SAFETY: this process has one thread.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "fork");
    if process == 0 {
        batch.run();
    }
    let now = Instant::now();
    Running {
        course: index,
        process,
        page,
        report,
        output,
        first: course.next,
        began: now,
        seen: (0, now),
        killed: None,
    }
}

/// The status of a process that has ended.
fn ended(process: libc::pid_t) -> Option<i32> {
    let mut status = 0;
    // SAFETY: the place may be written.
    (unsafe { libc::waitpid(process, &mut status, libc::WNOHANG) } == process).then_some(status)
}

/// Ends a process whose case does not end, and lets it stop when its time is over.
fn watch(one: &mut Running, course: &Course, plan: &Plan) {
    let ended = one.page.ended.load(Relaxed);
    let cpu_ns = meter::ns_of(one.process);
    if cpu_ns > one.seen.0 + BLOCKED_NS {
        one.seen = (cpu_ns, Instant::now());
    }
    let is_corpus_done = one.first + ended >= course.corpus.len() as u64;
    if plan.time.is_some_and(|time| course.time + one.began.elapsed() > time) && is_corpus_done {
        one.page.stop.store(1, Relaxed);
    }
    if one.killed.is_some() {
        return;
    }
    let began_ns = one.page.began_ns.load(Relaxed);
    let cpu_ms = cpu_ns.saturating_sub(began_ns) / 1_000_000;
    let cpu_limit = 3 * course.target.bounds().cpu_ms;
    if began_ns > 0 && cpu_ms > cpu_limit {
        one.killed = Some(format!("no end after {cpu_ms} ms of processor time"));
    } else if one.seen.1.elapsed() > BLOCKED {
        one.killed = Some(format!("blocked for {} s", BLOCKED.as_secs()));
    }
    if one.killed.is_some() {
        // SAFETY: the process is a child that was not waited for.
        unsafe { libc::kill(one.process, libc::SIGKILL) };
    }
}

impl<'a> Course<'a> {
    fn new(target: &'a dyn Target, plan: &Plan) -> Course<'a> {
        let corpus = target.corpus();
        let (next, last) = match (plan.only, plan.cases, plan.time) {
            (Some(only), _, _) => (only, only + 1),
            (_, Some(cases), _) => (plan.from, plan.from + cases),
            // A fast machine goes no further in its time than a slow one could have been tried.
            (_, _, Some(_)) => (plan.from, (target.long_cases() / 8).max(corpus.len() as u64)),
            _ => (plan.from, target.long_cases()),
        };
        Course {
            target,
            corpus,
            next,
            last,
            cases: 0,
            time: Duration::ZERO,
            failures: Vec::new(),
            cpu_max: (0, 0),
            heap_max: (0, 0),
            calls: 0,
            step_ns_max: 0,
        }
    }

    fn is_over(&self, plan: &Plan) -> bool {
        let in_time = plan.time.is_none_or(|time| self.time < time || self.next < self.corpus.len() as u64);
        self.next >= self.last || !in_time || self.failures.len() >= FAILURES_MAX
    }

    /// What a process did until it ended.
    fn take(&mut self, one: Running, status: i32) {
        let page = one.page;
        self.time += one.began.elapsed();
        self.cases += page.ended.load(Relaxed);
        self.calls += page.calls.load(Relaxed);
        self.step_ns_max = self.step_ns_max.max(page.step_ns_max.load(Relaxed));
        self.cpu_max = self.cpu_max.max((page.cpu_ns_max.load(Relaxed), page.cpu_case.load(Relaxed)));
        self.heap_max = self.heap_max.max((page.heap_max.load(Relaxed), page.heap_case.load(Relaxed)));
        let case = page.case.load(Relaxed);
        self.next = one.first + page.ended.load(Relaxed);

        let mut told: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for line in read_file(one.report, 0).lines() {
            let (case, words) = line.split_once('\t').unwrap_or(("0", line));
            told.entry(case.parse().unwrap_or(0)).or_default().push(words.to_owned());
        }
        if status != 0 {
            let how = match (one.killed, libc::WIFSIGNALED(status)) {
                (Some(words), _) => words,
                (None, true) => format!("signal {} ended the process", signal(libc::WTERMSIG(status))),
                (None, false) => format!("the process ended with {}", libc::WEXITSTATUS(status)),
            };
            let printed = read_file(one.output, 0);
            let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
            let printed = &printed[..printed.floor_char_boundary(300)];
            told.entry(case).or_default().push(if printed.is_empty() { how } else { format!("{how}: {printed}") });
            self.next = self.next.max(case + 1);
        }
        for (case, words) in told {
            self.failures.push(Failure { case, words: words.join("; ") });
        }
        // SAFETY: all three were opened for this process, and are not used again.
        unsafe {
            libc::close(one.report);
            libc::close(one.output);
            libc::munmap(std::ptr::from_ref(page).cast_mut().cast(), size_of::<Page>());
        }
    }

    /// The failures, each with its input saved.
    pub fn failure_lines(&self, plan: &Plan) -> Vec<String> {
        let line = |failure: &Failure| {
            let name = self.target.name();
            let input = child::input(self.target, &self.corpus, plan.seed, failure.case);
            let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("campaign");
            let folder = folder.join(format!("{name}-{}-{}", plan.seed, failure.case));
            let saved = match input.save(&folder) {
                Ok(()) => folder.display().to_string(),
                Err(error) => format!("not saved: {error}"),
            };
            let Failure { case, words } = failure;
            format!("  {name} case {case} ({}): {words}\n    input: {saved}", input.origin)
        };
        self.failures.iter().map(line).collect()
    }

    /// A line about the target.
    pub fn summary(&self, plan: &Plan) -> String {
        let ms = |ns: u64| ns as f64 / 1e6;
        format!(
            "test campaign::{} ... {}: {} cases of seed {}, {} of the corpus, {} calls, {:.1} s; most: {:.0} ms (case {}), \
             {} MB (case {}), a step of {:.1} ms",
            self.target.name(),
            if self.failures.is_empty() { "ok" } else { "FAILED" },
            self.cases,
            plan.seed,
            self.corpus.len(),
            self.calls,
            self.time.as_secs_f64(),
            ms(self.cpu_max.0),
            self.cpu_max.1,
            self.heap_max.0 >> 20,
            self.heap_max.1,
            ms(self.step_ns_max),
        )
    }
}

fn signal(number: i32) -> String {
    let names =
        [(libc::SIGSEGV, "SIGSEGV"), (libc::SIGABRT, "SIGABRT"), (libc::SIGBUS, "SIGBUS"), (libc::SIGKILL, "SIGKILL")];
    names.iter().find(|(known, _)| *known == number).map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned())
}
