//! The command `bench`: how fast is a model on this machine?

use crate::engine::{Engine, ModelInfo, Request};
use crate::failure::Failure;
use crate::info::device_name;
use crate::model::Model;
use crate::terminal::{Answers, Bar};
use nanovllm_cli::{Bench, When, engine_options::KvCacheDtype};
use serde::Serialize;
use std::time::Instant;

/// Requests at once, fourfold from one to the next.
const REQUESTS_MAX: u32 = 256;
/// Tokens of the prompts whose answers are measured.
const SHORT_PROMPT: u32 = 16;

#[derive(Serialize)]
struct Report {
    model: String,
    device: &'static str,
    parameters: u64,
    weight_bytes: u64,
    kv_cache_bytes: u64,
    kv_cache_tokens: u64,
    prefill: Prefill,
    decode: Vec<Decode>,
}

#[derive(Serialize)]
struct Prefill {
    prompt_tokens: u32,
    tokens_per_s: f64,
    first_token_ms: f64,
}

#[derive(Serialize)]
struct Decode {
    requests: u32,
    answer_tokens: u32,
    tokens_per_s: f64,
    step_ms: f64,
}

pub fn run(wanted: &Bench, model: &Model) -> Result<(), Failure> {
    let mut engine = model.open(When::Auto)?;
    let info = engine.model_info()?;
    let mut prompts = Prompts { state: 1, vocabulary: info.vocab_size };
    let counts: Vec<u32> = std::iter::successors(Some(1), |n| Some(n * 4))
        .take_while(|&n| n <= info.max_num_seqs.min(REQUESTS_MAX))
        .collect();
    // The table appears whole, so that a bar hides nothing.
    let mut bar = Bar::new("measuring", When::Auto, true);
    let all = counts.len() as f64 + 1.0;
    bar.show(0.0, String::new);

    measure(&mut engine, &mut prompts, 1, SHORT_PROMPT, 4)?; // the first pass is slower than the others
    let one = measure(&mut engine, &mut prompts, 1, wanted.prompt, 2)?;
    let prefill =
        Prefill { prompt_tokens: wanted.prompt, tokens_per_s: one.prompt, first_token_ms: one.first_token * 1e3 };
    let mut decode = Vec::new();
    for (index, &requests) in counts.iter().enumerate() {
        bar.show((index as f64 + 1.0) / all, || format!("{requests} at once"));
        let speed = measure(&mut engine, &mut prompts, requests, SHORT_PROMPT, wanted.answer)?;
        let (tokens_per_s, step_ms) = (speed.answer, speed.step * 1e3);
        decode.push(Decode { requests, answer_tokens: wanted.answer, tokens_per_s, step_ms });
    }
    drop(bar);

    let report = report(model, &info, prefill, decode);
    let mut to = Answers::new();
    match wanted.json {
        true => to.write_line(&serde_json::to_string(&report).expect("a report is JSON"))?,
        false => to.write(&table(&report, &info))?,
    }
    to.flush()
}

fn report(model: &Model, info: &ModelInfo, prefill: Prefill, decode: Vec<Decode>) -> Report {
    Report {
        model: model.path.display().to_string(),
        device: device_name(info.device),
        parameters: info.num_parameters,
        weight_bytes: info.weight_bytes,
        kv_cache_bytes: info.kv_cache_bytes,
        kv_cache_tokens: u64::from(info.num_kv_blocks) * u64::from(info.kv_block_size),
        prefill,
        decode,
    }
}

/// Markdown, aligned so that it can be read as it is.
fn table(report: &Report, info: &ModelInfo) -> String {
    let Report { parameters, weight_bytes, kv_cache_bytes, kv_cache_tokens, prefill, .. } = report;
    let mut text = format!(
        "{}: {:.1} million parameters, {:.2} GB of weights, on {}; {:.2} GB of {}KV cache for {kv_cache_tokens} tokens\n\n",
        report.model,
        *parameters as f64 / 1e6,
        *weight_bytes as f64 / 1e9,
        if report.device == "cuda" { "the GPU" } else { "the CPU" },
        *kv_cache_bytes as f64 / 1e9,
        if info.kv_cache_dtype == KvCacheDtype::Int8 as i32 { "int8 " } else { "" },
    );
    if info.host_expert_layers > 0 {
        let (layers, bytes) = (info.host_expert_layers, info.host_expert_bytes as f64 / 1e9);
        text += &format!("Experts of {layers} layers in host memory: {bytes:.2} GB\n\n");
    }
    text += &format!("| {:<24} | {:>10} | {:>14} |\n", "", "tokens/s", "ms");
    text += &format!("|{}|{}:|{}:|\n", "-".repeat(26), "-".repeat(11), "-".repeat(15));
    let Prefill { prompt_tokens, tokens_per_s, first_token_ms } = prefill;
    let name = format!("a prompt of {prompt_tokens} tokens");
    text += &format!("| {name:<24} | {tokens_per_s:>10.0} | {:>14} |\n", format!("{first_token_ms:.2}"));
    for Decode { requests, tokens_per_s, step_ms, .. } in &report.decode {
        let name = if *requests == 1 { "1 answer".to_owned() } else { format!("{requests} answers at once") };
        text += &format!("| {name:<24} | {tokens_per_s:>10.0} | {:>14} |\n", format!("{step_ms:.2} a step"));
    }
    text
}

/// Prompts without common prefixes.
struct Prompts {
    state: u64,
    vocabulary: u32,
}

impl Prompts {
    fn next(&mut self, tokens: u32) -> Vec<u32> {
        let mut token = || {
            self.state = self.state * 48271 % 2_147_483_647;
            u32::try_from(self.state % u64::from(self.vocabulary.max(1))).expect("it is below a u32")
        };
        (0..tokens).map(|_| token()).collect()
    }
}

/// Tokens per second, measured from the first generated token of the last request; times are in seconds.
#[derive(Default)]
struct Speed {
    prompt: f64,
    answer: f64,
    first_token: f64,
    step: f64,
}

fn measure(
    engine: &mut Engine,
    prompts: &mut Prompts,
    requests: u32,
    prompt: u32,
    answer: u32,
) -> Result<Speed, Failure> {
    let request = Request::of_length(answer);
    for _ in 0..requests {
        engine.add_tokens(&prompts.next(prompt), &request)?;
    }
    let mut speed = Speed::default();
    let (mut started, mut prompt_tokens, mut answer_tokens, mut steps) = (0, 0, 0, 0);
    let begun = Instant::now();
    let mut all_started = begun;
    while !engine.is_finished() {
        let done = engine.step()?;
        prompt_tokens += done.prefill_tokens;
        let had_started = started == requests;
        while let Some(output) = engine.poll()? {
            if let Some(error) = output.error {
                return Err(error.into());
            }
            started += u32::from(output.completion_tokens as usize == output.token_ids.len());
        }
        if had_started {
            answer_tokens += done.decode_tokens;
            steps += done.num_iterations;
        } else if started == requests {
            all_started = Instant::now();
            speed.first_token = (all_started - begun).as_secs_f64();
            speed.prompt = f64::from(prompt_tokens) / speed.first_token;
        }
    }
    let answering = all_started.elapsed().as_secs_f64();
    speed.answer = f64::from(answer_tokens) / answering;
    speed.step = answering / f64::from(steps.max(1));
    Ok(speed)
}
