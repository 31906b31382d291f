//! Why did a command not succeed, and what does the program say and return then?

use crate::engine;
use std::io;
use std::process::ExitCode;

#[derive(Debug)]
pub enum Failure {
    /// The command line cannot be carried out: exit status 2.
    Usage(String),
    /// A call of the library failed.
    Engine(engine::Error),
    /// Some or all of it failed: the message says what.
    Other(String),
    /// Messages were printed already.
    Reported,
    /// The standard output cannot be written.
    Output(io::Error),
}

impl From<engine::Error> for Failure {
    fn from(error: engine::Error) -> Failure {
        Failure::Engine(error)
    }
}

/// The exit status of a program that SIGPIPE ends, as shells show it.
const BROKEN_PIPE: u8 = 128 + 13;

impl Failure {
    /// Prints the message, and returns the exit status.
    pub fn report(self) -> ExitCode {
        let message = match self {
            Failure::Usage(message) => {
                crate::terminal::error(&message);
                return ExitCode::from(2);
            }
            // Whoever read the answers has read enough.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => return ExitCode::from(BROKEN_PIPE),
            Failure::Output(error) => format!("the output cannot be written: {error}"),
            Failure::Engine(error) => error.message,
            Failure::Other(message) => message,
            Failure::Reported => return ExitCode::FAILURE,
        };
        crate::terminal::error(&message);
        ExitCode::FAILURE
    }
}
