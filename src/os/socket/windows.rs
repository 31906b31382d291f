//! The calls of Winsock, in which no call says whether it waits: a connection does not block, and whoever waits polls.
//!
//! A poll does not return when another thread of the process shuts the connection down, so that it is repeated every [`TICK`].

use std::convert::Infallible;
use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::net::{Shutdown, TcpStream};
use std::os::windows::io::AsRawSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use windows_sys::Win32::Networking::WinSock::{POLLIN, POLLOUT, SOCKET, WSAPOLLFD, WSAPoll};

pub type Descriptor = SOCKET;
pub type PollEntry = WSAPOLLFD;

/// How long a thread polls before it looks whether another one has shut the connection down.
const TICK: Duration = Duration::from_millis(20);

/// Whether a call waits until it can do something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Yes,
    No,
}

/// An open stream.
pub struct Connection {
    stream: TcpStream,
    is_shut_down: AtomicBool,
}

impl Connection {
    pub fn of_tcp(stream: TcpStream) -> IoResult<Connection> {
        stream.set_nonblocking(true)?;
        Ok(Connection { stream, is_shut_down: AtomicBool::new(false) })
    }

    pub fn descriptor(&self) -> Descriptor {
        descriptor(&self.stream)
    }

    /// Heartbeats find what the option of Linux finds.
    pub fn set_user_timeout(&self, _timeout: Duration) {}

    pub fn shutdown(&self) {
        self.is_shut_down.store(true, Ordering::SeqCst);
        // A connection that has ended already makes the call fail, which changes nothing.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    pub fn send(&self, bytes: &[u8], wait: Wait) -> IoResult<usize> {
        self.repeat(wait, writable(self.descriptor()), || (&self.stream).write(bytes))
    }

    pub fn receive(&self, to: &mut [u8], wait: Wait) -> IoResult<usize> {
        self.repeat(wait, readable(self.descriptor()), || (&self.stream).read(to))
    }

    /// Repeats a call that would block, once `entry` is ready.
    fn repeat(&self, wait: Wait, entry: PollEntry, mut call: impl FnMut() -> IoResult<usize>) -> IoResult<usize> {
        loop {
            match call() {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && wait == Wait::Yes => {
                    if self.is_shut_down.load(Ordering::SeqCst) {
                        return Err(ErrorKind::ConnectionAborted.into());
                    }
                    poll(&mut [entry], TICK);
                }
                outcome => return outcome,
            }
        }
    }
}

/// There are none: [`Address::parse`](super::Address::parse) refuses their addresses.
pub struct UnixListener(Infallible);

impl UnixListener {
    /// Whether the system has Unix sockets.
    pub const EXISTS: bool = false;

    pub fn bind(_path: &Path) -> IoResult<UnixListener> {
        Err(ErrorKind::Unsupported.into())
    }

    pub fn connect(_path: &Path) -> IoResult<Connection> {
        Err(ErrorKind::Unsupported.into())
    }

    pub fn accept(&self) -> IoResult<Connection> {
        match self.0 {}
    }

    pub fn descriptor(&self) -> Descriptor {
        match self.0 {}
    }
}

pub fn descriptor(socket: &impl AsRawSocket) -> Descriptor {
    socket.as_raw_socket() as SOCKET
}

pub fn readable(fd: Descriptor) -> PollEntry {
    WSAPOLLFD { fd, events: POLLIN, revents: 0 }
}

pub fn writable(fd: Descriptor) -> PollEntry {
    WSAPOLLFD { fd, events: POLLOUT, revents: 0 }
}

pub fn poll(waited: &mut [PollEntry], timeout: Duration) {
    let ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the pointer and the length are those of a slice of WSAPOLLFD. A call that fails has waited for nothing: callers look at
    // their sockets and come back.
    unsafe { WSAPoll(waited.as_mut_ptr(), waited.len() as u32, ms) };
}
