//! Are the other processes of an engine alive, and what do they say?
//!
//! The leader is connected with every follower, a follower with the leader alone. One thread, `nvllm-peers`, takes whatever comes,
//! sends a sign of life now and then, and misses those of others. A sign of life says how much its sender has sent, so that whoever lacks
//! a part of it ends the work instead of waiting for it. Invariant: the first failure is kept, everybody who waits here leaves,
//! and every stream is shut down, so that nobody waits for numbers that will not come.

mod listen;

use super::frame::{Head, Kind, printable, put_values, write_frame};
use base::error::{Error, Result};
use os::lock::{Condvar, Mutex, MutexGuard};
use os::socket::{Stream, wait_writable};
use os::thread::{STACK_BYTES, spawn};
use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Orders of the leader that a follower keeps. A leader waits for the answer to most of them, and for the numbers of a pass.
const ORDERS: usize = 64;

/// Characters of a reason.
pub const REASON_CHARS: usize = 400;

/// How long whoever lost a stream waits for the reason, which may come on another one.
const REASON_TIME: Duration = Duration::from_secs(1);

/// How often a thread that waits for room in a stream checks whether it should give up.
const CHECK: Duration = Duration::from_millis(20);

/// Which process this is, and who computes where: the ranks of a process are consecutive, and all processes have as many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct World {
    /// This process.
    pub process: usize,
    /// How many there are.
    pub processes: usize,
    /// Ranks of all of them.
    pub ranks: usize,
}

impl World {
    /// Ranks of each process.
    pub fn ranks_each(&self) -> usize {
        self.ranks / self.processes
    }

    /// The ranks of process `process`.
    pub fn ranks_of(&self, process: usize) -> std::ops::Range<usize> {
        process * self.ranks_each()..(process + 1) * self.ranks_each()
    }
}

/// Another process, and the two streams to it.
pub struct Connection {
    /// Which one.
    pub process: usize,
    /// Frames.
    pub control: Stream,
    /// Numbers of passes, see [`compute::cpu::Team`].
    pub data: Arc<Stream>,
    /// Held while a frame is sent.
    outbox: Mutex<Outbox>,
}

/// What was sent on a connection.
#[derive(Default)]
struct Outbox {
    /// Frames, without signs of life and without the last one.
    frames: u64,
    /// A frame was sent in part and given up: nothing can follow it.
    is_torn: bool,
}

impl Connection {
    /// A connection with `process`.
    pub fn new(process: usize, control: Stream, data: Stream) -> Connection {
        Connection { process, control, data: Arc::new(data), outbox: Mutex::default() }
    }
}

/// The other processes.
pub struct Peers {
    world: World,
    connections: Vec<Connection>,
    timeout: Duration,
    state: Mutex<State>,
    changed: Condvar,
    /// Called once the work of all processes has ended: see [`Peers::at_end`].
    at_end: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Called when [`Peers::due`] may have changed: see [`Peers::at_news`].
    at_news: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// What came from other processes and was not taken yet.
#[derive(Default)]
struct State {
    /// Of each connection: the round of a barrier and the values. `[connections]`
    agreed: Vec<Option<(u64, Vec<u64>)>>,
    /// Of each connection: what it answered to an order. `[connections]`
    answers: Vec<Option<Vec<u8>>>,
    /// From the leader.
    orders: VecDeque<Order>,
    /// Memory of payloads to be used again.
    spare: Vec<Vec<u8>>,
    /// Of a follower: since when no call of the host serves, and since when there is something to serve.
    away_since: Option<Instant>,
    work_since: Option<Instant>,
    failure: Option<(usize, String)>,
    /// The leader has closed its engine.
    is_closed: bool,
    /// This process closes its own.
    is_over: bool,
}

/// What the leader asks of a follower.
pub struct Order {
    /// A batch, or what is read or written, and the number of its frame.
    pub head: Head,
    /// Its payload, to be [given back](Peers::recycle).
    pub payload: Vec<u8>,
}

/// How a follower's wait for an order ends.
pub enum Next {
    /// With one.
    Order(Order),
    /// The deadline came first.
    DeadlineFirst,
    /// The leader has closed its engine.
    Closed,
}

/// What a call of the host would find to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing.
    Nothing,
    /// An order, or a pass that is not computed to its end.
    Work,
    /// That the leader has closed its engine.
    Closed,
}

/// The peers of this process and their thread, which ends when this is dropped.
pub struct Group {
    peers: Arc<Peers>,
    thread: Option<JoinHandle<()>>,
}

