//! Writes man pages and completions for shells into a folder: `manual FOLDER`.
#![forbid(unsafe_code)]

use clap::Command;
use clap_complete::Shell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

fn main() -> ExitCode {
    let Some(folder) = env::args_os().nth(1).map(PathBuf::from) else {
        return ExitCode::from(2);
    };
    match write(&folder) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = io::Write::write_fmt(&mut io::stderr(), format_args!("{}: {error}\n", folder.display()));
            ExitCode::FAILURE
        }
    }
}

fn write(folder: &Path) -> io::Result<()> {
    // Every command has a page of its own, and `help` shows them.
    let mut declared = nanovllm_cli::declaration().mut_subcommand("help", |help| help.hide(true));
    declared = described(declared);
    fs::create_dir_all(folder)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut declared, "nanovllm", folder)?;
    }
    clap_mangen::generate_to(declared, folder)
}

/// A page describes the options that `-h` leaves out, too.
fn described(command: Command) -> Command {
    command.mut_args(|arg| arg.hide_short_help(false)).mut_subcommands(described)
}
