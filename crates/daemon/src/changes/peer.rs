//! Who is at the other end of a Unix socket.

#![expect(unsafe_code, reason = "the safe interfaces cannot express a peer in another pid namespace: its pid is 0")]

use std::{
    io,
    mem::size_of,
    os::fd::{AsFd, AsRawFd as _},
};

use rustix::process::geteuid;

/// Returns whether the process that has connected `socket`, or that listened where it is connected to, is this
/// process's user.
pub(super) fn is_own_user(socket: impl AsFd) -> io::Result<bool> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY:
    // 1. `socket` is open: it is borrowed until the end of this function.
    // 2. `peer` and `len` are valid for writes, and nothing else refers to them. The kernel writes at most `len` bytes
    //    to `peer`, which has that size and for which any bytes are valid.
    let result = unsafe {
        let (peer, len) = (&raw mut peer, &raw mut len);
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, peer.cast(), len)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(len as usize == size_of::<libc::ucred>() && peer.uid == geteuid().as_raw())
}
