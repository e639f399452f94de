//! The channel to the daemon of one share.

use std::{io, os::fd::OwnedFd, path::Path};

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, fstatvfs};
use transom_wire::agent::{AGENT_GID, Change, Changes, EXCHANGE_LEN, Hello, VERSION, WAKE};
use zerocopy::IntoBytes;

use crate::{directories::Directories, replay, sys};

/// An open share. Its thread is the one that the daemon knows: the channel must not be used by another.
pub(crate) struct Channel {
    directories: Directories,
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
        let root = open_for_requests(mount)?;
        if fstatvfs(&root)?.f_flag.contains(StatVfsMountFlags::RDONLY) {
            let error = io::Error::from_raw_os_error(libc::EROFS);
            return Err(explained(&error, "what is mounted read-only sees changes when its caches expire"));
        }
        Ok(Self { directories: Directories::new(root), replayed: 0, skipped: 0 })
    }

    /// Acknowledges the changes of the last exchange, receives the next ones and passes each to `replay`.
    ///
    /// # Errors
    ///
    /// The daemon does not announce changes, or to somebody else, or is gone.
    pub(crate) fn exchange(
        &mut self,
        replay: impl Fn(&mut Directories, &Change<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
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
                Err(_) => self.skipped += 1,
            }
        }
        Ok(())
    }
}

/// Has the daemon answer an exchange of the share at `mount` that waits. Not to be called by the thread of a channel.
pub(crate) fn wake(mount: &Path) -> io::Result<()> {
    let root = open_for_requests(mount)?;
    let mut argument = [0; EXCHANGE_LEN];
    let hello = Hello { version: VERSION.into(), flags: WAKE.into(), ..Hello::default() };
    argument[..size_of::<Hello>()].copy_from_slice(hello.as_bytes());
    sys::exchange(&root, &mut argument)
}

/// Opens the root of a share; from then on this thread's requests carry the agent's group.
fn open_for_requests(mount: &Path) -> io::Result<OwnedFd> {
    let root = rustix::fs::open(mount, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
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

fn explained(error: &io::Error, reason: &str) -> io::Error {
    io::Error::new(error.kind(), format!("{reason}: {error}"))
}
