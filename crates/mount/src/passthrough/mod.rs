//! FUSE passthrough: the kernel reads, writes and maps files of the mount without requests.
//!
//! A daemon with a DAX window can map files into it, and with a mapping comes the file's descriptor. So when a file is
//! opened, the daemon is asked to map some of it. The descriptor is checked ([`check`]), registered with the kernel as
//! a backing file, and named in the reply to the open; the mapping is removed at once. Reads, writes and mappings then
//! use the host's page cache. Whatever cannot be passed through is served by requests, as without passthrough.
//!
//! [`inodes`] decides about opens, [`backing_requests`] holds the requests to the daemon, [`stage`] is what a worker
//! does with both. [`attributes`] keeps an overwritten set-id program from running with its owner's rights and makes
//! times right, [`replies`] is what that changes in replies. Locks: `inodes`, `attributes`, and those of `requests` and
//! `obstacle`, each for a moment, with nothing under it. Source: linux/fs/fuse/iomode.c, passthrough.c, backing.c;
//! Documentation/filesystems/fuse/fuse-passthrough.rst.

mod attributes;
mod backing_requests;
pub(super) mod capabilities;
mod check;
mod inodes;
mod readers;
mod replies;
mod stage;

use std::{
    ffi::OsString,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use rustix::io::Errno;
use transom_wire::{NodeId, ops::init::InitFlags};

use attributes::Attributes;
use backing_requests::BackingFileRequests;
use check::Refusal;
use inodes::Inodes;
use readers::Readers;
pub(super) use stage::{PassthroughStage, RequestKind};
use transom_user::window::Files;

/// The window of a daemon that is started for passthrough. Its ranges bound the requests for files in flight.
const WINDOW: &str = "--dax-window=64M";

/// Why no file of a mount is passed through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PassthroughObstacle {
    /// The kernel does not support it.
    #[error("this kernel has no FUSE passthrough, which needs Linux 6.9 and CONFIG_FUSE_PASSTHROUGH")]
    Kernel,
    /// This process may not register backing files.
    #[error("it needs root (CAP_SYS_ADMIN in the initial user namespace)")]
    Rights,
    /// The daemon has no window.
    #[error(
        "the daemon does not hand over its files: it needs a DAX window, which transomd has with \
         --dax-window=64M --tag=share --front-end=passthrough"
    )]
    Window,
}

/// How regular files were opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PassthroughCounts {
    /// Opens that were passed through to the host's file.
    pub passed: u64,
    /// Opens that are served by requests.
    pub ordinary: u64,
    /// Requests to the daemon for files.
    pub asked: u64,
}

/// The part of passthrough that all workers share.
pub(super) struct Passthrough {
    is_wanted: bool,
    /// Whether kernel and daemon have agreed on it.
    is_on: AtomicBool,
    /// Where the daemon's files arrive; `None` if it has no window.
    files: Option<Arc<Files>>,
    inodes: Mutex<Inodes<stage::PendingOpen>>,
    attributes: Mutex<Attributes>,
    readers: Readers,
    requests: BackingFileRequests,
    obstacle: Mutex<Option<PassthroughObstacle>>,
    /// Whether a refusal was logged as a warning.
    has_warned: AtomicBool,
    passed: AtomicU64,
    ordinary: AtomicU64,
}

impl Passthrough {
    /// Creates the state of a mount with `threads` workers. `files` are those of the daemon, if it has a window.
    pub(super) fn new(is_wanted: bool, files: Option<Arc<Files>>, threads: usize) -> Self {
        let ranges = files.as_ref().map_or(0, |files| files.ranges());
        Self {
            is_wanted,
            is_on: AtomicBool::new(false),
            files,
            inodes: Mutex::default(),
            attributes: Mutex::default(),
            readers: Readers::new(threads),
            requests: BackingFileRequests::new(ranges as u16),
            obstacle: Mutex::new(None),
            has_warned: AtomicBool::new(false),
            passed: AtomicU64::new(0),
            ordinary: AtomicU64::new(0),
        }
    }

    /// Returns whether to ask the daemon for it. `offered` are the kernel's features.
    pub(super) fn is_possible(&self, offered: InitFlags) -> bool {
        if !self.is_wanted {
            return false;
        }
        let obstacle = if !offered.contains(InitFlags::PASSTHROUGH | InitFlags::INIT_EXT) {
            Some(PassthroughObstacle::Kernel)
        } else if !capabilities::may_register() {
            Some(PassthroughObstacle::Rights)
        } else if self.files.is_none() {
            Some(PassthroughObstacle::Window)
        } else {
            None
        };
        *self.obstacle.lock() = obstacle;
        obstacle.is_none()
    }

    /// Sets whether kernel and daemon have agreed on it, if [`Self::is_possible`] returned true.
    pub(super) fn begin(&self, is_agreed: bool) {
        self.is_on.store(is_agreed, Ordering::Release);
        if !is_agreed {
            *self.obstacle.lock() = Some(PassthroughObstacle::Window);
        }
    }

    /// Returns whether kernel and daemon have agreed on it.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Returns why nothing is passed through, if so.
    pub(super) fn obstacle(&self) -> Option<PassthroughObstacle> {
        *self.obstacle.lock()
    }

    /// Returns how files were opened so far.
    pub(super) fn counts(&self) -> PassthroughCounts {
        PassthroughCounts {
            passed: self.passed.load(Ordering::Relaxed),
            ordinary: self.ordinary.load(Ordering::Relaxed),
            asked: self.requests.count(),
        }
    }

    /// Logs why a file is not passed through: the first time as a warning, then at the debug level.
    fn log_refusal(&self, nodeid: NodeId, refusal: Refusal) {
        match refusal {
            Refusal::Kernel(Errno::PERM) => *self.obstacle.lock() = Some(PassthroughObstacle::Rights),
            Refusal::Daemon(Errno::NOSYS) => *self.obstacle.lock() = Some(PassthroughObstacle::Window),
            _ => {}
        }
        if self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(%nodeid, %refusal, "a file is not passed through");
        } else {
            tracing::warn!(%nodeid, %refusal, "a file is not passed through; it is read and written by requests");
        }
    }
}

/// Returns the arguments of a transomd whose files can be passed through, with `queues` request queues.
pub(super) fn daemon_args(queues: u16) -> Vec<OsString> {
    // Without --killpriv-v2 the kernel requests an extended attribute before each write.
    let args = [WINDOW, "--tag=share", "--front-end=passthrough", "--dax-policy=never", "--killpriv-v2"];
    let queues = format!("--num-request-queues={queues}");
    args.into_iter().map(Into::into).chain([queues.into()]).collect()
}
