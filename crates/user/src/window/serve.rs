//! Answering the daemon's requests to map and to unmap (vhost-user, "Back-end message types").
//!
//! A thread of its own does it: the daemon waits for the answer while it owes the guest one. It takes the window's lock
//! and no other. What is not as the specification has it is refused; what is no message at all ends the channel, and
//! with it the daemon's wish to map more.

#![expect(unsafe_code, reason = "the channel's descriptor is only given as a number")]

use std::{
    io,
    net::Shutdown,
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    thread::JoinHandle,
};

use rustix::fs::{FileType, fstat};
use transom_guest::dax::WINDOW_ID;
use vhost::vhost_user::{
    FrontendReqHandler, HandlerResult, VhostUserFrontendReqHandler,
    message::{VhostUserMMap, VhostUserMMapFlags},
};

use super::{ALIGNMENT, LEN_MAX, Part, Window, WindowUse};

/// A channel that is served until this is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    window: Window,
    /// Ours; shutting it down ends the thread.
    channel: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Makes a channel and gives the daemon's end to `send`, which tells how long the window is, 0 for none.
    pub(crate) fn start<E>(
        used_for: WindowUse,
        send: impl FnOnce(&dyn AsRawFd) -> Result<u64, E>,
    ) -> Result<Option<Self>, E>
    where
        E: From<io::Error>,
    {
        let late = Arc::new(Late::default());
        let mut handler = FrontendReqHandler::new(Arc::clone(&late)).map_err(io::Error::other)?;
        handler.set_reply_ack_flag(true);
        // SAFETY: the handler lives, and with it its descriptor, until the borrow ends with this statement.
        let channel = unsafe { BorrowedFd::borrow_raw(handler.as_raw_fd()) }.try_clone_to_owned()?;
        let channel = UnixStream::from(channel);
        let len = send(&Number(handler.get_tx_raw_fd()))?.min(LEN_MAX) / ALIGNMENT * ALIGNMENT;
        if len == 0 {
            return Ok(None);
        }
        let window = Window::new(len, used_for)?;
        // The daemon maps nothing before the guest has asked for it.
        let _ = late.0.set(window.clone());
        let serve = move || while handler.handle_request().is_ok_or_refused() {};
        let thread = std::thread::Builder::new().name("transom-window".into()).spawn(serve)?;
        Ok(Some(Self { window, channel, thread: Some(thread) }))
    }

    pub(crate) fn window(&self) -> &Window {
        &self.window
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.window.close();
        // It fails where the other side was faster.
        let _ = self.channel.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// A descriptor as the vhost crate takes it.
struct Number(i32);

impl AsRawFd for Number {
    fn as_raw_fd(&self) -> i32 {
        self.0
    }
}

/// Whether the channel goes on after a request.
trait GoesOn {
    fn is_ok_or_refused(&self) -> bool;
}

impl GoesOn for vhost::vhost_user::Result<u64> {
    fn is_ok_or_refused(&self) -> bool {
        match self {
            Ok(_) => true,
            Err(vhost::vhost_user::Error::ReqHandlerError(error)) => {
                tracing::debug!(%error, "a request to map is refused");
                true
            }
            Err(error) => {
                tracing::debug!(%error, "the channel for mappings ends");
                false
            }
        }
    }
}

/// The window, which is there when the daemon has told its length.
#[derive(Default)]
struct Late(std::sync::OnceLock<Window>);

impl Late {
    fn window(&self, shmid: u8) -> io::Result<&Window> {
        let window = self.0.get().filter(|_| shmid == WINDOW_ID);
        window.ok_or_else(|| io::Error::from_raw_os_error(libc::ENXIO))
    }
}

impl VhostUserFrontendReqHandler for Late {
    /// Errors: EINVAL for what is no regular file, or unknown flags, and those of [`Window::map`].
    fn shmem_map(&self, request: &VhostUserMMap, fd: &dyn AsRawFd) -> HandlerResult<u64> {
        let VhostUserMMap { shmid, fd_offset, shm_offset, len, flags, .. } = *request;
        let window = self.window(shmid)?;
        let writable = VhostUserMMapFlags::WRITABLE.bits();
        // SAFETY: the caller owns the descriptor and keeps it open until this returns.
        let file = unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
        let is_regular = FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile;
        if flags & !writable != 0 || !is_regular {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        window.map(Part { offset: shm_offset, len }, file, fd_offset, flags & writable != 0).map(|()| 0)
    }

    /// Errors: those of [`Window::unmap`].
    fn shmem_unmap(&self, request: &VhostUserMMap) -> HandlerResult<u64> {
        let VhostUserMMap { shmid, shm_offset, len, .. } = *request;
        self.window(shmid)?.unmap(Part { offset: shm_offset, len }).map(|()| 0)
    }
}
