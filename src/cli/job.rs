//! The place of this process among those that compute a model together: from the command line, and what that leaves open from a launcher.

use crate::engine::ProcessOfJob;
use crate::failure::Failure;
use crate::launcher::find_place;
use crate::terminal::Answers;
use nanovllm_cli::EngineOptions;
use std::env;

/// A place, and the launcher that told it.
pub struct Job {
    pub place: ProcessOfJob,
    launcher: Option<&'static str>,
}

impl Job {
    pub fn find(options: &EngineOptions) -> Result<Job, Failure> {
        let mut job = Job {
            place: ProcessOfJob {
                processes: options.num_processes.unwrap_or(0),
                index: options.process_index.unwrap_or(0),
                local_index: 0,
                rendezvous: options.rendezvous.clone(),
            },
            launcher: None,
        };
        if options.distributed {
            job.ask_launcher()?;
        }
        job.check()?;
        Ok(job)
    }

    fn ask_launcher(&mut self) -> Result<(), Failure> {
        let found = find_place(|name| env::var(name).ok());
        let found = found.map_err(|wrong| Failure::Usage(format!("--distributed: {wrong}")))?;
        let Some(found) = found else {
            let message = "--distributed: no variables of torchrun, Open MPI, Slurm or LeaderWorkerSet";
            return Err(Failure::Usage(message.to_owned()));
        };
        let place = &mut self.place;
        place.processes = found.processes;
        place.index = found.index;
        place.local_index = found.local_index;
        place.rendezvous = place.rendezvous.take().or_else(|| found.rendezvous());
        if place.rendezvous.is_none() && place.processes > 1 {
            let launcher = found.launcher;
            let message = format!("--distributed: {launcher} does not say where process 0 runs: use --rendezvous");
            return Err(Failure::Usage(message));
        }
        self.launcher = Some(found.launcher);
        Ok(())
    }

    fn check(&self) -> Result<(), Failure> {
        let ProcessOfJob { processes, index, ref rendezvous, .. } = self.place;
        if index >= processes.max(1) {
            let (processes, last) = (processes.max(1), processes.max(1) - 1);
            let message = match last {
                0 => format!("this is process {index} of 1: --num-processes says how many there are"),
                _ => format!("this is process {index} of {processes}: an index from 0 to {last} is wanted"),
            };
            return Err(Failure::Usage(message));
        }
        if processes > 1 && rendezvous.is_none() {
            return Err(Failure::Usage(format!(
                "--rendezvous is wanted with {processes} processes: HOST:PORT or unix:/PATH, where process 0 listens"
            )));
        }
        Ok(())
    }

    /// Whether this process serves another one, whatever the command.
    pub fn follows(&self) -> bool {
        self.place.index > 0
    }

    /// The command `place`.
    pub fn print(&self) -> Result<(), Failure> {
        let ProcessOfJob { processes, index, ref rendezvous, .. } = self.place;
        let mut answers = Answers::new();
        match rendezvous {
            Some(rendezvous) if processes > 1 => {
                let launcher = self.launcher.map(|name| format!(" ({name})")).unwrap_or_default();
                answers.write_line(&format!(
                    "process {index} of {processes} meets the others at {rendezvous}{launcher}"
                ))?;
            }
            _ => answers.write_line("one process alone")?,
        }
        answers.flush()
    }
}