impl Group {
    /// Begins to listen to `connections`, whose payloads have at most `max_bytes`.
    pub fn new(world: World, connections: Vec<Connection>, timeout: Duration, max_bytes: usize) -> Result<Group> {
        let count = connections.len();
        let none = |_| None;
        let state = State {
            agreed: (0..count).map(none).collect(),
            answers: (0..count).map(|_| None).collect(),
            orders: VecDeque::with_capacity(ORDERS),
            away_since: Some(Instant::now()),
            ..State::default()
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let peers = Arc::new(Peers {
            world,
            connections,
            timeout,
            state,
            changed,
            at_end: Mutex::new(None),
            at_news: OnceLock::new(),
        });
        let listener = peers.clone();
        let listen = move || {
            let listened = catch_unwind(AssertUnwindSafe(|| listener.listen(max_bytes)));
            if listened.is_err() {
                listener
                    .fail(listener.world.process, "a bug in the library ended the thread that listens to the others");
            }
        };
        let thread = spawn("peers", STACK_BYTES, listen)?;
        Ok(Group { peers, thread: Some(thread) })
    }

    /// The peers.
    pub fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Tells the other processes that this one closes its engine.
    pub fn close(&self) {
        self.peers.close();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.peers.close();
        if let Some(thread) = self.thread.take() {
            // It catches its panics, so it ends in peace.
            let _ = thread.join();
        }
    }
}

impl Peers {
    /// Which process this is.
    pub fn world(&self) -> World {
        self.world
    }

    /// The connections: of the leader with each follower in their order, of a follower with the leader.
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }

    /// Lets `end` be called once, by any thread, as soon as a process has failed, the leader has closed its engine, or this process closes its
    /// own: waits that nothing here knows of end there. At once, if that is so already.
    pub fn at_end(&self, end: impl FnOnce() + Send + 'static) {
        *self.at_end.lock() = Some(Box::new(end));
        let is_over = {
            let state = self.state.lock();
            state.failure.is_some() || state.is_closed || state.is_over
        };
        if is_over {
            self.end();
        }
    }

    /// Lets `news` be called by any thread, which holds no lock then, when [`due`](Self::due) may have changed. Once per engine.
    pub fn at_news(&self, news: impl Fn() + Send + Sync + 'static) {
        // The first one stays.
        let _ = self.at_news.set(Box::new(news));
    }

    /// What the host of a follower would find to serve.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`].
    pub fn due(&self) -> Result<Due> {
        let state = self.state.lock();
        match error_of(&state) {
            _ if state.is_closed => Ok(Due::Closed),
            Some(error) => Err(error),
            None if state.work_since.is_some() => Ok(Due::Work),
            None => Ok(Due::Nothing),
        }
    }

    fn end(&self) {
        let end = self.at_end.lock().take();
        end.into_iter().for_each(|end| end());
    }

    /// Brings together what the ranks of all processes say in round `round`: `own` is that of the ranks here.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`].
    pub fn all_gather(&self, round: u64, own: &[u64]) -> Result<Vec<u64>> {
        let mut frame = Vec::new();
        if self.world.process > 0 {
            write_frame(&mut frame, Kind::Agree, round, |to| put_values(to, own));
            self.send(0, &frame)?;
            return self.take_agreed(0, round);
        }
        let mut all = own.to_vec();
        for at in 0..self.connections.len() {
            all.extend(self.take_agreed(at, round)?);
        }
        write_frame(&mut frame, Kind::Agreed, round, |to| put_values(to, &all));
        self.broadcast(&frame)?;
        Ok(all)
    }

    fn take_agreed(&self, at: usize, round: u64) -> Result<Vec<u64>> {
        let (found, values) = self.wait(|state| state.agreed[at].take())?;
        if found != round {
            self.fail(self.connections[at].process, "takes part in another round of a barrier");
            return Err(self.error().expect("it has just failed"));
        }
        Ok(values)
    }

    /// Sends a frame to all.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`].
    pub fn broadcast(&self, frame: &[u8]) -> Result<()> {
        (0..self.connections.len()).try_for_each(|at| self.send(at, frame))
    }

    /// Sends a frame on connection `at`.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`].
    pub fn send(&self, at: usize, frame: &[u8]) -> Result<()> {
        let Connection { process, control, outbox, .. } = &self.connections[at];
        let mut outbox = outbox.lock();
        let mut left = frame;
        while !left.is_empty() {
            if let Some(error) = self.error() {
                outbox.is_torn |= left.len() < frame.len();
                return Err(error);
            }
            match control.try_send(left) {
                Ok(bytes) => left = &left[bytes..],
                // A process that takes nothing is found silent by the thread that listens.
                Err(error) if error.kind() == ErrorKind::WouldBlock => drop(wait_writable(control, CHECK)),
                Err(error) => {
                    outbox.is_torn = true;
                    drop(outbox);
                    // The other side may have said why before it closed.
                    let reason = || lost_by(&error);
                    return Err(self.loss().unwrap_or_else(|| {
                        self.fail(*process, &reason());
                        Error::Peer { process: *process, reason: reason() }
                    }));
                }
            }
        }
        outbox.frames += 1;
        Ok(())
    }

    /// Waits for what connection `at` answers to an order.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`].
    pub fn answer(&self, at: usize) -> Result<Vec<u8>> {
        self.wait(|state| state.answers[at].take())
    }

