//! A conversation on the terminal: `cargo run --release --example chat -- MODEL`.
//!
//! Each turn is a new request with the whole conversation as its prompt. The prefix cache has the turns before, so that only the new one is
//! computed.

use nanovllm::{Budget, Engine, Finish, Message, Prompt};
use std::error::Error;
use std::io::{BufRead, Write, stdin, stdout};

fn main() -> Result<(), Box<dyn Error>> {
    let model = std::env::args().nth(1).ok_or("usage: chat MODEL")?;
    let mut engine = Engine::open(model.as_str())?;
    let mut turns: Vec<(&str, String)> = Vec::new();
    print!("> ");
    stdout().flush()?;
    for line in stdin().lock().lines() {
        turns.push(("user", line?));
        let messages: Vec<Message> = turns.iter().map(|(role, content)| Message { role, content }).collect();
        let handle = engine.handle();
        handle.add(Prompt::Text(&handle.chat_prompt(&messages)?), handle.default_params())?;
        let mut answer = String::new();
        while !engine.handle().is_finished() {
            engine.step(Budget::OnePass)?;
            while let Some(output) = engine.poll() {
                if let Some(Finish::Error(error)) = &output.finish {
                    eprintln!("{error}");
                }
                print!("{}", output.text);
                stdout().flush()?;
                answer += &output.text;
            }
        }
        turns.push(("assistant", answer));
        print!("\n> ");
        stdout().flush()?;
    }
    println!();
    Ok(())
}
