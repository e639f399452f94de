//! Takes over the listening socket whose descriptor number is given on the command line.

#![expect(unsafe_code, reason = "a number becomes an owned descriptor")]

use super::ListenError;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::sockopt::socket_acceptconn;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

/// Takes over descriptor `fd`, a listening socket. Must be called at most once for each number.
///
/// # Errors
/// If the descriptor is not open, is not a socket, or is connected.
pub(super) fn adopt(fd: RawFd) -> Result<UnixListener, ListenError> {
    let refused = |why: String| ListenError::NotListening { fd, why };
    let socket = owned(fd)?;
    match socket_acceptconn(&socket) {
        Ok(true) => {}
        Ok(false) => return Err(refused("it is connected, or nobody listens on it".into())),
        Err(_) => return Err(refused("it is not a socket".into())),
    }
    let listener = UnixListener::from(socket);
    listener.set_nonblocking(false).map_err(|error| refused(error.to_string()))?;
    Ok(listener)
}

/// Takes over descriptor `fd`, a connected socket. Must be called at most once for each number.
///
/// # Errors
/// If the descriptor is not open or not a socket, or if it listens.
pub(super) fn adopt_connected(fd: RawFd) -> Result<OwnedFd, ListenError> {
    let socket = owned(fd)?;
    match socket_acceptconn(&socket) {
        Ok(false) => {}
        Ok(true) => return Err(ListenError::NotListening { fd, why: "it listens, and should be connected".into() }),
        Err(_) => return Err(ListenError::NotListening { fd, why: "it is not a socket".into() }),
    }
    Ok(socket)
}

fn owned(fd: RawFd) -> Result<OwnedFd, ListenError> {
    let refused = |why: String| ListenError::NotListening { fd, why };
    // SAFETY: F_GETFD takes no pointer and changes nothing; any number is allowed.
    if fd < 0 || unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(refused("it is not open".into()));
    }
    if fd <= 2 {
        return Err(refused("numbers below 3 are standard input, output and error".into()));
    }
    // SAFETY:
    // 1. `fd` is open: checked above, and this process has no other thread yet that could close it.
    // 2. Nothing else here owns it: standard input, output and error are refused above, and whatever else is open
    //    before the socket was opened by this process, so its number was free when the caller chose `fd`.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // Programs that this process starts get what they need by other descriptors.
    fcntl_setfd(&socket, FdFlags::CLOEXEC).map_err(|error| refused(error.to_string()))?;
    Ok(socket)
}
