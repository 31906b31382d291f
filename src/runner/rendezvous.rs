//! How do the processes of an engine find each other?
//!
//! Process 0 listens at an address that all know; every other process connects twice, for frames and for numbers of passes, and
//! introduces itself on each connection. Whoever else connects is ignored. Once all are there, process 0 welcomes the others, with what its
//! device lets them know. Invariant: processes work together only if all facts are the same, and a process that is refused learns why, as
//! does the one that refuses it.

use super::frame::{FrameReader, Head, Kind, printable, write_frame};
use super::peers::{Connection, Group, REASON_CHARS, World};
use base::error::{Error, Result};
use base::log::{Level, log};
use os::socket::{Address, Listener, ReadableSet, Socket, Stream};
use std::io::{ErrorKind, Result as IoResult};
use std::ops::ControlFlow;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The processes that compute a model together, and which of them this is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Processes {
    /// How many there are, at least 2.
    pub count: usize,
    /// This one, below `count`. The first leads, the others follow.
    pub index: usize,
    /// Where the first listens.
    pub rendezvous: Address,
}

/// What processes must have in common: names and values, in an order of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(Vec<(&'static str, String)>);

/// First bytes of a hello.
const MAGIC: [u8; 8] = *b"nvllm-tp";
/// Bytes of a hello, and of a welcome, at most.
const HELLO_BYTES: usize = 4096;
/// What a connection is for.
const CONTROL: u32 = 0;
const DATA: u32 = 1;

/// How long processes wait for each other.
const JOIN_TIME: Duration = Duration::from_secs(600);
/// Between two calls of `progress`.
const TICK: Duration = Duration::from_millis(100);
/// How long a host may take to accept a connection.
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// How long whoever connects may take to introduce itself.
const HELLO_TIME: Duration = Duration::from_secs(5);
/// Connections that have not introduced themselves.
const PENDING_MAX: usize = 64;
/// Characters of a fact.
const FACT_CHARS: usize = 80;

impl Facts {
    /// Adds a fact. The name goes into a message: "its `name` is .., but that of process 0 is ..".
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Facts {
        self.0.push((name, value.to_string()));
        self
    }

    fn text(&self) -> String {
        self.0.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }

    /// What differs in the facts of another process, of which `text` are those. As the end of a sentence about that process.
    fn difference(&self, text: &str) -> Option<String> {
        for (name, own) in &self.0 {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            if value != Some(own) {
                let theirs = printable(value.unwrap_or("unknown").as_bytes(), FACT_CHARS);
                return Some(format!(
                    "its {name} is {theirs}, but that of process 0 is {own}: open all processes with the same model and options"
                ));
            }
        }
        None
    }
}

/// Connects this process with the others. Returns when all are there, with what process 0 lets all of them know; `progress` is called
/// meanwhile, and `Break` cancels.
///
/// `greet` is called in process 0 alone, when all have joined: it returns at most 4,096 bytes.
///
/// # Errors
///
/// [`Error::Peer`], [`Error::Cancelled`], [`Error::Io`] where process 0 cannot listen, and in process 0 what `greet` says.
pub fn meet(
    processes: &Processes,
    ranks: usize,
    timeout: Duration,
    facts: &Facts,
    max_bytes: usize,
    greet: &dyn Fn() -> Result<Vec<u8>>,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(Group, Vec<u8>)> {
    let Processes { count, index, rendezvous } = processes;
    let (connections, greeting) = match index {
        0 => Acceptor::new(*count, rendezvous, facts)?.receive_all(greet, progress)?,
        _ => {
            let (connection, greeting) = join(*index, rendezvous, facts, progress)?;
            (vec![connection], greeting)
        }
    };
    connections.iter().for_each(|connection| connection.control.set_user_timeout(timeout));
    let group = Group::new(World { process: *index, processes: *count, ranks }, connections, timeout, max_bytes)?;
    Ok((group, greeting))
}

/// Where process 0 waits for the others.
struct Acceptor<'a> {
    listener: Listener,
    facts: &'a Facts,
    pending: Vec<PendingPeer>,
    /// Of each follower, the streams that are there. `[processes - 1]`
    joined: Vec<Joined>,
}

/// A connection whose hello has not come yet.
struct PendingPeer {
    stream: Stream,
    reader: FrameReader,
    since: Instant,
}

/// The streams of a follower.
#[derive(Default)]
struct Joined {
    control: Option<Stream>,
    data: Option<Stream>,
}

