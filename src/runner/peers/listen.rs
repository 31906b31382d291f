//! What does the thread hear that listens to the other processes?
//!
//! Invariant: whatever is wrong with what comes ends the work of all processes by [`Peers::fail`].

use super::{Connection, ORDERS, Order, Peers, REASON_CHARS, World, lost_by};
use crate::frame::{FrameReader, Head, Kind, printable, put_values, values, write_frame};
use os::socket::{ReadableSet, Socket, Stream, wait_writable};
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// One connection, as the thread that listens sees it.
struct Heard {
    reader: FrameReader,
    last: Instant,
    /// Frames that have come, without signs of life.
    frames: u64,
    numbers: Numbers,
}

/// The numbers of passes that come on the other stream of a connection.
struct Numbers {
    /// Bytes that the other process says it has sent.
    sent: u64,
    /// Bytes that were received, and since when they are no more.
    received: u64,
    since: Instant,
}

impl Numbers {
    /// How long a thread has been waiting for bytes that the other process has sent.
    fn overdue(&mut self, stream: &Stream, now: Instant) -> Duration {
        let received = stream.received();
        if received != self.received || received >= self.sent || !stream.is_awaited() {
            (self.received, self.since) = (received, now);
        }
        now - self.since
    }
}

/// The thread that listens.
impl Peers {
    pub(super) fn listen(&self, max_bytes: usize) {
        // Several signs of life within the time after which a process counts as dead.
        let interval = (self.timeout / 4).clamp(Duration::from_millis(5), Duration::from_secs(1));
        let mut alive = Vec::new();
        let mut readable = ReadableSet::new(self.connections.iter().map(|connection| connection.control.descriptor()));
        let begun = Instant::now();
        let heard = |_| {
            let numbers = Numbers { sent: 0, received: 0, since: begun };
            Heard { reader: FrameReader::new(max_bytes), last: begun, frames: 0, numbers }
        };
        let mut heard: Vec<Heard> = self.connections.iter().map(heard).collect();
        let mut said = begun;
        loop {
            readable.wait(interval.saturating_sub(said.elapsed()));
            for (at, heard) in heard.iter_mut().enumerate() {
                if let Err(reason) = self.hear(at, heard) {
                    self.fail(self.connections[at].process, &reason);
                }
            }
            let now = Instant::now();
            for (connection, heard) in self.connections.iter().zip(&mut heard) {
                let ms = self.timeout.as_millis();
                if now - heard.last > self.timeout {
                    self.fail(connection.process, &format!("no sign of life for {ms} ms (peer_timeout_ms)"));
                }
                if heard.numbers.overdue(&connection.data, now) > self.timeout {
                    let reason =
                        format!("numbers of a pass that it sent have not arrived for {ms} ms (peer_timeout_ms)");
                    self.fail(connection.process, &reason);
                }
            }
            self.check_host(now);
            {
                let state = self.state.lock();
                if state.is_over || state.is_closed || state.failure.is_some() {
                    return;
                }
            }
            if now - said >= interval {
                said = now;
                self.connections.iter().for_each(|connection| say_alive(connection, &mut alive));
            }
        }
    }

    /// A follower whose host does not call nvllm_step holds up all processes.
    fn check_host(&self, now: Instant) {
        let state = self.state.lock();
        let (Some(away), Some(work)) = (state.away_since, state.work_since) else { return };
        if now.saturating_duration_since(away.max(work)) > self.timeout {
            drop(state);
            let ms = self.timeout.as_millis();
            let reason = format!("a pass waits, but nvllm_step was not called for {ms} ms (peer_timeout_ms)");
            self.fail(self.world.process, &reason);
        }
    }

    /// Takes what has come on connection `at`.
    fn hear(&self, at: usize, heard: &mut Heard) -> std::result::Result<(), String> {
        let Connection { control, .. } = &self.connections[at];
        loop {
            match heard.reader.read(control) {
                Ok(None) => return Ok(()),
                Ok(Some(head)) => {
                    heard.last = Instant::now();
                    if head.kind == Kind::Alive {
                        heard.take_sign_of_life(head.number)?;
                    } else {
                        heard.frames += 1;
                        self.take(at, head, &mut heard.reader)?;
                    }
                }
                Err(error) if error.kind() == ErrorKind::InvalidData => return Err(error.to_string()),
                Err(error) => return Err(lost_by(&error)),
            }
        }
    }

    fn take(&self, at: usize, head: Head, reader: &mut FrameReader) -> std::result::Result<(), String> {
        let World { process, ranks, .. } = self.world;
        let leads = process == 0;
        let mut state = self.state.lock();
        match head.kind {
            Kind::Failed => {
                drop(state);
                let failed = usize::try_from(head.number).unwrap_or(usize::MAX);
                self.fail(failed, &printable(reader.payload(), REASON_CHARS));
                return Ok(());
            }
            Kind::End if !leads => state.is_closed = true,
            Kind::Agree | Kind::Agreed if (head.kind == Kind::Agree) == leads => {
                let count = if leads { self.world.ranks_each() } else { ranks };
                let values = values(reader.payload(), count).ok_or("sent other values than those of its ranks")?;
                if state.agreed[at].replace((head.number, values)).is_some() {
                    return Err("sent values before others were agreed on".to_owned());
                }
            }
            Kind::Blocks | Kind::Written | Kind::State if leads => {
                if state.answers[at].replace(reader.take_payload(Vec::new())).is_some() {
                    return Err("sent an answer that nobody waits for".to_owned());
                }
            }
            Kind::Batch | Kind::Read | Kind::Write | Kind::ReadState | Kind::WriteState if !leads => {
                if state.orders.len() == ORDERS {
                    return Err(format!("sent more than {ORDERS} orders ahead"));
                }
                let spare = state.spare.pop().unwrap_or_default();
                state.orders.push_back(Order { head, payload: reader.take_payload(spare) });
                state.work_since.get_or_insert_with(Instant::now);
            }
            kind => return Err(format!("sent a frame {kind:?} out of place")),
        }
        let is_closed = state.is_closed;
        self.tell(state);
        if is_closed {
            self.end();
        }
        Ok(())
    }
}

impl Heard {
    /// Compares what the other process has sent, `frames` frames among it, with what has come.
    fn take_sign_of_life(&mut self, frames: u64) -> std::result::Result<(), String> {
        let sent = values(self.reader.payload(), 1).ok_or("sent a sign of life of another form")?;
        self.numbers.sent = sent[0];
        match self.frames {
            received if received == frames => Ok(()),
            received => {
                Err(format!("sent {frames} frames, but {received} have arrived: the connection loses or repeats data"))
            }
        }
    }
}

/// Sends a sign of life, unless another frame is being sent, which is one too. `frame` is memory for it.
fn say_alive(connection: &Connection, frame: &mut Vec<u8>) {
    let Some(mut outbox) = connection.outbox.try_lock() else { return };
    if !outbox.is_torn && wait_writable(&connection.control, Duration::ZERO) {
        write_frame(frame, Kind::Alive, outbox.frames, |to| put_values(to, &[connection.data.sent()]));
        // Where there is room, there is room for a frame of a few bytes.
        outbox.is_torn = connection.control.try_send(frame).is_ok_and(|sent| sent < frame.len());
    }
}
