//! How long does a step with a budget of 4 ms take while other threads request as much as the limits allow?
//!
//! ```text
//! cargo bench --bench hostile -- [FOLDER] [cpu|cuda] [seconds]
//! ```
//!
//! One thread adds bursts of requests with every list at its limit, one cancels them, one compiles structures that are expensive
//! by design, and one tokenizes and renders. Run it with one core per thread; otherwise it measures the system's scheduler.

use base::TokenId;
use base::limits;
use engine::options::EngineOptions;
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, EngineHandle, Prompt};
use runner::Device;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use text::structure::Structure;
use text::tokenizer::{AddedTokens, Encoding, SpelledTokens};

/// What a thread does again and again, with the number of its round.
type Work = fn(&EngineHandle, u64);

const BUDGET: Duration = Duration::from_millis(4);

fn main() {
    // Cargo adds `--bench` to what the user gave.
    let mut given = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let folder = given.next().unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/models/demo").into());
    let mut options = EngineOptions::new(folder);
    options.device = match given.next().as_deref() {
        Some("cuda") => Device::Cuda { index: 0 },
        _ => Device::Cpu,
    };
    options.num_threads = Some(2);
    options.max_queue = Some(200_000);
    let seconds = given.next().map_or(20, |seconds| seconds.parse().unwrap());
    let mut engine = Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap();
    let (quiet, _) = steps(&mut engine, Duration::from_secs(2));
    report("nobody else", quiet);

    let handle = engine.handle().clone();
    let (over, counts) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 4]);
    thread::scope(|scope| {
        let threads: [(&str, Work); 4] =
            [("adds", add_burst), ("cancels", cancel_all), ("structures", compile), ("texts", read_texts)];
        for ((_, work), count) in threads.into_iter().zip(&counts) {
            let (handle, over) = (&handle, &over);
            scope.spawn(move || {
                while !over.load(Relaxed) {
                    work(handle, count.fetch_add(1, Relaxed));
                }
            });
        }
        let (times, tokens) = steps(&mut engine, Duration::from_secs(seconds));
        over.store(true, Relaxed);
        report("hostile threads", times);
        for ((name, _), count) in threads.iter().zip(&counts) {
            print!("{name} {}, ", count.load(Relaxed));
        }
        println!("tokens {tokens}");
    });
}

/// The time that each step took, and the tokens that came.
fn steps(engine: &mut Engine, time: Duration) -> (Vec<Duration>, usize) {
    let (begun, mut times, mut tokens) = (Instant::now(), Vec::new(), 0);
    while begun.elapsed() < time {
        if engine.handle().stats().running < 4 {
            add_plain(engine.handle());
        }
        let step = Instant::now();
        engine.step(Budget::Time(BUDGET)).unwrap();
        times.push(step.elapsed());
        while let Some(output) = engine.next_output() {
            tokens += output.token_ids.len();
        }
        thread::sleep(Duration::from_millis(1));
    }
    (times, tokens)
}

