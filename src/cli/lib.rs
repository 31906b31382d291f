//! What may a command line of `nanovllm` say? Its one declaration, from which help, man pages and completions are made.
//!
//! This crate knows no engine: the program, `main.rs`, does what a command line says.
#![forbid(unsafe_code)]

pub mod engine_options;
mod numbers;
pub mod request_options;

pub use engine_options::EngineOptions;
pub use numbers::Indices;
pub use request_options::{RequestOptions, StructureOptions};

use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;

const AFTER_HELP: &str = "\
A MODEL is a folder as Hugging Face lays it out, or a GGUF file.
Options may stand before and after the command, as --name VALUE or --name=VALUE.
`nanovllm COMMAND --help` describes all options of a command.

Exit status: 0 for success, 1 for a failure, 2 for a wrong command line.";

/// Runs large language models on this machine
#[derive(Parser, Debug)]
#[command(name = "nanovllm", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = AFTER_HELP, max_term_width = 100)]
pub struct CommandLine {
    #[command(flatten)]
    pub engine: EngineOptions,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Generate(Generate),
    Chat(Chat),
    Embed(Embed),
    Bench(Bench),
    Info(Info),
    Explain(Explain),
    Quantize(Quantize),
    Worker(Worker),
    Place(Place),
    Version(Version),
}

/// Answers each prompt, all at once
///
/// Prompts are arguments, files, and the standard input if no other prompt is given. Answers go to the standard output in the order of
/// their prompts, and everything else to the standard error.
#[derive(Args, Debug)]
pub struct Generate {
    /// Model folder or GGUF file
    pub model: PathBuf,
    /// Prompts; - is the standard input
    pub prompt: Vec<String>,
    /// Reads one prompt from a file; may be repeated
    #[arg(long, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// Reads prompts from a file, one per line; - is the standard input
    #[arg(long, value_name = "FILE")]
    pub lines: Vec<PathBuf>,
    /// Sends prompts as they are, without the model's chat template
    #[arg(long, conflicts_with = "system")]
    pub raw: bool,
    /// System message before each prompt
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Prints one JSON object per answer: prompt, text, token_ids, finish_reason, usage
    #[arg(long)]
    pub json: bool,
    /// Shows progress on the standard error: `auto` is on a terminal, unless answers appear on one meanwhile
    #[arg(long, value_name = "WHEN", default_value = "auto", default_missing_value = "always")]
    #[arg(num_args = 0..=1, require_equals = true)]
    pub progress: When,
    #[command(flatten)]
    pub structure: StructureOptions,
    #[command(flatten)]
    pub request: RequestOptions,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Auto,
    Always,
    Never,
}

/// A conversation on the terminal
///
/// /help lists the commands of the conversation. Ctrl-C stops an answer, and ends the program at an empty prompt.
#[derive(Args, Debug)]
pub struct Chat {
    /// Model folder or GGUF file
    pub model: PathBuf,
    /// System message, with which the conversation begins
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Continues a conversation that /save wrote
    #[arg(long, value_name = "FILE", conflicts_with = "system")]
    pub load: Option<PathBuf>,
    #[command(flatten)]
    pub request: RequestOptions,
}

/// Converts texts to vectors
///
/// Prints one vector per line, in the order of the texts.
#[derive(Args, Debug)]
pub struct Embed {
    /// Model folder or GGUF file
    pub model: PathBuf,
    /// Texts; - is the standard input
    pub text: Vec<String>,
    /// Reads one text from a file; may be repeated
    #[arg(long, value_name = "FILE")]
    pub file: Vec<PathBuf>,
    /// Reads texts from a file, one per line; - is the standard input
    #[arg(long, value_name = "FILE")]
    pub lines: Vec<PathBuf>,
    /// How the hidden states of a text become one vector
    #[arg(long, value_enum, default_value = "last")]
    pub pooling: Pooling,
    /// Keeps the length of each vector, instead of dividing the vector by it
    #[arg(long)]
    pub no_normalize: bool,
    /// Prints one JSON object per text: text, embedding, usage
    #[arg(long)]
    pub json: bool,
}

/// The values are those of nvllm_pooling.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// The hidden state of the last token
    Last = 1,
    /// The mean of the hidden states of all tokens
    Mean = 2,
    /// The hidden state of the first token
    Cls = 3,
    /// As the model's folder says: modules.json of sentence-transformers
    Auto = 4,
}

