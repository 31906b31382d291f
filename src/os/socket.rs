//! How do processes that compute one model reach each other?
//!
//! By streams over TCP, or over Unix sockets on one host, which Windows does without. A [`Stream`] is used by several threads at once: whoever waits in it leaves
//! when another thread [shuts it down](Stream::shutdown). Invariant: no call raises SIGPIPE in the host, and no call returns because of
//! a signal.
#![allow(unsafe_code)]

#[cfg_attr(unix, path = "socket/unix.rs")]
#[cfg_attr(windows, path = "socket/windows.rs")]
mod system;

use base::error::{Error, Result};
use std::fmt;
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use system::{Descriptor, PollEntry, UnixListener, Wait};

/// Where a process listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`
    Tcp(String),
    /// `unix:/path`
    Unix(PathBuf),
}

impl Address {
    /// Reads `host:port` or `unix:/path`. `field` is the option that it comes from.
    ///
    /// # Errors
    ///
    /// [`Error::Option`].
    pub fn parse(field: &'static str, text: &str) -> Result<Address> {
        let is_port = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
        match (text.strip_prefix("unix:"), text.rsplit_once(':')) {
            (Some(_), _) if !UnixListener::EXISTS => {
                let wanted = "\"host:port\" on a system without Unix sockets";
                Err(Error::Option { field, value: format!("{text:?}"), wanted })
            }
            (Some(path), _) if path.starts_with('/') => Ok(Address::Unix(path.into())),
            (None, Some((host, port))) if !host.is_empty() && is_port(port) => Ok(Address::Tcp(text.to_owned())),
            _ => {
                let wanted = "\"host:port\" or \"unix:/path\"";
                Err(Error::Option { field, value: format!("{text:?}"), wanted })
            }
        }
    }

    /// Connects to the process that listens here. Waits for `patience` at most per address that the name has.
    pub fn connect(&self, patience: Duration) -> IoResult<Stream> {
        match self {
            Address::Unix(path) => Ok(Stream::new(UnixListener::connect(path)?)),
            Address::Tcp(name) => {
                let mut refusal = IoError::new(ErrorKind::NotFound, "the name has no address");
                for address in name.to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, patience) {
                        Ok(stream) => return Stream::of_tcp(stream),
                        Err(error) => refusal = error,
                    }
                }
                Err(refusal)
            }
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Address::Tcp(name) => write!(f, "{name}"),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Takes connections until it is dropped.
pub struct Listener {
    listens: Listens,
    address: Address,
}

enum Listens {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Listens at `address`. The file of a Unix socket that nobody listens to any more is replaced.
    ///
    /// # Errors
    ///
    /// [`Error::Io`].
    pub fn new(address: &Address) -> Result<Listener> {
        let listens = match address {
            Address::Tcp(name) => TcpListener::bind(name).and_then(|listener| {
                listener.set_nonblocking(true)?;
                Ok(Listens::Tcp(listener))
            }),
            Address::Unix(path) => UnixListener::bind(path).map(Listens::Unix),
        };
        let refused = |source| Error::Io { path: address.to_string().into(), source };
        Ok(Listener { listens: listens.map_err(refused)?, address: address.clone() })
    }

