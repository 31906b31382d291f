//! The command `chat`: a conversation, with a person on a terminal or with lines from a pipe.

use crate::conversation::{Conversation, Role};
use crate::engine::{Engine, Finish, Request};
use crate::failure::Failure;
use crate::input::{self, Typed};
use crate::line_editor::LineEditor;
use crate::model::Model;
use crate::slash::{self, Command};
use crate::terminal::{self, Answers};
use nanovllm_cli::{Chat, When};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::io::{self, BufRead, IsTerminal};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The exit status of a program that SIGINT ends, as shells show it.
const INTERRUPTED: i32 = 128 + 2;

pub fn run(wanted: &Chat, model: &Model) -> Result<(), Failure> {
    let mut engine = model.open(When::Auto)?;
    let request = engine.recommended()?.with(&wanted.request)?;
    let is_interactive = io::stdin().is_terminal();
    let mut chat = Chatting {
        conversation: Conversation::new(wanted.system.as_deref()),
        request,
        stop: Arc::new(AtomicBool::new(false)),
        to: Answers::new(),
    };
    if let Some(file) = &wanted.load {
        chat.load(&mut engine, file)?;
    }
    if is_interactive {
        chat.stop_on_ctrl_c()?;
        greet(model.path);
        let mut lines = LineEditor::new().map_err(|error| Failure::Other(error.to_string()))?;
        while let Some(text) = lines.read().map_err(|error| Failure::Other(error.to_string()))? {
            if chat.hear(&mut engine, &text)?.is_none() {
                break;
            }
        }
        return Ok(());
    }
    let mut lines = io::stdin().lock().lines();
    while let Some(text) = next_text(&mut lines)? {
        if chat.hear(&mut engine, &text)?.is_none() {
            break;
        }
    }
    Ok(())
}

fn greet(model: &Path) {
    let name = model.file_name().unwrap_or(model.as_os_str()).to_string_lossy();
    terminal::say(&format!(
        "A conversation with {name}. Ctrl-C stops an answer, Ctrl-D ends; /help lists the commands:"
    ));
    terminal::note(&slash::names().collect::<Vec<_>>().join(" "));
}

/// The next text of a pipe: a line, or several that are marked as one.
fn next_text(lines: &mut impl Iterator<Item = io::Result<String>>) -> Result<Option<String>, Failure> {
    let mut typed = String::new();
    for line in lines {
        typed += &line.map_err(|error| Failure::Other(format!("the standard input: {error}")))?;
        match input::read(&typed) {
            Typed::Complete(text) => return Ok(Some(text)),
            Typed::Incomplete => typed.push('\n'),
        }
    }
    // The end of the input completes everything.
    Ok(Some(typed).filter(|typed| !typed.is_empty()))
}

struct Chatting {
    conversation: Conversation,
    request: Request,
    /// Ctrl-C was pressed.
    stop: Arc<AtomicBool>,
    to: Answers,
}

impl Chatting {
    /// The first Ctrl-C stops an answer. Another one before it has stopped ends the program.
    fn stop_on_ctrl_c(&self) -> Result<(), Failure> {
        // In this order: the second registration sets what the first one looks at.
        flag::register_conditional_shutdown(SIGINT, INTERRUPTED, self.stop.clone())
            .and_then(|_| flag::register(SIGINT, self.stop.clone()))
            .map(drop)
            .map_err(|error| Failure::Other(format!("Ctrl-C cannot be caught: {error}")))
    }