/// Measures how fast a model is on this machine
///
/// Prints a table in Markdown: prefill of one prompt, and decoding of several answers at once. The tokens are arbitrary and differ per
/// prompt, so that no prefix is cached.
#[derive(Args, Debug)]
pub struct Bench {
    /// Model folder or GGUF file
    pub model: PathBuf,
    /// Tokens of the prompt whose prefill is measured
    #[arg(long, value_name = "N", default_value = "512", value_parser = numbers::count)]
    pub prompt: u32,
    /// Tokens of each answer, at least 2
    #[arg(long, value_name = "N", default_value = "64", value_parser = numbers::two_or_more)]
    pub answer: u32,
    /// Prints one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Describes a model and the memory that it needs
#[derive(Args, Debug)]
pub struct Info {
    /// Model folder or GGUF file
    pub model: PathBuf,
    /// Tokens for whose keys and values memory is counted; default: the model's maximum
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub context: Option<u32>,
    /// Prints one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Writes a model folder again with weights of 8 or 4 bits
#[derive(Args, Debug)]
pub struct Quantize {
    /// Model folder to read
    pub model: PathBuf,
    /// Folder to write, which must not exist or be empty
    #[arg(value_name = "NEW_FOLDER")]
    pub to: PathBuf,
    /// Weights of 8 bits (default)
    #[arg(long, conflicts_with = "int4")]
    pub int8: bool,
    /// Weights of 4 bits
    #[arg(long)]
    pub int4: bool,
}

/// Describes which kernels compute a layer and the head, and what bounds their time
///
/// Prints tables in Markdown. No weights are loaded, and the GPU need not be in this machine. Of the engine options, those of types,
/// --max-model-len and --batch-invariant count.
#[derive(Args, Debug)]
pub struct Explain {
    /// Model folder or GGUF file
    pub model: PathBuf,
    /// h100, h200, a100 or rtx4090; default: the processor of this machine
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub gpu: Option<String>,
    /// Sequences of the forward pass
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub rows: u32,
    /// New tokens of each sequence
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub tokens: u32,
    /// Tokens that each sequence has after the pass; default: 1024 where the model has as many
    #[arg(long, value_name = "N", value_parser = numbers::count)]
    pub context: Option<u32>,
    /// Which layer, from 0
    #[arg(long, value_name = "I", default_value_t = 0)]
    pub layer: u32,
}

/// Computes what process 0 schedules, until that ends
///
/// Any other command does the same in a process with --process-index above 0.
#[derive(Args, Debug)]
pub struct Worker {
    /// Model folder or GGUF file
    pub model: PathBuf,
}

/// Prints which process of a job this is
#[derive(Args, Debug)]
pub struct Place {}

/// Prints what the library is, and what it found on this machine, as JSON
#[derive(Args, Debug)]
pub struct Version {}

impl Command {
    /// The name on the command line.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Generate(_) => "generate",
            Command::Chat(_) => "chat",
            Command::Embed(_) => "embed",
            Command::Bench(_) => "bench",
            Command::Info(_) => "info",
            Command::Explain(_) => "explain",
            Command::Quantize(_) => "quantize",
            Command::Worker(_) => "worker",
            Command::Place(_) => "place",
            Command::Version(_) => "version",
        }
    }

    /// The model that an engine is opened on; none for commands without an engine.
    pub fn model(&self) -> Option<&PathBuf> {
        match self {
            Command::Generate(Generate { model, .. })
            | Command::Chat(Chat { model, .. })
            | Command::Embed(Embed { model, .. })
            | Command::Bench(Bench { model, .. })
            | Command::Info(Info { model, .. })
            | Command::Worker(Worker { model }) => Some(model),
            Command::Explain(_) | Command::Quantize(_) | Command::Place(_) | Command::Version(_) => None,
        }
    }
}

/// Commands that open no engine refuse its options, which would have no effect.
const WITHOUT_ENGINE: &[&str] = &["quantize", "version"];

/// The declaration as clap has it. The help of a command without an engine lists no options of engines.
pub fn declaration() -> clap::Command {
    let mut declared = CommandLine::command();
    declared.build();
    let of_engines = engine_options::ids();
    for command in WITHOUT_ENGINE.iter().chain(&["help"]) {
        declared = declared.mut_subcommand(command, |command| {
            command.mut_args(|arg| {
                let hidden = of_engines.contains(&arg.get_id().to_string());
                arg.hide(hidden)
            })
        });
    }
    declared
}

