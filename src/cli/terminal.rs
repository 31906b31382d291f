//! What do people see beside the answers? Notes, errors and progress, on the standard error; colours and bars only on a terminal.

use anstyle::{AnsiColor, Style};
use nanovllm_cli::When;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

const ERROR: Style = AnsiColor::Red.on_default().bold();
pub const PROMPT: Style = AnsiColor::Green.on_default().bold();
const NOTE: Style = Style::new().dimmed();

/// What is written to the standard error is lost if that cannot be written: there is nobody to tell.
pub fn error(message: &str) {
    let _ = writeln!(anstream::stderr(), "{ERROR}error:{ERROR:#} {message}");
}

/// A remark that is not a part of an answer.
pub fn note(message: &str) {
    let _ = writeln!(anstream::stderr(), "{NOTE}{message}{NOTE:#}");
}

/// A message that somebody asked for.
pub fn say(message: &str) {
    let _ = writeln!(anstream::stderr(), "{message}");
}

/// Whether colours are wanted on the standard error: NO_COLOR, TERM and CLICOLOR of the environment have a say.
pub fn has_colours() -> bool {
    anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never
}

/// The standard output, for answers alone. Every error is returned: a program that continues has lost something.
pub struct Answers {
    to: io::BufWriter<io::Stdout>,
}

impl Answers {
    pub fn new() -> Answers {
        Answers { to: io::BufWriter::new(io::stdout()) }
    }

    pub fn is_terminal() -> bool {
        io::stdout().is_terminal()
    }

    pub fn write(&mut self, text: &str) -> Result<(), crate::Failure> {
        self.to.write_all(text.as_bytes()).map_err(crate::Failure::Output)
    }

    pub fn write_line(&mut self, text: &str) -> Result<(), crate::Failure> {
        self.write(text)?;
        self.write("\n")
    }

    /// Hands over what was written, so that errors are seen here.
    pub fn flush(&mut self) -> Result<(), crate::Failure> {
        // Rust's standard output keeps a line until it is flushed, too: flushing the outer one flushes both.
        self.to.flush().map_err(crate::Failure::Output)
    }
}

/// How often a bar is drawn, and how often a line is printed where there is no terminal.
const BETWEEN_BARS: Duration = Duration::from_millis(100);
const BETWEEN_LINES: Duration = Duration::from_secs(1);

/// Progress on the standard error: a bar on a terminal, otherwise a line per second if it is asked for.
pub struct Bar {
    label: &'static str,
    form: Form,
    drawn: Option<Instant>,
    is_on_screen: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Hidden,
    Bar,
    Lines,
}

impl Bar {
    /// A bar is drawn on its own if the standard error is a terminal and nothing else is printed meanwhile.
    pub fn new(label: &'static str, when: When, is_alone: bool) -> Bar {
        // A terminal that cannot move its cursor has TERM=dumb, such as the one of an editor.
        let is_terminal = io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let form = match when {
            When::Never => Form::Hidden,
            When::Auto if is_terminal && is_alone => Form::Bar,
            When::Auto => Form::Hidden,
            When::Always if is_terminal => Form::Bar,
            When::Always => Form::Lines,
        };
        Bar { label, form, drawn: None, is_on_screen: false }
    }

    pub fn is_shown(&self) -> bool {
        self.form != Form::Hidden
    }

    /// Draws it if it is time to, with a remark that is made then only.
    pub fn show(&mut self, fraction: f64, remark: impl FnOnce() -> String) {
        let between = match self.form {
            Form::Hidden => return,
            Form::Bar => BETWEEN_BARS,
            Form::Lines => BETWEEN_LINES,
        };
        if self.drawn.is_some_and(|drawn| drawn.elapsed() < between) {
            return;
        }
        self.draw(fraction, &remark());
    }

    fn draw(&mut self, fraction: f64, remark: &str) {
        const WIDTH: usize = 30;
        let label = self.label;
        let percent = (100.0 * fraction) as u32;
        let _ = match self.form {
            Form::Hidden => Ok(()),
            Form::Lines => writeln!(io::stderr(), "{label} {percent}% {remark}"),
            Form::Bar => {
                let full = ((fraction * WIDTH as f64) as usize).min(WIDTH);
                let bar = "#".repeat(full) + &".".repeat(WIDTH - full);
                // Without line breaks even on a narrow terminal: `ESC [ ? 7 l` cuts a long line off.
                write!(io::stderr(), "\r\x1b[?7l{label:<10} [{bar}] {percent:>3}% {remark}\x1b[K\x1b[?7h")
            }
        };
        self.drawn = Some(Instant::now());
        self.is_on_screen = self.form == Form::Bar;
    }

    /// Takes the bar off the screen, to print something else or because it has ended.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.is_on_screen) {
            let _ = write!(io::stderr(), "\r\x1b[K");
            self.drawn = None;
        }
    }

    /// The last state, which stays on the screen or in the log.
    pub fn end(mut self, remark: &str) {
        match self.form {
            Form::Hidden => {}
            Form::Lines => self.draw(1.0, remark),
            Form::Bar => {
                self.draw(1.0, remark);
                let _ = writeln!(io::stderr());
                self.is_on_screen = false;
            }
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}
