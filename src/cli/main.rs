//! The program `nanovllm`: the library's work on the command line.
//!
//! One file per command; [`model`] opens its engine, and [`engine`] is all of the library that it knows.
#![deny(unsafe_code)]

mod bench;
mod chat;
mod conversation;
mod embed;
mod engine;
mod explain;
mod failure;
mod ffi;
mod generate;
mod info;
mod input;
mod job;
mod launcher;
mod line_editor;
mod model;
mod prompts;
mod quantize;
mod slash;
mod terminal;

use clap::error::ErrorKind;
use failure::Failure;
use job::Job;
use model::Model;
use nanovllm_cli::{Command, CommandLine};
use std::io::{self, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let line = match nanovllm_cli::parse(std::env::args_os()) {
        Ok(line) => line,
        Err(said) => return print(&said),
    };
    match run(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// Prints what clap says: an error, or the help that was asked for.
fn print(said: &clap::Error) -> ExitCode {
    let is_asked_for = matches!(said.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    match said.print().and_then(|()| io::stdout().flush()) {
        Err(error) if is_asked_for => Failure::Output(error).report(),
        _ if is_asked_for => ExitCode::SUCCESS,
        _ => ExitCode::from(2),
    }
}

fn run(line: CommandLine) -> Result<(), Failure> {
    let CommandLine { engine: options, command } = line;
    let job = Job::find(&options)?;
    if options.verbose {
        engine::log_to(terminal::note);
    }
    if let Some(path) = command.model()
        && job.follows()
    {
        return Model { path, options: &options, place: &job.place }.follow();
    }
    let model = |path| Model { path, options: &options, place: &job.place };
    match &command {
        Command::Generate(wanted) => generate::run(wanted, &model(&wanted.model)),
        Command::Chat(wanted) => chat::run(wanted, &model(&wanted.model)),
        Command::Embed(wanted) => embed::run(wanted, &model(&wanted.model)),
        Command::Bench(wanted) => bench::run(wanted, &model(&wanted.model)),
        Command::Info(wanted) => info::run(wanted, &wanted.model, &options),
        Command::Explain(wanted) => explain::run(wanted, &options),
        Command::Quantize(wanted) => quantize::run(wanted),
        Command::Worker(_) => Err(Failure::Usage(
            "a worker serves process 0: `nanovllm worker MODEL` needs --num-processes, --rendezvous, and a --process-index above 0"
                .to_owned(),
        )),
        Command::Place(_) => job.print(),
        Command::Version(_) => {
            let mut answers = terminal::Answers::new();
            answers.write_line(engine::build_info())?;
            answers.flush()
        }
    }
}
