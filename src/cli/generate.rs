//! The command `generate`: all prompts are answered at once, and printed in their order.

use crate::conversation::{Conversation, Role};
use crate::engine::{Engine, Error, Finish, Output, Request, Structure};
use crate::failure::Failure;
use crate::model::Model;
use crate::prompts;
use crate::terminal::{self, Answers, Bar};
use nanovllm_cli::{Generate, StructureOptions};
use serde::Serialize;
use std::io::{self, IsTerminal};
use std::time::Instant;

pub fn run(wanted: &Generate, model: &Model) -> Result<(), Failure> {
    let prompts = prompts::collect(&wanted.prompt, &wanted.file, &wanted.lines)?;
    let structure = structure(&wanted.structure)?;
    let mut engine = model.open(wanted.progress)?;
    let mut request = engine.recommended()?.with(&wanted.request)?;
    if let Some(structure) = &structure {
        request = request.constrained(structure)?;
    }

    let bar = Bar::new("generating", wanted.progress, !Answers::is_terminal());
    let form = match (wanted.json, bar.is_shown()) {
        (true, _) => Form::Json,
        (false, true) => Form::Whole,
        (false, false) => Form::Streamed,
    };
    let context = engine.model_info()?.max_model_len;
    let mut batch = Batch::new(prompts, form, bar, request.max_tokens().min(context));
    batch.answer_all(&mut engine, wanted, request)?;
    batch.finish(&engine)
}

/// What answers must look like, from the files that the command line names.
fn structure(wanted: &StructureOptions) -> Result<Option<Structure>, Failure> {
    Ok(if let Some(file) = &wanted.schema {
        Some(Structure::JsonSchema(prompts::read(file)?))
    } else if let Some(file) = &wanted.grammar {
        Some(Structure::Lark(prompts::read(file)?))
    } else {
        wanted.regex.clone().map(Structure::Regex)
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Text as it comes: of the first prompt that has not ended.
    Streamed,
    /// Each answer when it has ended.
    Whole,
    /// One object per answer.
    Json,
}

#[derive(Default)]
struct Answer {
    text: String,
    token_ids: Vec<u32>,
    prompt_tokens: u32,
    finish: Option<Finish>,
    error: Option<Error>,
}

/// One line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    prompt: &'a str,
    text: &'a str,
    token_ids: &'a [u32],
    finish_reason: &'static str,
    usage: Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Refusal<'a>>,
}

#[derive(Serialize)]
pub struct Usage {
    pub prompt_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_tokens: Option<usize>,
}

#[derive(Serialize)]
pub struct Refusal<'a> {
    pub status: &'static str,
    pub message: &'a str,
}

/// Prompts and their answers. Invariant: answers before `current` are printed, and so is the text of `current` if it is streamed.
struct Batch {
    prompts: Vec<String>,
    answers: Vec<Answer>,
    current: usize,
    ended: usize,
    /// Tokens of all answers.
    tokens: u64,
    /// Tokens of answers that have not ended.
    unfinished_tokens: u64,
    /// Tokens that an answer has at most.
    longest: u32,
    has_failed: bool,
    form: Form,
    /// Whether a person sees the prompts between the answers.
    shows_prompts: bool,
    bar: Bar,
    begun: Instant,
    to: Answers,
}

impl Batch {
    fn new(prompts: Vec<String>, form: Form, bar: Bar, longest: u32) -> Batch {
        let answers = prompts.iter().map(|_| Answer::default()).collect();
        let on_terminals = Answers::is_terminal() && io::stderr().is_terminal();
        let shows_prompts = form != Form::Json && on_terminals && prompts.len() > 1;
        Batch {
            prompts,
            answers,
            current: 0,
            ended: 0,
            tokens: 0,
            unfinished_tokens: 0,
            longest,
            has_failed: false,
            form,
            shows_prompts,
            bar,
            begun: Instant::now(),
            to: Answers::new(),
        }
    }

    fn answer_all(&mut self, engine: &mut Engine, wanted: &Generate, mut request: Request) -> Result<(), Failure> {
        let mut next = 0;
        self.announce();
        loop {
            while next < self.prompts.len() {
                request.set_tag(next as u64);
                match add(engine, &self.prompts[next], wanted, &request) {
                    Err(error) if error.is_queue_full() => break,
                    Err(error) if error.is_context_length() => {
                        self.answers[next].error = Some(error);
                        self.end(next, Finish::Error)?;
                    }
                    // What is wrong with the options or the model is wrong for every prompt.
                    added => drop(added?),
                }
                next += 1;
            }
            if next == self.prompts.len() && engine.is_finished() {
                return Ok(());
            }
            engine.step()?;
            while let Some(output) = engine.poll()? {
                self.take(output)?;
            }
            if self.form == Form::Streamed {
                self.to.flush()?;
            }
            self.show_progress();
        }
    }

    fn take(&mut self, output: Output) -> Result<(), Failure> {
        let index = usize::try_from(output.tag).expect("it was an index");
        if self.form == Form::Streamed && index == self.current {
            self.to.write(&output.text)?;
        }
        let answer = &mut self.answers[index];
        self.tokens += output.token_ids.len() as u64;
        self.unfinished_tokens += output.token_ids.len() as u64;
        answer.text += &output.text;
        answer.token_ids.extend(output.token_ids);
        answer.prompt_tokens = output.prompt_tokens;
        answer.error = output.error;
        match output.finish {
            Some(finish) => self.end(index, finish),
            None => Ok(()),
        }
    }

