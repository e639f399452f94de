//! The files that are guarded, each marked once.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::io::Errno;

use crate::{fanotify, nodes::HostFile};

/// A guard, as the user names it. No number is given twice.
pub(crate) type GuardId = u64;

/// The most guards at a time, of one file or of many: each takes memory here, and each file a descriptor and a mark of
/// the kernel's.
///
/// The daemon has one for each file that is mapped, and front ends for which it has any keep 512 mappings at the most.
/// Eight times that leaves room for files whose mappings are being replaced.
const GUARDS_MAX: usize = 4096;

/// All guards.
#[derive(Debug)]
pub(crate) struct Guards {
    /// Or why there is none.
    group: Result<Arc<OwnedFd>, Errno>,
    by_id: HashMap<GuardId, HostFile>,
    files: HashMap<HostFile, Guarded>,
    next: GuardId,
}

#[derive(Debug)]
struct Guarded {
    /// By which the mark is found again.
    fd: OwnedFd,
    /// Never 0.
    guards: u64,
}

impl Guards {
    /// Marks go to `group`.
    pub(crate) fn new(group: Result<Arc<OwnedFd>, Errno>) -> Self {
        Self { group, by_id: HashMap::new(), files: HashMap::new(), next: 1 }
    }

    /// Guards `file`, which is `fd`, from when this returns.
    ///
    /// Errors: ENOSPC where there are [`GUARDS_MAX`] guards, EOPNOTSUPP where the kernel or the file system has no such
    /// events, EPERM where we may not have them.
    pub(crate) fn insert(&mut self, file: HostFile, fd: OwnedFd) -> Result<GuardId, Errno> {
        if self.by_id.len() >= GUARDS_MAX {
            return Err(Errno::NOSPC);
        }
        match self.files.get_mut(&file) {
            Some(guarded) => guarded.guards += 1,
            None => {
                let marked = fanotify::mark(self.group.as_ref().map_err(|errno| *errno)?, fd.as_fd());
                // So a kernel answers that does not know them.
                marked.map_err(|errno| if errno == Errno::INVAL { Errno::OPNOTSUPP } else { errno })?;
                self.files.insert(file, Guarded { fd, guards: 1 });
            }
        }
        let id = self.next;
        self.next += 1;
        self.by_id.insert(id, file);
        Ok(id)
    }

    /// Ends a guard. Errors: ENOENT where there is none, or as fanotify_mark(2).
    pub(crate) fn remove(&mut self, id: GuardId) -> Result<(), Errno> {
        let file = self.by_id.remove(&id).ok_or(Errno::NOENT)?;
        let guarded = self.files.get_mut(&file).ok_or(Errno::NOENT)?;
        guarded.guards -= 1;
        if guarded.guards > 0 {
            return Ok(());
        }
        match (self.files.remove(&file), &self.group) {
            (Some(guarded), Ok(group)) => fanotify::unmark(group, guarded.fd.as_fd()),
            _ => Ok(()),
        }
    }
}