impl<'a> Acceptor<'a> {
    fn new(processes: usize, address: &Address, facts: &'a Facts) -> Result<Acceptor<'a>> {
        let listener = Listener::new(address)?;
        log(Level::Info, format_args!("process 0 of {processes} listens at {address}"));
        let joined = (1..processes).map(|_| Joined::default()).collect();
        Ok(Acceptor { listener, facts, pending: Vec::new(), joined })
    }

    fn receive_all(
        mut self,
        greet: &dyn Fn() -> Result<Vec<u8>>,
        progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
    ) -> Result<(Vec<Connection>, Vec<u8>)> {
        let begun = Instant::now();
        let mut told = None;
        while let Some(missing) = self.missing() {
            if told.is_none_or(|told: Instant| told.elapsed() >= TICK) {
                told = Some(Instant::now());
                if progress(0.0).is_break() {
                    self.refuse_all(0, "loading was cancelled");
                    return Err(Error::Cancelled);
                }
            }
            if begun.elapsed() > JOIN_TIME {
                let reason = format!("has not joined within {} s", JOIN_TIME.as_secs());
                self.refuse_all(missing, &reason);
                return Err(Error::Peer { process: missing, reason });
            }
            let sockets = self.pending.iter().map(|peer| peer.stream.descriptor());
            ReadableSet::new(sockets.chain([self.listener.descriptor()])).wait(TICK);
            while let Some(stream) = self.listener.accept() {
                // Whoever has waited longest has had most time.
                if self.pending.len() == PENDING_MAX {
                    self.pending.remove(0);
                }
                let reader = FrameReader::new(HELLO_BYTES);
                self.pending.push(PendingPeer { stream, reader, since: Instant::now() });
            }
            self.read_hellos()?;
            self.drop_closed();
        }
        let greeting = greet().inspect_err(|error| self.refuse_all(0, &error.to_string()))?;
        assert!(greeting.len() <= HELLO_BYTES, "a greeting of {} bytes", greeting.len());
        let mut welcome = Vec::new();
        write_frame(&mut welcome, Kind::Welcome, 0, |to| to.extend(&greeting));
        let mut connections = Vec::new();
        for (at, joined) in self.joined.into_iter().enumerate() {
            let (Some(control), Some(data)) = (joined.control, joined.data) else { unreachable!("nobody is missing") };
            // If it is gone, the thread that listens finds it out.
            let _ = control.try_send(&welcome);
            connections.push(Connection::new(at + 1, control, data));
        }
        Ok((connections, greeting))
    }

    /// The first process that has not joined.
    fn missing(&self) -> Option<usize> {
        let is_missing = |joined: &Joined| joined.control.is_none() || joined.data.is_none();
        self.joined.iter().position(is_missing).map(|at| at + 1)
    }

    fn read_hellos(&mut self) -> Result<()> {
        for mut peer in std::mem::take(&mut self.pending) {
            match peer.reader.read(&peer.stream) {
                Ok(None) if peer.since.elapsed() < HELLO_TIME => self.pending.push(peer),
                Ok(Some(head)) if head.kind == Kind::Hello => match Hello::read(peer.reader.payload()) {
                    Some(hello) => self.take_in(hello, peer.stream)?,
                    None => ignore("its first bytes are none of this library"),
                },
                Ok(_) => ignore("it did not introduce itself"),
                Err(error) => ignore(&error.to_string()),
            }
        }
        Ok(())
    }

    fn take_in(&mut self, hello: Hello, stream: Stream) -> Result<()> {
        let Hello { channel, process, facts } = hello;
        let difference = self.facts.difference(&facts);
        let slot = process.checked_sub(1).and_then(|at| self.joined.get_mut(at));
        match (difference, slot) {
            (Some(reason), _) => {
                refuse(&stream, process, &reason);
                self.refuse_all(process, &reason);
                Err(Error::Peer { process, reason })
            }
            (None, Some(Joined { control: slot @ None, .. })) if channel == CONTROL => {
                *slot = Some(stream);
                Ok(())
            }
            (None, Some(Joined { data: slot @ None, .. })) if channel == DATA => {
                *slot = Some(stream);
                Ok(())
            }
            (None, _) => {
                let reason = "another process with this process_index has joined already, or there is none";
                refuse(&stream, process, reason);
                ignore(reason);
                Ok(())
            }
        }
    }

    /// A process that ended while it waited may be started again.
    fn drop_closed(&mut self) {
        for joined in &mut self.joined {
            let is_there = |stream: &Stream| {
                stream.try_receive(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            };
            if !joined.control.iter().chain(&joined.data).all(is_there) {
                *joined = Joined::default();
            }
        }
    }

    /// Tells those that have joined that `process` keeps all from working.
    fn refuse_all(&self, process: usize, reason: &str) {
        self.joined.iter().filter_map(|joined| joined.control.as_ref()).for_each(|to| refuse(to, process, reason));
    }
}

fn refuse(stream: &Stream, process: usize, reason: &str) {
    let mut frame = Vec::new();
    let reason = printable(reason.as_bytes(), REASON_CHARS);
    write_frame(&mut frame, Kind::Failed, process as u64, |to| to.extend(reason.as_bytes()));
    // Whoever cannot be told finds the connection closed.
    let _ = stream.try_send(&frame);
}

fn ignore(reason: &str) {
    log(Level::Warn, format_args!("a connection to the rendezvous was ignored: {}", printable(reason.as_bytes(), 200)));
}

/// Connects with process 0. Returns its greeting, too.
fn join(
    process: usize,
    address: &Address,
    facts: &Facts,
    progress: &mut dyn FnMut(f32) -> ControlFlow<()>,
) -> Result<(Connection, Vec<u8>)> {
    let begun = Instant::now();
    let mut refusal = String::new();
    while begun.elapsed() < JOIN_TIME {
        match introduce(process, address, facts) {
            Ok((control, data)) => match await_welcome(&control, begun, progress)? {
                Answer::Welcome(greeting) => return Ok((Connection::new(0, control, data), greeting)),
                Answer::Closed => refusal = "the connection was closed".to_owned(),
            },
            Err(error) => refusal = error.to_string(),
        }
        if progress(0.0).is_break() {
            return Err(Error::Cancelled);
        }
        sleep(TICK);
    }
    let reason = format!("did not take this process in at {address} within {} s: {refusal}", JOIN_TIME.as_secs());
    Err(Error::Peer { process: 0, reason })
}

fn introduce(process: usize, address: &Address, facts: &Facts) -> IoResult<(Stream, Stream)> {
    let hello = |channel| Hello { channel, process, facts: facts.text() }.frame();
    let (control, data) = (address.connect(CONNECT_TIME)?, address.connect(CONNECT_TIME)?);
    control.send_all(&hello(CONTROL))?;
    // Whoever refuses the first hello closes both connections, and gives the reason on the first.
    let _ = data.send_all(&hello(DATA));
    Ok((control, data))
}

enum Answer {
    /// With the greeting.
    Welcome(Vec<u8>),
    /// Whoever listens there has closed the connection.
    Closed,
}

fn await_welcome(control: &Stream, begun: Instant, progress: &mut dyn FnMut(f32) -> ControlFlow<()>) -> Result<Answer> {
    let mut reader = FrameReader::new(HELLO_BYTES);
    let mut readable = ReadableSet::new([control.descriptor()].into_iter());
    while begun.elapsed() < JOIN_TIME {
        readable.wait(TICK);
        match reader.read(control) {
            Ok(None) => {}
            Ok(Some(head)) if head.kind == Kind::Welcome => return Ok(Answer::Welcome(reader.payload().to_vec())),
            Ok(Some(head)) if head.kind == Kind::Failed => {
                let process = usize::try_from(head.number).unwrap_or(usize::MAX);
                return Err(Error::Peer { process, reason: printable(reader.payload(), REASON_CHARS) });
            }
            Ok(Some(Head { kind, .. })) => {
                let reason = format!("sent a frame {kind:?} where its welcome was due: the connection loses data");
                return Err(Error::Peer { process: 0, reason });
            }
            Err(_) => return Ok(Answer::Closed),
        }
        if progress(0.0).is_break() {
            return Err(Error::Cancelled);
        }
    }
    Ok(Answer::Closed)
}

/// How a follower introduces itself on a connection: the magic bytes, what the connection is for, the process, and its facts as text.
struct Hello {
    channel: u32,
    process: usize,
    facts: String,
}

impl Hello {
    fn frame(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        write_frame(&mut frame, Kind::Hello, 0, |to| {
            to.extend(MAGIC);
            to.extend(self.channel.to_le_bytes());
            to.extend((self.process as u32).to_le_bytes());
            to.extend(self.facts.as_bytes());
        });
        frame
    }

    fn read(payload: &[u8]) -> Option<Hello> {
        let (magic, rest) = payload.split_first_chunk::<8>()?;
        let (channel, rest) = rest.split_first_chunk()?;
        let (process, facts) = rest.split_first_chunk()?;
        (*magic == MAGIC).then_some(Hello {
            channel: u32::from_le_bytes(*channel),
            process: u32::from_le_bytes(*process) as usize,
            facts: String::from_utf8(facts.to_vec()).ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Barrier, mpsc};
    use std::thread;

    const TIMEOUT: Duration = Duration::from_secs(60);

    fn processes(name: &str, count: usize, index: usize) -> Processes {
        let file = format!("nvllm-rendezvous-{name}-{}", std::process::id());
        Processes { count, index, rendezvous: Address::Unix(std::env::temp_dir().join(file)) }
    }

    fn facts(rows: usize) -> Facts {
        Facts::default().with("version", "1").with("max_num_seqs", rows)
    }

    fn meet_with(processes: &Processes, facts: &Facts) -> Result<Group> {
        let greet = || Ok(b"welcome".to_vec());
        let proceed = &mut |_| ControlFlow::Continue(());
        let met = meet(processes, 2 * processes.count, TIMEOUT, facts, 1 << 20, &greet, proceed);
        met.map(|(group, greeting)| {
            assert_eq!(greeting, b"welcome");
            group
        })
    }

    #[test]
    fn processes_meet_and_agree() {
        let have_heard = &Barrier::new(3);
        thread::scope(|scope| {
            for index in 0..3 {
                scope.spawn(move || {
                    let group = meet_with(&processes("agree", 3, index), &facts(8)).unwrap();
                    let peers = group.peers();
                    for round in 0..100 {
                        let own = [10 * round + 2 * index as u64, 10 * round + 2 * index as u64 + 1];
                        let wanted: Vec<u64> = (0..6).map(|rank| 10 * round + rank).collect();
                        assert_eq!(peers.all_gather(round, &own).unwrap(), wanted);
                    }
                    // The leader may close only once all have heard of the last round.
                    have_heard.wait();
                    if index != 0 {
                        assert!(peers.loss().is_none() && peers.is_closed());
                    }
                });
            }
        });
    }

    #[test]
    fn a_process_with_other_facts_is_refused_on_both_sides() {
        let reason = "process 1: its max_num_seqs is 9, but that of process 0 is 8: open all processes with the same model and options";
        thread::scope(|scope| {
            for (index, rows) in [(0, 8), (1, 9)] {
                scope.spawn(move || {
                    let refused = meet_with(&processes("facts", 2, index), &facts(rows)).err();
                    assert_eq!(refused.expect("they differ").to_string(), reason);
                });
            }
        });
    }

    #[test]
    fn a_leader_that_cannot_greet_tells_the_others_why() {
        let greet = || Err(Error::Unsupported { what: "no library".to_owned() });
        thread::scope(|scope| {
            for index in 0..2 {
                scope.spawn(move || {
                    let all = processes("greet", 2, index);
                    let proceed = &mut |_| ControlFlow::Continue(());
                    let refused = meet(&all, 2, TIMEOUT, &facts(8), 1 << 20, &greet, proceed).err();
                    let refused = refused.expect("there is no greeting").to_string();
                    assert!(
                        refused.starts_with(["", "process 0: "][index]) && refused.contains("no library"),
                        "{refused}"
                    );
                });
            }
        });
    }

    #[test]
    fn strangers_are_ignored_and_twins_are_refused() {
        let all = processes("pending", 3, 0);
        thread::scope(|scope| {
            let leader = scope.spawn(|| meet_with(&all, &facts(8)).unwrap());
            let connect = || loop {
                match all.rendezvous.connect(TIMEOUT) {
                    Ok(stream) => return stream,
                    Err(_) => thread::yield_now(),
                }
            };
            let garbage = connect();
            garbage.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            assert!(garbage.receive_all(&mut [0]).is_err(), "it is closed");
            let silent: Vec<Stream> = (0..PENDING_MAX + 3).map(|_| connect()).collect();
            let mut hello = Hello { channel: CONTROL, process: 1, facts: facts(8).text() }.frame();
            hello[HEADER_AT] ^= 1;
            let other = connect();
            other.send_all(&hello).unwrap();
            assert!(other.receive_all(&mut [0]).is_err(), "it is closed");

            // Either may be the first. The second is refused while the first waits for the last process.
            let (answer, answers) = mpsc::channel();
            for _ in 0..2 {
                let answer = answer.clone();
                scope.spawn(move || answer.send(meet_with(&processes("pending", 3, 1), &facts(8))));
            }
            let twin = answers.recv().unwrap().err().expect("one is the second");
            assert!(twin.to_string().starts_with("process 1: another process with this process_index"), "{twin}");
            let last = meet_with(&processes("pending", 3, 2), &facts(8)).unwrap();
            let (leader, follower) = (leader.join().unwrap(), answers.recv().unwrap().unwrap());
            assert_eq!(leader.peers().connections().len(), 2);
            drop((silent, leader, follower, last));
        });
    }

    /// Where the payload of a frame begins.
    const HEADER_AT: usize = super::super::frame::HEADER_BYTES;

    #[test]
    fn waiting_can_be_cancelled() {
        for index in [0, 1] {
            let all = processes("cancel", 2, index);
            let mut calls = 0;
            let cancelled = meet(&all, 2, TIMEOUT, &facts(8), 1 << 20, &|| Ok(Vec::new()), &mut |_| {
                calls += 1;
                if calls == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert!(matches!(cancelled.err(), Some(Error::Cancelled)));
        }
    }
}