fn report(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "{name}: {} steps of 4 ms: median {:.2}, 99 % {:.2}, 99.9 % {:.2}, most {:.2} ms",
        times.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

/// A request of the highest priority, so that there is always something to compute.
fn add_plain(handle: &EngineHandle) {
    let params = SamplingParams { priority: 9, max_tokens: Some(200), eos: Eos::Ignored, ..SamplingParams::default() };
    // A full queue is one of the things that may be.
    let _ = handle.add_request(Prompt::Tokens(&[5, 6, 7]), params);
}

/// Ten thousand small requests, then a few with every list at its limit.
fn add_burst(handle: &EngineHandle, round: u64) {
    let info = handle.model_info();
    let vocab = info.vocab_size;
    for _ in 0..10_000 {
        let params = SamplingParams { max_tokens: Some(20), ..SamplingParams::default() };
        let _ = handle.add_request(Prompt::Tokens(&[3, 4]), params);
    }
    let prompt: Vec<TokenId> = (0..info.limits.model_len - 8).map(|i| (i * 7 % vocab) as TokenId).collect();
    for greatest in 0..4 {
        let params = SamplingParams {
            priority: greatest % 2,
            completions: 1024,
            temperature: 1.0,
            repetition_penalty: 1.1,
            frequency_penalty: 0.1,
            max_tokens: Some(6),
            min_tokens: 2,
            logit_bias: (0..limits::BIASES.min(vocab - 1)).map(|token| (token as TokenId, 0.5)).collect(),
            stop_tokens: (0..limits::STOP_TOKENS.min(vocab / 2)).map(|token| token as TokenId).collect(),
            stop_strings: (0..limits::STOP_STRINGS).map(|i| format!("{i}{}", "x".repeat(4000))).collect(),
            num_logprobs: 64,
            max_wait: Some(Duration::from_millis(round % 50)).filter(|wait| !wait.is_zero()),
            ..SamplingParams::default()
        };
        let _ = handle.add_request(Prompt::Tokens(&prompt), params);
    }
    thread::sleep(Duration::from_millis(30));
}

/// Cancels all ids that there may be, the newest first.
fn cancel_all(handle: &EngineHandle, _: u64) {
    let probe = handle.add_request(Prompt::Tokens(&[3]), SamplingParams::default());
    for id in (1..=probe.unwrap_or(1)).rev().take(20_000) {
        let _ = handle.cancel(id);
    }
    thread::sleep(Duration::from_millis(50));
}

/// Structures that take long to compile, or to follow.
fn compile(handle: &EngineHandle, round: u64) {
    let structure = match round % 8 {
        0 => Structure::JsonSchema(format!(r#"{{"type":"integer","multipleOf":{}}}"#, 1_000_003 + round)),
        1 => {
            let primes: Vec<String> =
                [101, 103, 107, 109, 113].iter().map(|p| format!(r#"{{"multipleOf":{}}}"#, p + round)).collect();
            Structure::JsonSchema(format!(r#"{{"type":"integer","allOf":[{}]}}"#, primes.join(",")))
        }
        2 => Structure::Regex(format!("((a|b|ab)*c{{{},200}}d?){{1,50}}", round % 100)),
        3 => {
            let levels: Vec<String> = (0..800)
                .map(|i| format!(r##""d{i}":{{"properties":{{"x":{{"$ref":"#/$defs/d{}"}}}}}}"##, i + 1))
                .collect();
            Structure::JsonSchema(format!(
                r##"{{"$ref":"#/$defs/d0","title":"{round}","$defs":{{{},"d800":{{"type":"string"}}}}}}"##,
                levels.join(",")
            ))
        }
        4 => {
            let keys: Vec<String> = (0..4000).map(|i| format!("\"k{round}_{i}\"")).collect();
            Structure::JsonSchema(format!(r#"{{"type":"object","required":[{}]}}"#, keys.join(",")))
        }
        5 => Structure::Regex(format!(r"(\p{{L}}{{1,{}}}\s?){{1,300}}", 20 + round % 50)),
        6 => Structure::Lark(format!("start: a{{1,{}}}\na: \"x\" a | \"y\" | a a\n", 50 + round % 50)),
        _ => Structure::JsonSchema(format!(
            r#"{{"type":"array","minItems":1,"maxItems":{},"items":{{"type":"string","pattern":"^(.*a){{12}}$"}}}}"#,
            100 + round
        )),
    };
    let params = SamplingParams {
        priority: 8,
        max_tokens: Some(50),
        temperature: 1.0,
        structure: Some(Arc::new(structure)),
        ..SamplingParams::default()
    };
    let _ = handle.add_request(Prompt::Tokens(&[5, 6]), params);
}

/// Long texts and conversations.
fn read_texts(handle: &EngineHandle, round: u64) {
    let Ok(tokenizer) = handle.tokenizer() else { return };
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(2000 + (round % 3000) as usize);
    let _ = tokenizer.encode(&text, Encoding { added: AddedTokens::Add, spelled: SpelledTokens::Parse });
    let _ = handle.add_request(Prompt::Text(&text), SamplingParams::default());
    let messages = format!(
        "[{}]",
        vec![r#"{"role":"user","content":"hello"},{"role":"assistant","content":"there"}"#; 500].join(",")
    );
    if let Ok(template) = handle.chat_template() {
        let _ = template.render(&messages, "{}");
    }
}
