//! Which process of a job is this? Launchers say it in the environment, each in its own words.

/// Where launchers name no port: the port after that of torchrun's own store.
const DEFAULT_PORT: u16 = 29501;
const PROCESSES_MAX: u32 = 1 << 16;

/// The place of a process in a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlace {
    pub launcher: &'static str,
    pub processes: u32,
    pub index: u32,
    /// Which of the job's processes on its host this is; 0 if the launcher does not say.
    pub local_index: u32,
    /// Where process 0 runs; empty if the launcher does not say.
    host: String,
    port: u16,
}

impl JobPlace {
    /// Where process 0 listens, if the launcher says on which host. It listens on all interfaces, because the name by which others know its
    /// host may not be one of its own interfaces; except on a host by itself.
    pub fn rendezvous(&self) -> Option<String> {
        let host = self.host.as_str();
        if host.is_empty() {
            return None;
        }
        let is_alone = host == "localhost" || host == "::1" || host.starts_with("127.");
        let name = if self.index == 0 && !is_alone { "0.0.0.0" } else { host };
        let port = self.port;
        Some(if name.contains(':') { format!("[{name}]:{port}") } else { format!("{name}:{port}") })
    }
}

/// The names by which a launcher tells of a job.
struct Launcher {
    name: &'static str,
    size: &'static str,
    index: &'static str,
    local_index: Option<&'static str>,
}

const TORCHRUN: Launcher =
    Launcher { name: "torchrun", size: "WORLD_SIZE", index: "RANK", local_index: Some("LOCAL_RANK") };
const OPEN_MPI: Launcher = Launcher {
    name: "Open MPI",
    size: "OMPI_COMM_WORLD_SIZE",
    index: "OMPI_COMM_WORLD_RANK",
    local_index: Some("OMPI_COMM_WORLD_LOCAL_RANK"),
};
const SLURM: Launcher =
    Launcher { name: "Slurm", size: "SLURM_NTASKS", index: "SLURM_PROCID", local_index: Some("SLURM_LOCALID") };
const LEADER_WORKER_SET: Launcher =
    Launcher { name: "LeaderWorkerSet", size: "LWS_GROUP_SIZE", index: "LWS_WORKER_INDEX", local_index: None };

/// What torchrun, Open MPI, Slurm or LeaderWorkerSet say, in this order: whoever is started by another one comes first. None if none of them
/// started this process; an error if a variable has a value that it cannot have.
pub fn find_place(variable: impl Fn(&str) -> Option<String>) -> Result<Option<JobPlace>, String> {
    let text = |name| variable(name).unwrap_or_default();
    if let Some(mut found) = place(&variable, &TORCHRUN)? {
        found.host = text("MASTER_ADDR");
        // The port itself belongs to torchrun, whose own store may listen there. The next one is used.
        if let Some(port) = number(&variable, "MASTER_PORT", 1, u32::from(u16::MAX) - 1)? {
            found.port = u16::try_from(port + 1).expect("number() checked it");
        }
        return Ok(Some(found));
    }
    if let Some(mut found) = place(&variable, &OPEN_MPI)? {
        // It names no host; if all processes are on this one, none is needed.
        let here = number(&variable, "OMPI_COMM_WORLD_LOCAL_SIZE", 1, found.processes)?;
        if here == Some(found.processes) {
            found.host = "127.0.0.1".to_owned();
        }
        return Ok(Some(found));
    }
    if let Some(mut found) = place(&variable, &SLURM)? {
        let step = text("SLURM_STEP_NODELIST");
        let hosts = if step.is_empty() { text("SLURM_JOB_NODELIST") } else { step };
        found.host = first_host(&hosts);
        return Ok(Some(found));
    }
    if let Some(mut found) = place(&variable, &LEADER_WORKER_SET)? {
        found.host = text("LWS_LEADER_ADDRESS");
        return Ok(Some(found));
    }
    Ok(None)
}

fn place(variable: &impl Fn(&str) -> Option<String>, launcher: &Launcher) -> Result<Option<JobPlace>, String> {
    // Others may set one of the two for their own purposes.
    if variable(launcher.size).is_none() || variable(launcher.index).is_none() {
        return Ok(None);
    }
    let wanted = |name, least, most| number(variable, name, least, most).map(Option::unwrap_or_default);
    let processes = wanted(launcher.size, 1, PROCESSES_MAX)?;
    let index = wanted(launcher.index, 0, processes - 1)?;
    let local_index = launcher.local_index.map_or(Ok(0), |name| wanted(name, 0, processes - 1))?;
    Ok(Some(JobPlace {
        launcher: launcher.name,
        processes,
        index,
        local_index,
        host: String::new(),
        port: DEFAULT_PORT,
    }))
}

