//! The channel to the daemon of one share.

use std::{io, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{CWD, Mode, OFlags, StatVfsMountFlags, fstatvfs, openat},
    mount::{OpenTreeFlags, open_tree},
};
use transom_wire::agent::{AGENT_GID, Change, Changes, EXCHANGE_LEN, Hello, VERSION, WAKE};
use zerocopy::IntoBytes;

use crate::{directories::Directories, replay, shares::Watched, sys};

/// Why a share is not served any more.
pub(crate) enum End {
    /// No mount of it is left in this mount namespace.
    Unmounted,
    /// The daemon does not announce changes, or to somebody else, or is gone; or EROFS, since the share is read-only.
    Failed(io::Error),
}

impl<E: Into<io::Error>> From<E> for End {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// An open share. Its thread is the one that the daemon knows: the channel must not be used by another.
pub(crate) struct Channel {
    directories: Directories,
    mounts: Watched,
    replayed: u32,
    skipped: u32,
}

impl Channel {
    /// Opens the share mounted at `mount`; from then on this thread's requests carry the agent's group.
    ///
    /// # Errors
    ///
    /// EROFS if it is mounted read-only: the kernel would refuse each call of a replay.
    pub(crate) fn open(mount: &Path) -> io::Result<Self> {
        let root = open_for_requests(&detached(mount))?;
        if fstatvfs(&root)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(read_only());
        }
        let mounts = Watched::new(&root)?;
        Ok(Self { directories: Directories::new(root), mounts, replayed: 0, skipped: 0 })
    }

    /// Acknowledges the changes of the last exchange, receives the next ones and passes each to `replay`.
    ///
    /// # Errors
    ///
    /// [`End`].
    pub(crate) fn exchange(
        &mut self,
        replay: impl Fn(&mut Directories, &Change<'_>) -> io::Result<()>,
    ) -> Result<(), End> {
        if self.mounts.are_gone()? {
            return Err(End::Unmounted);
        }
        let mut argument = [0; EXCHANGE_LEN];
        let hello = Hello {
            version: VERSION.into(),
            replayed: self.replayed.into(),
            skipped: self.skipped.into(),
            flags: 0.into(),
        };
        argument[..size_of::<Hello>()].copy_from_slice(hello.as_bytes());
        sys::exchange(self.directories.root(), &mut argument).map_err(|error| explained(&error, reason(&error)))?;
        (self.replayed, self.skipped) = (0, 0);
        let malformed = |_| io::Error::other("the daemon sent an invalid announcement");
        let (head, changes) = Changes::parse(&argument).map_err(malformed)?;
        if head.is_overflow.get() != 0 {
            self.directories.clear();
            replay::drop_unused_names(self.directories.root())?;
        }
        for change in changes {
            match replay(&mut self.directories, &change.map_err(malformed)?) {
                Ok(()) => self.replayed += 1,
                // Only the daemon's usual validity is right now, which it has when this handle is closed.
                Err(error) if error.raw_os_error() == Some(libc::EROFS) => return Err(read_only().into()),
                Err(_) => self.skipped += 1,
            }
        }
        Ok(())
    }
}

/// Has the daemon answer an exchange of the share at `mount` that waits. Not to be called by the thread of a channel.
pub(crate) fn wake(mount: &Path) -> io::Result<()> {
    let root = open_for_requests(&Place::Path(mount))?;
    let mut argument = [0; EXCHANGE_LEN];
    let hello = Hello { version: VERSION.into(), flags: WAKE.into(), ..Hello::default() };
    argument[..size_of::<Hello>()].copy_from_slice(hello.as_bytes());
    sys::exchange(&root, &mut argument)
}

/// Where the root of a share is opened.
enum Place<'a> {
    Path(&'a Path),
    /// A mount of our own that is nowhere.
    Mount(OwnedFd),
}

/// Returns a copy of a mount, so that open directories do not keep others from unmounting the share. Kernels and
/// sandboxes that do not allow it have the mount itself.
fn detached(mount: &Path) -> Place<'_> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, mount, flags).map_or(Place::Path(mount), Place::Mount)
}

/// Opens the root of a share; from then on this thread's requests carry the agent's group.
fn open_for_requests(place: &Place<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match place {
        Place::Path(path) => openat(CWD, *path, flags, Mode::empty()),
        Place::Mount(mount) => openat(mount, ".", flags, Mode::empty()),
    }?;
    sys::set_request_group(AGENT_GID).map_err(|error| explained(&error, "cannot assume the agent's group"))?;
    Ok(root)
}

fn reason(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOTTY | libc::ENOSYS) => "its daemon does not announce changes (transomd --events)",
        Some(libc::EBUSY) => "another agent serves it",
        Some(libc::EPERM) => "only root of the guest may receive changes",
        Some(libc::EPROTO) => "its daemon has another version of the protocol",
        _ => "the exchange with its daemon failed",
    }
}

fn read_only() -> io::Error {
    let error = io::Error::from_raw_os_error(libc::EROFS);
    explained(&error, "what is mounted read-only sees changes when its caches expire")
}

fn explained(error: &io::Error, reason: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{reason}: {error}"))
}
