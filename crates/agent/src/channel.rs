//! The channel to the daemon of one share.

use std::{io, path::Path};

use rustix::fs::{Mode, OFlags};
use transom_wire::agent::{AGENT_GID, Change, Changes, EXCHANGE_LEN, Hello, VERSION};
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
    pub(crate) fn open(mount: &Path) -> io::Result<Self> {
        let root = rustix::fs::open(mount, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        sys::set_request_group(AGENT_GID).map_err(|error| explained(&error, "cannot assume the agent's group"))?;
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
            padding: 0.into(),
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