/// The value of a variable, from `least` to `most`; none if it is not set.
fn number(
    variable: &impl Fn(&str) -> Option<String>,
    name: &str,
    least: u32,
    most: u32,
) -> Result<Option<u32>, String> {
    let Some(text) = variable(name) else { return Ok(None) };
    match text.parse() {
        Ok(value) if (least..=most).contains(&value) => Ok(Some(value)),
        _ => Err(format!("{name} is \"{text}\": a number from {least} to {most} is wanted")),
    }
}

/// The first host of a list as Slurm writes it: node[03-05,7],other is node03.
fn first_host(list: &str) -> String {
    let end = list.find([',', '[']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let Some(numbers) = rest.strip_prefix('[') else { return name.to_owned() };
    match numbers.find(['-', ',', ']']) {
        Some(end) => format!("{name}{}", &numbers[..end]),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Option<JobPlace>, String> {
        find_place(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    fn rendezvous(variables: &[(&str, &str)]) -> Option<String> {
        found(variables).expect("good variables").expect("a job").rendezvous()
    }

    #[test]
    fn process_0_listens_on_all_interfaces_where_others_come_from_other_hosts() {
        let torchrun = |rank, host| {
            rendezvous(&[("RANK", rank), ("WORLD_SIZE", "2"), ("MASTER_ADDR", host), ("MASTER_PORT", "29510")]).unwrap()
        };
        assert_eq!(torchrun("0", "node0"), "0.0.0.0:29511");
        assert_eq!(torchrun("1", "node0"), "node0:29511");
        assert_eq!(torchrun("0", "localhost"), "localhost:29511");
        assert_eq!(torchrun("0", "127.0.0.1"), "127.0.0.1:29511");
        assert_eq!(torchrun("1", "fd00::1"), "[fd00::1]:29511");
    }

    #[test]
    fn the_innermost_launcher_is_asked() {
        let both = [("RANK", "1"), ("WORLD_SIZE", "2"), ("SLURM_PROCID", "7"), ("SLURM_NTASKS", "9")];
        assert_eq!(found(&both).unwrap().unwrap().launcher, "torchrun");
        assert_eq!(found(&both[2..]).unwrap().unwrap().launcher, "Slurm");
        // One of two variables alone may have been set by another program.
        assert_eq!(found(&both[1..]).unwrap().unwrap().launcher, "Slurm");
        assert_eq!(found(&[("RANK", "1")]), Ok(None));
    }

    #[test]
    fn open_mpi_names_a_host_only_where_there_is_one() {
        let job = [("OMPI_COMM_WORLD_RANK", "3"), ("OMPI_COMM_WORLD_SIZE", "4")];
        let here = |count| [job[0], job[1], ("OMPI_COMM_WORLD_LOCAL_SIZE", count)];
        assert_eq!(rendezvous(&here("4")).as_deref(), Some("127.0.0.1:29501"));
        assert_eq!(rendezvous(&here("2")), None);
        assert_eq!(rendezvous(&job), None);
    }

    #[test]
    fn the_first_host_of_a_list_is_found() {
        for list in ["node[03-05,7],other", "node03,node04", "node[03,05]", "node03", "node[03]"] {
            assert_eq!(first_host(list), "node03", "{list}");
        }
        assert_eq!(first_host("node[03"), "");
        assert_eq!(first_host(""), "");
    }

    #[test]
    fn a_variable_with_a_value_that_it_cannot_have_is_named() {
        for port in ["0", "65535", "4294967295", "http", ""] {
            let job = [("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "node0"), ("MASTER_PORT", port)];
            let wanted = format!("MASTER_PORT is \"{port}\": a number from 1 to 65534 is wanted");
            assert_eq!(found(&job), Err(wanted));
        }
        let rank = found(&[("RANK", "2"), ("WORLD_SIZE", "2")]);
        assert_eq!(rank, Err("RANK is \"2\": a number from 0 to 1 is wanted".to_owned()));
        assert!(found(&[("SLURM_NTASKS", "0"), ("SLURM_PROCID", "0")]).is_err());
    }
}
