//! How do processes that compute one model reach each other?
//!
//! By streams over TCP, or over Unix sockets on one host. A [`Stream`] is used by several threads at once: whoever waits in it leaves
//! when another thread [shuts it down](Stream::shutdown). Invariant: no call raises SIGPIPE in the host, and no call returns because of
//! a signal.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use std::fmt;
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::time::Duration;

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
            Address::Unix(path) => Ok(UnixStream::connect(path)?.into()),
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
            Address::Unix(path) => {
                let is_socket = path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
                if is_socket && UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
                    // A file that cannot be removed makes the next call fail, which says why.
                    let _ = std::fs::remove_file(path);
                }
                UnixListener::bind(path).and_then(|listener| {
                    listener.set_nonblocking(true)?;
                    Ok(Listens::Unix(listener))
                })
            }
        };
        let refused = |source| Error::Io { path: address.to_string().into(), source };
        Ok(Listener { listens: listens.map_err(refused)?, address: address.clone() })
    }

    /// The next connection, if one waits.
    pub fn accept(&self) -> Option<Stream> {
        match &self.listens {
            Listens::Tcp(listener) => Stream::of_tcp(listener.accept().ok()?.0).ok(),
            Listens::Unix(listener) => Some(listener.accept().ok()?.0.into()),
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

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match &self.listens {
            Listens::Tcp(listener) => listener.as_raw_fd(),
            Listens::Unix(listener) => listener.as_raw_fd(),
        }
    }
}

/// A connection to another process.
pub struct Stream {
    fd: OwnedFd,
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl From<UnixStream> for Stream {
    fn from(stream: UnixStream) -> Stream {
        Stream { fd: stream.into() }
    }
}

impl Stream {
    fn of_tcp(stream: TcpStream) -> IoResult<Stream> {
        // What is sent is waited for, so that no part of it may be held back until more comes.
        stream.set_nodelay(true)?;
        // On Linux the mark is inherited from a listener by no connection; elsewhere it may be.
        stream.set_nonblocking(false)?;
        Ok(Stream { fd: stream.into() })
    }

    /// Breaks the connection when the other host acknowledges nothing for `timeout`. Only for a stream that the other process
    /// always reads: one that is not read acknowledges nothing either once its buffer is full. Without effect on Unix sockets.
    pub fn set_user_timeout(&self, timeout: Duration) {
        let ms = libc::c_uint::try_from(timeout.as_millis()).unwrap_or(libc::c_uint::MAX);
        // SAFETY: the option's value is an unsigned int, which is passed with its size. Where the socket has no such option the call
        // fails, and heartbeats find what it would have found.
        unsafe {
            let (level, name) = (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT);
            libc::setsockopt(
                self.as_raw_fd(),
                level,
                name,
                (&raw const ms).cast(),
                size_of_val(&ms) as libc::socklen_t,
            );
        }
    }

    /// Sends all of `bytes`, waiting for room.
    pub fn send_all(&self, mut bytes: &[u8]) -> IoResult<()> {
        while !bytes.is_empty() {
            let sent = self.send(bytes, 0)?;
            bytes = &bytes[sent..];
        }
        Ok(())
    }

    /// Sends as many of `bytes` as there is room for. [`ErrorKind::WouldBlock`] where there is none.
    pub fn try_send(&self, bytes: &[u8]) -> IoResult<usize> {
        self.send(bytes, libc::MSG_DONTWAIT)
    }

    /// Waits for bytes until all of `to` is filled.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::UnexpectedEof`] where the other side sends no more.
    pub fn receive_all(&self, mut to: &mut [u8]) -> IoResult<()> {
        while !to.is_empty() {
            let received = self.receive(to, libc::MSG_WAITALL)?;
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
        self.receive(to, libc::MSG_DONTWAIT)
    }

    /// Ends the connection: nobody waits in it any more. Bytes that were sent before still arrive.
    pub fn shutdown(&self) {
        // SAFETY: the descriptor is open; a connection that has ended already makes the call fail, which changes nothing.
        unsafe { libc::shutdown(self.as_raw_fd(), libc::SHUT_RDWR) };
    }

    fn send(&self, bytes: &[u8], flags: i32) -> IoResult<usize> {
        // SAFETY: the pointer and the length are those of a slice.
        let send =
            || unsafe { libc::send(self.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags | libc::MSG_NOSIGNAL) };
        uninterrupted(send)
    }

    fn receive(&self, to: &mut [u8], flags: i32) -> IoResult<usize> {
        // SAFETY: the pointer and the length are those of a slice that is borrowed to be written.
        match uninterrupted(|| unsafe { libc::recv(self.as_raw_fd(), to.as_mut_ptr().cast(), to.len(), flags) })? {
            0 if !to.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
            received => Ok(received),
        }
    }
}

/// Repeats a call of the system until no signal interrupts it.
fn uninterrupted(call: impl FnMut() -> isize) -> IoResult<usize> {
    let mut call = call;
    loop {
        match usize::try_from(call()) {
            Ok(count) => return Ok(count),
            Err(_) => match IoError::last_os_error() {
                error if error.kind() == ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
}

/// Sockets that are waited for together.
pub struct ReadableSet(Vec<libc::pollfd>);

impl ReadableSet {
    /// A set of open sockets.
    pub fn new(sockets: impl Iterator<Item = RawFd>) -> ReadableSet {
        ReadableSet(sockets.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect())
    }

    /// Waits until one of them has something to take, for `timeout` at most. A socket that has ended has.
    pub fn wait(&mut self, timeout: Duration) {
        poll(&mut self.0, timeout);
    }
}

/// Whether `socket` has room for some bytes within `timeout`, or has ended.
pub fn wait_writable(socket: &Stream, timeout: Duration) -> bool {
    let mut waited = [libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 }];
    poll(&mut waited, timeout);
    waited[0].revents != 0
}

fn poll(waited: &mut [libc::pollfd], timeout: Duration) {
    let ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the pointer and the length are those of a slice of pollfd. A call that fails has waited for nothing, as has one that a
    // signal interrupts: callers look at their sockets and come back.
    unsafe { libc::poll(waited.as_mut_ptr(), waited.len() as libc::nfds_t, ms) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn unix_address(name: &str) -> Address {
        let file = format!("nvllm-{name}-{}", std::process::id());
        Address::Unix(std::env::temp_dir().join(file))
    }

    fn pair(address: &Address) -> (Stream, Stream) {
        let listener = Listener::new(address).unwrap();
        let there = address.connect(Duration::from_secs(5)).unwrap();
        ReadableSet::new([listener.as_raw_fd()].into_iter()).wait(Duration::from_secs(5));
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
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        for address in [Address::Tcp(port.to_string()), unix_address("carry")] {
            let (here, there) = pair(&address);
            let sent: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
            thread::scope(|scope| {
                scope.spawn(|| there.send_all(&sent).unwrap());
                let mut found = vec![0; sent.len()];
                here.receive_all(&mut found).unwrap();
                assert!(found == sent);
            });
            assert_eq!(here.try_receive(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            drop(there);
            assert_eq!(here.receive_all(&mut [0]).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn a_stream_that_is_shut_down_lets_everybody_go() {
        let (here, there) = pair(&unix_address("shutdown"));
        thread::scope(|scope| {
            scope.spawn(|| assert!(here.send_all(&vec![0; 64 << 20]).is_err(), "SIGPIPE would end the test"));
            scope.spawn(|| assert!(here.receive_all(&mut [0]).is_err()));
            thread::sleep(Duration::from_millis(20));
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
