//! A game that gives the engine a slice of every frame: eight requests decode, and a long prompt arrives among them.
//!
//! ```text
//! cargo bench --bench frames -- FOLDER [cpu|cuda] [prompt tokens]
//! ```
//!
//! Prints the duration of the calls, and the throughput that the budget costs compared with steps without one.

use base::TokenId;
use engine::options::EngineOptions;
use engine::sampling_params::{Eos, SamplingParams};
use engine::{Budget, Engine, Prompt};
use runner::Device;
use std::ops::ControlFlow;
use std::thread;
use std::time::{Duration, Instant};

const FRAME: Duration = Duration::from_micros(16_667);
const BUDGET: Duration = Duration::from_millis(4);
const DECODING: usize = 8;
const FRAMES: usize = 600;
/// The frame in which the long prompt arrives.
const ARRIVAL: usize = 100;

fn main() {
    // Cargo adds `--bench` to what the user gave.
    let mut given = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let folder = given.next().unwrap_or_else(|| concat!(env!("CARGO_MANIFEST_DIR"), "/models/demo").into());
    let mut options = EngineOptions::new(folder);
    options.device = match given.next().as_deref() {
        Some("cuda") => Device::Cuda { index: 0 },
        _ => Device::Cpu,
    };
    let prompt = given.next().map_or(3000, |tokens| tokens.parse().unwrap());
    options.max_model_len = Some(4096);
    let open = || Engine::open(&options, &mut |_| ControlFlow::Continue(())).unwrap();

    // As fast as it goes, for comparison: the same requests, the same time in the engine.
    let mut engine = open();
    add(&mut engine, DECODING, 64);
    let begun = Instant::now();
    let mut tokens = 0;
    let mut has_arrived = false;
    while begun.elapsed() < BUDGET * FRAMES as u32 {
        if !has_arrived && begun.elapsed() > BUDGET * ARRIVAL as u32 {
            add(&mut engine, 1, prompt);
            has_arrived = true;
        }
        engine.step(Budget::OnePass).unwrap();
        tokens += heard(&mut engine);
        keep_busy(&mut engine);
    }
    let whole_steps = tokens as f64 / begun.elapsed().as_secs_f64();

    let mut engine = open();
    add(&mut engine, DECODING, 64);
    engine.step(Budget::OnePass).unwrap();
    let (mut calls, mut tokens) = (Vec::new(), 0);
    for frame in 0..FRAMES {
        if frame == ARRIVAL {
            add(&mut engine, 1, prompt);
        }
        let begun = Instant::now();
        engine.step(Budget::Time(BUDGET)).unwrap();
        calls.push(begun.elapsed());
        tokens += heard(&mut engine);
        keep_busy(&mut engine);
        thread::sleep(FRAME.saturating_sub(begun.elapsed()));
    }
    let in_frames = tokens as f64 / calls.iter().sum::<Duration>().as_secs_f64();
    let over = calls.iter().filter(|&&call| call > BUDGET).count();
    calls.sort();
    let at = |share: f64| calls[((calls.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    println!(
        "{FRAMES} frames of 4 ms, a prompt of {prompt} tokens beside {DECODING} answers: ms in the call median {:.2}, 99 % {:.2}, most {:.2}; {:.1} % over the budget",
        at(0.5),
        at(0.99),
        at(1.0),
        100.0 * over as f64 / FRAMES as f64
    );
    println!("tokens a second in the engine: {in_frames:.0} with the budget, {whole_steps:.0} without");
}

/// Adds requests whose prompts have `prompt` tokens.
fn add(engine: &mut Engine, requests: usize, prompt: usize) {
    let max_tokens = Some((4096 - prompt).min(900) as u32);
    for request in 0..requests {
        let tokens: Vec<TokenId> =
            (0..prompt).map(|i| 3 + ((i * 7919 + request * 104_729) % 2000) as TokenId).collect();
        let params = SamplingParams { max_tokens, eos: Eos::Ignored, ..SamplingParams::default() };
        engine.handle().add_request(Prompt::Tokens(&tokens), params).unwrap();
    }
}

/// Replaces requests that have ended.
fn keep_busy(engine: &mut Engine) {
    let stats = engine.handle().stats();
    let running = (stats.running + stats.waiting) as usize;
    add(engine, DECODING.saturating_sub(running), 64);
}

fn heard(engine: &mut Engine) -> usize {
    let mut tokens = 0;
    while let Some(output) = engine.next_output() {
        tokens += output.token_ids.len();
    }
    tokens
}