/// Reads a command line, whose first word is the program. An error is printed by clap: [`clap::Error::print`].
pub fn parse<I, T>(words: I) -> Result<CommandLine, clap::Error>
where
    I: IntoIterator<Item = T>,
    T: Into<std::ffi::OsString> + Clone,
{
    use clap::FromArgMatches;
    use clap::error::ErrorKind;
    use clap::parser::ValueSource;

    let mut declared = declaration();
    let matches = declared.try_get_matches_from_mut(words)?;
    let line = CommandLine::from_arg_matches(&matches).map_err(|error| error.format(&mut declared))?;
    if let Some((name, given)) = matches.subcommand()
        && WITHOUT_ENGINE.contains(&name)
    {
        let of_engines = engine_options::ids();
        let stray = of_engines.iter().find(|id| given.value_source(id) == Some(ValueSource::CommandLine));
        if let Some(id) = stray {
            let command = declared.find_subcommand_mut(name).expect("it was matched");
            let option = id.replace('_', "-");
            let message = format!("'{name}' does not take '--{option}', an option of commands that open an engine");
            return Err(command.error(ErrorKind::ArgumentConflict, message));
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(words: &[&str]) -> String {
        let line = parse(["nanovllm"].iter().chain(words));
        line.err().unwrap_or_else(|| panic!("{words:?} is taken")).to_string()
    }

    fn generate(words: &[&str]) -> (CommandLine, Generate) {
        let mut line = parse(["nanovllm"].iter().chain(words)).unwrap_or_else(|error| panic!("{error}"));
        match std::mem::replace(&mut line.command, Command::Version(Version {})) {
            Command::Generate(generate) => (line, generate),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_declaration_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn options_stand_anywhere_in_both_spellings() {
        let places: &[&[&str]] = &[
            &["--device", "cpu", "generate", "m", "--max-tokens", "5", "hello"],
            &["generate", "--device=cpu", "m", "hello", "--max-tokens=5"],
            &["generate", "m", "--max-tokens=5", "hello", "--device", "cpu"],
        ];
        for words in places {
            let (line, generate) = generate(words);
            assert_eq!(line.engine.device, Some(engine_options::Device::Cpu), "{words:?}");
            assert_eq!(generate.request.max_tokens, Some(5), "{words:?}");
            assert_eq!(generate.prompt, ["hello"], "{words:?}");
        }
    }

    #[test]
    fn an_error_names_the_culprit_and_what_was_wanted() {
        let cases: &[(&[&str], &[&str])] = &[
            (&["generat", "m"], &["generat", "generate"]),
            (&["generate", "m", "--max-token", "5"], &["--max-token", "--max-tokens"]),
            (&["generate", "m", "--max-tokens", "abc"], &["abc", "--max-tokens", "a whole number of at least 1"]),
            (&["generate", "m", "--top-p", "1.5"], &["1.5", "--top-p", "above 0 and at most 1"]),
            (&["generate", "m", "--temperature", "nan"], &["nan", "--temperature"]),
            (&["--quantization", "int3", "chat", "m"], &["int3", "none, int8, int4"]),
            (&["--devices", "0,", "place"], &["--devices", "'0,'", "indices of GPUs with commas between them"]),
            (&["--devices=", "place"], &["--devices", "indices of GPUs with commas between them"]),
            (&["generate"], &["<MODEL>"]),
            (&["generate", "m", "--schema", "a", "--regex", "b"], &["--schema", "--regex"]),
            (&["--quantization", "int4", "quantize", "a", "b"], &["quantize", "--quantization"]),
            (&["version", "--threads=2"], &["version", "--threads"]),
            (&["bench", "m", "--answer", "1"], &["--answer", "a whole number of at least 2"]),
            (&["chat", "m", "--kv-cache-bytes", "2 apples"], &["2 apples", "512MiB"]),
        ];
        for (words, wanted) in cases {
            let said = refusal(words);
            for part in *wanted {
                assert!(said.contains(part), "{words:?} lacks {part}: {said}");
            }
        }
    }

    #[test]
    fn only_commands_with_an_engine_show_its_options() {
        let help = |name: &str| {
            let mut declared = declaration();
            declared.find_subcommand_mut(name).unwrap().render_long_help().to_string()
        };
        assert!(help("chat").contains("--kv-cache-dtype"));
        assert!(help("place").contains("--rendezvous"));
        assert!(!help("quantize").contains("--kv-cache-dtype"), "{}", help("quantize"));
    }

    #[test]
    fn progress_alone_means_always() {
        assert_eq!(generate(&["generate", "m", "a", "--progress"]).1.progress, When::Always);
        assert_eq!(generate(&["generate", "m", "--progress", "a"]).1.prompt, ["a"]);
        assert_eq!(generate(&["generate", "m", "a"]).1.progress, When::Auto);
        assert_eq!(generate(&["generate", "m", "a", "--progress=never"]).1.progress, When::Never);
    }

    #[test]
    fn every_command_has_its_name() {
        for declared in declaration().get_subcommands().filter(|command| command.get_name() != "help") {
            let name = declared.get_name();
            let words: &[&str] = match name {
                "quantize" => &["a", "b"],
                "place" | "version" => &[],
                _ => &["m"],
            };
            let line = parse(["nanovllm", name].iter().chain(words)).unwrap();
            assert_eq!(line.command.name(), name);
        }
    }
}
