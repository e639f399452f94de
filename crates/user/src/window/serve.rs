//! Answering the daemon's requests to map and to unmap (vhost-user, "Back-end message types").
//!
//! This happens on a separate thread, because the daemon waits for the answer while the guest waits for the daemon. The
//! thread takes the window's lock and no other. Requests that violate the specification are rejected; anything that is
//! not a message ends the channel, and with it the mapping of files.

#![expect(unsafe_code, reason = "the vhost crate passes descriptors as numbers")]

use std::{
    io,
    net::Shutdown,
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{Arc, OnceLock},
    thread::JoinHandle,
    time::Duration,
};

use rustix::fs::{FileType, fstat};
use transom_wire::window::{VERSIONS_ID, WINDOW_ID};
use vhost::vhost_user::{
    FrontendReqHandler, HandlerResult, VhostUserFrontendReqHandler,
    message::{VhostUserMMap, VhostUserMMapFlags},
};

use super::{ALIGNMENT, LEN_MAX, LateTable, Part, VersionTable, Window, WindowUse};

/// How long a daemon may take to have its version table mapped. It does so at once, or when the device has started;
/// after this time the guest does without the table.
const MAPPED_WITHIN: Duration = Duration::from_secs(10);

/// The lengths of a daemon's regions in bytes, 0 for those that it lacks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegionLens {
    pub(crate) window: u64,
    pub(crate) versions: u64,
}

/// A channel with the thread that serves it, until this is dropped.
#[derive(Debug)]
pub(crate) struct Served {
    /// `None` if the daemon maps no files.
    window: Option<Window>,
    /// `None` if the daemon has no version table.
    late: Option<Arc<Regions>>,
    /// The table, once somebody has asked for it.
    versions: OnceLock<Option<VersionTable>>,
    /// Our end; shutting it down ends the thread.
    channel: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Served {
    /// Creates a channel and passes the daemon's end to `send`, which returns the lengths of the daemon's regions.
    pub(crate) fn start<E>(
        used_for: WindowUse,
        send: impl FnOnce(&dyn AsRawFd) -> Result<RegionLens, E>,
    ) -> Result<Option<Self>, E>
    where
        E: From<io::Error>,
    {
        let late = Arc::new(Regions::default());
        let mut handler = FrontendReqHandler::new(Arc::clone(&late)).map_err(io::Error::other)?;
        handler.set_reply_ack_flag(true);
        // SAFETY: the handler, which owns the descriptor, outlives the borrow, which ends with this statement.
        let channel = unsafe { BorrowedFd::borrow_raw(handler.as_raw_fd()) }.try_clone_to_owned()?;
        let channel = UnixStream::from(channel);
        let lens = send(&RawDescriptor(handler.get_tx_raw_fd()))?;
        let len = lens.window.min(LEN_MAX) / ALIGNMENT * ALIGNMENT;
        if len == 0 && lens.versions == 0 {
            return Ok(None);
        }
        let window = if len > 0 { Some(Window::new(len, used_for)?) } else { None };
        // The daemon maps nothing into the window before the guest asks for it.
        if let Some(window) = &window {
            let _ = late.window.set(window.clone());
        }
        let late = (lens.versions > 0).then_some(late);
        let serve = move || while handler.handle_request().keeps_channel() {};
        let thread = std::thread::Builder::new().name("transom-window".into()).spawn(serve)?;
        Ok(Some(Self { window, late, versions: OnceLock::new(), channel, thread: Some(thread) }))
    }

    pub(crate) fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    /// Returns the version table. The first call waits until the daemon has had it mapped, for a bounded time: call it
    /// once the device has started.
    pub(crate) fn versions(&self) -> Option<&VersionTable> {
        let late = self.late.as_ref()?;
        self.versions.get_or_init(|| late.versions.wait(MAPPED_WITHIN)).as_ref()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(window) = &self.window {
            window.close();
        }
        // Fails if the other side has already closed it.
        let _ = self.channel.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // The thread has already reported a panic.
            let _ = thread.join();
        }
    }
}

/// A descriptor in the form that the vhost crate expects.
struct RawDescriptor(i32);

impl AsRawFd for RawDescriptor {
    fn as_raw_fd(&self) -> i32 {
        self.0
    }
}

/// Decides whether to keep the channel open after a request.
trait KeepsChannel {
    fn keeps_channel(&self) -> bool;
}

impl KeepsChannel for vhost::vhost_user::Result<u64> {
    fn keeps_channel(&self) -> bool {
        match self {
            Ok(_) => true,
            Err(vhost::vhost_user::Error::ReqHandlerError(error)) => {
                tracing::debug!(%error, "rejected a map request");
                true
            }
            Err(error) => {
                tracing::debug!(%error, "the channel for map requests ended");
                false
            }
        }
    }
}

/// The regions, of which the window exists once the daemon has reported its length.
#[derive(Debug, Default)]
struct Regions {
    window: OnceLock<Window>,
    versions: LateTable,
}

impl Regions {
    fn window(&self, shmid: u8) -> io::Result<&Window> {
        let window = self.window.get().filter(|_| shmid == WINDOW_ID);
        window.ok_or_else(|| io::Error::from_raw_os_error(libc::ENXIO))
    }
}

impl VhostUserFrontendReqHandler for Regions {
    /// # Errors
    ///
    /// Returns EINVAL if the descriptor is not a regular file or a flag is unknown, and the errors of [`Window::map`]
    /// and [`VersionTable::map`].
    fn shmem_map(&self, request: &VhostUserMMap, fd: &dyn AsRawFd) -> HandlerResult<u64> {
        let VhostUserMMap { shmid, fd_offset, shm_offset, len, flags, .. } = *request;
        let writable = VhostUserMMapFlags::WRITABLE.bits();
        // SAFETY: the caller owns the descriptor, and keeps it open until this returns.
        let file = unsafe { BorrowedFd::borrow_raw(fd.as_raw_fd()) };
        let is_regular = FileType::from_raw_mode(fstat(file)?.st_mode) == FileType::RegularFile;
        if flags & !writable != 0 || !is_regular {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        if shmid == VERSIONS_ID {
            return self.versions.map(request, file).map(|()| 0);
        }
        let window = self.window(shmid)?;
        window.map(Part { offset: shm_offset, len }, file, fd_offset, flags & writable != 0).map(|()| 0)
    }

    /// # Errors
    ///
    /// Returns the errors of [`Window::unmap`].
    fn shmem_unmap(&self, request: &VhostUserMMap) -> HandlerResult<u64> {
        let VhostUserMMap { shmid, shm_offset, len, .. } = *request;
        self.window(shmid)?.unmap(Part { offset: shm_offset, len }).map(|()| 0)
    }
}
