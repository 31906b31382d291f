//! The calls of POSIX. A connection blocks, and each call says whether it waits.

use std::fs::remove_file;
use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener as StdListener, UnixStream};
use std::path::Path;
use std::time::Duration;

pub type Descriptor = RawFd;
pub type PollEntry = libc::pollfd;

/// Whether a call waits until it can do something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    Yes,
    No,
}

/// Systems that raise SIGPIPE unless a call says otherwise have this flag; on the others [`Connection`] sets an option of the socket.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NO_SIGPIPE: i32 = libc::MSG_NOSIGNAL;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const NO_SIGPIPE: i32 = 0;

/// An open stream.
pub struct Connection(OwnedFd);

impl Connection {
    pub fn of_tcp(stream: TcpStream) -> IoResult<Connection> {
        // On Linux the mark is inherited from a listener by no connection; elsewhere it may be.
        stream.set_nonblocking(false)?;
        Ok(Connection::new(stream.into()))
    }

    fn new(fd: OwnedFd) -> Connection {
        #[cfg(target_vendor = "apple")]
        set_option(&fd, libc::SOL_SOCKET, libc::SO_NOSIGPIPE, 1);
        Connection(fd)
    }

    pub fn descriptor(&self) -> Descriptor {
        self.0.as_raw_fd()
    }

    pub fn set_user_timeout(&self, timeout: Duration) {
        // Without the option heartbeats find what it would have found.
        #[cfg(any(target_os = "linux", target_os = "android"))]
        set_option(
            &self.0,
            libc::IPPROTO_TCP,
            libc::TCP_USER_TIMEOUT,
            libc::c_uint::try_from(timeout.as_millis()).unwrap_or(libc::c_uint::MAX),
        );
        let _ = timeout;
    }

    pub fn shutdown(&self) {
        // SAFETY: the descriptor is open; a connection that has ended already makes the call fail, which changes nothing.
        unsafe { libc::shutdown(self.descriptor(), libc::SHUT_RDWR) };
    }

    pub fn send(&self, bytes: &[u8], wait: Wait) -> IoResult<usize> {
        let flags = NO_SIGPIPE | if wait == Wait::Yes { 0 } else { libc::MSG_DONTWAIT };
        // SAFETY: the pointer and the length are those of a slice.
        uninterrupted(|| unsafe { libc::send(self.descriptor(), bytes.as_ptr().cast(), bytes.len(), flags) })
    }

    pub fn receive(&self, to: &mut [u8], wait: Wait) -> IoResult<usize> {
        let flags = if wait == Wait::Yes { libc::MSG_WAITALL } else { libc::MSG_DONTWAIT };
        // SAFETY: the pointer and the length are those of a slice that is borrowed to be written.
        uninterrupted(|| unsafe { libc::recv(self.descriptor(), to.as_mut_ptr().cast(), to.len(), flags) })
    }
}

/// Sets an option whose value is an unsigned int. Where the socket has no such option the call fails, which changes nothing.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn set_option(fd: &OwnedFd, level: i32, name: i32, value: libc::c_uint) {
    // SAFETY: the value is passed with its size, and the descriptor is open.
    unsafe {
        let len = size_of_val(&value) as libc::socklen_t;
        libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), len);
    }
}

/// Listens at a path.
pub struct UnixListener(StdListener);

impl UnixListener {
    /// Whether the system has Unix sockets.
    pub const EXISTS: bool = true;

    /// Listens at `path`. The file of a socket that nobody listens to any more is replaced.
    pub fn bind(path: &Path) -> IoResult<UnixListener> {
        let is_socket = path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket());
        if is_socket && UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused) {
            // A file that cannot be removed makes the next call fail, which says why.
            let _ = remove_file(path);
        }
        let listener = StdListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(UnixListener(listener))
    }

    pub fn connect(path: &Path) -> IoResult<Connection> {
        Ok(Connection::new(UnixStream::connect(path)?.into()))
    }

    pub fn accept(&self) -> IoResult<Connection> {
        let (stream, _) = self.0.accept()?;
        stream.set_nonblocking(false)?;
        Ok(Connection::new(stream.into()))
    }

    pub fn descriptor(&self) -> Descriptor {
        self.0.as_raw_fd()
    }
}

pub fn descriptor(socket: &impl AsRawFd) -> Descriptor {
    socket.as_raw_fd()
}

pub fn readable(fd: Descriptor) -> PollEntry {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

pub fn writable(fd: Descriptor) -> PollEntry {
    libc::pollfd { fd, events: libc::POLLOUT, revents: 0 }
}

pub fn poll(waited: &mut [PollEntry], timeout: Duration) {
    let ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the pointer and the length are those of a slice of pollfd. A call that fails has waited for nothing, as has one that a
    // signal interrupts: callers look at their sockets and come back.
    unsafe { libc::poll(waited.as_mut_ptr(), waited.len() as libc::nfds_t, ms) };
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

impl From<UnixStream> for super::Stream {
    fn from(stream: UnixStream) -> super::Stream {
        super::Stream::new(Connection::new(stream.into()))
    }
}