    /// The next connection, if one waits.
    pub fn accept(&self) -> Option<Stream> {
        match &self.listens {
            Listens::Tcp(listener) => Stream::of_tcp(listener.accept().ok()?.0).ok(),
            Listens::Unix(listener) => Some(Stream::new(listener.accept().ok()?)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Bytes that [`Stream::receive_all`] waits for at once: [`Stream::received`] grows in steps of at most this size.
const RECEIVED_AT_ONCE: usize = 1 << 20;

/// A connection to another process.
pub struct Stream {
    connection: system::Connection,
    /// Bytes that were sent and received.
    sent: AtomicU64,
    received: AtomicU64,
    is_awaited: AtomicBool,
}

impl Stream {
    fn new(connection: system::Connection) -> Stream {
        let (sent, received, is_awaited) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Stream { connection, sent, received, is_awaited }
    }

    fn of_tcp(stream: TcpStream) -> IoResult<Stream> {
        // What is sent is waited for, so that no part of it may be held back until more comes.
        stream.set_nodelay(true)?;
        Ok(Stream::new(system::Connection::of_tcp(stream)?))
    }

    /// Bytes that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes that were received.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Whether a thread waits in [`receive_all`](Self::receive_all).
    pub fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    /// Breaks the connection when the other host acknowledges nothing for `timeout`. Only for a stream that the other process
    /// always reads: one that is not read acknowledges nothing either once its buffer is full. Without effect on Unix sockets.
    pub fn set_user_timeout(&self, timeout: Duration) {
        self.connection.set_user_timeout(timeout);
    }

    /// Sends all of `bytes`, waiting for room.
    pub fn send_all(&self, mut bytes: &[u8]) -> IoResult<()> {
        while !bytes.is_empty() {
            let sent = self.send(bytes, Wait::Yes)?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Sends as many of `bytes` as there is room for. [`ErrorKind::WouldBlock`] where there is none.
    pub fn try_send(&self, bytes: &[u8]) -> IoResult<usize> {
        self.send(bytes, Wait::No)
    }

    /// Waits for bytes until all of `to` is filled.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnexpectedEof`] where the other side sends no more.
    pub fn receive_all(&self, to: &mut [u8]) -> IoResult<()> {
        self.is_awaited.store(true, Ordering::Relaxed);
        let received = self.receive_each(to);
        self.is_awaited.store(false, Ordering::Relaxed);
        received
    }

    fn receive_each(&self, mut to: &mut [u8]) -> IoResult<()> {
        while !to.is_empty() {
            let next = to.len().min(RECEIVED_AT_ONCE);
            let received = self.receive(&mut to[..next], Wait::Yes)?;
            to = &mut to[received..];
        }
        Ok(())
    }

    /// Takes the bytes that are there. [`ErrorKind::WouldBlock`] where there are none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnexpectedEof`] where the other side sends no more.
    pub fn try_receive(&self, to: &mut [u8]) -> IoResult<usize> {
        self.receive(to, Wait::No)
    }

    /// Ends the connection: nobody waits in it any more. Bytes that were sent before still arrive.
    pub fn shutdown(&self) {
        self.connection.shutdown();
    }

    fn send(&self, bytes: &[u8], wait: Wait) -> IoResult<usize> {
        let sent = self.connection.send(bytes, wait)?;
        self.sent.fetch_add(sent as u64, Ordering::Relaxed);
        Ok(sent)
    }

    fn receive(&self, to: &mut [u8], wait: Wait) -> IoResult<usize> {
        let received = self.connection.receive(to, wait)?;
        self.received.fetch_add(received as u64, Ordering::Relaxed);
        if received == 0 && !to.is_empty() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(received) }
    }
}

/// A socket that can be waited for.
pub trait Socket {
    /// What the system calls it, while it is open.
    fn descriptor(&self) -> Descriptor;
}

impl Socket for Listener {
    fn descriptor(&self) -> Descriptor {
        match &self.listens {
            Listens::Tcp(listener) => system::descriptor(listener),
            Listens::Unix(listener) => listener.descriptor(),
        }
    }
}

impl Socket for Stream {
    fn descriptor(&self) -> Descriptor {
        self.connection.descriptor()
    }
}

/// Sockets that are waited for together.
pub struct ReadableSet(Vec<PollEntry>);

impl ReadableSet {
    /// A set of open sockets.
    pub fn new(sockets: impl Iterator<Item = Descriptor>) -> ReadableSet {
        ReadableSet(sockets.map(system::readable).collect())
    }

    /// Waits until one of them has something to take, for `timeout` at most. A socket that has ended has.
    pub fn wait(&mut self, timeout: Duration) {
        system::poll(&mut self.0, timeout);
    }
}

/// Whether `socket` has room for some bytes within `timeout`, or has ended.
pub fn wait_writable(socket: &Stream, timeout: Duration) -> bool {
    let mut waited = [system::writable(socket.descriptor())];
    system::poll(&mut waited, timeout);
    waited[0].revents != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn unix_address(name: &str) -> Address {
        let file = format!("nvllm-{name}-{}", std::process::id());
        Address::Unix(std::env::temp_dir().join(file))
    }

    /// Both ends of a connection through `address`, whose port may be 0: the system names one then.
    fn pair(address: &Address) -> (Stream, Stream) {
        let listener = Listener::new(address).unwrap();
        let address = match &listener.listens {
            Listens::Tcp(listener) => &Address::Tcp(listener.local_addr().unwrap().to_string()),
            Listens::Unix(_) => address,
        };
        let there = address.connect(Duration::from_secs(60)).unwrap();
        ReadableSet::new([listener.descriptor()].into_iter()).wait(Duration::from_secs(60));
        (listener.accept().expect("a connection waits"), there)
    }

    #[test]
    fn an_address_names_a_port_or_a_file() {
        let parse = |text| Address::parse("rendezvous", text);
        assert_eq!(parse("node-0:29501").unwrap(), Address::Tcp("node-0:29501".to_owned()));
        assert_eq!(parse("[::1]:29501").unwrap().to_string(), "[::1]:29501");
        assert_eq!(parse("unix:/run/x").unwrap(), Address::Unix("/run/x".into()));
        for text in ["", "host", "host:", ":1", "host:0", "host:65536", "unix:", "unix:run/x"] {
            let message = parse(text).expect_err(text).to_string();
            assert_eq!(message, format!("rendezvous is {text:?}, but must be \"host:port\" or \"unix:/path\""));
        }
    }

    #[test]
    fn streams_carry_bytes_both_ways() {
        for address in [Address::Tcp("127.0.0.1:0".to_owned()), unix_address("carry")] {
            let (here, there) = pair(&address);
            let sent: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
            thread::scope(|scope| {
                scope.spawn(|| there.send_all(&sent).unwrap());
                let mut found = vec![0; sent.len()];
                here.receive_all(&mut found).unwrap();
                assert!(found == sent);
            });
            assert_eq!((there.sent(), here.received(), here.is_awaited()), (1 << 20, 1 << 20, false));
            assert_eq!(here.try_receive(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            drop(there);
            assert_eq!(here.receive_all(&mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn a_stream_that_is_shut_down_lets_everybody_go() {
        let (here, there) = pair(&unix_address("shutdown"));
        // No room is left: who sends waits.
        while here.try_send(&[0; 1 << 16]).is_ok() {}
        thread::scope(|scope| {
            scope.spawn(|| assert!(here.send_all(&[0]).is_err(), "SIGPIPE would end the test"));
            scope.spawn(|| assert!(here.receive_all(&mut [0]).is_err()));
            while !here.is_awaited() {
                thread::yield_now();
            }
            here.shutdown();
        });
        assert!(there.try_send(&[1]).is_err());
    }

    #[test]
    fn the_file_of_a_dead_listener_is_replaced_and_that_of_a_living_one_is_not() {
        let address = unix_address("stale");
        let Address::Unix(path) = &address else { unreachable!("made above") };
        drop(UnixListener::bind(path).unwrap());
        let living = Listener::new(&address).unwrap();
        let refused = Listener::new(&address).err().expect("somebody listens").to_string();
        assert!(refused.starts_with(&address.to_string()), "{refused}");
        drop(living);
        assert!(!path.exists());
    }
}
