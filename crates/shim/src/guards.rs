//! The guarded files, each marked once.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
};

use rustix::io::Errno;

use crate::{fanotify, nodes::HostFile};

/// The number by which the user identifies a guard. Never reused.
pub(crate) type GuardId = u64;

/// Maximum number of guards: each uses memory here, and each file a descriptor and a mark in the kernel.
///
/// The daemon has one for each mapped file, and front ends that need guards keep at most 512 mappings. Eight times that
/// leaves room for files whose mappings are being replaced.
const GUARDS_MAX: usize = 4096;

/// All guards.
#[derive(Debug)]
pub(crate) struct Guards {
    /// The fanotify group, or the error from opening it.
    group: Result<Arc<OwnedFd>, Errno>,
    by_id: HashMap<GuardId, HostFile>,
    files: HashMap<HostFile, Guarded>,
    next: GuardId,
}

#[derive(Debug)]
struct Guarded {
    /// Identifies the mark.
    fd: OwnedFd,
    /// Number of guards, never 0.
    guards: u64,
}

impl Guards {
    /// Creates an empty list whose marks belong to `group`.
    pub(crate) fn new(group: Result<Arc<OwnedFd>, Errno>) -> Self {
        Self { group, by_id: HashMap::new(), files: HashMap::new(), next: 1 }
    }

    /// Guards `file`, which is open as `fd`.
    ///
    /// # Errors
    ///
    /// Returns ENOSPC if there are already [`GUARDS_MAX`] guards, EOPNOTSUPP if the kernel or the file system does not
    /// support such events, and EPERM if they are not permitted.
    pub(crate) fn insert(&mut self, file: HostFile, fd: OwnedFd) -> Result<GuardId, Errno> {
        if self.by_id.len() >= GUARDS_MAX {
            return Err(Errno::NOSPC);
        }
        match self.files.get_mut(&file) {
            Some(guarded) => guarded.guards += 1,
            None => {
                let marked = fanotify::mark(self.group.as_ref().map_err(|errno| *errno)?, fd.as_fd());
                // A kernel without these events returns EINVAL.
                marked.map_err(|errno| if errno == Errno::INVAL { Errno::OPNOTSUPP } else { errno })?;
                self.files.insert(file, Guarded { fd, guards: 1 });
            }
        }
        let id = self.next;
        self.next += 1;
        self.by_id.insert(id, file);
        Ok(id)
    }

    /// Removes a guard.
    ///
    /// # Errors
    ///
    /// Returns ENOENT if there is no such guard, and the errors of fanotify_mark(2).
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn guards_of_one_file_meet_the_same_limit_as_those_of_many() {
        let fd: OwnedFd = File::open("/proc/self/exe").unwrap().into();
        let file = HostFile { dev: 1, ino: 2 };
        let mut guards = Guards::new(Err(Errno::PERM));
        // As if it was marked, which takes privileges.
        guards.files.insert(file, Guarded { fd: fd.try_clone().unwrap(), guards: 1 });
        let ids: Vec<_> = (0..GUARDS_MAX).map(|_| guards.insert(file, fd.try_clone().unwrap()).unwrap()).collect();
        assert_eq!(guards.insert(file, fd.try_clone().unwrap()), Err(Errno::NOSPC));
        guards.remove(ids[0]).unwrap();
        assert!(guards.insert(file, fd).is_ok());
    }
}
