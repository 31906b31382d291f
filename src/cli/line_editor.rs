//! How are lines read on a terminal? With history, completion of commands, and several lines where a text has them.

use crate::input::{self, Typed};
use crate::slash;
use crate::terminal;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{
    Behavior, Cmd, ConditionalEventHandler, Config, Context, Editor, Event, EventContext, EventHandler, Helper,
    KeyCode, KeyEvent, Modifiers, Movement, RepeatCount,
};
use std::env;
use std::fs;
use std::path::PathBuf;

const HISTORY_LINES_MAX: usize = 1000;

pub struct LineEditor {
    editor: Editor<Commands, FileHistory>,
    /// Where the history is kept; none if the environment names no place.
    history: Option<PathBuf>,
}

impl LineEditor {
    pub fn new() -> Result<LineEditor, ReadlineError> {
        // The standard output is for answers, and may be a file.
        let behavior = if terminal::Answers::is_terminal() { Behavior::Stdio } else { Behavior::PreferTerm };
        let config = Config::builder().max_history_size(HISTORY_LINES_MAX)?.behavior(behavior).build();
        let mut editor = Editor::<Commands, FileHistory>::with_config(config)?;
        editor.set_helper(Some(Commands));
        editor.bind_sequence(KeyEvent::ctrl('c'), EventHandler::Conditional(Box::new(CtrlC)));
        editor.bind_sequence(KeyEvent(KeyCode::Enter, Modifiers::ALT), EventHandler::Simple(Cmd::Newline));
        let history = state_folder().map(|folder| folder.join("history"));
        if let Some(file) = &history {
            // There is none at first.
            let _ = editor.load_history(file);
        }
        Ok(LineEditor { editor, history })
    }

    /// The next text; None when the user leaves.
    pub fn read(&mut self) -> Result<Option<String>, ReadlineError> {
        let coloured = format!("{0}> {0:#}", terminal::PROMPT);
        let prompt = if terminal::has_colours() { coloured } else { "> ".to_owned() };
        let typed = match self.editor.readline(&("> ", prompt.as_str())) {
            Ok(typed) => typed,
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => return Ok(None),
            Err(error) => return Err(error),
        };
        if !typed.trim().is_empty() {
            self.editor.add_history_entry(typed.as_str())?;
            self.keep_history();
        }
        match input::read(&typed) {
            Typed::Complete(text) => Ok(Some(text)),
            Typed::Incomplete => Ok(Some(typed)),
        }
    }

    /// A history that cannot be written is no reason to end a conversation.
    fn keep_history(&mut self) {
        let Some(file) = &self.history else { return };
        if let Some(folder) = file.parent() {
            let _ = fs::create_dir_all(folder);
        }
        let _ = self.editor.append_history(file);
    }
}

/// Where programs keep what outlives them and is no setting: `$XDG_STATE_HOME/nanovllm`, on Windows below `%LOCALAPPDATA%`.
fn state_folder() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_all = match cfg!(windows) {
        true => absolute("LOCALAPPDATA"),
        false => absolute("XDG_STATE_HOME").or_else(|| Some(env::home_dir()?.join(".local/state"))),
    };
    of_all.map(|folder| folder.join("nanovllm"))
}

/// Ctrl-C takes back what is typed, and leaves an empty prompt.
struct CtrlC;

impl ConditionalEventHandler for CtrlC {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext) -> Option<Cmd> {
        Some(if context.line().is_empty() { Cmd::Interrupt } else { Cmd::Kill(Movement::WholeBuffer) })
    }
}

/// What the editor knows of the texts.
struct Commands;

impl Helper for Commands {}

impl Highlighter for Commands {}

impl Hinter for Commands {
    type Hint = String;
}

impl Completer for Commands {
    type Candidate = String;

    fn complete(&self, line: &str, end: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..end];
        let fitting = slash::names().filter(|name| typed.starts_with('/') && name.starts_with(typed));
        Ok((0, fitting.map(str::to_owned).collect()))
    }
}

impl Validator for Commands {
    fn validate(&self, context: &mut ValidationContext) -> rustyline::Result<ValidationResult> {
        Ok(match input::read(context.input()) {
            Typed::Complete(_) => ValidationResult::Valid(None),
            Typed::Incomplete => ValidationResult::Incomplete,
        })
    }
}