    /// Waits for an order of the leader, at most until `deadline`.
    ///
    /// # Errors
    ///
    /// [`Error::Peer`].
    pub fn next_order(&self, deadline: Option<Instant>) -> Result<Next> {
        let mut state = self.state.lock();
        loop {
            if state.is_closed {
                return Ok(Next::Closed);
            }
            if let Some(error) = error_of(&state) {
                return Err(error);
            }
            if let Some(order) = state.orders.pop_front() {
                return Ok(Next::Order(order));
            }
            state = match deadline {
                None => self.changed.wait(state),
                Some(deadline) => match self.changed.wait_until(state, deadline) {
                    (state, false) => state,
                    (_, true) => return Ok(Next::DeadlineFirst),
                },
            };
        }
    }

    /// Gives memory of a payload back.
    pub fn recycle(&self, payload: Vec<u8>) {
        let mut state = self.state.lock();
        if state.spare.len() < ORDERS {
            state.spare.push(payload);
        }
    }

    /// Says that a call of the host begins to serve.
    pub fn serve(&self) {
        self.state.lock().away_since = None;
    }

    /// Says that it returns. `is_busy`: a pass is not computed to its end.
    pub fn leave(&self, is_busy: bool) {
        let mut state = self.state.lock();
        let now = Instant::now();
        state.away_since = Some(now);
        state.work_since = (is_busy || !state.orders.is_empty()).then_some(now);
        let is_due = state.work_since.is_some();
        drop(state);
        if is_due {
            self.tell_news();
        }
    }

    /// Whether the leader has closed its engine.
    pub fn is_closed(&self) -> bool {
        self.state.lock().is_closed
    }

    /// The failure that ended the work of all processes.
    pub fn error(&self) -> Option<Error> {
        error_of(&self.state.lock())
    }

    /// Why a stream was lost: waits a moment for the reason. `None` where there is none, and where the leader closed its engine.
    pub fn loss(&self) -> Option<Error> {
        let deadline = Instant::now() + REASON_TIME;
        let mut state = self.state.lock();
        while error_of(&state).is_none() && !state.is_closed {
            let (again, is_late) = self.changed.wait_until(state, deadline);
            state = again;
            if is_late {
                break;
            }
        }
        error_of(&state).filter(|_| !state.is_closed)
    }

    /// Waits for something that other processes send.
    fn wait<T>(&self, mut take: impl FnMut(&mut State) -> Option<T>) -> Result<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(taken) = take(&mut state) {
                return Ok(taken);
            }
            if let Some(error) = error_of(&state) {
                return Err(error);
            }
            state = self.changed.wait(state);
        }
    }

    /// Ends the work of all processes, because `process` cannot go on. The first reason is kept, and told to the others.
    pub fn fail(&self, process: usize, reason: &str) {
        let mut state = self.state.lock();
        if state.failure.is_some() || state.is_closed || state.is_over {
            return;
        }
        state.failure = Some((process, reason.to_owned()));
        self.tell(state);
        let mut frame = Vec::new();
        let reason = printable(reason.as_bytes(), REASON_CHARS);
        write_frame(&mut frame, Kind::Failed, process as u64, |to| to.extend(reason.as_bytes()));
        self.say_last(&frame);
        self.end();
    }

    fn close(&self) {
        let mut state = self.state.lock();
        if state.is_over {
            return;
        }
        let is_alive = state.failure.is_none() && !state.is_closed;
        state.is_over = true;
        self.tell(state);
        if is_alive {
            let mut frame = Vec::new();
            match self.world.process {
                0 => write_frame(&mut frame, Kind::End, 0, |_| ()),
                process => {
                    let reason = b"its engine was freed";
                    write_frame(&mut frame, Kind::Failed, process as u64, |to| to.extend(reason));
                }
            }
            self.say_last(&frame);
        } else {
            self.shut_down();
        }
        self.end();
    }

    fn tell(&self, state: MutexGuard<State>) {
        drop(state);
        self.changed.notify_all();
        self.tell_news();
    }

    fn tell_news(&self) {
        if let Some(news) = self.at_news.get() {
            news();
        }
    }

    /// Sends a last frame where there is room for it, and ends all streams.
    fn say_last(&self, frame: &[u8]) {
        for connection in &self.connections {
            let mut outbox = connection.outbox.lock();
            if !outbox.is_torn {
                // Whoever cannot be told finds its streams shut down.
                let _ = connection.control.try_send(frame);
                outbox.is_torn = true;
            }
        }
        self.shut_down();
    }

    fn shut_down(&self) {
        for connection in &self.connections {
            connection.data.shutdown();
            connection.control.shutdown();
        }
    }
}

/// The failure, if there is one.
fn error_of(state: &State) -> Option<Error> {
    state.failure.as_ref().map(|(process, reason)| Error::Peer { process: *process, reason: reason.clone() })
}

/// Why a connection with this error has no other side any more. A process that ends with unread bytes resets its connections.
fn lost_by(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => "has ended, or has closed the connection".to_owned(),
        _ => format!("the connection was lost: {error}"),
    }
}