    /// Prints what can be printed now that an answer has ended.
    fn end(&mut self, index: usize, finish: Finish) -> Result<(), Failure> {
        self.answers[index].finish = Some(finish);
        self.unfinished_tokens -= self.answers[index].token_ids.len() as u64;
        self.ended += 1;
        while self.answers.get(self.current).is_some_and(|answer| answer.finish.is_some()) {
            self.print_current()?;
            self.current += 1;
            self.announce();
            // What it said so far, while it was not its turn.
            if let Some(answer) = self.answers.get(self.current)
                && self.form == Form::Streamed
            {
                self.to.write(&answer.text)?;
            }
        }
        Ok(())
    }

    /// Shows the prompt whose answer comes next.
    fn announce(&mut self) {
        if self.shows_prompts
            && let Some(prompt) = self.prompts.get(self.current)
        {
            self.bar.clear();
            terminal::note(&format!("> {prompt}"));
        }
    }

    /// Prints the answer that has ended, or the rest of it.
    fn print_current(&mut self) -> Result<(), Failure> {
        let (prompt, answer) = (&self.prompts[self.current], &self.answers[self.current]);
        if answer.error.is_some() {
            self.has_failed = true;
        }
        if Answers::is_terminal() {
            self.bar.clear();
        }
        match (self.form, &answer.error) {
            (Form::Json, error) => {
                let line = Line {
                    prompt,
                    text: &answer.text,
                    token_ids: &answer.token_ids,
                    finish_reason: answer.finish.map_or("", Finish::name),
                    usage: Usage {
                        prompt_tokens: answer.prompt_tokens,
                        completion_tokens: Some(answer.token_ids.len()),
                    },
                    error: error.as_ref().map(|error| Refusal { status: error.status_name(), message: &error.message }),
                };
                self.to.write_line(&serde_json::to_string(&line).expect("a line is JSON"))?;
            }
            (form, Some(error)) => {
                if form == Form::Streamed && !answer.text.is_empty() {
                    self.to.write("\n")?;
                }
                self.to.flush()?;
                self.bar.clear();
                terminal::error(&format!("prompt {} (\"{}\"): {}", self.current + 1, beginning(prompt), error.message));
            }
            (Form::Streamed, None) => self.to.write("\n")?,
            (Form::Whole, None) => self.to.write_line(&answer.text)?,
        }
        self.to.flush()
    }

    fn show_progress(&mut self) {
        let Batch { tokens, ended, begun, .. } = *self;
        let all = self.prompts.len();
        // Each answer counts as one when it has ended, and before that by its tokens.
        let under_way = self.unfinished_tokens as f64 / f64::from(self.longest.max(1));
        let fraction = (ended as f64 + under_way) / all.max(1) as f64;
        self.bar.show(fraction.min(1.0), || speed(ended, all, tokens, begun));
    }

    fn finish(mut self, engine: &Engine) -> Result<(), Failure> {
        self.to.flush()?;
        let is_shown = self.bar.is_shown();
        let remark = speed(self.ended, self.prompts.len(), self.tokens, self.begun);
        self.bar.end(&remark);
        if is_shown || io::stderr().is_terminal() {
            let stats = engine.stats()?;
            let seconds = stats.step_time_us as f64 * 1e-6;
            let tokens = stats.prompt_tokens + stats.generated_tokens;
            let speed = if seconds > 0.0 { tokens as f64 / seconds } else { 0.0 };
            let (prompt, answer) = (stats.prompt_tokens, stats.generated_tokens);
            terminal::note(&format!(
                "{prompt} prompt and {answer} answer tokens in {seconds:.2} s: {speed:.0} tokens/s"
            ));
        }
        if self.has_failed { Err(Failure::Reported) } else { Ok(()) }
    }
}

fn speed(ended: usize, all: usize, tokens: u64, begun: Instant) -> String {
    let speed = tokens as f64 / begun.elapsed().as_secs_f64().max(1e-6);
    format!("{ended} of {all}, {tokens} tokens, {speed:.0} tokens/s")
}

/// Enough of a prompt to recognize it.
pub fn beginning(prompt: &str) -> String {
    const CHARACTERS: usize = 40;
    let line = prompt.lines().next().unwrap_or("");
    match line.char_indices().nth(CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

fn add(engine: &mut Engine, prompt: &str, wanted: &Generate, request: &Request) -> Result<u64, Error> {
    if wanted.raw {
        return engine.add(prompt, request);
    }
    let mut conversation = Conversation::new(wanted.system.as_deref());
    conversation.say(Role::User, prompt);
    let text = conversation.prompt(engine).map_err(|mut error| {
        if error.message.contains("no chat template") {
            error.message += "; --raw sends prompts without one";
        }
        error
    })?;
    engine.add(&text, request)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nanovllm_cli::When;

    #[test]
    fn a_long_prompt_is_recognized_by_its_beginning() {
        assert_eq!(beginning("short\nsecond line"), "short");
        assert_eq!(beginning(&"ä".repeat(41)), "ä".repeat(40) + "…");
        assert_eq!(beginning(""), "");
    }

    #[test]
    fn a_line_of_json_has_the_fields_that_are_documented() {
        let usage = Usage { prompt_tokens: 3, completion_tokens: Some(1) };
        let line = Line { prompt: "p", text: "t", token_ids: &[7], finish_reason: "stop", usage, error: None };
        let wanted = r#"{"prompt":"p","text":"t","token_ids":[7],"finish_reason":"stop","usage":{"prompt_tokens":3,"completion_tokens":1}}"#;
        assert_eq!(serde_json::to_string(&line).unwrap(), wanted);
    }

    #[test]
    fn progress_never_hides_answers() {
        assert!(!Bar::new("generating", When::Never, true).is_shown());
        assert!(Bar::new("generating", When::Always, false).is_shown());
    }
}