    /// Does what a text asks for. None ends the conversation.
    fn hear(&mut self, engine: &mut Engine, text: &str) -> Result<Option<()>, Failure> {
        if text.trim().is_empty() {
            return Ok(Some(()));
        }
        if !slash::is_command(text) {
            self.answer(engine, slash::unescaped(text))?;
            return Ok(Some(()));
        }
        match slash::parse(text) {
            Err(wrong) => terminal::error(&wrong),
            Ok(Command::Quit) => return Ok(None),
            Ok(Command::Help) => terminal::say(&slash::help()),
            Ok(Command::Reset) => {
                self.conversation.reset();
                terminal::note("[a new conversation]");
            }
            Ok(Command::System(Some(system))) => {
                self.conversation.set_system(Some(system));
                terminal::note("[the system message is set]");
            }
            Ok(Command::System(None)) => terminal::say(self.conversation.system().unwrap_or("[no system message]")),
            Ok(Command::Save(file)) => match self.conversation.save(engine, Path::new(file)) {
                Ok(()) => terminal::note(&format!("[saved to {file}]")),
                Err(failure) => drop(failure.report()),
            },
            Ok(Command::Load(file)) => {
                if let Err(failure) = self.load(engine, Path::new(file)) {
                    failure.report();
                }
            }
        }
        Ok(Some(()))
    }

    fn load(&mut self, engine: &mut Engine, file: &Path) -> Result<(), Failure> {
        let (conversation, remark) = Conversation::load(engine, file)?;
        let turns = conversation.turns();
        self.conversation = conversation;
        terminal::note(&format!("[{turns} questions from {}; {remark}]", file.display()));
        Ok(())
    }

    /// Asks, prints the answer, and keeps both unless the answer fails.
    fn answer(&mut self, engine: &mut Engine, question: &str) -> Result<(), Failure> {
        self.conversation.say(Role::User, question);
        match self.stream(engine) {
            Ok(answer) if answer.is_empty() => drop(self.conversation.messages.pop()),
            Ok(answer) => self.conversation.say(Role::Assistant, &answer),
            Err(Failure::Engine(mut error)) => {
                self.conversation.messages.pop();
                if error.is_context_length() {
                    error.message += " (/reset begins a new conversation)";
                }
                terminal::error(&error.message);
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Prints an answer as it is generated, then its speed, and returns its text.
    fn stream(&mut self, engine: &mut Engine) -> Result<String, Failure> {
        let prompt = self.conversation.prompt(engine)?;
        self.stop.store(false, Ordering::Relaxed);
        let id = engine.add(&prompt, &self.request)?;
        let (mut text, mut tokens, mut prompt_tokens, mut cached) = (String::new(), 0, 0, 0);
        let (mut first_token, mut failed, mut end) = (None, None, None);
        while !engine.is_finished() {
            if self.stop.load(Ordering::Relaxed) {
                engine.cancel(id);
            }
            engine.step()?;
            while let Some(output) = engine.poll()? {
                first_token.get_or_insert_with(Instant::now);
                self.to.write(&output.text)?;
                self.to.flush()?;
                text += &output.text;
                (tokens, prompt_tokens, cached) =
                    (output.completion_tokens, output.prompt_tokens, output.cached_tokens);
                end = output.finish.or(end);
                failed = output.error.or(failed);
            }
        }
        self.stop.store(false, Ordering::Relaxed);
        self.to.write("\n")?;
        self.to.flush()?;
        if let Some(error) = failed {
            return Err(error.into());
        }
        let seconds = first_token.map_or(0.0, |first| first.elapsed().as_secs_f64());
        let ended = match end {
            Some(Finish::Length) => "ended by --max-tokens or the end of the context; ",
            Some(Finish::Cancelled) => "stopped; ",
            _ => "",
        };
        // The first token counts as part of prefill.
        if tokens > 1 && seconds > 0.0 {
            let speed = f64::from(tokens - 1) / seconds;
            terminal::note(&format!(
                "[{ended}{tokens} tokens, {speed:.0} tokens/s; {cached} of {prompt_tokens} prompt tokens were cached]"
            ));
        } else if !ended.is_empty() {
            terminal::note(&format!("[{}]", ended.trim_end_matches("; ")));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_pipe_are_lines_or_marked_as_several() {
        let mut lines = ["one", "two \\", "three", "\"\"\"four", "five\"\"\"", "six \\"]
            .map(|line| Ok(line.to_owned()))
            .into_iter();
        let mut texts = Vec::new();
        while let Some(text) = next_text(&mut lines).unwrap() {
            texts.push(text);
        }
        assert_eq!(texts, ["one", "two \nthree", "four\nfive", "six \\\n"]);
    }
}
