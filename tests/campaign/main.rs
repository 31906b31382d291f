//! Random and hostile inputs of every kind: each is answered with a status, in bounded time and memory, in silence.
//!
//! A case is an input that a seed and a number decide. It goes through the C API in a process of its own batch, so that a
//! crash, a hang or a print is seen and known to be of that input; after each batch a good request must be answered as before.
//! The inputs of `tests/hostile` come first, then mutations of them and inputs made from scratch.
//!
//! `cargo test --release --test campaign` runs each target for some seconds, `make fuzz` the long campaign. Variables:
//!
//! | variable | meaning |
//! |---|---|
//! | `NVLLM_CAMPAIGN` | `ci`, the default, goes by time; `long` by the number of cases that each target sets |
//! | `NVLLM_CAMPAIGN_SEED` | the seed; 1 in `ci`, else drawn from the clock |
//! | `NVLLM_CAMPAIGN_SECONDS` | seconds of each target |
//! | `NVLLM_CAMPAIGN_CASES` | cases of each target |
//! | `NVLLM_CAMPAIGN_CASE` | the number of the only case to run |
//! | `NVLLM_CAMPAIGN_FROM` | the number of the first case, for instance one beyond the corpus |
//! | `NVLLM_CAMPAIGN_JOBS` | processes at once |
//!
//! Words on the command line choose targets, as with other tests.

mod capi;
mod case;
mod child;
mod meter;
mod random;
#[path = "../gguf_file/small.rs"]
mod small;
mod supervisor;
mod targets;
#[path = "../tree/mod.rs"]
mod tree;
#[path = "../gguf_file/writer.rs"]
mod writer;

use case::Target;
use std::env;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use supervisor::Plan;

#[global_allocator]
static ALLOCATOR: meter::Counting = meter::Counting;

fn number(name: &str) -> Option<u64> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is {text}, but must be a number")))
}

fn plan() -> Plan {
    let is_long = env::var("NVLLM_CAMPAIGN").is_ok_and(|mode| mode == "long");
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let cases = number("NVLLM_CAMPAIGN_CASES");
    let seconds = number("NVLLM_CAMPAIGN_SECONDS").or((!is_long && cases.is_none()).then_some(12));
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    Plan {
        seed: number("NVLLM_CAMPAIGN_SEED").unwrap_or_else(|| if is_long { clock() } else { 1 }),
        cases,
        time: seconds.map(Duration::from_secs),
        only: number("NVLLM_CAMPAIGN_CASE"),
        from: number("NVLLM_CAMPAIGN_FROM").unwrap_or(0),
        jobs: number("NVLLM_CAMPAIGN_JOBS").map_or(cores.min(4), |jobs| jobs as usize),
    }
}

/// Whether the command line asks for a target of this name.
fn is_asked_for(name: &str, arguments: &[String]) -> bool {
    let mut words = Vec::new();
    let mut skipped = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        match argument.as_str() {
            "--skip" => skipped.extend(rest.next()),
            "--test-threads" | "--color" | "--format" | "--logfile" | "-Z" => drop(rest.next()),
            other if other.starts_with('-') => {}
            _ => words.push(argument),
        }
    }
    (words.is_empty() || words.iter().any(|word| name.contains(word.as_str())))
        && !skipped.iter().any(|word| name.contains(word.as_str()))
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let all = targets::all();
    let asked: Vec<&dyn Target> = all
        .iter()
        .map(AsRef::as_ref)
        .filter(|t| is_asked_for(&format!("campaign::{}", t.name()), &arguments))
        .collect();
    if arguments.iter().any(|argument| argument == "--list") {
        asked.iter().for_each(|target| println!("campaign::{}: test", target.name()));
        return;
    }
    let plan = plan();
    println!("\nrunning {} tests", asked.len());
    let courses = supervisor::run(&asked, &plan);
    let failed = courses.iter().filter(|course| !course.failures.is_empty()).count();
    if failed > 0 {
        println!("\nfailures:");
        courses.iter().flat_map(|course| course.failure_lines(&plan)).for_each(|line| println!("{line}"));
        println!("  again: NVLLM_CAMPAIGN_SEED={} NVLLM_CAMPAIGN_CASE=number, with the name of the target", plan.seed);
    }
    println!(
        "\ntest result: {}. {} passed; {failed} failed; 0 ignored; 0 measured; {} filtered out\n",
        if failed == 0 { "ok" } else { "FAILED" },
        courses.len() - failed,
        all.len() - courses.len(),
    );
    std::process::exit(i32::from(failed > 0) * 101);
}
