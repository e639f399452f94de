//! Files that the kernel reads, writes and maps by itself: FUSE passthrough.
//!
//! The daemon has a window and can map files into it, and with a mapping comes the file's descriptor. So when a file is
//! opened, the daemon is asked to map some of it; the descriptor is looked at ([`check`]), registered with the kernel, and named in the
//! answer to the open; the mapping goes again at once. Reads, writes and mappings of the mount then go to the host's page cache and
//! make no requests. Whatever cannot be passed through is served by requests, as without this.
//!
//! [`inodes`] decides about opens, [`asks`] holds the questions to the daemon; [`carry`] is what the threads of the mount do
//! with both: they never wait for an answer, an open does. [`attributes`] is why an overwritten set-id program does not run with its
//! owner's rights, and why times are right, [`tell`] what that changes in replies.
//! Locks: `inodes`, `attributes`, and those of `asks` and `obstacle`, each for a moment, with nothing under it.
//! Source: linux/fs/fuse/iomode.c, passthrough.c, backing.c; Documentation/filesystems/fuse/fuse-passthrough.rst.

mod asks;
mod attributes;
mod carry;
mod check;
mod inodes;
mod readers;
pub(super) mod rights;
mod tell;

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

use asks::Asks;
use attributes::Attributes;
pub(super) use carry::Kind;
use check::Refusal;
use inodes::Inodes;
use readers::Readers;
use transom_user::window::Files;

/// Ranges of the window of a daemon that is started for this: questions that can be under way at once, on all queues.
const WINDOW: &str = "--dax-window=64M";

/// Why no file of a mount is passed through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// The kernel does not offer it.
    #[error("this kernel has no FUSE passthrough: that takes Linux 6.9 and CONFIG_FUSE_PASSTHROUGH")]
    Kernel,
    /// This process may not register files.
    #[error("it takes root (CAP_SYS_ADMIN in the first user namespace)")]
    Rights,
    /// The daemon has no window.
    #[error(
        "the daemon does not hand its files over: it takes a window, as transomd has with \
         --dax-window=64M --tag=share --front-end=passthrough"
    )]
    Window,
}

/// What has become of the opens of regular files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PassthroughCounts {
    /// Opens that were passed through to the host's file.
    pub passed: u64,
    /// Opens that are served by requests.
    pub ordinary: u64,
    /// Files that the daemon was asked for.
    pub asked: u64,
}

/// The part of it that all threads of a mount share.
pub(super) struct Passthrough {
    is_wanted: bool,
    /// The kernel knows of it.
    is_on: AtomicBool,
    /// Where the daemon's files come; absent where it has no window.
    files: Option<Arc<Files>>,
    inodes: Mutex<Inodes<carry::Opening>>,
    attributes: Mutex<Attributes>,
    readers: Readers,
    asks: Asks,
    obstacle: Mutex<Option<Obstacle>>,
    has_told: AtomicBool,
    passed: AtomicU64,
    ordinary: AtomicU64,
}

impl Passthrough {
    /// For a mount of `threads` threads, with the files that come from the daemon, if it has a window.
    pub(super) fn new(is_wanted: bool, files: Option<Arc<Files>>, threads: usize) -> Self {
        let ranges = files.as_ref().map_or(0, |files| files.ranges());
        Self {
            is_wanted,
            is_on: AtomicBool::new(false),
            files,
            inodes: Mutex::default(),
            attributes: Mutex::default(),
            readers: Readers::new(threads),
            asks: Asks::new(ranges as u16),
            obstacle: Mutex::new(None),
            has_told: AtomicBool::new(false),
            passed: AtomicU64::new(0),
            ordinary: AtomicU64::new(0),
        }
    }

    /// Whether to offer it to the daemon, where the kernel has offered `offered`.
    pub(super) fn is_possible(&self, offered: InitFlags) -> bool {
        if !self.is_wanted {
            return false;
        }
        let obstacle = if !offered.contains(InitFlags::PASSTHROUGH | InitFlags::INIT_EXT) {
            Some(Obstacle::Kernel)
        } else if !rights::may_register() {
            Some(Obstacle::Rights)
        } else if self.files.is_none() {
            Some(Obstacle::Window)
        } else {
            None
        };
        *self.obstacle.lock() = obstacle;
        obstacle.is_none()
    }

    /// What INIT has come to, where it was possible.
    pub(super) fn begin(&self, is_agreed: bool) {
        self.is_on.store(is_agreed, Ordering::Release);
        if !is_agreed {
            *self.obstacle.lock() = Some(Obstacle::Window);
        }
    }

    /// Whether the kernel knows of it, so that opens are to be kept count of.
    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Why nothing is passed through, if so.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        *self.obstacle.lock()
    }

    pub(super) fn counts(&self) -> PassthroughCounts {
        PassthroughCounts {
            passed: self.passed.load(Ordering::Relaxed),
            ordinary: self.ordinary.load(Ordering::Relaxed),
            asked: self.asks.count(),
        }
    }

    /// Logs why a file is not passed through: the first one as a warning, the others for debugging.
    fn log_refusal(&self, nodeid: NodeId, refusal: Refusal) {
        match refusal {
            Refusal::Kernel(Errno::PERM) => *self.obstacle.lock() = Some(Obstacle::Rights),
            Refusal::Daemon(Errno::NOSYS) => *self.obstacle.lock() = Some(Obstacle::Window),
            _ => {}
        }
        if self.has_told.swap(true, Ordering::Relaxed) {
            tracing::debug!(%nodeid, %refusal, "a file is not passed through");
        } else {
            tracing::warn!(%nodeid, %refusal, "a file is not passed through, and read and written by requests");
        }
    }
}

/// What transomd has to be told so that its files can be passed through, with `queues` request queues.
pub(super) fn daemon_args(queues: u16) -> Vec<OsString> {
    // Without the last the kernel asks for capabilities of a file before each write to it.
    let args = [WINDOW, "--tag=share", "--front-end=passthrough", "--dax-policy=never", "--killpriv-v2"];
    let queues = format!("--num-request-queues={queues}");
    args.into_iter().map(Into::into).chain([queues.into()]).collect()
}
