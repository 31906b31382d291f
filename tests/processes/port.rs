//! A port that no other program takes before the process under test listens there.

use std::mem::{MaybeUninit, size_of};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A port of 127.0.0.1, and the socket that keeps it.
///
/// The socket is bound and never listens. Linux then lets another socket listen there if both have `SO_REUSEADDR`, which the standard
/// library sets for every listener. It gives the port to nobody who asks for any free one.
pub struct Port {
    _socket: OwnedFd,
    pub address: String,
}

impl Port {
    pub fn keep() -> Port {
        let (yes, mut length) = (1i32, size_of::<libc::sockaddr_in>() as u32);
        let mut name = MaybeUninit::<libc::sockaddr_in>::zeroed();
        // SAFETY: all pointers are of live values whose sizes are given, and the descriptor is owned by nobody else.
        let (socket, name) = unsafe {
            let socket = OwnedFd::from_raw_fd(libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0));
            let of = socket.as_raw_fd();
            let yes = (&raw const yes).cast();
            assert_eq!(libc::setsockopt(of, libc::SOL_SOCKET, libc::SO_REUSEADDR, yes, size_of::<i32>() as u32), 0);
            (*name.as_mut_ptr()).sin_family = libc::AF_INET as libc::sa_family_t;
            (*name.as_mut_ptr()).sin_addr.s_addr = u32::from(Ipv4Addr::LOCALHOST).to_be();
            assert_eq!(libc::bind(of, name.as_ptr().cast(), length), 0);
            assert_eq!(libc::getsockname(of, name.as_mut_ptr().cast(), &mut length), 0);
            (socket, name.assume_init())
        };
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, u16::from_be(name.sin_port)).to_string();
        Port { _socket: socket, address }
    }
}
