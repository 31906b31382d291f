//! Completes each line of a file, many at a time: `cargo run --release --example batch -- MODEL < prompts.txt`.
//!
//! Prints a line of JSON per prompt, in their order, and how fast it went on standard error.

use nanovllm::{Engine, Finish, Prompt, SamplingParams};
use std::error::Error;
use std::io::{Read, stdin};
use std::ops::ControlFlow;

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("usage: batch MODEL < prompts.txt")?;
    let mut engine = Engine::open(model.as_str())?;
    let mut text = String::new();
    stdin().read_to_string(&mut text)?;
    let prompts: Vec<Prompt> = text.lines().filter(|line| !line.is_empty()).map(Prompt::Text).collect();
    let params = SamplingParams { max_tokens: Some(256), ..engine.handle().default_params() };
    let outputs = engine.generate_with_progress(&prompts, &[params], |progress| {
        eprint!("\r{} of {}, {:.0} tokens/s ", progress.finished, progress.total, progress.decode_tokens_per_s);
        ControlFlow::Continue(())
    })?;
    eprintln!();
    for output in outputs {
        let error = match &output.finish {
            Some(Finish::Error(error)) => Some(error.to_string()),
            _ => None,
        };
        println!("{}", serde_json::json!({ "text": output.text, "tokens": output.completion_tokens, "error": error }));
    }
    Ok(())
}
